//! Threads that spin until a thread that they woke has gone on: a vCPU that has called another one and waits for its
//! answer.
//!
//! No event says that a thread spins. What can be seen is that it never waits, and never wakes the same thread again,
//! before that one has gone on; and that the longer that one waits for a pCPU, the longer it takes. A thread that
//! computes meanwhile can look alike: its next wake has to wait until the other sleeps again. So this is a reading, and
//! the replay against the recording says whether it holds.

use std::collections::BTreeSet;

use holdfast_workloads::Step;

use super::repeated::join;

/// Fewest wakes of a thread by another one that say something.
const WAKES_MIN: usize = 40;
/// Share of them after which the waker does nothing else before the woken one has gone on.
const IN_ORDER: f64 = 0.95;
/// Correlation of the ranks of the two times (Spearman), from which on they are believed to belong together. Of the
/// longer half of the waits: short ones are noise.
const CORRELATION: f64 = 0.8;

/// A guest, its thread that wakes, and its thread that is woken.
pub(super) type Pair = (usize, usize, usize);

/// A wake.
#[derive(Clone, Copy, Debug)]
struct Sent {
    pair: Pair,
    at: u64,
    /// When the woken thread went on.
    resumed: Option<u64>,
    /// When the waker waited, or woke the same thread again.
    next: Option<u64>,
}

/// The wakes of all threads.
#[derive(Debug, Default)]
pub(super) struct Spins {
    sent: Vec<Sent>,
    /// Wakes after which the waker has done nothing else.
    open: Vec<usize>,
}

impl Spins {
    /// Wake number `wake`, which is the next number, is of `pair`.
    pub(super) fn wakes(&mut self, wake: u32, pair: Pair, at: u64) {
        self.close(at, |open| open == pair);
        self.open.push(self.sent.len());
        debug_assert_eq!(self.sent.len(), wake as usize);
        self.sent.push(Sent {
            pair,
            at,
            resumed: None,
            next: None,
        });
    }

    /// A thread of a guest waits from `at` on.
    pub(super) fn waits(&mut self, (guest, thread): (usize, usize), at: u64) {
        self.close(at, |pair| (pair.0, pair.1) == (guest, thread));
    }

    fn close(&mut self, at: u64, is_of: impl Fn(Pair) -> bool) {
        let Spins { sent, open } = self;
        open.retain(|wake| {
            let wake = &mut sent[*wake];
            let closes = is_of(wake.pair) && wake.at < at;
            if closes {
                wake.next = Some(at);
            }
            !closes
        });
    }

    /// The thread that `wake` has woken went on at `at`. Returns who woke whom.
    pub(super) fn goes_on(&mut self, wake: u32, at: u64) -> Option<Pair> {
        let sent = self.sent.get_mut(wake as usize)?;
        sent.resumed = Some(at);
        Some(sent.pair)
    }

    /// Returns who spins for whom.
    pub(super) fn found(self) -> BTreeSet<Pair> {
        let pairs: BTreeSet<Pair> = self.sent.iter().map(|sent| sent.pair).collect();
        let spins = |pair: &Pair| {
            let own = self.sent.iter().filter(|sent| sent.pair == *pair);
            let times = own.filter_map(|sent| Some((sent.resumed?.saturating_sub(sent.at), sent.next? - sent.at)));
            let mut times: Vec<(u64, u64)> = times.collect();
            times.sort_unstable();
            let in_order = times.iter().filter(|(waited, took)| took >= waited).count();
            times.len() >= WAKES_MIN
                && in_order as f64 >= IN_ORDER * times.len() as f64
                && correlation(&times[times.len() / 2..]) >= CORRELATION
        };
        pairs.into_iter().filter(spins).collect()
    }
}

/// Returns the correlation of the ranks of the two numbers, or 0 if one of them is always the same.
fn correlation(pairs: &[(u64, u64)]) -> f64 {
    let (one, other) = (ranks(pairs, |pair| pair.0), ranks(pairs, |pair| pair.1));
    let mean = (pairs.len() as f64 - 1.0) / 2.0;
    let (mut both, mut squares) = (0.0, [0.0; 2]);
    for (one, other) in one.iter().zip(&other) {
        both += (one - mean) * (other - mean);
        squares[0] += (one - mean).powi(2);
        squares[1] += (other - mean).powi(2);
    }
    let whole = (squares[0] * squares[1]).sqrt();
    if whole > 0.0 { both / whole } else { 0.0 }
}

/// Returns the rank of each number, the mean of their ranks for equal ones.
fn ranks(pairs: &[(u64, u64)], of: impl Fn(&(u64, u64)) -> u64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..pairs.len()).collect();
    order.sort_by_key(|at| of(&pairs[*at]));
    let mut ranks = vec![0.0; pairs.len()];
    let mut begin = 0;
    for equal in order.chunk_by(|a, b| of(&pairs[*a]) == of(&pairs[*b])) {
        let rank = begin as f64 + (equal.len() as f64 - 1.0) / 2.0;
        equal.iter().for_each(|at| ranks[*at] = rank);
        begin += equal.len();
    }
    ranks
}

/// Returns `steps`, in which wakes and spins name wakes, with the waits that `ended` has for these; and the recorded
/// lengths of the spins in ns. A wake that ended no wait, since its target had not slept yet, is only time. A spin
/// takes the place of the time since the wake, if `is_spin` for its thread.
pub(super) fn marked(steps: Vec<Step>, ended: &[Option<u32>], is_spin: impl Fn(u32) -> bool) -> (Vec<Step>, Vec<u64>) {
    let mut kept: Vec<Step> = Vec::with_capacity(steps.len());
    let mut spun = Vec::new();
    for step in steps {
        match step {
            Step::Wake { thread, wait } => {
                kept.extend(ended[wait as usize].map(|wait| Step::Wake { thread, wait }));
            }
            Step::Spin { thread, wait } => {
                let Some(wait) = ended[wait as usize].filter(|_| is_spin(thread)) else {
                    continue;
                };
                let mut length = 0;
                // Its exits meanwhile, for its timer, are a part of the spin.
                while let Some(step) = kept.pop_if(|step| matches!(step, Step::Run(_) | Step::Exit)) {
                    length += if let Step::Run(ns) = step { ns } else { 0 };
                }
                spun.push(length);
                kept.push(Step::Spin { thread, wait });
            }
            step => kept.push(step),
        }
    }
    (join(kept.into_iter()), spun)
}
