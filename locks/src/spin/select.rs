//! The choice of a kernel's lock at boot, as Linux makes it.

use crate::spin::kind::LockKind;

/// What the boot CPU knows when it chooses the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Environment {
    /// CPUID reports a hypervisor.
    pub hypervisor: bool,
    /// The host kicks halted vCPUs (`KVM_FEATURE_PV_UNHALT`).
    pub pv_unhalt: bool,
    /// The host promises that vCPUs are never preempted for long (`KVM_HINTS_REALTIME`).
    pub realtime_hint: bool,
    /// The number of CPUs that this kernel may ever have.
    pub cpus: u32,
    /// The kernel parameter `nopvspin` is set.
    pub nopvspin: bool,
}

/// A way of waiting, independent of the order of the waiters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selection {
    /// Waiters spin in order, as on bare metal.
    Native,
    /// Waiters spin without an order, which a preempted waiter would block.
    TestAndSet,
    /// Waiters halt, and unlockers kick them.
    Paravirtual,
}

/// Chooses as Linux does (`kvm_spinlock_init` in `arch/x86/kernel/kvm.c`). The first rule that applies decides:
///
/// 1. Without a hypervisor: native.
/// 2. If the host offers no kick: test-and-set.
/// 3. If kicks bring nothing (real-time hint, one CPU, `nopvspin`): native.
/// 4. Otherwise: paravirtual.
///
/// A host that lets guests execute HLT without an exit does not offer `pv_unhalt`. Without the hint its guests then
/// fall back to test-and-set: such a host should set the hint.
pub const fn select(environment: Environment) -> Selection {
    let Environment {
        hypervisor,
        pv_unhalt,
        realtime_hint,
        cpus,
        nopvspin,
    } = environment;
    if !hypervisor {
        Selection::Native
    } else if !pv_unhalt {
        Selection::TestAndSet
    } else if realtime_hint || cpus == 1 || nopvspin {
        Selection::Native
    } else {
        Selection::Paravirtual
    }
}

impl Selection {
    /// Returns the lock of a kernel with ticket locks (Linux 3.12 to 4.1).
    pub const fn ticket(self) -> LockKind {
        match self {
            Selection::Native => LockKind::Ticket,
            Selection::TestAndSet => LockKind::Ttas,
            Selection::Paravirtual => LockKind::PvTicket,
        }
    }

    /// Returns the lock of a kernel with queued locks (Linux since 4.15).
    pub const fn queued(self) -> LockKind {
        match self {
            Selection::Native => LockKind::Qspin,
            Selection::TestAndSet => LockKind::Ttas,
            Selection::Paravirtual => LockKind::HybridPvQspin,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KVM: Environment = Environment {
        hypervisor: true,
        pv_unhalt: true,
        realtime_hint: false,
        cpus: 4,
        nopvspin: false,
    };

    #[test]
    fn rules_apply_in_order() {
        assert_eq!(select(KVM), Selection::Paravirtual);
        assert_eq!(
            select(Environment {
                hypervisor: false,
                ..KVM
            }),
            Selection::Native
        );
        assert_eq!(select(Environment { cpus: 1, ..KVM }), Selection::Native);
        assert_eq!(select(Environment { nopvspin: true, ..KVM }), Selection::Native);
        assert_eq!(
            select(Environment {
                realtime_hint: true,
                ..KVM
            }),
            Selection::Native
        );
        let no_kick = Environment {
            pv_unhalt: false,
            ..KVM
        };
        assert_eq!(select(no_kick), Selection::TestAndSet);
        // Without kicks the hint has no effect: the rule about kicks comes first.
        let hint = Environment {
            realtime_hint: true,
            ..no_kick
        };
        assert_eq!(select(hint), Selection::TestAndSet);
    }
}
