//! Mutexes whose waiters sleep, after spinning while the owner runs (`spin.rs`).

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use holdfast_locks::{Osq, Platform, Word};

use crate::class::LockClass;
use crate::config::OwnerSpinning;
use crate::costs;
use crate::ids::TaskId;
use crate::machine::Machine;
use crate::sched::{self, OnCpu, Scheduler, WakeHint};
use crate::spin::{in_turn, outlive, owner_runs};
use crate::sync::{SpinLock, WordOf};
use crate::task::state;
use crate::wait::WaitList;

/// A mutex whose waiters sleep, after spinning while the owner runs (Linux 3.3's `struct mutex`, with the queue of
/// later versions).
///
/// It carries no data: it protects plain memory next to it.
pub(crate) struct Mutex<M: Machine> {
    /// 1: free. 0: taken. -1: taken, and tasks may sleep for it.
    count: WordOf<M>,
    /// Id + 1 of the owner's task, for spinners. 0: there is no owner, or it is not set yet.
    owner: WordOf<M>,
    /// The queue of waiters that spin.
    spinners: Osq<WordOf<M>>,
    waiters: SpinLock<WaitList, M>,
}

const FREE: u32 = 1;
const TAKEN: u32 = 0;
const SLEEPERS: u32 = u32::MAX;

impl<M: Machine> Mutex<M> {
    pub(crate) fn new() -> Self {
        let mutex = Mutex {
            count: WordOf::<M>::new(FREE),
            owner: WordOf::<M>::new(0),
            spinners: Osq::new(),
            waiters: SpinLock::new(LockClass::MutexWait, WaitList::EMPTY),
        };
        // 40 bytes in Linux: spinning on the owner and changing the count move the same cache line.
        let line = Word::<u32>::line(&mutex.count);
        Word::<u32>::place(&mutex.owner, line);
        mutex.spinners.place(line);
        mutex.waiters.place(line);
        mutex
    }

    /// Takes the mutex for the caller's task, and sleeps until it is free. The caller may be on another CPU afterwards.
    pub(crate) fn lock(&self, sched: &Scheduler<M>) {
        let on = sched.on_cpu();
        let id = on.current();
        if !self.try_take(&on) && !self.spin(&on) {
            self.sleep(sched, id);
        }
        // ORDERING: Relaxed, here and below: a hint for spinners.
        sched.on_cpu().cpu.store(&self.owner, id.0 + 1, Relaxed);
    }

    fn try_take(&self, on: &OnCpu<'_, M>) -> bool {
        // ORDERING: Acquire pairs with the Release in `unlock`, so that the last owner's writes are seen.
        on.cpu
            .compare_exchange(&self.count, FREE, TAKEN, Acquire, Relaxed)
            .is_ok()
    }

    /// Spins while the owner runs, in turn if so configured. Returns `true` if the caller has the mutex.
    fn spin(&self, on: &OnCpu<'_, M>) -> bool {
        if on.system.config.owner_spinning == OwnerSpinning::Everyone {
            return self.spin_on_owner(on);
        }
        let owner = on.cpu.load(&self.owner, Relaxed);
        if on.wants_to_reschedule() || owner != 0 && !owner_runs(on, owner) {
            return false;
        }
        in_turn(&self.spinners, on, || self.spin_on_owner(on))
    }

    fn spin_on_owner(&self, on: &OnCpu<'_, M>) -> bool {
        loop {
            let owner = on.cpu.load(&self.owner, Relaxed);
            if owner != 0 && !outlive(on, &self.owner, owner) {
                return false;
            }
            if on.cpu.load(&self.count, Relaxed) == FREE && self.try_take(on) {
                return true;
            }
            if owner == 0 && on.wants_to_reschedule() {
                return false;
            }
            on.cpu.relax();
        }
    }

    fn sleep(&self, sched: &Scheduler<M>, id: TaskId) {
        let task = sched.task(id);
        loop {
            let on = sched.on_cpu();
            let mut waiters = self.waiters.lock(&on);
            on.work(costs::MUTEX_SLOW);
            if task.waiting.get() == 0 {
                waiters.push(&sched.tasks, id);
            }
            task.state.set(state::UNINTERRUPTIBLE);
            // ORDERING: Acquire pairs with the Release in `unlock`.
            if on.cpu.swap(&self.count, SLEEPERS, Acquire) == FREE {
                task.state.set(state::RUNNING);
                waiters.remove(&sched.tasks, id);
                if waiters.is_empty() {
                    on.cpu.store(&self.count, TAKEN, Relaxed);
                }
                return;
            }
            drop(waiters);
            sched::schedule(sched);
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
                sched::wake(on, waiters.first, state::ASLEEP, WakeHint::Plain);
            }
        }
    }
}
