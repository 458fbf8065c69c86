//! What mutexes and reader-writer semaphores have in common: their waiters spin while the owner runs, and then sleep.
//!
//! Which waiters may spin, and what stops them, has changed over the years: [`OwnerSpinning`]. In a guest the
//! difference is large: the guest's scheduler believes that the owner's task is on a CPU, but that vCPU may be
//! preempted.

use core::sync::atomic::Ordering::Relaxed;

use holdfast_locks::{Budget, CpuId, Line, Osq, Paravirt, Platform, Word};

use crate::class::LockClass;
use crate::config::OwnerSpinning;
use crate::costs;
use crate::ids::TaskId;
use crate::machine::Machine;
use crate::sched::{self, OnCpu, Scheduler};
use crate::sync::{SpinGuard, SpinLock, WordOf};
use crate::task::state;
use crate::wait::WaitList;

/// Iterations between two checks whether the owner still runs.
const SPIN_BUDGET: Budget = Budget(64);

/// The owner and the waiters of a sleeping lock.
pub(crate) struct Waiters<M: Machine> {
    /// Id + 1 of the owner's task, for spinners. 0: there is no owner, or it is not set yet.
    owner: WordOf<M>,
    /// The queue of waiters that spin.
    spinners: Osq<WordOf<M>>,
    asleep: SpinLock<WaitList, M>,
    /// Whether the waiters' lock is taken with interrupts masked.
    masks_interrupts: bool,
}

impl<M: Machine> Waiters<M> {
    /// Makes the part of a sleeping lock whose count is on `line`. Linux's locks have 40 bytes: spinning on the owner
    /// and changing the count move the same cache line.
    pub(crate) fn new(class: LockClass, masks_interrupts: bool, line: Line) -> Self {
        let waiters = Waiters {
            owner: WordOf::<M>::new(0),
            spinners: Osq::new(),
            asleep: SpinLock::new(class, WaitList::EMPTY),
            masks_interrupts,
        };
        Word::<u32>::place(&waiters.owner, line);
        waiters.spinners.place(line);
        waiters.asleep.place(line);
        waiters
    }

    /// Makes `id` the owner for spinners to see.
    pub(crate) fn set_owner(&self, on: &OnCpu<'_, M>, id: TaskId) {
        // ORDERING: Relaxed, here and below: a hint for spinners.
        on.cpu.store(&self.owner, id.0 + 1, Relaxed);
    }

    pub(crate) fn clear_owner(&self, on: &OnCpu<'_, M>) {
        on.cpu.store(&self.owner, 0, Relaxed);
    }

    /// Locks the list of sleeping waiters, for one pass of the slow path.
    pub(crate) fn lock<'a>(&'a self, on: &'a OnCpu<'a, M>) -> SpinGuard<'a, WaitList, M> {
        let asleep = if self.masks_interrupts {
            self.asleep.lock_irq(on)
        } else {
            self.asleep.lock(on)
        };
        on.work(costs::SLEEPING_LOCK_SLOW);
        asleep
    }

    /// Spins in turn while `may_spin` returns `true` and the owner runs. Returns `true` if the caller has the lock,
    /// which `take` tries: it returns `Some(true)` if it succeeds, and `Some(false)` if the caller must not spin any
    /// longer.
    pub(crate) fn spin_in_turn(
        &self,
        on: &OnCpu<'_, M>,
        may_spin: impl FnOnce() -> bool,
        take: impl Fn() -> Option<bool>,
    ) -> bool {
        let owner = on.cpu.load(&self.owner, Relaxed);
        let may_spin = may_spin();
        if on.wants_to_reschedule() || !may_spin || owner != 0 && !owner_runs(on, owner) {
            return false;
        }
        let nodes = &on.sched.spinners;
        let leaves = |before: CpuId| on.wants_to_reschedule() || sees_preempted(on, before);
        if !self.spinners.lock(&on.cpu, nodes, leaves) {
            return false;
        }
        let is_taken = self.spin(on, take);
        self.spinners.unlock(&on.cpu, nodes);
        is_taken
    }

    /// [`Waiters::spin_in_turn`] with all other spinners at once.
    pub(crate) fn spin(&self, on: &OnCpu<'_, M>, take: impl Fn() -> Option<bool>) -> bool {
        loop {
            let owner = on.cpu.load(&self.owner, Relaxed);
            if owner != 0 && !self.outlive(on, owner) {
                return false;
            }
            if let Some(is_taken) = take() {
                return is_taken;
            }
            if owner == 0 && on.wants_to_reschedule() {
                return false;
            }
            on.cpu.relax();
        }
    }

    /// Waits until `owner` is no longer the owner. Returns `false` if it stops running before, or if this CPU must
    /// reschedule.
    fn outlive(&self, on: &OnCpu<'_, M>, owner: u32) -> bool {
        let is_over = |now| now != owner;
        while on.cpu.wait_until(&self.owner, SPIN_BUDGET, Relaxed, is_over).is_err() {
            if !owner_runs(on, owner) || on.wants_to_reschedule() {
                return false;
            }
        }
        true
    }

    /// Sleeps until `take` takes the lock for task `id`, the caller's. Calls `took_last` if no other task sleeps then.
    pub(crate) fn sleep(
        &self,
        sched: &Scheduler<M>,
        id: TaskId,
        take: impl Fn(&OnCpu<'_, M>) -> bool,
        took_last: impl Fn(&OnCpu<'_, M>),
    ) {
        let task = sched.task(id);
        loop {
            let on = sched.on_cpu();
            let mut asleep = self.lock(&on);
            if task.waiting.get() == 0 {
                asleep.push(&sched.tasks, id);
            }
            task.state.set(state::UNINTERRUPTIBLE);
            if take(&on) {
                task.state.set(state::RUNNING);
                asleep.remove(&sched.tasks, id);
                if asleep.is_empty() {
                    took_last(&on);
                }
                return;
            }
            drop(asleep);
            sched::schedule(sched);
        }
    }
}

/// Returns `true` if `owner`, a task's id + 1, is on a CPU whose vCPU is not known to be preempted (`owner_on_cpu`).
fn owner_runs<M: Machine>(on: &OnCpu<'_, M>, owner: u32) -> bool {
    let task = on.task(TaskId(owner - 1));
    on.cpu.load(&task.on_cpu, Relaxed) != 0 && !sees_preempted(on, task.cpu.get())
}

/// Returns `true` if this kernel checks for preempted vCPUs and the host says that `cpu` is one. A hint: only waiting
/// times depend on it.
fn sees_preempted<M: Machine>(on: &OnCpu<'_, M>, cpu: CpuId) -> bool {
    on.system.config.owner_spinning == OwnerSpinning::PreemptionAware
        && on.system.sees_preempted.get()
        && on.cpu.is_preempted(cpu)
}
