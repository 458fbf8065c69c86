//! The books: what the steps of a recording add up to.

use super::tally::{Capped, HostThread, Tally, add};
use crate::event::{Name, Tid};
use crate::hosts::names::Role;
use crate::timeline::{How, Occupant, Sink, State, Step, VcpuIndex, reasons};

/// A wait in which the pCPU idles for this long looks like throttling, in ns.
const IDLE_LONG: u64 = 1_000_000;

/// The book of one vCPU.
#[derive(Clone, Debug, Default)]
pub struct Book {
    /// Its thread.
    pub thread: Tid,
    /// The name of its thread.
    pub name: Name,
    /// Its number in its VM.
    pub number: Option<u32>,
    /// Its process, if known.
    pub process: Option<Tid>,
    /// The time of its first event.
    pub since: u64,
    /// The time at which its thread ended.
    pub gone: Option<u64>,
    /// It has entered its guest, or left it.
    pub entered: bool,
    /// Its sums.
    pub tally: Tally,
    last_exit: Option<(u32, u32)>,
    /// The end of its last halt.
    halted_until: u64,
    /// The present stretch with a pCPU: since when, up to when, and the pCPU.
    stretch: Option<(u64, u64, Option<u32>)>,
    /// The pCPU of the stretch before.
    last_cpu: Option<u32>,
}

impl Book {
    /// It had the pCPU `cpu` from `from` to `to`.
    fn ran(&mut self, from: u64, to: u64, cpu: Option<u32>) {
        self.tally.pace.ran_ns += to - from;
        match &mut self.stretch {
            Some((_, end, on)) if *end == from && *on == cpu => *end = to,
            _ => {
                self.end_stretch();
                if cpu.is_some() && self.last_cpu.is_some() && cpu != self.last_cpu {
                    self.tally.pace.moves += 1;
                }
                self.last_cpu = cpu.or(self.last_cpu);
                self.stretch = Some((from, to, cpu));
            }
        }
    }

    fn end_stretch(&mut self) {
        if let Some((from, to, _)) = self.stretch.take() {
            self.tally.pace.runs.enter(to - from);
        }
    }
}

/// A pCPU's time, in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuBook {
    /// vCPUs had it.
    pub vcpus: u64,
    /// Other threads had it.
    pub threads: u64,
    /// No thread had it.
    pub idle: u64,
    /// Not known.
    pub unknown: u64,
}

/// The books of a recording.
#[derive(Clone, Debug, Default)]
pub struct Books {
    /// One for each vCPU, by [`VcpuIndex`].
    pub vcpus: Vec<Book>,
    /// One for each pCPU, by Linux's number.
    pub cpus: std::collections::BTreeMap<u32, CpuBook>,
    /// Time of the pCPUs that threads other than vCPUs had.
    pub threads: Capped<HostThread>,
    /// The longest wait of all: its vCPU, its length in ns and when it began.
    pub worst: Option<(VcpuIndex, u64, u64)>,
}

impl Books {
    fn tally(&mut self, vcpu: VcpuIndex) -> &mut Tally {
        &mut self.vcpus[vcpu.0 as usize].tally
    }
}

impl Sink for Books {
    fn step(&mut self, step: &Step<'_>) {
        match *step {
            Step::Known {
                vcpu,
                thread,
                name,
                number,
                process,
            } => {
                if self.vcpus.len() <= vcpu.0 as usize {
                    self.vcpus.push(Book::default());
                }
                let book = &mut self.vcpus[vcpu.0 as usize];
                (book.thread, book.name, book.number) = (thread, name, number);
                book.process = process;
            }
            Step::Seen { vcpu, at } => self.vcpus[vcpu.0 as usize].since = at,
            Step::Was {
                vcpu,
                from,
                to,
                state,
                cpu,
            } => {
                let book = &mut self.vcpus[vcpu.0 as usize];
                book.tally.ns[state as usize] += to - from;
                book.tally.pace.recorded_ns += to - from;
                match state {
                    State::Guest | State::Host | State::Running => book.ran(from, to, cpu),
                    State::Ready => {
                        book.tally.pace.ready_ns += to - from;
                        book.end_stretch();
                    }
                    _ => book.end_stretch(),
                }
                if let (State::Host, Some(reason)) = (state, book.last_exit) {
                    book.tally.exits.add(reason, 0, to - from);
                }
            }
            Step::Waited { .. } => self.waited(step),
            Step::Exited {
                vcpu,
                reason,
                isa,
                guest,
                ..
            } => {
                let book = &mut self.vcpus[vcpu.0 as usize];
                book.entered = true;
                book.last_exit = Some((isa, reason));
                book.tally.exits.add((isa, reason), 1, 0);
                if reasons::is_pause(reason, isa) {
                    let pauses = &mut book.tally.pauses;
                    add(pauses, 1, guest.unwrap_or(0));
                }
            }
            Step::Kicked { vcpu, target, .. } => {
                let target = u32::try_from(target).unwrap_or(u32::MAX);
                self.tally(vcpu).kicks.add(target, 1, 0);
            }
            Step::Ipi { vcpu, destination, .. } => self.tally(vcpu).ipis.add(destination, 1, 0),
            Step::HaltEnded {
                vcpu,
                at,
                polled,
                won,
                ns,
                waker,
                ..
            } => {
                let book = &mut self.vcpus[vcpu.0 as usize];
                // A halt may have begun before the recording. Halts do not overlap.
                let recorded = at.saturating_sub(book.since.max(book.halted_until));
                book.halted_until = book.halted_until.max(at);
                let tally = &mut book.tally;
                let polls = if won {
                    &mut tally.polls_won
                } else {
                    &mut tally.polls_paid
                };
                add(polls, 1, polled);
                if waker.is_some_and(|waker| waker.how == How::Kick) {
                    add(&mut tally.kicked, 1, ns.min(recorded));
                }
            }
            Step::Had {
                cpu,
                from,
                to,
                occupant,
            } => {
                let ns = to - from;
                let book = self.cpus.entry(cpu).or_default();
                match occupant {
                    Occupant::Idle => book.idle += ns,
                    Occupant::Vcpu(_) => book.vcpus += ns,
                    Occupant::Unknown => book.unknown += ns,
                    Occupant::Thread { role, process, name } => {
                        book.threads += ns;
                        self.threads.add(host_thread(role, process, name), 1, ns);
                    }
                }
            }
            Step::Gone { vcpu, at } => self.vcpus[vcpu.0 as usize].gone = Some(at),
        }
    }
}

impl Books {
    fn waited(&mut self, step: &Step<'_>) {
        let Step::Waited {
            vcpu,
            from,
            to,
            behind,
            waker,
            until_exit,
            ran,
        } = *step
        else {
            return;
        };
        let ns = to - from;
        if self.worst.is_none_or(|(_, worst, _)| ns > worst) {
            self.worst = Some((vcpu, ns, from));
        }
        let tally = self.tally(vcpu);
        tally.waits += 1;
        tally.pace.waits.enter(ns);
        if ns > tally.longest.0 {
            tally.longest = (ns, from);
        }
        for (occupant, ns) in behind {
            match *occupant {
                Occupant::Idle => {
                    tally.behind_idle += ns;
                    tally.behind_idle_long += if *ns >= IDLE_LONG { *ns } else { 0 };
                }
                Occupant::Vcpu(other) => tally.behind_vcpus.add(other, 1, *ns),
                Occupant::Unknown => tally.behind_unknown += ns,
                Occupant::Thread { role, process, name } => {
                    tally.behind_threads.add(host_thread(role, process, name), 1, *ns);
                }
            }
        }
        if let [(Occupant::Idle, ns)] = behind
            && waker.is_some()
            && ran
        {
            let is_long = *ns >= IDLE_LONG;
            add(&mut tally.idle_exits[usize::from(is_long)], 1, *ns);
        }
        if until_exit > 0 {
            add(&mut tally.until_exit, 1, until_exit);
        }
        if let Some(waker) = waker {
            if ran {
                tally.woke(ns);
            }
            tally.wakers.add((waker.how, waker.who), 1, ns);
        }
    }
}

/// Kernel threads carry what they work on in their names, as `kworker/3:1-events` does: one key for all of a kind.
fn host_thread(role: Role, process: Option<Tid>, name: Name) -> HostThread {
    let kind = match role {
        Role::Kernel => name.split(['/', ':']).next().map(Name::from).unwrap_or(name),
        _ => name,
    };
    HostThread {
        role,
        process: process.filter(|_| role != Role::Kernel),
        name: kind,
    }
}
