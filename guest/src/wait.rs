//! Sleeping: wait queues and completions.
//!
//! **No lost wake-up**: a sleeper joins the queue and says that it sleeps *before* it looks at its condition; a waker
//! changes the condition *before* it looks at the queue.

use crate::class::LockClass;
use crate::costs;
use crate::kernel::{Kernel, OnCpu};
use crate::local::Shared32;
use crate::machine::Machine;
use crate::sched::WakeHint;
use crate::sync::SpinLock;
use crate::task::{TaskId, state};

/// Tasks in a queue, linked through their slots; a task is in one queue at most.
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

    pub(crate) fn push<M: Machine>(&mut self, kernel: &Kernel<M>, id: TaskId) {
        let task = kernel.tasks.get(id);
        task.wait_next.set(TaskId::NONE.0);
        task.wait_previous.set(self.last.0);
        if self.last == TaskId::NONE {
            self.first = id;
        } else {
            kernel.tasks.get(self.last).wait_next.set(id.0);
        }
        self.last = id;
        task.waiting.set(1);
    }

    pub(crate) fn remove<M: Machine>(&mut self, kernel: &Kernel<M>, id: TaskId) {
        let task = kernel.tasks.get(id);
        let (previous, next) = (TaskId(task.wait_previous.get()), TaskId(task.wait_next.get()));
        if previous == TaskId::NONE {
            self.first = next;
        } else {
            kernel.tasks.get(previous).wait_next.set(next.0);
        }
        if next == TaskId::NONE {
            self.last = previous;
        } else {
            kernel.tasks.get(next).wait_previous.set(previous.0);
        }
        task.waiting.set(0);
    }
}

/// Tasks that wait for something (`wait_queue_head_t`).
pub(crate) struct WaitQueue<M: Machine> {
    list: SpinLock<WaitList, M>,
    /// Hint: how many are in it.
    waiters: Shared32,
}

impl<M: Machine> WaitQueue<M> {
    pub(crate) fn new() -> Self {
        WaitQueue {
            list: SpinLock::new(LockClass::WaitQueue, WaitList::EMPTY),
            waiters: Shared32::new(0),
        }
    }

    /// Joins the queue and says that the caller's task sleeps in `sleep`. Then look at the condition, then
    /// [`schedule`](crate::sched::schedule), then [`finish`](WaitQueue::finish).
    pub(crate) fn prepare(&self, on: &OnCpu<'_, M>, sleep: u32) {
        let id = on.current();
        let task = on.kernel.tasks.get(id);
        let mut list = self.list.lock_irq(on);
        if task.waiting.get() == 0 {
            list.push(on.kernel, id);
            self.waiters.set(self.waiters.get() + 1);
        }
        task.state.set(sleep);
        on.work(costs::WAIT_QUEUE_LINK);
    }

    /// Leaves the queue, woken or not.
    pub(crate) fn finish(&self, on: &OnCpu<'_, M>) {
        let id = on.current();
        let task = on.kernel.tasks.get(id);
        task.state.set(state::RUNNING);
        if task.waiting.get() != 0 {
            self.leave(on, id);
        }
    }

    /// Removes the caller's entry with the lock held, as poll must do even when it was woken.
    pub(crate) fn finish_poll(&self, on: &OnCpu<'_, M>) {
        let id = on.current();
        on.kernel.tasks.get(id).state.set(state::RUNNING);
        self.leave(on, id);
    }

    fn leave(&self, on: &OnCpu<'_, M>, id: TaskId) {
        let mut list = self.list.lock_irq(on);
        if on.kernel.tasks.get(id).waiting.get() != 0 {
            list.remove(on.kernel, id);
            self.waiters.set(self.waiters.get() - 1);
        }
        on.work(costs::WAIT_QUEUE_LINK);
    }

    /// Nobody waits (`waitqueue_active`). For those who changed the condition before, in sight of all: under a lock that
    /// waiters hold while they join, or by a [`Shared32`].
    pub(crate) fn is_idle(&self) -> bool {
        self.waiters.get() == 0
    }

    /// Wakes up to `count` tasks, first come first.
    pub(crate) fn wake(&self, on: &OnCpu<'_, M>, count: u32, hint: WakeHint) {
        let mut list = self.list.lock_irq(on);
        let woken = wake_list(on, &mut list, count, hint);
        self.waiters.set(self.waiters.get() - woken);
    }
}

/// Wakes up to `count` tasks of `list`, whose lock the caller holds; how many.
pub(crate) fn wake_list<M: Machine>(on: &OnCpu<'_, M>, list: &mut WaitList, count: u32, hint: WakeHint) -> u32 {
    let (mut id, mut left) = (list.first, count);
    while id != TaskId::NONE && left > 0 {
        let next = TaskId(on.kernel.tasks.get(id).wait_next.get());
        on.work(costs::WAIT_QUEUE_ENTRY);
        if crate::sched::wake(on, id, state::ASLEEP, hint) {
            list.remove(on.kernel, id);
            left -= 1;
        }
        id = next;
    }
    count - left
}

/// Waits for an event that happens once per wait (`struct completion`).
pub(crate) struct Completion<M: Machine> {
    state: SpinLock<(WaitList, u32), M>,
}

impl<M: Machine> Completion<M> {
    pub(crate) fn new() -> Self {
        Completion {
            state: SpinLock::new(LockClass::WaitQueue, (WaitList::EMPTY, 0)),
        }
    }

    /// Sleeps until [`Completion::complete`] has been called once more than waits have returned.
    pub(crate) fn wait(&self, kernel: &Kernel<M>) {
        loop {
            let on = kernel.on_cpu();
            let id = on.current();
            let mut state = self.state.lock_irq(&on);
            on.work(costs::WAIT_QUEUE_LINK);
            if state.1 > 0 {
                state.1 -= 1;
                if kernel.tasks.get(id).waiting.get() != 0 {
                    state.0.remove(kernel, id);
                }
                return;
            }
            if kernel.tasks.get(id).waiting.get() == 0 {
                state.0.push(kernel, id);
            }
            kernel.tasks.get(id).state.set(crate::task::state::UNINTERRUPTIBLE);
            drop(state);
            crate::sched::schedule(kernel);
        }
    }

    pub(crate) fn complete(&self, on: &OnCpu<'_, M>) {
        let mut state = self.state.lock_irq(on);
        state.1 += 1;
        wake_list(on, &mut state.0, 1, WakeHint::Plain);
    }
}
