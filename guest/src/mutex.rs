//! Mutexes that sleep, after spinning while their owner runs.
//!
//! Who may spin, and what stops it, has changed over the years: [`OwnerSpinning`]. In a guest the difference is large: the
//! task that owns the mutex is on a CPU as far as the guest's scheduler knows, and that CPU may be off its pCPU.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use holdfast_locks::{Budget, CpuId, Osq, Paravirt, Platform, Word};
use serde::{Deserialize, Serialize};

use crate::class::LockClass;
use crate::costs;
use crate::kernel::{Kernel, OnCpu};
use crate::machine::Machine;
use crate::sched::{self, WakeHint};
use crate::sync::{SpinLock, WordOf};
use crate::task::{TaskId, state};
use crate::wait::WaitList;

/// Who spins for a mutex whose owner runs, and what stops it. Versions from memory, uncertain by a release.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum OwnerSpinning {
    /// Everybody at once, until the owner's task is taken off its CPU or the spinner must reschedule (2.6.30 to 3.9).
    #[default]
    Everyone,
    /// As before, but one at a time: the others wait in a queue (3.10; from 3.15 on they may leave it when they must
    /// reschedule, which is what is built here).
    Queued,
    /// As before, and spinner and queue also stop when the host says that the vCPU of the owner, or of the predecessor in
    /// the queue, is preempted (4.10, `vcpu_is_preempted`). A kernel that the host offers no paravirtual locks does not look,
    /// steal-time record or not: until 5.17 or so it is `kvm_spinlock_init` that makes it look.
    PreemptionAware,
}

/// A mutual exclusion that sleeps, after spinning while its owner runs (Linux 3.3's `struct mutex`, with the queue of
/// later ones).
///
/// It carries no data: what it protects is plain memory beside it.
pub(crate) struct Mutex<M: Machine> {
    /// 1 free, 0 taken, -1 taken and somebody may sleep.
    count: WordOf<M>,
    /// Id + 1 of the owner's task, for spinners; 0 none, or not told yet.
    owner: WordOf<M>,
    /// Those who spin in turn.
    spinners: Osq<WordOf<M>>,
    waiters: SpinLock<WaitList, M>,
}

const FREE: u32 = 1;
const TAKEN: u32 = 0;
const SLEEPERS: u32 = u32::MAX;
/// Iterations between two looks at whether the owner still runs.
const SPIN_BUDGET: Budget = Budget(64);

impl<M: Machine> Mutex<M> {
    pub(crate) fn new() -> Self {
        let mutex = Mutex {
            count: WordOf::<M>::new(FREE),
            owner: WordOf::<M>::new(0),
            spinners: Osq::new(),
            waiters: SpinLock::new(LockClass::MutexWait, WaitList::EMPTY),
        };
        // 40 bytes in Linux: whoever spins for the owner, and whoever changes the count, move the same line.
        let line = Word::<u32>::line(&mutex.count);
        Word::<u32>::place(&mutex.owner, line);
        mutex.spinners.place(line);
        mutex.waiters.place(line);
        mutex
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

    /// Spins while the owner runs, if it is the caller's turn; whether that gave the mutex.
    fn spin(&self, on: &OnCpu<'_, M>) -> bool {
        if on.kernel.config.owner_spinning == OwnerSpinning::Everyone {
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
            sched::schedule(kernel);
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

/// Waits until `word` does not name `owner` any more; false if that stopped running, or this CPU has something to do.
pub(crate) fn outlive<M: Machine>(on: &OnCpu<'_, M>, word: &WordOf<M>, owner: u32) -> bool {
    loop {
        if on
            .cpu
            .wait_until(word, SPIN_BUDGET, Relaxed, |now| now != owner)
            .is_ok()
        {
            return true;
        }
        if !owner_runs(on, owner) || on.wants_to_reschedule() {
            return false;
        }
    }
}

/// Whether `owner`, a task's id + 1, is on a CPU, and that CPU on a pCPU as far as this kernel looks (`owner_on_cpu`).
pub(crate) fn owner_runs<M: Machine>(on: &OnCpu<'_, M>, owner: u32) -> bool {
    let task = on.kernel.tasks.get(TaskId(owner - 1));
    on.cpu.load(&task.on_cpu, Relaxed) != 0 && !sees_preempted(on, CpuId(task.cpu.get()))
}

/// What `spin` returns when it is the caller's turn in `queue`; `false` if it leaves before.
pub(crate) fn in_turn<M: Machine>(queue: &Osq<WordOf<M>>, on: &OnCpu<'_, M>, spin: impl FnOnce() -> bool) -> bool {
    let table = &on.kernel.spinners;
    let leaves = |before: CpuId| on.wants_to_reschedule() || sees_preempted(on, before);
    if !queue.lock(&on.cpu, table, leaves) {
        return false;
    }
    let taken = spin();
    queue.unlock(&on.cpu, table);
    taken
}

/// Whether this kernel looks, and sees that the host has taken `cpu` off its pCPU. A hint: no more than time rests on it.
fn sees_preempted<M: Machine>(on: &OnCpu<'_, M>, cpu: CpuId) -> bool {
    let kernel = on.kernel;
    kernel.config.owner_spinning == OwnerSpinning::PreemptionAware
        && kernel.sees_preempted.get()
        && on.cpu.is_preempted(cpu)
}
