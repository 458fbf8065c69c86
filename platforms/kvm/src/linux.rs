//! Stock Linux guests: a distribution's kernel, booted by Linux's 64-bit boot protocol, and a program of this project:
//! threads that contend for one of the kernel's spinlocks, or processes that exchange messages.
//!
//! The kernel finds CPUs and interrupt controllers in ACPI tables, a serial port for its log, and no other device.
//! Accesses to other ports and addresses have no effect, as on a PC.

mod acpi;
mod boot;
mod bzimage;
mod initramfs;
mod ports;

use std::sync::Arc;

use holdfast_locks::LockKind;
use holdfast_protocol::KernelPath;
use holdfast_workloads::Hackbench;

pub use bzimage::{BzImage, BzImageError};

pub(crate) use boot::load;
pub(crate) use ports::Ports;

/// A stock Linux guest: its kernel and the parameters of its process.
#[derive(Clone, Debug)]
pub struct Linux {
    /// The kernel.
    pub kernel: Arc<BzImage>,
    /// Whether the kernel gets the parameter `nopvspin`: no paravirtual spinlocks even if KVM offers them.
    pub nopvspin: bool,
    /// Further parameters for the kernel's command line.
    pub append: String,
    /// The messages that processes exchange. `None`: threads call a path, as the fields below say.
    pub messages: Option<Hackbench>,
    /// Number of threads, or `None` for one per vCPU.
    pub threads: Option<u32>,
    /// The path that the threads call.
    pub path: KernelPath,
    /// Number of calls after which the measured interval ends, unless [`Linux::duration_ns`] ends it.
    pub calls: u64,
    /// Longest duration of the measured interval in nanoseconds.
    pub duration_ns: u64,
    /// Time that a thread computes between two calls, in nanoseconds.
    pub think_ns: u64,
}

impl Linux {
    /// Returns a guest whose threads call `dup` and `close` without a pause for two seconds.
    pub fn new(kernel: Arc<BzImage>) -> Linux {
        Linux {
            kernel,
            nopvspin: false,
            append: String::new(),
            messages: None,
            threads: None,
            path: KernelPath::Dup,
            calls: u64::MAX,
            duration_ns: 2_000_000_000,
            think_ns: 0,
        }
    }

    /// Returns the kernel's command line. The kernel logs to the serial port from its first line on, and resets when it
    /// panics.
    pub(crate) fn command_line(&self) -> String {
        let quiet = "quiet earlyprintk=ttyS0,115200,keep panic=-1 reboot=t nokaslr pci=off";
        let choice = if self.nopvspin { " nopvspin" } else { "" };
        format!("{quiet}{choice} {}", self.append)
    }
}

/// Returns the spinlock that the kernel uses, if `line` of its log reports it (`kvm_spinlock_init`,
/// arch/x86/kernel/kvm.c).
///
/// Since Linux 4.14 "PV spinlocks" are PV queued spinlocks with lock stealing.
pub(crate) fn lock_in(line: &str) -> Option<LockKind> {
    let (_, state) = line.split_once("PV spinlocks ")?;
    match state {
        _ if state.starts_with("enabled") => Some(LockKind::HybridPvQspin),
        _ if state.contains("no host support") => Some(LockKind::Ttas),
        _ if state.starts_with("disabled") => Some(LockKind::Qspin),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_log_names_its_spinlock() {
        let lines = [
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
        for (line, lock) in lines {
            assert_eq!(lock_in(line), lock, "{line}");
        }
    }
}
