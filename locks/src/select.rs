//! Which lock a kernel takes at boot, as Linux decides.

use crate::kind::LockKind;

/// What the boot CPU knows when it chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Environment {
    /// CPUID names a hypervisor.
    pub hypervisor: bool,
    /// The host kicks halted vCPUs (`KVM_FEATURE_PV_UNHALT`).
    pub pv_unhalt: bool,
    /// vCPUs are never off their CPUs for long (`KVM_HINTS_REALTIME`).
    pub realtime_hint: bool,
    /// CPUs that this kernel may ever have.
    pub cpus: u32,
    /// The kernel parameter `nopvspin`.
    pub nopvspin: bool,
}

/// A way of waiting, whatever the order of the waiters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selection {
    /// As on bare metal.
    Native,
    /// Unfair: no order that a descheduled waiter could hold up.
    TestAndSet,
    /// Waiters halt, unlockers kick.
    Paravirtual,
}

/// Chooses. The rules are tried in order: without a hypervisor native; a host that cannot kick means test-and-set; with
/// nothing to gain from kicks native; otherwise paravirtual.
///
/// A host that passes HLT through withdraws `pv_unhalt`. Without the hint its guests then fall back to test-and-set: a
/// known trap, and the host's to avoid.
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
    /// The lock of a kernel with ticket locks (Linux 3.12 to 4.1).
    pub const fn ticket(self) -> LockKind {
        match self {
            Selection::Native => LockKind::Ticket,
            Selection::TestAndSet => LockKind::Ttas,
            Selection::Paravirtual => LockKind::PvTicket,
        }
    }

    /// The lock of a kernel with queued locks (Linux since 4.15).
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
        // Without kicks the hint comes too late: the table asks for the feature first.
        let hint = Environment {
            realtime_hint: true,
            ..no_kick
        };
        assert_eq!(select(hint), Selection::TestAndSet);
    }
}
