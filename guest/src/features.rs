//! What the hypervisor and the CPU offer, and what the kernel takes of it: the lock, the host's assists, PCIDs, and how
//! idle CPUs wait.

use holdfast_abi::cpuid;
use holdfast_locks::{Environment, Instead, LockKind, Selection, select};

use crate::config::{Assists, Config, Idle};
use crate::cpu::{Chosen, IdleWait, ThisCpu};
use crate::machine::{Cpu, Machine};

/// The features that the hypervisor offers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Features {
    /// The CPU has process-context identifiers.
    pcid: bool,
    /// The CPU has MONITOR and MWAIT.
    monitor: bool,
    /// There is a hypervisor.
    hypervisor: bool,
    /// EAX of the feature leaf. 0 unless the hypervisor is KVM.
    kvm: u32,
    /// EDX of the feature leaf.
    hints: u32,
}

impl Features {
    pub(crate) fn read<M: Machine>(on: &ThisCpu<'_, M>) -> Features {
        Features::of(|leaf| on.cpu.cpuid(leaf))
    }

    /// Returns what EAX to EDX of the leaves say.
    fn of(leaf: impl Fn(u32) -> [u32; 4]) -> Features {
        let basic = leaf(cpuid::FEATURES)[2];
        let cpu = Features {
            pcid: basic & cpuid::PCID != 0,
            monitor: basic & cpuid::MONITOR != 0,
            ..Features::default()
        };
        if basic & cpuid::HYPERVISOR == 0 {
            return cpu;
        }
        let signature = leaf(cpuid::HYPERVISOR_BASE);
        if signature[1..] != cpuid::KVM_SIGNATURE {
            return Features {
                hypervisor: true,
                ..cpu
            };
        }
        let [kvm, _, _, hints] = leaf(cpuid::KVM_FEATURES);
        Features {
            hypervisor: true,
            kvm,
            hints,
            ..cpu
        }
    }

    /// Returns what a kernel of `cpus` CPUs chooses, apart from the lock.
    pub(crate) fn choose(self, lock: LockKind, config: &Config, cpus: u32) -> Chosen {
        Chosen {
            lock,
            assists: self.assists(cpus),
            pcids: self.pcid && config.uses_pcids(),
            idle: match config.idle {
                Idle::Poll => IdleWait::Poll,
                Idle::PollTimer => IdleWait::PollTimer,
                Idle::Halt | Idle::HaltPoll if self.monitor => IdleWait::Monitor,
                Idle::HaltPoll if self.offers(cpuid::KVM_FEATURE_POLL_CONTROL) => IdleWait::HaltPoll,
                Idle::Halt | Idle::HaltPoll => IdleWait::Halt,
            },
        }
    }

    pub(crate) fn offers(self, feature: u32) -> bool {
        self.kvm & feature != 0
    }

    /// The assists of the host that a kernel of `cpus` CPUs uses: `pv_sched_yield_supported`, `pv_tlb_flush_supported`
    /// and `pv_ipi_supported`. A guest with MWAIT takes its vCPUs to have a CPU each and uses neither of the first two.
    fn assists(self, cpus: u32) -> Assists {
        let knows_preempted = self.offers(cpuid::KVM_FEATURE_STEAL_TIME)
            && self.hints & cpuid::KVM_HINTS_REALTIME == 0
            && cpus > 1
            && !self.monitor;
        Assists {
            yields: knows_preempted && self.offers(cpuid::KVM_FEATURE_PV_SCHED_YIELD),
            flushes: knows_preempted && self.offers(cpuid::KVM_FEATURE_PV_TLB_FLUSH),
            ipis: cpus > 1 && self.offers(cpuid::KVM_FEATURE_PV_SEND_IPI),
            word: self.offers(cpuid::KVM_FEATURE_STEAL_TIME) && self.offers(cpuid::FEATURE_GUEST_WORD),
        }
    }
}

/// Chooses the lock. Native and unfair locks are used as asked for. For paravirtual locks [`select`] decides.
pub fn choose_lock(asked: LockKind, environment: Environment) -> LockKind {
    let Some(other) = asked.without_kicks() else {
        return asked;
    };
    if matches!(asked.description().without_kicks, Instead::Unfair(_)) {
        // An unfair lock stays unfair where the host cannot kick.
        return if environment.pv_unhalt { asked } else { other };
    }
    match select(environment) {
        Selection::Paravirtual => asked,
        Selection::Native => other,
        Selection::TestAndSet => LockKind::Ttas,
    }
}

/// Returns what the choice of the lock depends on.
pub(crate) fn environment<M: Machine>(on: &ThisCpu<'_, M>) -> Environment {
    let features = Features::read(on);
    Environment {
        hypervisor: features.hypervisor,
        pv_unhalt: features.offers(cpuid::KVM_FEATURE_PV_UNHALT),
        realtime_hint: features.hints & cpuid::KVM_HINTS_REALTIME != 0,
        cpus: on.system.cpu_count(),
        nopvspin: on.system.config.nopvspin,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KVM: Environment = Environment {
        hypervisor: true,
        pv_unhalt: true,
        realtime_hint: false,
        cpus: 8,
        nopvspin: false,
    };

    #[test]
    fn yields_need_the_feature_the_steal_time_record_and_a_host_that_preempts() {
        let whole = Features {
            hypervisor: true,
            kvm: cpuid::KVM_FEATURE_PV_SCHED_YIELD | cpuid::KVM_FEATURE_STEAL_TIME,
            ..Features::default()
        };
        assert!(whole.assists(2).yields);
        assert!(!whole.assists(1).yields);
        let without = |kvm, hints| Features { kvm, hints, ..whole }.assists(2).yields;
        assert!(!without(cpuid::KVM_FEATURE_STEAL_TIME, 0));
        assert!(!without(cpuid::KVM_FEATURE_PV_SCHED_YIELD, 0));
        assert!(!without(whole.kvm, cpuid::KVM_HINTS_REALTIME));
        let monitor = Features { monitor: true, ..whole };
        assert!(!monitor.assists(2).yields);
    }

    #[test]
    fn each_assist_needs_its_own_bit() {
        let assists = |kvm| {
            let features = Features {
                hypervisor: true,
                kvm: kvm | cpuid::KVM_FEATURE_STEAL_TIME,
                ..Features::default()
            };
            let Assists {
                yields,
                flushes,
                ipis,
                word,
            } = features.assists(2);
            [yields, flushes, ipis, word]
        };
        assert_eq!(assists(0), [false; 4]);
        assert_eq!(assists(cpuid::KVM_FEATURE_PV_SCHED_YIELD), [true, false, false, false]);
        assert_eq!(assists(cpuid::KVM_FEATURE_PV_TLB_FLUSH), [false, true, false, false]);
        assert_eq!(assists(cpuid::KVM_FEATURE_PV_SEND_IPI), [false, false, true, false]);
        assert_eq!(assists(cpuid::FEATURE_GUEST_WORD), [false, false, false, true]);
        let alone = Features {
            hypervisor: true,
            kvm: u32::MAX,
            ..Features::default()
        }
        .assists(1);
        let word = Assists {
            word: true,
            ..Assists::default()
        };
        assert_eq!(alone, word, "a lone vCPU can be preempted in a section, too");
    }

    #[test]
    fn each_feature_is_a_bit_of_its_own() {
        let read = |basic: u32, signature: [u32; 3]| {
            Features::of(|leaf| match leaf {
                cpuid::FEATURES => [0, 0, basic, 0],
                cpuid::HYPERVISOR_BASE => [cpuid::KVM_FEATURES, signature[0], signature[1], signature[2]],
                cpuid::KVM_FEATURES => [5, 6, 7, 8],
                _ => [0; 4],
            })
        };
        let none = Features::default();
        let other = !(cpuid::PCID | cpuid::MONITOR | cpuid::HYPERVISOR);
        assert_eq!(read(0, cpuid::KVM_SIGNATURE), none);
        assert_eq!(read(other, cpuid::KVM_SIGNATURE), none);
        let pcid = Features { pcid: true, ..none };
        assert_eq!(read(cpuid::PCID, cpuid::KVM_SIGNATURE), pcid);
        let monitor = Features { monitor: true, ..none };
        assert_eq!(read(cpuid::MONITOR, cpuid::KVM_SIGNATURE), monitor);
        let unknown = Features {
            hypervisor: true,
            ..none
        };
        assert_eq!(read(cpuid::HYPERVISOR, [1, 2, 3]), unknown);
        let kvm = Features {
            kvm: 5,
            hints: 8,
            ..unknown
        };
        assert_eq!(read(cpuid::HYPERVISOR, cpuid::KVM_SIGNATURE), kvm);
    }

    #[test]
    fn contexts_and_idle_waits_need_the_cpu_and_the_wish() {
        for (pcid, wanted) in [(false, false), (false, true), (true, false), (true, true)] {
            let features = Features {
                pcid,
                ..Features::default()
            };
            let config = Config {
                pcid: Some(wanted),
                ..Config::default()
            };
            assert_eq!(features.choose(LockKind::Ticket, &config, 2).pcids, pcid && wanted);
        }
        let idle = |monitor, idle| {
            let features = Features {
                monitor,
                ..Features::default()
            };
            let config = Config {
                idle,
                ..Config::default()
            };
            features.choose(LockKind::Ticket, &config, 2).idle
        };
        assert_eq!(idle(false, Idle::Halt), IdleWait::Halt);
        assert_eq!(idle(true, Idle::Halt), IdleWait::Monitor);
        assert_eq!(idle(true, Idle::Poll), IdleWait::Poll);
        assert_eq!(idle(true, Idle::HaltPoll), IdleWait::Monitor);
        assert_eq!(idle(false, Idle::HaltPoll), IdleWait::Halt);
        let offered = Features {
            kvm: cpuid::KVM_FEATURE_POLL_CONTROL,
            ..Features::default()
        };
        for (wanted, waits) in [
            (Idle::Halt, IdleWait::Halt),
            (Idle::Poll, IdleWait::Poll),
            (Idle::HaltPoll, IdleWait::HaltPoll),
        ] {
            let config = Config {
                idle: wanted,
                ..Config::default()
            };
            assert_eq!(offered.choose(LockKind::Ticket, &config, 2).idle, waits);
        }
    }

    #[test]
    fn only_paravirtual_locks_depend_on_the_host() {
        for &kind in LockKind::ALL {
            let with = choose_lock(kind, KVM);
            let without = choose_lock(
                kind,
                Environment {
                    pv_unhalt: false,
                    ..KVM
                },
            );
            assert_eq!(with, kind, "the host offers all that {kind} needs");
            let is_paravirtual = kind.kicks();
            assert_eq!(
                without != kind,
                is_paravirtual,
                "{kind} becomes {without} on a host that cannot kick"
            );
        }
        assert_eq!(
            choose_lock(LockKind::PvTicket, Environment { nopvspin: true, ..KVM }),
            LockKind::Ticket
        );
    }
}
