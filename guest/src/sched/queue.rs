//! A CPU's run queue.

use alloc::vec::Vec;

use holdfast_locks::{CpuId, Word};

use super::params::MIGRATION_COST;
use crate::class::LockClass;
use crate::cpu::{CpuState, idle_task};
use crate::ids::{LocalId, TaskId};
use crate::local::{Local, Shared32};
use crate::machine::Machine;
use crate::sync::{SpinLock, WordOf};
use crate::task::{Task, Tasks};

/// What the scheduler has of one CPU.
pub(crate) struct CpuQueue<M: Machine> {
    pub(crate) run_queue: SpinLock<RunQueue, M>,
    /// The task that this CPU switched from last. Read by the task that it switched to.
    pub(crate) switched_from: LocalId<TaskId>,
    /// Tasks that other CPUs have woken for this one: id + 1 of the last, linked by [`Task::wake_next`].
    pub(crate) wake_list: WordOf<M>,
    /// Not 0: this CPU must balance on behalf of the idle ones.
    pub(crate) balance_kick: Shared32,
    /// When this CPU balances next, in nanoseconds.
    pub(crate) balance_at: Local,
}

impl<M: Machine> CpuQueue<M> {
    pub(crate) fn new(cpu: CpuId) -> Self {
        let idle = idle_task(cpu);
        CpuQueue {
            run_queue: SpinLock::new(LockClass::RunQueue, RunQueue::new(idle)),
            switched_from: LocalId::new(idle),
            wake_list: WordOf::<M>::new(0),
            balance_kick: Shared32::new(0),
            balance_at: Local::new(0),
        }
    }
}

/// A ready task. The order is that in which tasks are picked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Ready {
    vruntime: u64,
    /// The order of arrival, for equal run times.
    arrival: u64,
    id: TaskId,
}

/// The tasks of one CPU: the running task, and the ready tasks in the order of their virtual run time.
#[derive(Debug)]
pub(crate) struct RunQueue {
    /// Sorted, next task last: few tasks are ready, and both ends are cheap.
    ready: Vec<Ready>,
    arrivals: u64,
    pub(crate) idle: TaskId,
    pub(crate) current: TaskId,
    /// Tasks that run or are ready, without the idle task.
    pub(crate) load: u32,
    pub(crate) min_vruntime: u64,
    /// Since when the CPU has had nothing to run. 0: it has a task.
    pub(crate) idle_since: u64,
    /// How long the CPU is idle on average (`rq->avg_idle`), in nanoseconds.
    pub(crate) average_idle: u64,
    /// Balancing passes in a row that found only cache-hot tasks.
    pub(crate) balance_failures: u32,
}

impl RunQueue {
    pub(crate) fn new(idle: TaskId) -> Self {
        RunQueue {
            ready: Vec::with_capacity(32),
            arrivals: 0,
            idle,
            current: idle,
            load: 0,
            min_vruntime: 0,
            idle_since: 0,
            average_idle: 2 * MIGRATION_COST,
            balance_failures: 0,
        }
    }

    /// Returns `true` if the CPU has nothing to run.
    pub(crate) fn is_idle(&self) -> bool {
        self.current == self.idle
    }

    /// Returns `true` if the CPU is usually idle for less time than it takes to move a task.
    pub(crate) fn idles_briefly(&self) -> bool {
        self.average_idle < MIGRATION_COST
    }

    /// Returns `true` if no task waits for the CPU.
    pub(crate) fn none_ready(&self) -> bool {
        self.ready.is_empty()
    }

    /// The smallest virtual run time among the ready tasks.
    pub(crate) fn first_vruntime(&self) -> Option<u64> {
        self.ready.last().map(|ready| ready.vruntime)
    }

    /// Adds `id` to the tasks that wait for the CPU.
    pub(crate) fn insert(&mut self, id: TaskId, vruntime: u64) {
        let entry = Ready {
            vruntime,
            arrival: self.arrivals,
            id,
        };
        self.arrivals += 1;
        let position = self.ready.partition_point(|other| *other > entry);
        self.ready.insert(position, entry);
    }

    /// Takes out the task whose turn it is.
    pub(crate) fn take_first(&mut self) -> Option<TaskId> {
        self.ready.pop().map(|ready| ready.id)
    }

    /// Takes out the ready task whose turn is last among those that `movable` accepts.
    pub(crate) fn take_for_move(&mut self, movable: impl Fn(TaskId) -> bool) -> Option<TaskId> {
        let position = self.ready.iter().position(|ready| movable(ready.id))?;
        Some(self.ready.remove(position).id)
    }

    /// Raises `min_vruntime` to the smallest virtual run time among the running and the ready tasks.
    pub(crate) fn advance(&mut self, hints: &CpuState, current_vruntime: Option<u64>) {
        let reached = match (current_vruntime, self.first_vruntime()) {
            (Some(current), Some(first)) => current.min(first),
            (Some(only), None) | (None, Some(only)) => only,
            (None, None) => return,
        };
        self.min_vruntime = self.min_vruntime.max(reached);
        hints.min_vruntime.set(self.min_vruntime);
    }

    /// Accounts the running task's time up to `now` (`update_curr`).
    pub(crate) fn account<M: Machine>(&mut self, hints: &CpuState, tasks: &Tasks<M>, now: u64) {
        if self.is_idle() {
            return;
        }
        let task = &tasks[self.current];
        let ran = now.saturating_sub(task.accounted_at.get());
        task.accounted_at.set(now);
        task.run_time.add(ran);
        task.vruntime.add(ran);
        let counted = (task.queued.get() != 0).then(|| task.vruntime.get());
        self.advance(hints, counted);
    }

    /// Counts `task`, ready to run, in this queue of `cpu`.
    pub(crate) fn enqueue<M: Machine>(&mut self, hints: &CpuState, cpu: CpuId, id: TaskId, task: &Task<M>) {
        task.queued.set(1);
        task.cpu.set(cpu);
        self.insert(id, task.vruntime.get());
        self.load += 1;
        hints.load.set(self.load);
    }

    /// Stops counting `task`.
    pub(crate) fn dequeued<M: Machine>(&mut self, hints: &CpuState, task: &Task<M>) {
        task.queued.set(0);
        self.load -= 1;
        hints.load.set(self.load);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn least_virtual_run_time_first_then_first_come() {
        let mut queue = RunQueue::new(TaskId(0));
        for (id, vruntime) in [(1, 30), (4, 10), (3, 20), (2, 10), (5, 10)] {
            queue.insert(TaskId(id), vruntime);
        }
        let order: Vec<u32> = core::iter::from_fn(|| queue.take_first()).map(|id| id.0).collect();
        assert_eq!(order, [4, 2, 5, 3, 1]);
    }

    #[test]
    fn a_cpu_that_idles_for_less_than_a_move_costs_keeps_off() {
        let mut queue = RunQueue::new(TaskId(0));
        assert!(!queue.idles_briefly(), "at first a CPU is taken to idle for long");
        for (average, brief) in [(0, true), (MIGRATION_COST - 1, true), (MIGRATION_COST, false)] {
            queue.average_idle = average;
            assert_eq!(queue.idles_briefly(), brief, "{average} ns");
        }
    }

    #[test]
    fn the_last_in_line_is_moved() {
        let mut queue = RunQueue::new(TaskId(0));
        for (id, vruntime) in [(1, 30), (2, 10), (3, 20)] {
            queue.insert(TaskId(id), vruntime);
        }
        assert_eq!(queue.take_for_move(|id| id != TaskId(1)), Some(TaskId(3)));
        assert_eq!(queue.take_for_move(|_| false), None);
        assert_eq!(queue.take_first(), Some(TaskId(2)));
    }
}
