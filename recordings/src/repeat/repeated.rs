//! What threads did, in two readings.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_workloads::{RecordedHost, Step, Tick};

/// How the waits of the threads ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// Waits that another thread of the guest ended.
    pub by_threads: u64,
    /// Waits that the thread's own timer ended.
    pub by_timers: u64,
    /// Waits that an interrupt of a device ended.
    pub by_devices: u64,
    /// Waits whose waker is unknown. They keep their recorded length.
    pub unknown: u64,
}

/// How the waits and the spins of a recording are read, where it does not say what would end them on another host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Guests whose waits all keep their recorded lengths. Those of others are tied to the threads that ended them.
    pub timed: BTreeSet<String>,
    /// A thread that looks as if it spins until a thread that it woke goes on does so. Otherwise it computes for as
    /// long as it was recorded.
    pub spins: bool,
    /// A thread whose timer came while it waited for another one waits for that. If its timer has a period, it comes in
    /// all such waits. Otherwise the thread sleeps until its timer comes.
    pub ticks: bool,
    /// A device ends a wait as long after its begin as was recorded: it answers. Otherwise at the recorded time.
    pub answers: bool,
}

/// Recorded lengths of the steps of a thread that a reading can give another end, in ns and in their order.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Lengths {
    /// Waits that other threads ended.
    pub woken: Vec<u64>,
    /// Waits that devices ended.
    pub answered: Vec<u64>,
    /// Spins for an answer.
    pub spun: Vec<u64>,
    /// The period of the tick.
    pub tick_ns: Option<u64>,
}

/// What the threads of guests did.
#[derive(Clone, Debug, PartialEq)]
pub struct Repeated {
    /// With waits that end when the thread that ended them gets that far, with spins until a woken thread goes on, and
    /// with devices that end waits at the recorded times.
    pub tied: RecordedHost,
    /// The recorded lengths, by guest and thread.
    pub(super) lengths: BTreeMap<String, Vec<Lengths>>,
    /// How the waits ended.
    pub waits: Waits,
}

impl Repeated {
    /// Returns the names of guests in which threads ended each other's waits.
    pub fn with_tied_waits(&self) -> BTreeSet<String> {
        let has_waits =
            |(_, threads): &(&String, &Vec<Lengths>)| threads.iter().any(|lengths| !lengths.woken.is_empty());
        self.lengths
            .iter()
            .filter(has_waits)
            .map(|(name, _)| name.clone())
            .collect()
    }

    /// Returns whether a thread looks as if it spins until another one goes on.
    pub fn has_spins(&self) -> bool {
        self.lengths.values().flatten().any(|lengths| !lengths.spun.is_empty())
    }

    /// Returns whether timers came while threads waited for others.
    pub fn has_ticks(&self) -> bool {
        let steps = self.tied.guests.values().flatten().flat_map(|thread| &thread.steps);
        steps.into_iter().any(|step| matches!(step, Step::Tick(_)))
    }

    /// Returns whether devices ended waits.
    pub fn has_answers(&self) -> bool {
        self.lengths
            .values()
            .flatten()
            .any(|lengths| !lengths.answered.is_empty())
    }

    /// Returns the threads, as `reading` has them.
    pub fn read(&self, reading: &Reading) -> RecordedHost {
        let mut host = self.tied.clone();
        for (name, threads) in &mut host.guests {
            let is_timed = reading.timed.contains(name);
            for (thread, lengths) in threads.iter_mut().zip(&self.lengths[name]) {
                let (mut woken, mut answered, mut spun) =
                    (lengths.woken.iter(), lengths.answered.iter(), lengths.spun.iter());
                if let Some(period_ns) = lengths.tick_ns.filter(|_| reading.ticks && !is_timed) {
                    let takes_ns = drop_ticks(&mut thread.steps);
                    thread.tick = Some(Tick { period_ns, takes_ns });
                }
                let mut kept = Vec::new();
                let steps = thread.steps.drain(..).filter_map(|step| {
                    let length = match step {
                        Step::Woken => woken.next(),
                        Step::Spin { .. } => spun.next(),
                        Step::At(_) => answered.next(),
                        _ => None,
                    };
                    let of_length = |step: fn(u64) -> Step| length.map(|ns| step(*ns));
                    match step {
                        Step::Woken if is_timed => of_length(Step::After),
                        Step::Wake { .. } if is_timed => None,
                        Step::Spin { .. } if is_timed || !reading.spins => of_length(Step::Run),
                        Step::Tick(ns) if is_timed || !reading.ticks => Some(Step::After(ns)),
                        Step::At(_) if reading.answers => of_length(Step::After),
                        step => {
                            kept.extend(length);
                            Some(step)
                        }
                    }
                });
                thread.steps = join(steps.collect::<Vec<Step>>().into_iter());
                thread.lengths = kept;
            }
        }
        host
    }
}

/// Makes a sleep of each [`Step::Tick`] in `steps` after which the thread does something for others before it waits for
/// one of them: what it did then was for that timer.
pub(super) fn settle_ticks(steps: &mut [Step]) {
    let mut is_waiting = false;
    for step in steps.iter_mut().rev() {
        match *step {
            Step::Woken => is_waiting = true,
            Step::Tick(ns) if !is_waiting => *step = Step::After(ns),
            Step::Tick(_) | Step::Run(_) | Step::Exit => {}
            Step::Wake { .. } | Step::Spin { .. } | Step::After(_) | Step::At(_) | Step::Until(_) | Step::Again(_) => {
                is_waiting = false
            }
        }
    }
}

/// Drops each [`Step::Tick`] of `steps` with what the thread did until it waited on. Returns how long that took, the
/// median.
fn drop_ticks(steps: &mut Vec<Step>) -> u64 {
    let mut took = Vec::new();
    let mut is_tick = false;
    steps.retain(|step| {
        match (*step, took.last_mut()) {
            (Step::Tick(_), _) => {
                is_tick = true;
                took.push(0);
            }
            (Step::Run(ns), Some(took)) if is_tick => *took += ns,
            (Step::Exit, _) => {}
            _ => is_tick = false,
        }
        !is_tick
    });
    took.sort_unstable();
    took.get(took.len() / 2).copied().unwrap_or(0)
}

/// Joins runs that follow each other.
pub(super) fn join(steps: impl Iterator<Item = Step>) -> Vec<Step> {
    let mut joined: Vec<Step> = Vec::new();
    for step in steps {
        match (joined.last_mut(), step) {
            (Some(Step::Run(before)), Step::Run(ns)) => *before += ns,
            _ => joined.push(step),
        }
    }
    joined
}
