//! The scheduler's records of pCPUs and threads, apart from the queues of entities.

use alloc::vec::Vec;

use super::ids::EntityId;
use super::mask::Mask;
use super::pelt::Tracked;
use crate::boundary::{GroupId, TaskId};

/// Length of the load history.
pub(crate) const LOAD_INDICES: usize = 5;

/// The scheduler's record of a pCPU.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunQueue {
    /// The running thread. `None`: idle.
    pub(crate) curr: Option<TaskId>,
    pub(crate) need_resched: bool,
    /// It was not interrupted for `need_resched`, and need not be before its next tick or exit.
    pub(crate) lazily: bool,
    /// Threads that other pCPUs woke and left to this one to enqueue.
    pub(crate) wake_list: Vec<TaskId>,
    /// The present load, and averages over 2, 4, 8 and 16 ticks.
    pub(crate) load: [u64; LOAD_INDICES],
    /// The last update of `load`. Ticks since power-on.
    pub(crate) load_tick: u64,
    /// Start of its idle time. `None`: it is not idle, or was woken since.
    pub(crate) idle_since: Option<u64>,
    /// Average length of an idle time. Nanoseconds.
    pub(crate) avg_idle: u64,
    /// When any of its domains is next due for balancing. Ticks since power-on.
    pub(crate) next_balance: u64,
    /// Another pCPU asked for the running thread to be pushed to it.
    pub(crate) push_to: Option<u32>,
    /// It was asked to balance for all idle pCPUs.
    pub(crate) balance_idle: bool,
    /// It polls for a halted vCPU. A new entry in its queue ends that.
    pub(crate) polling: bool,
    /// Total time without a running thread. Nanoseconds.
    pub(crate) idle_ns: u64,
    /// Start of the present idle time.
    pub(crate) idle_begin: u64,
    /// Average cost of a search for an idle pCPU on its behalf. Nanoseconds.
    pub(crate) avg_scan: u64,
    /// Its utilization, if it bounds the search for idle pCPUs: 1024 while a thread runs.
    pub(crate) busy: Tracked,
    /// When the timer that ends slices expires, if it is armed.
    pub(crate) slice_timer: Option<u64>,
    /// Its last tick. Nanoseconds.
    pub(crate) ticked_at: u64,
}

impl RunQueue {
    /// Updates the load history up to `tick`. `load` is the present weight on the queue.
    pub(crate) fn update_load(&mut self, tick: u64, load: u64) {
        let missed = tick - self.load_tick;
        if missed == 0 {
            return;
        }
        self.load_tick = tick;
        self.load[0] = load;
        for (index, slot) in self.load.iter_mut().enumerate().skip(1) {
            let scale = 1u64 << index;
            let old = decayed(*slot, missed - 1, index as u32);
            // Rounds up when growing, so that a steady load is reached.
            let new = if load > old { load + scale - 1 } else { load };
            *slot = (old * (scale - 1) + new) >> index;
        }
    }
}

/// Returns `load` after `ticks` without any, in the history of `index`: times `(1 - 1/2^index)` for each tick.
fn decayed(load: u64, ticks: u64, index: u32) -> u64 {
    if ticks == 0 || load == 0 {
        return load;
    }
    let scale = 1u64 << index;
    if ticks >= 64 * scale {
        return 0;
    }
    let mut factor = ((scale - 1) << 32) >> index;
    let mut power = 1u64 << 32;
    let mut left = ticks;
    while left > 0 {
        if left & 1 == 1 {
            power = (power * factor) >> 32;
        }
        factor = (factor * factor) >> 32;
        left >>= 1;
    }
    ((u128::from(load) * u128::from(power)) >> 32) as u64
}

/// The state of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ThreadState {
    /// Not started yet, or asleep.
    #[default]
    Sleeping,
    /// On the wake list of its pCPU.
    Waking,
    /// On its pCPU's queue, running or not.
    Runnable,
    /// The thread has ended.
    Dead,
}

/// How often a thread wakes another thread than the time before.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wakes {
    last: Option<TaskId>,
    /// Halved once a second.
    pub(crate) flips: u32,
    decayed_at: u64,
}

impl Wakes {
    /// Records that it wakes `task` at `tick`. There are `hz` ticks in a second.
    pub(crate) fn record(&mut self, task: TaskId, tick: u64, hz: u64) {
        if tick > self.decayed_at + hz {
            self.flips /= 2;
            self.decayed_at = tick;
        }
        if self.last.replace(task) != Some(task) {
            self.flips += 1;
        }
    }
}

/// A thread.
#[derive(Clone, Debug, Default)]
pub(crate) struct Thread {
    pub(crate) entity: EntityId,
    pub(crate) group: GroupId,
    /// The pCPU where it runs, or ran last.
    pub(crate) pcpu: u32,
    /// The pCPU before that one, as of the last search for an idle pCPU.
    pub(crate) recently_used: u32,
    /// The pCPUs where it may run. `None`: all.
    pub(crate) affinity: Option<Mask>,
    pub(crate) state: ThreadState,
    pub(crate) on_cpu: bool,
    /// The time since which it waits for its pCPU.
    pub(crate) queued_at: u64,
    /// Total time that it was runnable without running. Nanoseconds.
    pub(crate) run_delay: u64,
    /// The threads that it wakes.
    pub(crate) wakes: Wakes,
    /// A task that is preempted only at its yield points. Where it waits is reported, and its kernel accounts for its
    /// wakeups and for switching to it.
    pub(crate) voluntary: bool,
    /// It has been started.
    pub(crate) started: bool,
    /// The pCPU where it shall start, in place of the idlest.
    pub(crate) first: Option<u32>,
}

impl Thread {
    pub(crate) fn may_run_on(&self, pcpu: u32) -> bool {
        self.affinity.as_ref().is_none_or(|mask| mask.has(pcpu))
    }

    /// Returns whether it may run on one pCPU only.
    pub(crate) fn is_pinned(&self) -> bool {
        self.affinity.as_ref().is_some_and(|mask| mask.count() == 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steady_load_is_reached() {
        let mut queue = RunQueue::default();
        for tick in 1..200 {
            queue.update_load(tick, 1024);
        }
        assert_eq!(queue.load, [1024; LOAD_INDICES]);
    }

    #[test]
    fn missed_ticks_decay_like_ticks_without_load() {
        for missed in (1..120).chain([200, 700, 1_024, 5_000]) {
            let loaded = RunQueue {
                load: [1 << 20; LOAD_INDICES],
                ..RunQueue::default()
            };
            let (mut jump, mut steps) = (loaded.clone(), loaded);
            jump.update_load(missed, 3_000);
            (1..missed).for_each(|tick| steps.update_load(tick, 0));
            steps.update_load(missed, 3_000);
            for (index, (jump, steps)) in jump.load.into_iter().zip(steps.load).enumerate() {
                // Each tick rounds down.
                let rounding = 1 << index;
                assert!(
                    jump.abs_diff(steps) <= rounding,
                    "{missed} ticks, index {index}: {jump} {steps}"
                );
            }
        }
    }

    #[test]
    fn partners_are_counted_when_they_change_and_forgotten_by_halves() {
        let mut wakes = Wakes::default();
        for (task, tick, flips) in [
            (1, 0, 1),
            (1, 1, 1),
            (2, 2, 2),
            (1, 100, 3),
            (1, 101, 1),
            (2, 201, 2),
            (2, 202, 1),
        ] {
            wakes.record(TaskId(task), tick, 100);
            assert_eq!(wakes.flips, flips, "tick {tick}");
        }
    }
}
