//! The machine's CPU model: costs, pause-loop exiting, APIC virtualization.

use holdfast_host::{Cost, Exit, Nanos, PauseControls, PcpuId};
use holdfast_machine::{Costs, IdleState, PauseHardware, PauseLimit, Picos, Profile, Topology, idle_exit_latency};

use crate::core::cause::Cause;
use crate::parts::apic::ApicHardware;

/// The machine's CPU model.
#[derive(Debug)]
pub struct Hardware {
    /// The cost of everything.
    pub costs: Costs,
    /// Sockets, cores and threads.
    pub topology: Topology,
    /// Idle states of a pCPU, in order of depth.
    idle_states: Vec<IdleState>,
    /// APIC virtualization.
    pub apic: ApicHardware,
    /// What detects pause loops.
    pause: Option<PauseHardware>,
    /// Frequency of clock and time-stamp counter.
    frequency_hz: u64,
    /// Seed of the delays of timers.
    seed: u64,
}

/// What a CPU model has for virtual machines.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// APIC virtualization.
    pub apic: ApicHardware,
    /// What detects pause loops.
    pub pause: Option<PauseHardware>,
}

impl Hardware {
    /// The CPU model of `machine`. Random delays follow from `seed`.
    pub fn new(machine: &Profile, seed: u64) -> Hardware {
        Hardware {
            costs: machine.costs.clone(),
            topology: machine.topology,
            idle_states: machine.idle_states.clone(),
            apic: ApicHardware {
                avic: machine.avic,
                apicv: machine.apicv,
            },
            pause: machine.pause_hardware,
            frequency_hz: machine.frequency_hz,
            seed,
        }
    }

    /// The cycles of `span`.
    pub fn cycles(&self, span: Picos) -> u64 {
        (u128::from(span.0) * u128::from(self.frequency_hz) / 1_000_000_000_000) as u64
    }

    /// Takes over what the CPU model of `other` has for virtual machines.
    pub fn become_part(&mut self, other: &Part) {
        self.apic = other.apic;
        self.pause = other.pause;
    }

    /// What this CPU model has for virtual machines.
    pub fn part(&self) -> Part {
        Part {
            apic: self.apic,
            pause: self.pause,
        }
    }

    /// Whether cores have several threads.
    #[inline]
    pub fn has_siblings(&self) -> bool {
        self.topology.threads > 1
    }

    /// The time that `cost` takes on this machine.
    pub fn cost(&self, cost: Cost) -> Picos {
        let costs = &self.costs;
        match cost {
            Cost::ExitSoftware => costs.exit_software,
            Cost::Hlt => costs.hlt,
            Cost::Hypercall => costs.hypercall,
            Cost::Cpuid => costs.cpuid,
            Cost::Msr => costs.msr,
            Cost::PortWrite => costs.port_write,
            Cost::ApicAccess => costs.apic_access,
            Cost::ApicDeliver => costs.apic_deliver,
            Cost::Inject => costs.inject,
            Cost::InterruptWindow => costs.interrupt_window,
            Cost::SpinCandidate => costs.spin_candidate,
            Cost::HostInterrupt => costs.host_interrupt,
            Cost::Tick => costs.tick,
            Cost::TimerProgram => costs.timer_program,
            Cost::IpiSend => costs.ipi_send,
            Cost::Wake => costs.wake,
            Cost::ContextSwitch => costs.context_switch,
            Cost::Balance => costs.balance,
            Cost::VcpuLoad => costs.vcpu_load,
            Cost::StealTime => costs.steal_time,
            Cost::PvEoi => costs.pv_eoi,
            Cost::NestedFault => costs.nested_fault,
            Cost::NestedEntry => costs.nested_entry,
            Cost::NestedExit => costs.nested_exit,
            Cost::LoggedPage => costs.logged_page,
            Cost::IdleExit => costs.idle_exit,
            Cost::UserspaceExit => costs.userspace_exit,
            Cost::Doorbell | Cost::ApicvExit | Cost::AvicExit => self.apic.cost(cost),
        }
    }

    /// The time that a pCPU needs to leave the idle loop in which it was for `idle`.
    pub fn idle_exit(&self, idle: Picos) -> Picos {
        self.costs.idle_exit + idle_exit_latency(&self.idle_states, idle)
    }

    /// The time that a pCPU needs to leave the idle state in which it was for `slept`.
    pub fn wake_up(&self, slept: Picos) -> Picos {
        idle_exit_latency(&self.idle_states, slept)
    }

    /// The time by which the timer of `pcpu` that is set to `at` is late. It depends on nothing else, so it does not
    /// change when the timer is set again.
    pub fn timer_delay(&self, pcpu: PcpuId, at: Nanos) -> Picos {
        let longest = self.costs.timer_delay.0;
        if longest == 0 {
            return Picos::ZERO;
        }
        // The finalizer of splitmix64.
        let mut mixed = self.seed ^ at.0 ^ u64::from(pcpu.0 + 1) << 48;
        for factor in [0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb] {
            mixed = (mixed ^ mixed >> 30).wrapping_mul(factor);
        }
        Picos((mixed ^ mixed >> 31) % (longest + 1))
    }

    /// The pause-loop controls in the machine's units. The CPU ignores controls that it does not have.
    ///
    /// The machine counts from the begin of one PAUSE to the begin of the next one, the CPU from its end (uncertain:
    /// manuals say "between executions"). Otherwise there would be no pause loop on a CPU whose PAUSE alone takes
    /// longer than KVM's gap of 128 cycles, and directed yield was measured on such CPUs with that gap (Skylake, Linux
    /// commit d73eb57b80b9).
    pub fn pause_limit(&self, controls: PauseControls) -> PauseLimit {
        let cycles = |cycles: u32| Picos::from_cycles(u64::from(cycles), self.frequency_hz);
        match (self.pause, controls) {
            (Some(PauseHardware::Ple), PauseControls::Ple { gap, window }) => PauseLimit::Ple {
                gap: cycles(gap) + self.costs.pause,
                window: cycles(window),
            },
            (Some(PauseHardware::Filter), PauseControls::Filter { count, threshold }) => PauseLimit::Filter {
                count: u64::from(count),
                threshold: match threshold {
                    0 => Picos::ZERO,
                    _ => cycles(threshold) + self.costs.pause,
                },
            },
            _ => PauseLimit::Off,
        }
    }
}

/// The cause to which the time of `exit` counts.
pub fn exit_cause(exit: &Exit) -> Cause {
    match exit {
        Exit::ExternalInterrupt(_) => Cause::ExitInterrupt,
        Exit::Hlt => Cause::ExitHlt,
        Exit::Hypercall { .. } => Cause::ExitHypercall,
        Exit::Cpuid { .. } => Cause::ExitCpuid,
        Exit::ReadMsr { .. } | Exit::WriteMsr { .. } | Exit::WriteCr8 { .. } => Cause::ExitMsr,
        Exit::PortWrite { .. } => Cause::ExitPort,
        Exit::InterruptWindow | Exit::Iret => Cause::ExitWindow,
        Exit::AvicIncompleteIpi(_)
        | Exit::AvicNoAccel { .. }
        | Exit::ApicvWrite { .. }
        | Exit::ApicWrite { .. }
        | Exit::ApicRead { .. } => Cause::ExitApic,
        Exit::Pause => Cause::ExitPause,
        Exit::NestedFault | Exit::WriteFault | Exit::PageLogFull { .. } => Cause::ExitNestedFault,
        Exit::Vmrun => Cause::ExitNested,
        Exit::Userspace => Cause::HostOverhead,
        Exit::Shutdown => Cause::Off,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_are_late_by_delays_that_the_seed_decides() {
        let delays = |seed: u64, pcpu: u32, longest_ns: u64| -> Vec<u64> {
            let costs = Costs {
                timer_delay: Picos::from_nanos(longest_ns),
                ..Costs::default()
            };
            let apic = ApicHardware {
                avic: None,
                apicv: None,
            };
            let topology = Topology {
                sockets: 1,
                cores: 2,
                threads: 1,
            };
            let hardware = Hardware {
                costs,
                topology,
                idle_states: Vec::new(),
                apic,
                pause: None,
                frequency_hz: 1,
                seed,
            };
            let ticks = (1..=1_000).map(|tick| Nanos(tick * 1_000_000));
            ticks.map(|at| hardware.timer_delay(PcpuId(pcpu), at).0).collect()
        };
        let drawn = delays(1, 0, 10_000);
        assert!(drawn.iter().all(|&delay| delay <= 10_000_000));
        let mean = drawn.iter().sum::<u64>() / 1_000;
        assert!((4_500_000..5_500_000).contains(&mean), "mean of {mean} ps");
        assert_eq!(delays(1, 0, 10_000), drawn);
        assert_ne!(delays(1, 1, 10_000), drawn, "pCPUs are late independently");
        assert_ne!(delays(2, 0, 10_000), drawn);
        assert_eq!(delays(1, 0, 0), [0; 1_000]);
    }
}
