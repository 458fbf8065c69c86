//! The rules by which events change states.
//!
//! `follow/sched.rs` and `follow/kvm.rs` have those of each kind of event, `follow/threads.rs` finds vCPUs,
//! `follow/queues.rs` knows what waits are behind, `follow/doubts.rs` what is no longer known.

mod doubts;
mod kvm;
mod queues;
mod sched;
mod threads;

use std::collections::{BTreeMap, BTreeSet};

use super::cpus::{CPUS_MAX, Cpus};
use super::reasons;
use super::step::{How, Occupant, Sink, State, Step, VcpuIndex, Waker};
use super::vcpu::{Vcpu, Wait};
use crate::event::{Event, Left, Tid, What};
use crate::hosts::names::Role;
use crate::hosts::threads::{Threads, is_name};

/// Most vCPUs that are told apart. Further ones are counted as other threads.
const VCPUS_MAX: usize = 8192;
/// A time without any event of any CPU after which nothing is known, in ns. A host's own kernel threads run each
/// second.
const SILENCE_MAX: u64 = 5_000_000_000;
/// The hypercall that kicks a vCPU (`KVM_HC_KICK_CPU`).
const KICK: u64 = 5;
/// The hypercall that sends IPIs to many vCPUs (`KVM_HC_SEND_IPI`).
const SEND_IPI: u64 = 10;

/// What was wrong with a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Faults {
    /// Places where events are missing.
    pub gaps: u64,
    /// Events that are missing there, as far as the source says it.
    pub lost_events: u64,
    /// Times that were before that of the event before.
    pub clock_back: u64,
    /// Times without any event that were too long to believe.
    pub clock_ahead: u64,
    /// Events that contradict what was known: a switch, an entry or an exit is missing.
    pub contradictions: u64,
    /// Events of impossible CPUs, and vCPUs beyond the limit.
    pub ignored: u64,
}

impl Faults {
    /// Returns whether events are missing.
    pub fn any(&self) -> bool {
        *self != Faults::default()
    }
}

/// How many events of each kind there were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Seen {
    /// Events of all kinds.
    pub events: u64,
    /// Events of `sched_switch`.
    pub switches: u64,
    /// `sched_waking` and `sched_wakeup`.
    pub wakeups: u64,
    /// Events of `sched_migrate_task`.
    pub migrations: u64,
    /// Events of `kvm_entry`.
    pub entries: u64,
    /// Events of `kvm_exit`.
    pub exits: u64,
    /// Events of `kvm_vcpu_wakeup`.
    pub halt_ends: u64,
    /// Events of `kvm_hypercall`.
    pub hypercalls: u64,
    /// Events of `kvm_apic_ipi`.
    pub ipis: u64,
}

/// Follows the events of a recording.
#[derive(Clone, Debug, Default)]
pub struct Follower {
    threads: Threads,
    cpus: Cpus,
    vcpus: Vec<Vcpu>,
    /// The first and the last time.
    time: Option<(u64, u64)>,
    faults: Faults,
    seen: Seen,
}

impl Follower {
    /// Creates a follower. `processes` of threads, and `kernel` threads: what files beside the recording say of them.
    pub fn new(processes: BTreeMap<Tid, Tid>, kernel: BTreeSet<Tid>) -> Follower {
        Follower {
            threads: Threads::new(processes, kernel),
            ..Follower::default()
        }
    }

    /// Returns what was wrong so far.
    pub fn faults(&self) -> Faults {
        self.faults
    }

    /// Returns how many events there were so far.
    pub fn seen(&self) -> Seen {
        self.seen
    }

    /// Returns the first and the last time so far.
    pub fn time(&self) -> Option<(u64, u64)> {
        self.time
    }

    /// Takes the next event. Steps go to `sink`.
    pub fn follow(&mut self, event: &Event, sink: &mut impl Sink) {
        self.seen.events += 1;
        // perf names threads that are there already on no CPU.
        if event.cpu >= CPUS_MAX && !matches!(event.what, What::Named { .. }) {
            self.faults.ignored += 1;
            return;
        }
        let now = self.advance(event.at, sink);
        let (cpu, thread) = (event.cpu, event.thread);
        match event.what {
            What::Lost { events } => return self.lost(cpu, now, events, sink),
            What::Named {
                named,
                process,
                ref name,
            } => {
                // Not an event of a CPU.
                self.learn(named, name, now, sink);
                if let Some(process) = process {
                    self.learn_process(named, process, sink);
                }
                return;
            }
            What::Switch {
                prev,
                ref prev_name,
                left,
                next,
                ref next_name,
                ..
            } => {
                self.seen.switches += 1;
                self.learn(prev, prev_name, now, sink);
                self.runs(cpu, prev, now, sink);
                self.learn(next, next_name, now, sink);
                self.switch(cpu, now, (prev, left), next, sink);
            }
            What::Waking {
                woken,
                ref name,
                target,
                queued,
            } => {
                self.seen.wakeups += 1;
                self.learn(woken, name, now, sink);
                self.runs(cpu, thread, now, sink);
                let waker = (!queued).then(|| self.waker(cpu, thread));
                self.wake(woken, target, waker, now, sink);
            }
            What::Migrate { moved, to, .. } => {
                self.seen.migrations += 1;
                self.runs(cpu, thread, now, sink);
                self.migrate(moved, to, thread, now);
            }
            What::Entry { vcpu } => {
                self.seen.entries += 1;
                self.runs(cpu, thread, now, sink);
                self.entry(cpu, thread, vcpu, now, sink);
            }
            What::Exit { vcpu, reason, isa } => {
                self.seen.exits += 1;
                self.runs(cpu, thread, now, sink);
                self.exit(cpu, thread, vcpu, (reason, isa), now, sink);
            }
            What::HaltEnd { ns, slept, .. } => {
                self.seen.halt_ends += 1;
                self.runs(cpu, thread, now, sink);
                if let Some(vcpu) = self.vcpu_of(thread) {
                    self.vcpus[vcpu].halt_ended(now, ns, slept, sink);
                }
            }
            What::Hypercall { nr, args } => {
                self.seen.hypercalls += 1;
                self.runs(cpu, thread, now, sink);
                match self.vcpu_of(thread) {
                    Some(vcpu) if nr == KICK => {
                        self.vcpus[vcpu].sent = Some(How::Kick);
                        let vcpu = self.vcpus[vcpu].index;
                        let target = args[1];
                        sink.step(&Step::Kicked { vcpu, at: now, target });
                    }
                    Some(vcpu) if nr == SEND_IPI => self.vcpus[vcpu].sent = Some(How::Ipi),
                    _ => {}
                }
            }
            What::Ipi { icr_low, destination } => {
                self.seen.ipis += 1;
                self.runs(cpu, thread, now, sink);
                if let Some(vcpu) = self.vcpu_of(thread) {
                    self.vcpus[vcpu].sent = Some(How::Ipi);
                    let vcpu = self.vcpus[vcpu].index;
                    sink.step(&Step::Ipi {
                        vcpu,
                        at: now,
                        icr_low,
                        destination,
                    });
                }
            }
            What::Forked { child, ref name, .. } => {
                self.runs(cpu, thread, now, sink);
                self.end_thread(child, now, sink);
                // It has the name of its parent until it takes its own.
                if !matches!(Role::of(name), Role::Vcpu(_)) {
                    self.learn(child, name, now, sink);
                }
            }
            What::Ended { ended } => {
                self.runs(cpu, thread, now, sink);
                // It still runs, until the switch to another thread.
                if let Some(vcpu) = self.vcpu_of(ended) {
                    self.finish(vcpu, now, sink);
                }
                let thread = self.threads.or_new(ended);
                (thread.ends, thread.vcpu) = (true, None);
            }
            _ => self.runs(cpu, thread, now, sink),
        }
        self.cpus.at(cpu, now).last = now;
    }

    /// Ends all states at the time of the last event, or at `end` if that is later.
    pub fn end(&mut self, end: Option<u64>, sink: &mut impl Sink) {
        let Some((begun, last)) = self.time else { return };
        let now = end.map_or(last, |end| end.max(last));
        self.time = Some((begun, now));
        for cpu in self.cpus.numbers() {
            self.attribute(cpu, now);
            self.had(cpu, now, sink);
        }
        for vcpu in &mut self.vcpus {
            if vcpu.alive {
                vcpu.end_wait(now, false, sink);
                let state = vcpu.state;
                vcpu.change(now, state, state, sink);
                vcpu.release(sink);
            }
        }
    }

    /// Returns the time of an event `at`, which never goes back.
    fn advance(&mut self, at: u64, sink: &mut impl Sink) -> u64 {
        let Some((begun, last)) = self.time else {
            self.time = Some((at, at));
            return at;
        };
        if at < last {
            self.faults.clock_back += 1;
            return last;
        }
        if at - last > SILENCE_MAX {
            self.faults.clock_ahead += 1;
            for cpu in self.cpus.numbers() {
                self.forget_cpu(cpu, last, sink);
            }
            self.doubt_all(|_| last, sink);
        }
        self.time = Some((begun, at));
        at
    }

    fn vcpu_of(&self, thread: Tid) -> Option<usize> {
        let index = self.threads.get(thread)?.vcpu?;
        Some(index.0 as usize)
    }

    fn occupant(&self, thread: Tid) -> Occupant {
        match self.threads.get(thread) {
            _ if thread == 0 => Occupant::Idle,
            None => Occupant::Thread {
                role: Role::Other,
                process: None,
                name: Default::default(),
            },
            Some(known) => match known.vcpu {
                Some(vcpu) => Occupant::Vcpu(vcpu),
                None => Occupant::Thread {
                    role: known.role,
                    process: known.process,
                    name: known.name,
                },
            },
        }
    }
}
