//! A CPU's run queue.

use alloc::vec::Vec;

use crate::kernel::{Kernel, OnCpu};
use crate::machine::Machine;
use crate::percpu::PerCpu;
use crate::sched::MIGRATION_COST;
use crate::task::{Task, TaskId};

/// A ready task. The order is that in which tasks are picked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Ready {
    vruntime: u64,
    /// Who came first, for equal run times.
    arrival: u64,
    id: TaskId,
}

/// The tasks of one CPU: one that runs, and the ready ones in the order of their virtual run time.
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
    /// Since when the CPU has had nothing to run; 0: it has.
    pub(crate) idle_since: u64,
    /// How long it is idle, on average (`rq->avg_idle`), nanoseconds.
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

    /// Whether the CPU has nothing to run.
    pub(crate) fn is_idle(&self) -> bool {
        self.current == self.idle
    }

    /// Whether no task waits for the CPU.
    pub(crate) fn nobody_ready(&self) -> bool {
        self.ready.is_empty()
    }

    /// The smallest virtual run time among the ready tasks.
    pub(crate) fn first_vruntime(&self) -> Option<u64> {
        self.ready.last().map(|ready| ready.vruntime)
    }

    /// Makes `id` wait for the CPU.
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

    /// The task whose turn it is, taken out.
    pub(crate) fn take_first(&mut self) -> Option<TaskId> {
        self.ready.pop().map(|ready| ready.id)
    }

    /// Takes out the ready task that has waited least (it is coldest for nobody, and due last), if `movable` agrees.
    pub(crate) fn take_for_move(&mut self, movable: impl Fn(TaskId) -> bool) -> Option<TaskId> {
        let position = self.ready.iter().position(|ready| movable(ready.id))?;
        Some(self.ready.remove(position).id)
    }

    /// Moves `min_vruntime` up to what has been reached.
    pub(crate) fn advance<M: Machine>(&mut self, local: &PerCpu<M>, current_vruntime: Option<u64>) {
        let reached = match (current_vruntime, self.first_vruntime()) {
            (Some(current), Some(first)) => current.min(first),
            (Some(only), None) | (None, Some(only)) => only,
            (None, None) => return,
        };
        self.min_vruntime = self.min_vruntime.max(reached);
        local.min_vruntime.set(self.min_vruntime);
    }

    /// Accounts the running task's time up to `now` (`update_curr`).
    pub(crate) fn account<M: Machine>(&mut self, kernel: &Kernel<M>, local: &PerCpu<M>, now: u64) {
        if self.is_idle() {
            return;
        }
        let task = kernel.tasks.get(self.current);
        let ran = now.saturating_sub(task.accounted_at.get());
        task.accounted_at.set(now);
        task.run_time.add(ran);
        task.vruntime.add(ran);
        let counted = (task.queued.get() != 0).then(|| task.vruntime.get());
        self.advance(local, counted);
    }

    /// Counts `task` in, ready to run.
    pub(crate) fn enqueue<M: Machine>(&mut self, on: &OnCpu<'_, M>, cpu: u32, id: TaskId, task: &Task<M>) {
        task.queued.set(1);
        task.cpu.set(cpu);
        self.insert(id, task.vruntime.get());
        self.load += 1;
        on.kernel.cpus[cpu as usize].load.set(self.load);
    }

    /// Counts one task out.
    pub(crate) fn dequeued<M: Machine>(&mut self, local: &PerCpu<M>, task: &Task<M>) {
        task.queued.set(0);
        self.load -= 1;
        local.load.set(self.load);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn least_virtual_run_time_first_then_first_come() {
        let mut queue = RunQueue::new(TaskId(0));
        for (id, vruntime) in [(1, 30), (2, 10), (3, 20), (4, 10)] {
            queue.insert(TaskId(id), vruntime);
        }
        let order: Vec<u32> = core::iter::from_fn(|| queue.take_first()).map(|id| id.0).collect();
        assert_eq!(order, [2, 4, 3, 1]);
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
