//! Semaphores that sleep at once (Linux's `struct semaphore`): no spinning, first come first served.

use crate::class::LockClass;
use crate::costs;
use crate::kernel::{Kernel, OnCpu};
use crate::machine::Machine;
use crate::sched::{self, WakeHint};
use crate::sync::SpinLock;
use crate::task::state;
use crate::wait::WaitList;

/// A semaphore that one task can hold. Releasing it hands it straight to the first who waits: nobody gets in between,
/// however long the woken task takes to run.
pub(crate) struct Semaphore<M: Machine> {
    /// `sem->lock`.
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

    /// Sleeps until the caller's task has it. The caller may be on another CPU afterwards.
    pub(crate) fn down(&self, kernel: &Kernel<M>) {
        let on = kernel.on_cpu();
        let id = on.current();
        let task = kernel.tasks.get(id);
        {
            let mut state = self.state.lock_irq(&on);
            on.work(costs::SEMAPHORE);
            if !state.taken {
                state.taken = true;
                return;
            }
            task.granted.set(0);
            state.waiters.push(kernel, id);
            task.state.set(state::UNINTERRUPTIBLE);
        }
        loop {
            sched::schedule(kernel);
            // Said before the wake-up; a wake-up for another reason finds it unsaid.
            if task.granted.get() != 0 {
                return;
            }
            task.state.set(state::UNINTERRUPTIBLE);
            if task.granted.get() != 0 {
                task.state.set(state::RUNNING);
                return;
            }
        }
    }

    /// Gives it up.
    pub(crate) fn up(&self, on: &OnCpu<'_, M>) {
        let mut state = self.state.lock_irq(on);
        on.work(costs::SEMAPHORE);
        if state.waiters.is_empty() {
            state.taken = false;
            return;
        }
        let first = state.waiters.first;
        state.waiters.remove(on.kernel, first);
        on.kernel.tasks.get(first).granted.set(1);
        sched::wake(on, first, state::ASLEEP, WakeHint::Plain);
    }
}
