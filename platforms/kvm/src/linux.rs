//! Stock Linux guests: a distribution's kernel, booted by Linux's 64-bit boot protocol, with one process of ours that hammers a
//! path of the kernel whose spinlock its threads share.
//!
//! The kernel finds memory, CPUs and interrupt controllers in ACPI tables, a serial port to print on, and no other device. What
//! it does to ports and addresses that nobody listens at has no effect, as on a PC.

mod acpi;
mod boot;
mod bzimage;
mod initramfs;
mod ports;

use std::sync::Arc;

use holdfast_locks::LockKind;
use holdfast_protocol::KernelPath;

pub use bzimage::{BzImage, BzImageError};

pub(crate) use boot::load;
pub(crate) use ports::Ports;

/// A stock Linux guest's kernel and what its process does.
#[derive(Clone, Debug)]
pub struct Linux {
    /// The kernel.
    pub kernel: Arc<BzImage>,
    /// `nopvspin`: no paravirtual spinlocks, even if they are offered.
    pub nopvspin: bool,
    /// More for its command line.
    pub append: String,
    /// Threads; `None`: one for each vCPU.
    pub threads: Option<u32>,
    /// What they call.
    pub path: KernelPath,
    /// The measured interval ends with this many calls,
    pub calls: u64,
    /// or after this long, nanoseconds, whatever comes first.
    pub duration_ns: u64,
    /// How long a thread computes between two calls, nanoseconds.
    pub think_ns: u64,
}

impl Linux {
    /// Threads that `dup` and `close` without pause for two seconds.
    pub fn new(kernel: Arc<BzImage>) -> Linux {
        Linux {
            kernel,
            nopvspin: false,
            append: String::new(),
            threads: None,
            path: KernelPath::Dup,
            calls: u64::MAX,
            duration_ns: 2_000_000_000,
            think_ns: 0,
        }
    }

    /// What the kernel is told at boot. Output on the serial port from the first line to the last; when it panics, it resets.
    pub(crate) fn command_line(&self) -> String {
        let quiet = "quiet earlyprintk=ttyS0,115200,keep panic=-1 reboot=t nokaslr pci=off";
        let choice = if self.nopvspin { " nopvspin" } else { "" };
        format!("{quiet}{choice} {}", self.append)
    }
}

/// The spinlock that a kernel says it uses (`kvm_spinlock_init`, arch/x86/kernel/kvm.c), if `line` of its log is about that.
/// What it calls PV spinlocks are queued ones whose newcomers may steal, since 4.14.
pub(crate) fn lock_in(line: &str) -> Option<LockKind> {
    let (_, said) = line.split_once("PV spinlocks ")?;
    match said {
        _ if said.starts_with("enabled") => Some(LockKind::HybridPvQspin),
        _ if said.contains("no host support") => Some(LockKind::Ttas),
        _ if said.starts_with("disabled") => Some(LockKind::Qspin),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_say_which_lock_they_use() {
        let said = [
            (
                "<6>[    0.03] kvm-guest: PV spinlocks enabled",
                Some(LockKind::HybridPvQspin),
            ),
            (
                "<6>[    0.03] kvm-guest: PV spinlocks disabled, no host support",
                Some(LockKind::Ttas),
            ),
            (
                "<6>[    0.03] kvm-guest: PV spinlocks disabled, forced by \"nopvspin\" parameter",
                Some(LockKind::Qspin),
            ),
            (
                "<6>[    0.03] kvm-guest: PV spinlocks disabled with KVM_HINTS_REALTIME hints",
                Some(LockKind::Qspin),
            ),
            ("<6>[    0.03] PV qspinlock hash table entries: 256", None),
        ];
        for (line, lock) in said {
            assert_eq!(lock_in(line), lock, "{line}");
        }
    }
}
