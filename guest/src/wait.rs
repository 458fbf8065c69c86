//! Sleeping: wait queues, completions and mutexes.
//!
//! **No lost wake-up**: a sleeper joins the queue and says that it sleeps *before* it looks at its condition; a waker
//! changes the condition *before* it looks at the queue.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use holdfast_locks::{Budget, Platform, Word};

use crate::class::LockClass;
use crate::costs;
use crate::kernel::{Kernel, OnCpu};
use crate::machine::Machine;
use crate::sched::WakeHint;
use crate::sync::{SpinLock, WordOf};
use crate::task::{TaskId, state};

/// Tasks in a queue, linked through their slots; a task is in one queue at most.
pub(crate) struct WaitList {
    first: TaskId,
    last: TaskId,
}

impl WaitList {
    const EMPTY: WaitList = WaitList {
        first: TaskId::NONE,
        last: TaskId::NONE,
    };

    fn is_empty(&self) -> bool {
        self.first == TaskId::NONE
    }

    fn push<M: Machine>(&mut self, kernel: &Kernel<M>, id: TaskId) {
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

    fn remove<M: Machine>(&mut self, kernel: &Kernel<M>, id: TaskId) {
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
}

impl<M: Machine> WaitQueue<M> {
    pub(crate) fn new() -> Self {
        WaitQueue {
            list: SpinLock::new(LockClass::WaitQueue, WaitList::EMPTY),
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
        }
        on.work(costs::WAIT_QUEUE_LINK);
    }

    /// Wakes up to `count` tasks, first come first.
    pub(crate) fn wake(&self, on: &OnCpu<'_, M>, count: u32, hint: WakeHint) {
        let mut list = self.list.lock_irq(on);
        wake_list(on, &mut list, count, hint);
    }
}

fn wake_list<M: Machine>(on: &OnCpu<'_, M>, list: &mut WaitList, count: u32, hint: WakeHint) {
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

/// A mutual exclusion that sleeps, after spinning while its owner runs (Linux 3.3's `struct mutex`).
///
/// It carries no data: what it protects is plain memory beside it.
pub(crate) struct Mutex<M: Machine> {
    /// 1 free, 0 taken, -1 taken and somebody may sleep.
    count: WordOf<M>,
    /// Id + 1 of the owner's task, for spinners; 0 none, or not told yet.
    owner: WordOf<M>,
    waiters: SpinLock<WaitList, M>,
}

const FREE: u32 = 1;
const TAKEN: u32 = 0;
const SLEEPERS: u32 = u32::MAX;
/// Iterations between two looks at whether the owner still runs.
const SPIN_BUDGET: Budget = Budget(64);

impl<M: Machine> Mutex<M> {
    pub(crate) fn new() -> Self {
        Mutex {
            count: WordOf::<M>::new(FREE),
            owner: WordOf::<M>::new(0),
            waiters: SpinLock::new(LockClass::MutexWait, WaitList::EMPTY),
        }
    }

    /// Sleeps until the caller's task owns the mutex. The caller may be on another CPU afterwards.
    pub(crate) fn lock(&self, kernel: &Kernel<M>) {
        let on = kernel.on_cpu();
        let id = on.current();
        if !self.try_take(&on) && !self.spin(&on) {
            self.sleep(kernel, id);
        }
        // ORDERING: Relaxed, here and below: a hint for spinners.
        kernel.on_cpu().cpu.store(&self.owner, id.0 + 1, Relaxed);
    }

    fn try_take(&self, on: &OnCpu<'_, M>) -> bool {
        // ORDERING: Acquire pairs with the Release in `unlock`: the last owner's writes are seen.
        on.cpu
            .compare_exchange(&self.count, FREE, TAKEN, Acquire, Relaxed)
            .is_ok()
    }

    /// Spins while the owner runs; whether that gave the mutex.
    fn spin(&self, on: &OnCpu<'_, M>) -> bool {
        loop {
            let owner = on.cpu.load(&self.owner, Relaxed);
            if owner != 0 && !self.outlive(on, owner) {
                return false;
            }
            if on.cpu.load(&self.count, Relaxed) == FREE && self.try_take(on) {
                return true;
            }
            if owner == 0 && on.local.need_resched.get() != 0 {
                return false;
            }
            on.cpu.relax();
        }
    }

    /// Waits until `owner` is not the owner any more; false if it stopped running, or this CPU has something to do.
    fn outlive(&self, on: &OnCpu<'_, M>, owner: u32) -> bool {
        loop {
            if on
                .cpu
                .wait_until(&self.owner, SPIN_BUDGET, Relaxed, |now| now != owner)
                .is_ok()
            {
                return true;
            }
            let task = on.kernel.tasks.get(TaskId(owner - 1));
            if on.cpu.load(&task.on_cpu, Relaxed) == 0 || on.local.need_resched.get() != 0 {
                return false;
            }
        }
    }

    fn sleep(&self, kernel: &Kernel<M>, id: TaskId) {
        let task = kernel.tasks.get(id);
        loop {
            let on = kernel.on_cpu();
            let mut waiters = self.waiters.lock(&on);
            on.work(costs::MUTEX_SLOW);
            if task.waiting.get() == 0 {
                waiters.push(kernel, id);
            }
            task.state.set(state::UNINTERRUPTIBLE);
            // ORDERING: Acquire pairs with the Release in `unlock`.
            if on.cpu.swap(&self.count, SLEEPERS, Acquire) == FREE {
                task.state.set(state::RUNNING);
                waiters.remove(kernel, id);
                if waiters.is_empty() {
                    on.cpu.store(&self.count, TAKEN, Relaxed);
                }
                return;
            }
            drop(waiters);
            crate::sched::schedule(kernel);
        }
    }

    /// Releases the mutex, which the caller's task owns.
    pub(crate) fn unlock(&self, on: &OnCpu<'_, M>) {
        on.cpu.store(&self.owner, 0, Relaxed);
        // ORDERING: Release pairs with the Acquire of the next owner.
        let before = on.cpu.fetch_add(&self.count, 1, Release);
        if before != TAKEN {
            let waiters = self.waiters.lock(on);
            on.work(costs::MUTEX_SLOW);
            on.cpu.store(&self.count, FREE, Release);
            if !waiters.is_empty() {
                crate::sched::wake(on, waiters.first, state::ASLEEP, WakeHint::Plain);
            }
        }
    }
}
