//! The state of one vCPU while its recording is followed.

use super::step::{How, Occupant, Sink, State, Step, VcpuIndex, Waker};
use crate::event::Tid;

/// Most spans of a halt that are kept back until its end says since when it polled.
const KEPT_MAX: usize = 32;
/// Most occupants that a wait distinguishes.
const BEHIND_MAX: usize = 64;

/// A wait for a pCPU.
#[derive(Clone, Debug)]
pub struct Wait {
    /// The pCPU.
    pub cpu: u32,
    /// The time up to which `behind` is complete.
    pub upto: u64,
    /// What had the pCPU, with times in ns.
    pub behind: Vec<(Occupant, u64)>,
    /// What woke the vCPU; `None` if it was preempted.
    pub waker: Option<Waker>,
    /// The vCPU that was in its guest on that pCPU at the wakeup and has not entered it again, and the time of its
    /// exit.
    pub runner: Option<(VcpuIndex, Option<u64>)>,
}

impl Wait {
    /// Enters that `occupant` had the pCPU up to `now`.
    pub fn attribute(&mut self, occupant: Occupant, now: u64) {
        let ns = now.saturating_sub(self.upto);
        self.upto = self.upto.max(now);
        if ns == 0 {
            return;
        }
        let full = self.behind.len() >= BEHIND_MAX;
        match self.behind.iter_mut().find(|(known, _)| *known == occupant) {
            Some((_, sum)) => *sum += ns,
            None if full => {
                // The last one stands for the rest.
                let last = self.behind.len() - 1;
                self.behind[last].0 = Occupant::Unknown;
                self.behind[last].1 += ns;
            }
            None => self.behind.push((occupant, ns)),
        }
    }
}

/// A halt whose end has not been seen.
#[derive(Clone, Debug, Default)]
struct Halt {
    /// Spans since its exit.
    kept: Vec<(u64, u64, State, Option<u32>)>,
    /// Too many spans to keep: its polling is not split off.
    overflown: bool,
}

/// A vCPU.
#[derive(Clone, Debug)]
pub struct Vcpu {
    /// Its index.
    pub index: VcpuIndex,
    /// Its thread.
    pub thread: Tid,
    /// Its number in its VM.
    pub number: Option<u32>,
    /// It has only been named so far: its thread had no event.
    pub unseen: bool,
    /// What it does.
    pub state: State,
    /// The time since which it does that.
    pub since: u64,
    /// The pCPU that it has, or had last.
    pub cpu: Option<u32>,
    /// Its thread has not ended.
    pub alive: bool,
    /// An entry or exit of it was seen: guest and host can be told apart.
    pub split: bool,
    /// It has left its guest for a halt, and not entered it since.
    pub halting: bool,
    /// Its last exit was for an interrupt of the host, and it has not entered its guest since.
    pub interrupted: bool,
    /// It has sent a kick or an IPI since its last exit.
    pub sent: Option<How>,
    /// While it runs: a wakeup that may be for the sleep that it is about to begin.
    pub early: Option<Waker>,
    /// Its wait, while it is ready; and while it seems to sleep, if `early` may have ended that.
    pub wait: Option<Wait>,
    /// What ended its last sleep.
    pub woken_by: Option<Waker>,
    halt: Option<Halt>,
}

impl Vcpu {
    /// A vCPU whose state is not known, found at `now`.
    pub fn new(index: VcpuIndex, thread: Tid, number: Option<u32>, now: u64) -> Vcpu {
        Vcpu {
            index,
            thread,
            number,
            unseen: true,
            state: State::Unknown,
            since: now,
            cpu: None,
            alive: true,
            split: false,
            halting: false,
            interrupted: false,
            sent: None,
            early: None,
            wait: None,
            woken_by: None,
            halt: None,
        }
    }

    /// Returns whether it has `cpu`.
    pub fn is_on(&self, cpu: u32) -> bool {
        self.state.has_pcpu() && self.cpu == Some(cpu)
    }

    /// Ends the present state, which was `was` in truth, at `now`, and begins `next`.
    pub fn change(&mut self, now: u64, was: State, next: State, sink: &mut impl Sink) {
        if self.unseen && next != State::Unknown {
            return self.seen(now, next, sink);
        }
        let (from, cpu) = (self.since, self.cpu);
        if now > from && !self.unseen {
            self.span(from, now, was, cpu, sink);
        }
        self.since = self.since.max(now);
        self.state = next;
        if was == State::Unknown {
            self.release(sink);
        }
    }

    /// Begins its spans with `state` at `now`.
    pub fn seen(&mut self, now: u64, state: State, sink: &mut impl Sink) {
        (self.unseen, self.since, self.state) = (false, now, state);
        sink.step(&Step::Seen {
            vcpu: self.index,
            at: now,
        });
    }

    fn span(&mut self, from: u64, to: u64, state: State, cpu: Option<u32>, sink: &mut impl Sink) {
        if let Some(halt) = self.halt.as_mut().filter(|halt| !halt.overflown) {
            if halt.kept.len() < KEPT_MAX {
                halt.kept.push((from, to, state, cpu));
                return;
            }
            self.release(sink);
            self.halt = Some(Halt {
                overflown: true,
                ..Halt::default()
            });
        }
        let vcpu = self.index;
        sink.step(&Step::Was {
            vcpu,
            from,
            to,
            state,
            cpu,
        });
    }

    /// Begins a halt: spans are kept back until its end.
    pub fn halt(&mut self, sink: &mut impl Sink) {
        self.release(sink);
        self.halt = Some(Halt::default());
    }

    /// Gives the spans that were kept back as they are.
    pub fn release(&mut self, sink: &mut impl Sink) {
        let vcpu = self.index;
        for (from, to, state, cpu) in self.halt.take().into_iter().flat_map(|halt| halt.kept) {
            sink.step(&Step::Was {
                vcpu,
                from,
                to,
                state,
                cpu,
            });
        }
    }

    /// The halt ended at `now` after `ns`, with a sleep if `slept`: host time of it before the sleep was polling.
    pub fn halt_ended(&mut self, now: u64, ns: u64, slept: bool, sink: &mut impl Sink) {
        // What it does now goes on; its time so far belongs to the halt.
        let state = self.state;
        self.change(now, state, state, sink);
        let kept = self.halt.take().filter(|halt| !halt.overflown);
        let begun = now.saturating_sub(ns);
        let vcpu = self.index;
        let (mut polled, mut sleeps) = (0, false);
        for (from, to, state, cpu) in kept.into_iter().flat_map(|halt| halt.kept) {
            sleeps |= matches!(state, State::Halted | State::Asleep | State::Unknown);
            let polls = state == State::Host && !sleeps;
            let at = if polls { begun.clamp(from, to) } else { to };
            for (from, to, state) in [(from, at, state), (at, to, State::Polling)] {
                if from < to {
                    sink.step(&Step::Was {
                        vcpu,
                        from,
                        to,
                        state,
                        cpu,
                    });
                }
            }
            polled += to - at;
        }
        let waker = self.woken_by.filter(|_| slept);
        sink.step(&Step::HaltEnded {
            vcpu,
            at: now,
            polled,
            won: !slept,
            ns,
            waker,
        });
    }

    /// Gets `cpu`. If it waited in the queue of another one, it came from there unseen.
    pub fn stays_queued(&mut self, cpu: u32) {
        if let Some(wait) = self.wait.as_mut().filter(|wait| wait.cpu != cpu) {
            wait.behind = Vec::new();
            wait.upto = self.since;
            wait.runner = None;
        }
    }

    /// Ends the wait for a pCPU, if there is one, at `now`; `ran`: with a pCPU.
    pub fn end_wait(&mut self, now: u64, ran: bool, sink: &mut impl Sink) {
        let Some(mut wait) = self.wait.take().filter(|_| ran || self.state == State::Ready) else {
            return;
        };
        // What the pCPU's books do not say.
        wait.attribute(Occupant::Unknown, now);
        if now <= self.since {
            return;
        }
        // It stayed in its guest up to its exit, and the switch came before it entered again.
        let until_exit = match wait.runner {
            Some((_, Some(exit))) if ran => exit.saturating_sub(self.since).min(now - self.since),
            _ => 0,
        };
        sink.step(&Step::Waited {
            vcpu: self.index,
            from: self.since,
            to: now,
            behind: &wait.behind,
            waker: wait.waker,
            until_exit,
            ran,
        });
    }
}
