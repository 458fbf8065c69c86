//! Mutexes whose waiters sleep, after spinning while the owner runs (`spin.rs`).

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use holdfast_locks::{Platform, Word};

use crate::class::LockClass;
use crate::config::OwnerSpinning;
use crate::machine::Machine;
use crate::sched::{self, OnCpu, Scheduler, WakeHint};
use crate::spin::Waiters;
use crate::sync::WordOf;
use crate::task::state;

/// A mutex whose waiters sleep, after spinning while the owner runs (Linux 3.3's `struct mutex`, with the queue of
/// later versions).
///
/// It carries no data: it protects plain memory next to it.
pub(crate) struct Mutex<M: Machine> {
    /// 1: free. 0: taken. -1: taken, and tasks may sleep for it.
    count: WordOf<M>,
    waiters: Waiters<M>,
}

const FREE: u32 = 1;
const TAKEN: u32 = 0;
const SLEEPERS: u32 = u32::MAX;

impl<M: Machine> Mutex<M> {
    pub(crate) fn new() -> Self {
        let count = WordOf::<M>::new(FREE);
        let waiters = Waiters::new(LockClass::MutexWait, false, Word::<u32>::line(&count));
        Mutex { count, waiters }
    }

    /// Takes the mutex for the caller's task, and sleeps until it is free. The caller may be on another CPU afterwards.
    pub(crate) fn lock(&self, sched: &Scheduler<M>) {
        let on = sched.on_cpu();
        let id = on.current();
        if !self.try_take(&on) && !self.spin(&on) {
            // ORDERING: Acquire pairs with the Release in `unlock`.
            let take = |on: &OnCpu<'_, M>| on.cpu.swap(&self.count, SLEEPERS, Acquire) == FREE;
            let took_last = |on: &OnCpu<'_, M>| on.cpu.store(&self.count, TAKEN, Relaxed);
            self.waiters.sleep(sched, id, take, took_last);
        }
        self.waiters.set_owner(&sched.on_cpu(), id);
    }

    fn try_take(&self, on: &OnCpu<'_, M>) -> bool {
        // ORDERING: Acquire pairs with the Release in `unlock`, so that the last owner's writes are seen.
        on.cpu
            .compare_exchange(&self.count, FREE, TAKEN, Acquire, Relaxed)
            .is_ok()
    }

    /// Spins while the owner runs, in turn if so configured. Returns `true` if the caller has the mutex.
    fn spin(&self, on: &OnCpu<'_, M>) -> bool {
        let take = || (on.cpu.load(&self.count, Relaxed) == FREE && self.try_take(on)).then_some(true);
        if on.system.config.owner_spinning == OwnerSpinning::Everyone {
            self.waiters.spin(on, take)
        } else {
            self.waiters.spin_in_turn(on, || true, take)
        }
    }

    /// Releases the mutex, which the caller's task owns.
    pub(crate) fn unlock(&self, on: &OnCpu<'_, M>) {
        self.waiters.clear_owner(on);
        // ORDERING: Release pairs with the Acquire of the next owner.
        let before = on.cpu.fetch_add(&self.count, 1, Release);
        if before != TAKEN {
            let waiters = self.waiters.lock(on);
            on.cpu.store(&self.count, FREE, Release);
            if !waiters.is_empty() {
                sched::wake(on, waiters.first, state::ASLEEP, WakeHint::Plain);
            }
        }
    }
}
