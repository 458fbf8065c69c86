//! A host that writes down events, and what followed from them.

use holdfast_recordings::event::{Event, Left, Name, Tid, What};
use holdfast_recordings::hosts::names::Role;
use holdfast_recordings::timeline::{Follower, Occupant, Sink, State, Step, VcpuIndex, Waker};

/// HLT as VMX numbers it.
pub const HLT: u32 = 12;
/// A loop of PAUSE as VMX numbers it.
pub const PAUSE: u32 = 40;
/// An interrupt of the host as VMX numbers it.
pub const INTERRUPT: u32 = 1;
/// Two vCPUs of one VM.
pub const A: Tid = 101;
/// The second one.
pub const B: Tid = 102;
/// A compiler on the host.
pub const CC: Tid = 7;

/// Returns the name of thread `tid`.
pub fn name(tid: Tid) -> Name {
    Name::from(match tid {
        0 => "swapper/0",
        A => "CPU 0/KVM",
        B => "CPU 1/KVM",
        CC => "cc1",
        _ => "other",
    })
}

/// What a wait was like.
#[derive(Clone, Debug, PartialEq)]
pub struct Wait {
    pub vcpu: VcpuIndex,
    pub from: u64,
    pub to: u64,
    pub behind: Vec<(Occupant, u64)>,
    pub waker: Option<Waker>,
    pub until_exit: u64,
    pub ran: bool,
}

/// All steps, by kind.
#[derive(Clone, Debug, Default)]
pub struct Steps {
    pub known: Vec<(VcpuIndex, u64)>,
    pub was: Vec<(VcpuIndex, u64, u64, State)>,
    pub waits: Vec<Wait>,
    pub halts: Vec<(VcpuIndex, u64, bool)>,
    pub had: Vec<(u32, u64, u64, Occupant)>,
    pub gone: Vec<(VcpuIndex, u64)>,
}

impl Sink for Steps {
    fn step(&mut self, step: &Step<'_>) {
        match *step {
            Step::Seen { vcpu, at } => self.known.push((vcpu, at)),
            Step::Was {
                vcpu, from, to, state, ..
            } => self.was.push((vcpu, from, to, state)),
            Step::Waited {
                vcpu,
                from,
                to,
                behind,
                waker,
                until_exit,
                ran,
            } => self.waits.push(Wait {
                vcpu,
                from,
                to,
                behind: behind.to_vec(),
                waker,
                until_exit,
                ran,
            }),
            Step::HaltEnded { vcpu, polled, won, .. } => self.halts.push((vcpu, polled, won)),
            Step::Had {
                cpu,
                from,
                to,
                occupant,
            } => self.had.push((cpu, from, to, occupant)),
            Step::Gone { vcpu, at } => self.gone.push((vcpu, at)),
            _ => {}
        }
    }
}

impl Steps {
    /// Returns the states of `vcpu` with their lengths, neighbors of one state joined.
    pub fn states(&self, vcpu: u32) -> Vec<(State, u64)> {
        let mut joined: Vec<(State, u64)> = Vec::new();
        for (_, from, to, state) in self.was.iter().filter(|(of, ..)| of.0 == vcpu) {
            match joined.last_mut() {
                Some((last, ns)) if last == state => *ns += to - from,
                _ => joined.push((*state, to - from)),
            }
        }
        joined
    }
}

/// Writes down events.
#[derive(Clone, Debug, Default)]
pub struct Host {
    pub events: Vec<Event>,
    on: std::collections::BTreeMap<u32, Tid>,
}

impl Host {
    /// At `at`, the thread on `cpu` does `what`.
    pub fn event(&mut self, at: u64, cpu: u32, what: What) {
        let thread = self.on.get(&cpu).copied().unwrap_or(0);
        self.events.push(Event { at, cpu, thread, what });
    }

    /// At `at`, `cpu` changes to thread `next`.
    pub fn switch(&mut self, at: u64, cpu: u32, left: Left, next: Tid) {
        let prev = self.on.get(&cpu).copied().unwrap_or(0);
        let what = What::Switch {
            prev,
            prev_name: name(prev),
            left,
            next,
            next_name: name(next),
            next_prio: 120,
        };
        self.event(at, cpu, what);
        self.on.insert(cpu, next);
    }

    /// At `at`, the thread on `cpu` wakes thread `woken` for `target`.
    pub fn wake(&mut self, at: u64, cpu: u32, woken: Tid, target: u32) {
        let what = What::Waking {
            woken,
            name: name(woken),
            target,
            queued: false,
        };
        self.event(at, cpu, what);
    }

    /// At `at`, the vCPU on `cpu` enters its guest.
    pub fn entry(&mut self, at: u64, cpu: u32) {
        let vcpu = self.on[&cpu] - A;
        self.event(at, cpu, What::Entry { vcpu });
    }

    /// At `at`, the vCPU on `cpu` leaves its guest.
    pub fn exit(&mut self, at: u64, cpu: u32, reason: u32) {
        let what = What::Exit {
            vcpu: None,
            reason,
            isa: 1,
        };
        self.event(at, cpu, what);
    }

    /// At `at`, the halt of the vCPU on `cpu` ends.
    pub fn halt_end(&mut self, at: u64, cpu: u32, ns: u64, slept: bool) {
        let what = What::HaltEnd { ns, slept, valid: true };
        self.event(at, cpu, what);
    }

    /// Follows the events. Returns the steps.
    pub fn steps(&self) -> Steps {
        let (steps, _) = followed(&self.events);
        steps
    }
}

/// Follows `events`.
pub fn followed(events: &[Event]) -> (Steps, Follower) {
    let mut steps = Steps::default();
    let mut follower = Follower::default();
    for event in events {
        follower.follow(event, &mut steps);
    }
    follower.end(None, &mut steps);
    (steps, follower)
}

/// The compiler as an occupant.
pub fn compiler() -> Occupant {
    Occupant::Thread {
        role: Role::Other,
        process: None,
        name: name(CC),
    }
}
