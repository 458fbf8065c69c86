//! What the name of a thread says about it.

use crate::event::Tid;

/// The role of a thread on a host of virtual machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// It runs the vCPU with this number.
    Vcpu(u32),
    /// Another thread of a virtual machine monitor: main loop, I/O threads, workers.
    Vmm,
    /// A kernel thread that moves data for a VM: `vhost-PID` and those of KVM. The process that owns it, if its name
    /// has it.
    Vhost(Option<Tid>),
    /// Any other kernel thread.
    Kernel,
    /// A thread of any other process, or not known.
    Other,
}

/// What the names of kernel threads begin with.
const KERNEL: [&str; 34] = [
    "kworker/",
    "ksoftirqd/",
    "migration/",
    "cpuhp/",
    "idle_inject/",
    "irq/",
    "rcu_",
    "rcub/",
    "rcuc/",
    "rcuo",
    "rcuog/",
    "rcuop/",
    "rcuos/",
    "kswapd",
    "kcompactd",
    "khugepaged",
    "ksmd",
    "kthreadd",
    "kauditd",
    "khungtaskd",
    "kdevtmpfs",
    "kblockd",
    "jbd2/",
    "xfs",
    "btrfs-",
    "nvme-",
    "scsi_",
    "watchdog/",
    "writeback",
    "oom_reaper",
    "stopper/",
    "ktimers/",
    "backlog_napi/",
    "napi/",
];

/// What the names of main threads of virtual machine monitors begin with, and of their other threads.
const VMM: [&str; 17] = [
    "qemu-system-",
    "qemu-kvm",
    "kvm-main",
    "IO iothread",
    "IO mon_iothread",
    "vnc_worker",
    "SPICE Worker",
    "multifd",
    "mig/",
    "live_migration",
    "cloud-hyperviso",
    "vmm",
    "firecracker",
    "fc_vmm",
    "fc_api",
    "crosvm",
    "virtiofsd",
];

fn number(text: &str) -> Option<u32> {
    // Not "+1" or "01", which no monitor writes.
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    (plain && (text == "0" || !text.starts_with('0')))
        .then(|| text.parse().ok())
        .flatten()
}

/// Returns the number in names of vCPU threads: `CPU 3/KVM` of QEMU, `vcpu3` of cloud-hypervisor, `fc_vcpu 3` of
/// Firecracker, `crosvm_vcpu3` of crosvm, `kvm-vcpu-3` of kvmtool.
fn vcpu(name: &str) -> Option<u32> {
    let of_qemu = name.strip_prefix("CPU ").and_then(|rest| rest.strip_suffix("/KVM"));
    let bare = of_qemu.or_else(|| {
        ["crosvm_vcpu", "fc_vcpu ", "kvm-vcpu-", "vcpu"]
            .iter()
            .find_map(|prefix| name.strip_prefix(prefix))
    });
    number(bare?)
}

/// Returns whether a thread of this `name` runs a vCPU.
pub fn is_vcpu(name: &str) -> bool {
    vcpu(name).is_some()
}

impl Role {
    /// Returns the role that `name` says.
    pub fn of(name: &str) -> Role {
        let begins = |prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix));
        if let Some(vcpu) = vcpu(name) {
            Role::Vcpu(vcpu)
        } else if let Some(owner) = name.strip_prefix("vhost-").or_else(|| name.strip_prefix("kvm-pit/")) {
            Role::Vhost(number(owner))
        } else if name.starts_with("kvm-nx-lpage-re") {
            Role::Vhost(None)
        } else if begins(&KERNEL) {
            Role::Kernel
        } else if begins(&VMM) {
            Role::Vmm
        } else {
            Role::Other
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_four_monitors_are_known() {
        for (name, role) in [
            ("CPU 0/KVM", Role::Vcpu(0)),
            ("CPU 127/KVM", Role::Vcpu(127)),
            ("vcpu12", Role::Vcpu(12)),
            ("fc_vcpu 3", Role::Vcpu(3)),
            ("crosvm_vcpu1", Role::Vcpu(1)),
            ("CPU 0/TCG", Role::Other),
            ("vcpu", Role::Other),
            ("vcpu01", Role::Other),
            ("vcpu99999999999", Role::Other),
            ("vhost-1234", Role::Vhost(Some(1234))),
            ("vhost-x", Role::Vhost(None)),
            ("kworker/3:1H", Role::Kernel),
            ("qemu-system-x86", Role::Vmm),
            ("IO iothread1", Role::Vmm),
            ("cc1plus", Role::Other),
        ] {
            assert_eq!(Role::of(name), role, "{name}");
        }
    }
}
