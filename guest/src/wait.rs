//! Sleeping: wait queues and completions.
//!
//! **No lost wakeup**: a sleeper joins the queue and sets its state to asleep *before* it checks its condition. A waker
//! changes the condition *before* it checks the queue.

use crate::class::LockClass;
use crate::costs;
use crate::ids::TaskId;
use crate::local::Shared32;
use crate::machine::Machine;
use crate::sched::{self, OnCpu, Scheduler, WakeHint};
use crate::sync::SpinLock;
use crate::task::{Task, Tasks, state};

/// Tasks in a queue, linked through their slots. A task is in at most one queue.
pub(crate) struct WaitList {
    pub(crate) first: TaskId,
    last: TaskId,
}

impl WaitList {
    pub(crate) const EMPTY: WaitList = WaitList {
        first: TaskId::NONE,
        last: TaskId::NONE,
    };

    pub(crate) fn is_empty(&self) -> bool {
        self.first == TaskId::NONE
    }

    /// Appends task `id`.
    pub(crate) fn push<M: Machine>(&mut self, tasks: &Tasks<M>, id: TaskId) {
        let task = &tasks[id];
        task.wait_next.set(TaskId::NONE);
        task.wait_previous.set(self.last);
        if self.last == TaskId::NONE {
            self.first = id;
        } else {
            tasks[self.last].wait_next.set(id);
        }
        self.last = id;
        task.waiting.set(1);
    }

    /// Removes task `id`, which must be in the list.
    pub(crate) fn remove<M: Machine>(&mut self, tasks: &Tasks<M>, id: TaskId) {
        let task = &tasks[id];
        let (previous, next) = (task.wait_previous.get(), task.wait_next.get());
        if previous == TaskId::NONE {
            self.first = next;
        } else {
            tasks[previous].wait_next.set(next);
        }
        if next == TaskId::NONE {
            self.last = previous;
        } else {
            tasks[next].wait_previous.set(previous);
        }
        task.waiting.set(0);
    }
}

/// A queue of tasks that wait for a condition (`wait_queue_head_t`).
pub(crate) struct WaitQueue<M: Machine> {
    list: SpinLock<WaitList, M>,
    /// The number of tasks in the queue. A hint.
    waiters: Shared32,
}

impl<M: Machine> WaitQueue<M> {
    pub(crate) fn new() -> Self {
        WaitQueue {
            list: SpinLock::new(LockClass::WaitQueue, WaitList::EMPTY),
            waiters: Shared32::new(0),
        }
    }

    /// Adds the caller's task to the queue and sets its state to `sleep`. The caller then checks the condition, calls
    /// [`schedule`](crate::sched::schedule) if it does not hold, and calls [`finish`](WaitQueue::finish).
    pub(crate) fn prepare(&self, on: &OnCpu<'_, M>, sleep: u32) {
        let id = on.current();
        let task = on.task(id);
        let mut list = self.list.lock_irq(on);
        if task.waiting.get() == 0 {
            list.push(&on.sched.tasks, id);
            self.waiters.set(self.waiters.get() + 1);
        }
        task.state.set(sleep);
        on.work(costs::WAIT_QUEUE_LINK);
    }

    /// [`prepare`](WaitQueue::prepare) in poll for data: [`wake_for_room`](WaitQueue::wake_for_room) passes the task
    /// by. The caller then calls [`finish_poll`](WaitQueue::finish_poll).
    pub(crate) fn prepare_poll(&self, on: &OnCpu<'_, M>, sleep: u32) {
        on.current_task().polls.set(1);
        self.prepare(on, sleep);
    }

    /// Sleeps in state `sleep` until woken, unless `is_over` returns `true` when the caller's task is in the queue.
    pub(crate) fn sleep_unless(&self, sched: &Scheduler<M>, sleep: u32, is_over: impl FnOnce(&OnCpu<'_, M>) -> bool) {
        let on = sched.on_cpu();
        self.prepare(&on, sleep);
        if !is_over(&on) {
            sched::schedule(sched);
        }
        self.finish(&sched.on_cpu());
    }

    /// Takes the caller's task out of the queue, whether or not it was woken.
    pub(crate) fn finish(&self, on: &OnCpu<'_, M>) {
        let id = on.current();
        let task = on.task(id);
        task.state.set(state::RUNNING);
        if task.waiting.get() != 0 {
            self.leave(on, id);
        }
    }

    /// Takes the caller's task out of the queue. Unlike [`finish`](WaitQueue::finish), takes the lock even if the task
    /// was woken, as poll must do.
    pub(crate) fn finish_poll(&self, on: &OnCpu<'_, M>) {
        let id = on.current();
        on.task(id).state.set(state::RUNNING);
        self.leave(on, id);
        on.task(id).polls.set(0);
    }

    fn leave(&self, on: &OnCpu<'_, M>, id: TaskId) {
        let mut list = self.list.lock_irq(on);
        if on.task(id).waiting.get() != 0 {
            list.remove(&on.sched.tasks, id);
            self.waiters.set(self.waiters.get() - 1);
        }
        on.work(costs::WAIT_QUEUE_LINK);
    }

    /// Returns `true` if no task waits (`waitqueue_active`). The caller must have changed the condition before, under a
    /// lock that waiters hold while they join, or in a [`Shared32`].
    pub(crate) fn is_idle(&self) -> bool {
        self.waiters.get() == 0
    }

    /// Wakes up to `count` tasks, in the order of their arrival.
    pub(crate) fn wake(&self, on: &OnCpu<'_, M>, count: u32, hint: WakeHint) {
        self.wake_if(on, count, hint, |_| true);
    }

    /// Wakes all tasks but those that poll for data, since there is room to write. Linux asks each entry of the queue;
    /// that of poll compares the events (`pollwake`, 2.6.30), that of a reader does not.
    pub(crate) fn wake_for_room(&self, on: &OnCpu<'_, M>, hint: WakeHint) {
        self.wake_if(on, u32::MAX, hint, |task| !task.polls.is_set());
    }

    fn wake_if(&self, on: &OnCpu<'_, M>, count: u32, hint: WakeHint, wants: impl Fn(&Task<M>) -> bool) {
        let mut list = self.list.lock_irq(on);
        let woken = wake_list_if(on, &mut list, count, hint, wants);
        self.waiters.set(self.waiters.get() - woken);
    }
}

/// Wakes up to `count` tasks of `list`, whose lock the caller holds. Returns how many it woke.
pub(crate) fn wake_list<M: Machine>(on: &OnCpu<'_, M>, list: &mut WaitList, count: u32, hint: WakeHint) -> u32 {
    wake_list_if(on, list, count, hint, |_| true)
}

fn wake_list_if<M: Machine>(
    on: &OnCpu<'_, M>,
    list: &mut WaitList,
    count: u32,
    hint: WakeHint,
    wants: impl Fn(&Task<M>) -> bool,
) -> u32 {
    let (mut id, mut left) = (list.first, count);
    while id != TaskId::NONE && left > 0 {
        let task = on.task(id);
        let next = task.wait_next.get();
        on.work(costs::WAIT_QUEUE_ENTRY);
        if wants(task) && sched::wake(on, id, state::ASLEEP, hint) {
            list.remove(&on.sched.tasks, id);
            left -= 1;
        }
        id = next;
    }
    count - left
}

/// Sleeps until another task grants what the caller's task waits for: sets its `granted`, and then wakes it. The task
/// is already in state `sleep`. Wakeups for other reasons do not end the sleep.
pub(crate) fn sleep_until_granted<M: Machine>(sched: &Scheduler<M>, sleep: u32) {
    let on = sched.on_cpu();
    let task = on.current_task();
    loop {
        sched::schedule(sched);
        task.state.set(sleep);
        if task.granted.get() != 0 {
            task.state.set(state::RUNNING);
            return;
        }
    }
}

/// An event that happens once per wait (`struct completion`).
pub(crate) struct Completion<M: Machine> {
    state: SpinLock<Completed, M>,
}

struct Completed {
    waiters: WaitList,
    /// Completions that no wait has used yet.
    unused: u32,
}

impl<M: Machine> Completion<M> {
    pub(crate) fn new() -> Self {
        let state = Completed {
            waiters: WaitList::EMPTY,
            unused: 0,
        };
        Completion {
            state: SpinLock::new(LockClass::WaitQueue, state),
        }
    }

    /// Sleeps until [`Completion::complete`] has been called more often than waits have returned.
    pub(crate) fn wait(&self, sched: &Scheduler<M>) {
        loop {
            let on = sched.on_cpu();
            let id = on.current();
            let task = on.task(id);
            let mut state = self.state.lock_irq(&on);
            on.work(costs::WAIT_QUEUE_LINK);
            if state.unused > 0 {
                state.unused -= 1;
                if task.waiting.get() != 0 {
                    state.waiters.remove(&sched.tasks, id);
                }
                return;
            }
            if task.waiting.get() == 0 {
                state.waiters.push(&sched.tasks, id);
            }
            task.state.set(state::UNINTERRUPTIBLE);
            drop(state);
            sched::schedule(sched);
        }
    }

    /// Lets one wait return.
    pub(crate) fn complete(&self, on: &OnCpu<'_, M>) {
        let mut state = self.state.lock_irq(on);
        state.unused += 1;
        wake_list(on, &mut state.waiters, 1, WakeHint::Plain);
    }
}
