//! What the scheduler keeps per pCPU and per thread, beside the queues of entities.

use alloc::vec::Vec;

use super::favor_config::FavorRecord;
use super::ids::EntityId;
use super::mask::Mask;
use crate::boundary::{GroupId, TaskId};

/// Length of the load history.
pub(crate) const LOAD_INDICES: usize = 5;

/// A pCPU's part of the scheduler.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunQueue {
    /// Who runs; `None`: idle.
    pub(crate) curr: Option<TaskId>,
    pub(crate) need_resched: bool,
    /// Threads that other pCPUs woke and left to this one to enqueue.
    pub(crate) wake_list: Vec<TaskId>,
    /// Load now, and averaged over 2, 4, 8 and 16 ticks.
    pub(crate) load: [u64; LOAD_INDICES],
    /// When `load` was last brought up to date. Ticks since power-on.
    pub(crate) load_tick: u64,
    /// Since when it is idle; `None`: it is not, or was woken since.
    pub(crate) idle_since: Option<u64>,
    /// How long it is idle at a time, on average. Nanoseconds.
    pub(crate) avg_idle: u64,
    /// When any of its domains is next due for balancing. Ticks since power-on.
    pub(crate) next_balance: u64,
    /// Another pCPU asked for the running thread to be pushed to it.
    pub(crate) push_to: Option<u32>,
    /// It was asked to balance for all idle pCPUs.
    pub(crate) balance_idle: bool,
    /// It polls for a halted vCPU: additions to its queue end that.
    pub(crate) polling: bool,
    /// Nanoseconds for which nothing ran.
    pub(crate) idle_ns: u64,
    /// When the present idle time began.
    pub(crate) idle_begin: u64,
    /// What a search for an idle pCPU on its behalf costs, on average. Nanoseconds.
    pub(crate) avg_scan: u64,
    /// What a directed yield here last did beside its marks.
    pub(crate) favors: FavorRecord,
}

impl RunQueue {
    /// Brings the load history up to `tick`; `load` is the weight on the queue now.
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

/// `load` after `ticks` without any, in the history of `index`: times `(1 - 1/2^index)` for each tick.
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

/// Where a thread is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ThreadState {
    /// Not started yet, or asleep.
    Sleeping,
    /// On the wake list of its pCPU.
    Waking,
    /// On its pCPU's queue, running or not.
    Runnable,
    /// Gone forever.
    Dead,
}

/// How often a thread wakes another one than before.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wakes {
    last: Option<TaskId>,
    /// Halved once a second.
    pub(crate) flips: u32,
    decayed_at: u64,
}

impl Wakes {
    /// It wakes `task` at `tick`; there are `hz` of these in a second.
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
#[derive(Clone, Debug)]
pub(crate) struct Thread {
    pub(crate) entity: EntityId,
    pub(crate) group: GroupId,
    /// Where it runs, or ran last.
    pub(crate) pcpu: u32,
    /// Where it may run; `None`: anywhere.
    pub(crate) affinity: Option<Mask>,
    pub(crate) state: ThreadState,
    pub(crate) on_cpu: bool,
    /// Since when it waits for its pCPU.
    pub(crate) queued_at: u64,
    /// Nanoseconds for which it was runnable and did not run.
    pub(crate) run_delay: u64,
    /// Whom it wakes.
    pub(crate) wakes: Wakes,
    /// A task of a kernel that says where it can be preempted: the world is told where it waits, and that kernel
    /// accounts for its wakeups and for switching to it.
    pub(crate) voluntary: bool,
    /// It has lived.
    pub(crate) started: bool,
}

impl Thread {
    pub(crate) fn may_run_on(&self, pcpu: u32) -> bool {
        self.affinity.as_ref().is_none_or(|mask| mask.has(pcpu))
    }

    /// Returns whether there is only one pCPU for it.
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
        for ticks in [1, 2, 7, 30] {
            let (mut stepped, mut jumped) = (RunQueue::default(), RunQueue::default());
            for queue in [&mut stepped, &mut jumped] {
                (1..100).for_each(|tick| queue.update_load(tick, 4096));
            }
            (100..100 + ticks).for_each(|tick| stepped.update_load(tick, 0));
            jumped.update_load(99 + ticks, 0);
            for (a, b) in stepped.load.iter().zip(jumped.load) {
                assert!(a.abs_diff(b) <= 16, "{ticks} ticks: {stepped:?} {jumped:?}");
            }
        }
    }
}
