//! The locks of the host's run queues in virtual time.
//!
//! A host step is decided at once, and its work takes time afterwards. So a lock is not held or free "now": it has
//! stretches of time for which it is taken. A step that needs it takes the first gap that is long enough.
//!
//! - **Exclusion**: stretches of one lock never overlap.
//! - **Both at once**: a step that needs two locks takes the lower one, waits for the other with it, and holds both for
//!   its work.
//! - **Order**: a step never delays work that was reserved before. Where a real ticket lock would have served it first,
//!   it takes the next gap instead, so waits are not too long on average, but who waits may differ.

use holdfast_host::{IdVec, PcpuId};
use holdfast_machine::{Picos, Time};

/// A stretch of time for which a lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    begin: Time,
    end: Time,
}

/// The lock of one run queue.
#[derive(Clone, Debug, Default)]
pub struct QueueLock {
    /// What has not ended yet, in order.
    held: Vec<Held>,
    /// The pCPU that took it last, which has its line. `None`: the pCPU of the queue.
    owner: Option<PcpuId>,
}

impl QueueLock {
    /// Returns the first time from `from` on at which the lock is free for `length`.
    fn free_at(&self, from: Time, length: Picos) -> Time {
        let mut at = from;
        for held in &self.held {
            if at + length <= held.begin {
                break;
            }
            at = at.max(held.end);
        }
        at
    }

    fn hold(&mut self, begin: Time, end: Time, owner: PcpuId) {
        let place = self.held.partition_point(|held| held.begin < begin);
        self.held.insert(place, Held { begin, end });
        self.owner = Some(owner);
    }

    fn forget_before(&mut self, now: Time) {
        self.held.retain(|held| held.end > now);
    }
}

/// The pCPU that takes locks, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Taker {
    /// The pCPU.
    pub pcpu: PcpuId,
    /// The present time, before which no step needs a lock.
    pub now: Time,
    /// When it needs the locks: after its earlier work of the same step.
    pub from: Time,
    /// How long it works under them.
    pub work: Picos,
}

/// Takes the locks of `queues`, which are in order. `transfer` is the time that a lock's line needs from one pCPU to
/// another. Returns the time spent before the work begins.
///
/// `lock_of` returns the lock of a pCPU's run queue.
pub fn take<P>(
    pcpus: &mut IdVec<PcpuId, P>,
    lock_of: impl Fn(&mut P) -> &mut QueueLock,
    by: Taker,
    queues: [PcpuId; 2],
    transfer: impl Fn(PcpuId, PcpuId) -> Picos,
) -> Picos {
    let Taker { pcpu, now, from, work } = by;
    let [low, high] = queues;
    let one = low == high;
    let mut locks = queues.map(|queue| std::mem::take(lock_of(&mut pcpus[queue])));
    let mut index = 0;
    let moves = queues.map(|queue| {
        let owner = locks[index].owner.unwrap_or(queue);
        locks[index].forget_before(now);
        index += 1;
        if owner == pcpu {
            Picos::ZERO
        } else {
            transfer(owner, pcpu)
        }
    });
    let mut begin = from;
    let (low_at, high_at, end) = loop {
        let low_at = locks[0].free_at(begin, moves[0] + work);
        // With one lock there is nothing to wait for with it.
        let (high_at, last) = match one {
            true => (low_at, moves[0]),
            false => (locks[1].free_at(low_at + moves[0], moves[1] + work), moves[1]),
        };
        let end = high_at + work + last;
        begin = locks[0].free_at(low_at, end.since(low_at));
        if begin == low_at {
            break (low_at, high_at, end);
        }
    };
    locks[0].hold(low_at, end, pcpu);
    locks[1].hold(high_at, end, pcpu);
    let [first, second] = locks;
    if !one {
        *lock_of(&mut pcpus[high]) = second;
    }
    *lock_of(&mut pcpus[low]) = first;
    end.since(from) - work
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORK: Picos = Picos(1000);

    type Pcpus = IdVec<PcpuId, QueueLock>;

    fn pcpus(count: usize) -> Pcpus {
        IdVec::filled(QueueLock::default(), count)
    }

    fn take(pcpus: &mut Pcpus, pcpu: u32, queues: [u32; 2], from: u64) -> u64 {
        let queues = queues.map(PcpuId);
        let by = Taker {
            pcpu: PcpuId(pcpu),
            now: Time(0),
            from: Time(from),
            work: WORK,
        };
        super::take(pcpus, |lock| lock, by, queues, |_, _| Picos(10)).0
    }

    fn never_overlap(pcpus: &Pcpus) {
        for pcpu in pcpus.iter() {
            let held = &pcpu.held;
            assert!(held.windows(2).all(|pair| pair[0].end <= pair[1].begin), "{held:?}");
        }
    }

    #[test]
    fn a_lock_is_waited_for_and_its_line_moves() {
        let mut locks = pcpus(3);
        assert_eq!(take(&mut locks, 0, [0, 0], 0), 0, "free, and its own");
        assert_eq!(take(&mut locks, 1, [0, 0], 100), 900 + 10);
        assert_eq!(take(&mut locks, 1, [0, 0], 5000), 0, "it has the line");
        // Between what the second and the third have taken.
        assert_eq!(take(&mut locks, 2, [0, 0], 100), 1910 + 10);
        never_overlap(&locks);
    }

    #[test]
    fn two_locks_are_held_together_and_the_first_while_the_second_is_waited_for() {
        let mut locks = pcpus(3);
        assert_eq!(take(&mut locks, 2, [2, 2], 0), 0);
        assert_eq!(take(&mut locks, 0, [0, 2], 0), 1000 + 10);
        assert_eq!(
            take(&mut locks, 0, [0, 0], 500),
            2010 - 500,
            "held for the other's sake"
        );
        never_overlap(&locks);
    }

    #[test]
    fn any_order_of_takers_excludes() {
        let mut locks = pcpus(4);
        let mut state = 7u64;
        let mut next = |limit: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % limit
        };
        for _ in 0..2000 {
            let (a, b) = (next(4) as u32, next(4) as u32);
            take(&mut locks, next(4) as u32, [a.min(b), a.max(b)], next(200_000));
            never_overlap(&locks);
        }
    }
}
