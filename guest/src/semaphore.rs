//! Semaphores whose waiters sleep at once (Linux's `struct semaphore`): no spinning, first come, first served.

use crate::class::LockClass;
use crate::costs;
use crate::machine::Machine;
use crate::sched::{self, OnCpu, Scheduler, WakeHint};
use crate::sync::SpinLock;
use crate::task::state;
use crate::wait::{WaitList, sleep_until_granted};

/// A semaphore that one task can hold. A release hands it directly to the first waiter: no other task can take it in
/// between, however long the woken task takes to run.
pub(crate) struct Semaphore<M: Machine> {
    /// Linux's `sem->lock`.
    state: SpinLock<State, M>,
}

struct State {
    taken: bool,
    waiters: WaitList,
}

impl<M: Machine> Semaphore<M> {
    pub(crate) fn new() -> Self {
        let state = State {
            taken: false,
            waiters: WaitList::EMPTY,
        };
        Semaphore {
            state: SpinLock::new(LockClass::Semaphore, state),
        }
    }

    /// Takes the semaphore for the caller's task, and sleeps until it is free. The caller may be on another CPU
    /// afterwards.
    pub(crate) fn down(&self, sched: &Scheduler<M>) {
        let on = sched.on_cpu();
        let id = on.current();
        let task = sched.task(id);
        {
            let mut state = self.state.lock_irq(&on);
            on.work(costs::SEMAPHORE);
            if !state.taken {
                state.taken = true;
                return;
            }
            task.granted.set(0);
            state.waiters.push(&sched.tasks, id);
            task.state.set(state::UNINTERRUPTIBLE);
        }
        sleep_until_granted(sched, state::UNINTERRUPTIBLE);
    }

    /// Releases the semaphore.
    pub(crate) fn up(&self, on: &OnCpu<'_, M>) {
        let mut state = self.state.lock_irq(on);
        on.work(costs::SEMAPHORE);
        if state.waiters.is_empty() {
            state.taken = false;
            return;
        }
        let first = state.waiters.first;
        state.waiters.remove(&on.sched.tasks, first);
        on.task(first).granted.set(1);
        sched::wake(on, first, state::ASLEEP, WakeHint::Plain);
    }
}
