//! A CPU's run queue.

use alloc::vec::Vec;

use holdfast_locks::{CpuId, Word};

use super::params::MIGRATION_COST;
use crate::class::LockClass;
use crate::config::Placement;
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
    pub(crate) fn new(cpu: CpuId, placement: Placement) -> Self {
        let idle = idle_task(cpu);
        CpuQueue {
            run_queue: SpinLock::new(LockClass::RunQueue, RunQueue::new(idle, placement)),
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
    /// The task that preempts the running one (`cfs_rq->next`), and the one that it preempts (`cfs_rq->last`).
    buddies: [Option<TaskId>; 2],
    /// Which averages of CPUs and tasks are kept.
    placement: Placement,
}

impl RunQueue {
    pub(crate) fn new(idle: TaskId, placement: Placement) -> Self {
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
            buddies: [None; 2],
            placement,
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

    /// Prefers `woken` in the next choice of a task, and after it `preempted`.
    pub(crate) fn prefer(&mut self, woken: TaskId, preempted: Option<TaskId>) {
        self.buddies = [Some(woken), preempted.or(self.buddies[1])];
    }

    /// Prefers task `id` no longer (`clear_buddies`).
    pub(crate) fn forget(&mut self, id: TaskId) {
        for buddy in &mut self.buddies {
            buddy.take_if(|buddy| *buddy == id);
        }
    }

    /// Takes out the task whose turn it is: a preferred one, if its virtual run time is at most `ahead` larger than the
    /// smallest (`pick_next_entity`).
    pub(crate) fn take_next(&mut self, ahead: u64) -> Option<TaskId> {
        let most = self.first_vruntime()?.saturating_add(ahead);
        let place = |id| {
            self.ready
                .iter()
                .position(|ready| ready.id == id && ready.vruntime <= most)
        };
        let preferred = self.buddies.into_iter().flatten().find_map(place);
        let id = self.ready.remove(preferred.unwrap_or(self.ready.len() - 1)).id;
        self.forget(id);
        Some(id)
    }

    /// Takes out the ready task whose turn is last among those that `movable` accepts.
    pub(crate) fn take_for_move(&mut self, movable: impl Fn(TaskId) -> bool) -> Option<TaskId> {
        let position = self.ready.iter().position(|ready| movable(ready.id))?;
        let id = self.ready.remove(position).id;
        self.forget(id);
        Some(id)
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

    /// Adds the load of `task`, which has not been one of this CPU's, to the CPU's average.
    pub(crate) fn attach<M: Machine>(&self, hints: &CpuState, task: &Task<M>, now: u64) {
        if self.placement == Placement::Averages {
            hints.average.account(now, self.load);
            hints.average.attach(task.average.last());
        }
    }

    /// Counts `task`, ready to run since `now`, in this queue of `cpu`.
    pub(crate) fn enqueue<M: Machine>(&mut self, hints: &CpuState, cpu: CpuId, id: TaskId, task: &Task<M>, now: u64) {
        if self.placement != Placement::Counts {
            hints.average.account(now, self.load);
            task.average.account(now, 0);
        }
        if self.placement == Placement::ReadyAverages {
            hints.average.attach(task.average.last());
        }
        task.queued.set(1);
        task.cpu.set(cpu);
        self.insert(id, task.vruntime.get());
        self.load += 1;
        hints.load.set(self.load);
    }

    /// Stops counting `task`, ready to run until `now`.
    pub(crate) fn dequeued<M: Machine>(&mut self, hints: &CpuState, task: &Task<M>, now: u64) {
        if self.placement != Placement::Counts {
            hints.average.account(now, self.load);
            task.average.account(now, 1);
        }
        if self.placement == Placement::ReadyAverages {
            hints.average.take_out(task.average.last());
        }
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
        let mut queue = RunQueue::new(TaskId(0), Placement::Counts);
        for (id, vruntime) in [(1, 30), (4, 10), (3, 20), (2, 10), (5, 10)] {
            queue.insert(TaskId(id), vruntime);
        }
        let order: Vec<u32> = core::iter::from_fn(|| queue.take_next(0)).map(|id| id.0).collect();
        assert_eq!(order, [4, 2, 5, 3, 1]);
    }

    #[test]
    fn the_preempting_task_goes_first_then_the_preempted_one_unless_too_far_ahead() {
        let order = |ahead: u64, gone: u32| {
            let mut queue = RunQueue::new(TaskId(0), Placement::Counts);
            for (id, vruntime) in [(1, 10), (2, 20), (3, 30), (4, 40)] {
                queue.insert(TaskId(id), vruntime);
            }
            queue.prefer(TaskId(3), Some(TaskId(4)));
            queue.forget(TaskId(gone));
            let order: Vec<u32> = core::iter::from_fn(|| queue.take_next(ahead)).map(|id| id.0).collect();
            order
        };
        assert_eq!(order(30, 0), [3, 4, 1, 2]);
        assert_eq!(order(20, 0), [3, 1, 4, 2]);
        assert_eq!(order(19, 0), [1, 3, 2, 4]);
        assert_eq!(order(0, 0), [1, 2, 3, 4]);
        assert_eq!(order(30, 3), [4, 1, 2, 3]);
        assert_eq!(order(30, 4), [3, 1, 2, 4]);
    }

    #[test]
    fn a_cpu_that_idles_for_less_than_a_move_costs_keeps_off() {
        let mut queue = RunQueue::new(TaskId(0), Placement::Counts);
        assert!(!queue.idles_briefly(), "at first a CPU is taken to idle for long");
        for (average, brief) in [(0, true), (MIGRATION_COST - 1, true), (MIGRATION_COST, false)] {
            queue.average_idle = average;
            assert_eq!(queue.idles_briefly(), brief, "{average} ns");
        }
    }

    #[test]
    fn the_last_in_line_is_moved() {
        let mut queue = RunQueue::new(TaskId(0), Placement::Counts);
        for (id, vruntime) in [(1, 30), (2, 10), (3, 20)] {
            queue.insert(TaskId(id), vruntime);
        }
        assert_eq!(queue.take_for_move(|id| id != TaskId(1)), Some(TaskId(3)));
        assert_eq!(queue.take_for_move(|_| false), None);
        assert_eq!(queue.take_next(0), Some(TaskId(2)));
    }
}
