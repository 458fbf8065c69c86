//! Host timers: a queue per pCPU, multiplexed on the pCPU's one hardware timer.
//!
//! Each thread has two timers: one ends its sleep, and the other is the LAPIC timer of its vCPU. Each task group has
//! the two timers of its quota. A timer is armed on one pCPU at a time and expires there. Timers of equal time expire
//! in the order of arming.

use alloc::vec;
use alloc::vec::Vec;

use crate::boundary::{GroupId, TaskId};

/// A timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// Ends the sleep of a thread.
    Sleep(TaskId),
    /// The LAPIC timer of the vCPU whose thread this is.
    Lapic(TaskId),
    /// A period of the group's quota ends.
    Period(GroupId),
    /// Returned quota of the group is to be handed out.
    Slack(GroupId),
}

/// The number of kinds of timers.
const KINDS: usize = 4;

impl Timer {
    fn slot(self) -> usize {
        let (number, kind) = match self {
            Timer::Sleep(task) => (task.0, 0),
            Timer::Lapic(task) => (task.0, 1),
            Timer::Period(group) => (group.0, 2),
            Timer::Slack(group) => (group.0, 3),
        };
        number as usize * KINDS + kind
    }
}

/// Expiry time, order of arming, the timer.
type Entry = (u64, u64, Timer);

/// All timers of the host: an indexed binary heap per pCPU.
#[derive(Clone, Debug)]
pub(crate) struct Timers {
    heaps: Vec<Vec<Entry>>,
    /// For each timer the pCPU where it is armed, and its position in that heap.
    slots: Vec<Option<(u32, usize)>>,
    armed: u64,
}

impl Timers {
    pub(crate) fn new(pcpus: u32) -> Timers {
        Timers {
            heaps: vec![Vec::new(); pcpus as usize],
            slots: Vec::new(),
            armed: 0,
        }
    }

    /// Makes room for the timers of the thread, group or VM with this number, and of all with lower ones.
    pub(crate) fn make_room(&mut self, number: u32) {
        let room = (number as usize + 1) * KINDS;
        self.slots.resize(room.max(self.slots.len()), None);
    }

    /// Arms `timer` on `pcpu` for `at`, wherever it was armed before.
    pub(crate) fn arm(&mut self, timer: Timer, pcpu: u32, at: u64) {
        self.cancel(timer);
        self.armed += 1;
        let position = self.heaps[pcpu as usize].len();
        self.heaps[pcpu as usize].push((at, self.armed, timer));
        self.slots[timer.slot()] = Some((pcpu, position));
        self.sift_up(pcpu, position);
    }

    /// Disarms `timer`. Does nothing if it is not armed.
    pub(crate) fn cancel(&mut self, timer: Timer) {
        if let Some((pcpu, position)) = self.slots[timer.slot()] {
            self.remove(pcpu, position);
        }
    }

    /// Returns the pCPU where `timer` is armed, and its expiry time.
    pub(crate) fn armed(&self, timer: Timer) -> Option<(u32, u64)> {
        self.slots[timer.slot()].map(|(pcpu, position)| (pcpu, self.heaps[pcpu as usize][position].0))
    }

    /// Returns when the first timer of `pcpu` expires.
    pub(crate) fn next(&self, pcpu: u32) -> Option<u64> {
        self.heaps[pcpu as usize].first().map(|entry| entry.0)
    }

    /// Takes the first timer of `pcpu` that has expired by `now`.
    pub(crate) fn pop(&mut self, pcpu: u32, now: u64) -> Option<Timer> {
        let &(at, _, timer) = self.heaps[pcpu as usize].first()?;
        if at > now {
            return None;
        }
        self.remove(pcpu, 0);
        Some(timer)
    }

    fn remove(&mut self, pcpu: u32, position: usize) {
        let heap = &mut self.heaps[pcpu as usize];
        let (_, _, timer) = heap.swap_remove(position);
        self.slots[timer.slot()] = None;
        if let Some(&(_, _, moved)) = heap.get(position) {
            self.slots[moved.slot()] = Some((pcpu, position));
            self.sift_down(pcpu, position);
            self.sift_up(pcpu, position);
        }
    }

    fn sift_up(&mut self, pcpu: u32, from: usize) {
        let mut at = from;
        while at > 0 {
            let parent = (at - 1) / 2;
            if self.heaps[pcpu as usize][parent] <= self.heaps[pcpu as usize][at] {
                break;
            }
            self.swap(pcpu, parent, at);
            at = parent;
        }
    }

    fn sift_down(&mut self, pcpu: u32, from: usize) {
        let mut at = from;
        loop {
            let heap = &self.heaps[pcpu as usize];
            let first = [2 * at + 1, 2 * at + 2].into_iter().filter(|&child| child < heap.len());
            let Some(child) = first.min_by_key(|&child| heap[child]) else {
                break;
            };
            if heap[at] <= heap[child] {
                break;
            }
            self.swap(pcpu, at, child);
            at = child;
        }
    }

    fn swap(&mut self, pcpu: u32, a: usize, b: usize) {
        let heap = &mut self.heaps[pcpu as usize];
        heap.swap(a, b);
        for position in [a, b] {
            self.slots[heap[position].2.slot()] = Some((pcpu, position));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against a plain sorted list.
        #[test]
        fn timers_expire_in_order(actions in proptest::collection::vec((0u32..8, 0u32..2, 0u64..50, any::<bool>()), 1..80)) {
            let mut timers = Timers::new(2);
            timers.make_room(7);
            let mut model: Vec<(u64, usize, u32, u32)> = Vec::new();
            for (sequence, &(task, pcpu, at, cancel)) in actions.iter().enumerate() {
                model.retain(|entry| entry.2 != task);
                if cancel {
                    timers.cancel(Timer::Lapic(TaskId(task)));
                } else {
                    timers.arm(Timer::Lapic(TaskId(task)), pcpu, at);
                    model.push((at, sequence, task, pcpu));
                }
            }
            model.sort();
            for pcpu in 0..2 {
                for entry in model.iter().filter(|entry| entry.3 == pcpu) {
                    prop_assert_eq!(timers.next(pcpu), Some(entry.0));
                    prop_assert_eq!(timers.armed(Timer::Lapic(TaskId(entry.2))), Some((pcpu, entry.0)));
                    prop_assert_eq!(timers.pop(pcpu, u64::MAX), Some(Timer::Lapic(TaskId(entry.2))));
                }
                prop_assert_eq!(timers.pop(pcpu, u64::MAX), None);
            }
        }
    }
}
