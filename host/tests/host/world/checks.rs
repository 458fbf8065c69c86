//! What the host must keep, looked at from outside.

use holdfast_host::{Command, MpState, Nanos, PcpuId, Run, TaskId, VcpuId, VcpuState};

use super::{Driver, World, vectors};

impl Driver {
    /// Checks that the event's pCPU has one `Run`, that other `Run`s are for polling pCPUs, and that no command
    /// follows a `Run`.
    pub(super) fn check_run(&mut self, pcpu: PcpuId, out: &[Command]) {
        self.batches += 1;
        let mut ran: Vec<PcpuId> = Vec::new();
        for command in out {
            match *command {
                Command::Run { pcpu: at, .. } => {
                    assert!(!ran.contains(&at), "two runs for pcpu {}: {out:?}", at.0);
                    if at != pcpu {
                        let polled = matches!(self.runs[at.0 as usize], Run::Poll(_));
                        assert!(polled, "a run for pcpu {}, which did not poll: {out:?}", at.0);
                    }
                    ran.push(at);
                }
                Command::Charge { pcpu: at, .. } | Command::Timer { pcpu: at, .. } => {
                    assert!(!ran.contains(&at), "a command behind the run of pcpu {}: {out:?}", at.0);
                }
                _ => {}
            }
        }
        assert!(ran.contains(&pcpu), "no run for pcpu {}: {out:?}", pcpu.0);
    }
}

impl World {
    pub(super) fn check_service(&self, vcpu: VcpuId) {
        let page = self.host.save_vcpu(vcpu, Nanos(self.now)).lapic;
        let mut wanted = self.guests[vcpu.0 as usize].in_service.clone();
        wanted.sort_unstable();
        let found: Vec<u8> = vectors(&page, 0x100).collect();
        assert_eq!(found, wanted, "in service on vcpu {} at {} ns", vcpu.0, self.now);
    }

    /// Checks that no two pCPUs run the same thread.
    pub(super) fn check_exclusive(&self) {
        let mut tasks: Vec<TaskId> = self
            .runs
            .iter()
            .filter_map(|&run| match run {
                Run::Guest { vcpu, .. } | Run::Poll(vcpu) => Some(self.host.thread(vcpu)),
                Run::Task(task) => Some(task),
                Run::Idle => None,
            })
            .collect();
        tasks.sort();
        let count = tasks.len();
        tasks.dedup();
        assert_eq!(tasks.len(), count, "a thread runs on two pcpus at {} ns", self.now);
    }

    /// Checks that no vCPU sleeps with a reason to run.
    pub fn check_no_lost_wakeup(&self) {
        for (vcpu, guest) in self.guests.iter().enumerate() {
            let saved = self.save(vcpu as u32);
            // A vCPU that waits for SIPI keeps a kick for later.
            let asleep = guest.life == VcpuState::Blocked && saved.mp_state == MpState::Halted;
            assert!(
                !(asleep && saved.pv_unhalted),
                "vcpu {vcpu} sleeps on a latched kick at {} ns",
                self.now
            );
        }
    }
}

/// Returns whether docs/spec/host.md, "vCPU states", has a transition from `from` to `to`.
pub(super) fn is_legal(from: VcpuState, to: VcpuState) -> bool {
    use VcpuState::*;
    match from {
        InGuest => matches!(to, HandlingExit),
        HandlingExit => matches!(
            to,
            InGuest | Polling | Preempted | Throttled | Blocked | PauseSleep | Userspace | Dead
        ),
        Userspace => matches!(to, HandlingExit),
        Polling => matches!(to, HandlingExit | Blocked),
        Preempted => matches!(to, HandlingExit | Throttled),
        Throttled => matches!(to, HandlingExit | Preempted | Woken),
        Blocked | PauseSleep => matches!(to, Woken),
        Woken => matches!(to, HandlingExit | Woken | Throttled),
        Dead => matches!(to, Woken),
    }
}
