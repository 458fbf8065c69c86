//! A semaphore for many readers or one writer, who sleep while they wait (`rw_semaphore`).
//!
//! | `count` | |
//! |---|---|
//! | bit 0 | a writer holds it |
//! | bit 1 | somebody sleeps in the queue |
//! | bits 8 to 31 | readers that hold it, and those that have yet to see that they do not |
//!
//! Reading costs two locked instructions on one line, however many readers there are: what many threads of one process pay
//! for page faults.
//!
//! - **Exclusion**: a writer sets bit 0 only where nobody holds; a reader holds once it has counted itself and seen neither
//!   bit, or was counted by the waker. A sleeper's bit keeps later readers out.
//! - **No lost wake-up**: bit 1 changes under the queue's lock only. Who takes the last hold away and sees it wakes the queue;
//!   who sets it looks afterwards whether anybody holds.
//! - **One at a time**: of the queue, the first writer is woken and takes the semaphore itself, or loses it to one that is
//!   awake; readers are granted it, all up to the first writer.
//!
//! Deliberately missing: the hand-off to a waiter of 4 ms, and readers that spin (Linux 5.3 and later).

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use holdfast_locks::{Osq, Platform, Word};

use crate::class::LockClass;
use crate::costs;
use crate::kernel::{Kernel, OnCpu};
use crate::machine::Machine;
use crate::mutex::{in_turn, outlive, owner_runs};
use crate::sched::{self, WakeHint};
use crate::sync::{SpinLock, WordOf};
use crate::task::{TaskId, state};
use crate::wait::WaitList;

const WRITER: u32 = 1;
const WAITERS: u32 = 1 << 1;
const READER: u32 = 1 << 8;
/// Whoever holds it.
const HELD: u32 = !WAITERS;

/// The semaphore. It carries no data: what it protects is plain memory beside it.
pub(crate) struct RwSemaphore<M: Machine> {
    count: WordOf<M>,
    /// Id + 1 of the writer's task, for spinners; 0: none, or not told yet.
    owner: WordOf<M>,
    spinners: Osq<WordOf<M>>,
    waiters: SpinLock<WaitList, M>,
}

impl<M: Machine> RwSemaphore<M> {
    pub(crate) fn new() -> Self {
        let semaphore = RwSemaphore {
            count: WordOf::<M>::new(0),
            owner: WordOf::<M>::new(0),
            spinners: Osq::new(),
            waiters: SpinLock::new(LockClass::RwsemWait, WaitList::EMPTY),
        };
        // 40 bytes in Linux.
        let line = Word::<u32>::line(&semaphore.count);
        Word::<u32>::place(&semaphore.owner, line);
        semaphore.spinners.place(line);
        semaphore.waiters.place(line);
        semaphore
    }

    /// Sleeps until the caller's task may read (`down_read`). The caller may be on another CPU afterwards.
    pub(crate) fn read(&self, kernel: &Kernel<M>) {
        let on = kernel.on_cpu();
        // ORDERING: Acquire pairs with the Release of the writer that left: its writes are seen.
        let before = on.cpu.fetch_add(&self.count, READER, Acquire);
        if before & (WRITER | WAITERS) != 0 {
            self.read_slow(kernel);
        }
    }

    fn read_slow(&self, kernel: &Kernel<M>) {
        let on = kernel.on_cpu();
        let id = on.current();
        let task = kernel.tasks.get(id);
        {
            let mut waiters = self.waiters.lock_irq(&on);
            on.work(costs::RWSEM_SLOW);
            let is_first = waiters.is_empty();
            // ORDERING: Acquire, as above; the caller is still counted, so no writer can come in between.
            if is_first && on.cpu.load(&self.count, Acquire) & WRITER == 0 {
                return;
            }
            task.wants_write.set(0);
            task.granted.set(0);
            waiters.push(kernel, id);
            task.state.set(state::UNINTERRUPTIBLE);
            let change = if is_first { WAITERS } else { 0 }.wrapping_sub(READER);
            // ORDERING: Relaxed: nothing was read or written as a holder; the queue's lock orders the queue.
            let now = on.cpu.fetch_add(&self.count, change, Relaxed).wrapping_add(change);
            if now & HELD == 0 {
                self.wake_first(&on, &mut waiters);
            }
        }
        while task.granted.get() == 0 {
            sched::schedule(kernel);
            task.state.set(state::UNINTERRUPTIBLE);
        }
        task.state.set(state::RUNNING);
    }

    /// Ends reading (`up_read`).
    pub(crate) fn read_unlock(&self, on: &OnCpu<'_, M>) {
        // ORDERING: Release pairs with the Acquire of the next writer, who must not be seen by what this task has read.
        let now = on
            .cpu
            .fetch_add(&self.count, READER.wrapping_neg(), Release)
            .wrapping_sub(READER);
        if now & HELD == 0 && now & WAITERS != 0 {
            self.wake(on);
        }
    }

    /// Sleeps until the caller's task alone holds it (`down_write`); spins before if `spins` and another writer runs. The
    /// caller may be on another CPU afterwards.
    pub(crate) fn write(&self, kernel: &Kernel<M>, spins: bool) {
        let on = kernel.on_cpu();
        let id = on.current();
        // ORDERING: Acquire pairs with the Release of those that left.
        let is_free = on
            .cpu
            .compare_exchange(&self.count, 0, WRITER, Acquire, Relaxed)
            .is_ok();
        let is_taken = is_free || spins && self.spin(&on);
        if !is_taken {
            self.write_slow(kernel, id);
        }
        // ORDERING: Relaxed, here and below: a hint for spinners.
        kernel.on_cpu().cpu.store(&self.owner, id.0 + 1, Relaxed);
    }

    /// Spins in turn while a writer runs; whether that gave the semaphore. For readers nobody spins: who they are is not
    /// known.
    fn spin(&self, on: &OnCpu<'_, M>) -> bool {
        let owner = on.cpu.load(&self.owner, Relaxed);
        let is_read = on.cpu.load(&self.count, Relaxed) & WRITER == 0;
        if on.wants_to_reschedule() || is_read || owner != 0 && !owner_runs(on, owner) {
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
            let count = on.cpu.load(&self.count, Relaxed);
            if self.take_from(on, count) {
                return true;
            }
            if count & WRITER == 0 && count & HELD != 0 || owner == 0 && on.wants_to_reschedule() {
                return false;
            }
            on.cpu.relax();
        }
    }

    /// Takes the semaphore, past any queue, if nobody holds it and its count is still `count`.
    fn take_from(&self, on: &OnCpu<'_, M>, count: u32) -> bool {
        // ORDERING: Acquire pairs with the Release of those that left.
        count & HELD == 0
            && on
                .cpu
                .compare_exchange(&self.count, count, count | WRITER, Acquire, Relaxed)
                .is_ok()
    }

    fn write_slow(&self, kernel: &Kernel<M>, id: TaskId) {
        let task = kernel.tasks.get(id);
        loop {
            let on = kernel.on_cpu();
            let mut waiters = self.waiters.lock_irq(&on);
            on.work(costs::RWSEM_SLOW);
            if task.waiting.get() == 0 {
                task.wants_write.set(1);
                waiters.push(kernel, id);
            }
            task.state.set(state::UNINTERRUPTIBLE);
            // ORDERING: Relaxed: the exchange that takes it acquires. Those that leave after this see the bit.
            let before = on.cpu.fetch_or(&self.count, WAITERS, Relaxed);
            if self.take_from(&on, before | WAITERS) {
                task.state.set(state::RUNNING);
                waiters.remove(kernel, id);
                if waiters.is_empty() {
                    on.cpu.fetch_and(&self.count, !WAITERS, Relaxed);
                }
                return;
            }
            drop(waiters);
            sched::schedule(kernel);
        }
    }

    /// Ends writing (`up_write`).
    pub(crate) fn write_unlock(&self, on: &OnCpu<'_, M>) {
        on.cpu.store(&self.owner, 0, Relaxed);
        // ORDERING: Release pairs with the Acquire of the next holder.
        if on.cpu.fetch_and(&self.count, !WRITER, Release) & WAITERS != 0 {
            self.wake(on);
        }
    }

    /// The writer goes on as a reader (`downgrade_write`).
    pub(crate) fn downgrade(&self, on: &OnCpu<'_, M>) {
        on.cpu.store(&self.owner, 0, Relaxed);
        // ORDERING: Release pairs with the Acquire of the readers that come in.
        let before = on.cpu.fetch_add(&self.count, READER - WRITER, Release);
        if before & WAITERS == 0 {
            return;
        }
        let mut waiters = self.waiters.lock_irq(on);
        on.work(costs::RWSEM_SLOW);
        if !waiters.is_empty() && !on.kernel.tasks.get(waiters.first).wants_write.is_set() {
            self.wake_first(on, &mut waiters);
        }
    }

    fn wake(&self, on: &OnCpu<'_, M>) {
        let mut waiters = self.waiters.lock_irq(on);
        on.work(costs::RWSEM_SLOW);
        self.wake_first(on, &mut waiters);
    }

    /// Wakes the writer at the queue's head, or lets all readers up to the first writer in.
    fn wake_first(&self, on: &OnCpu<'_, M>, waiters: &mut WaitList) {
        let kernel = on.kernel;
        let is_reader = |id: TaskId| id != TaskId::NONE && !kernel.tasks.get(id).wants_write.is_set();
        if waiters.is_empty() {
            return;
        }
        if !is_reader(waiters.first) {
            rouse(on, waiters.first);
            return;
        }
        // One reader first: with it counted no writer can take the semaphore, unless one has already.
        // ORDERING: Acquire, on behalf of those that are let in, who see it through the wake-up.
        if on.cpu.fetch_add(&self.count, READER, Acquire) & WRITER != 0 {
            let change = READER.wrapping_neg();
            let now = on.cpu.fetch_add(&self.count, change, Relaxed).wrapping_add(change);
            if now & HELD == 0 {
                self.wake_first(on, waiters);
            }
            return;
        }
        let mut readers = 0;
        let mut id = waiters.first;
        while is_reader(id) {
            readers += 1;
            id = TaskId(kernel.tasks.get(id).wait_next.get());
        }
        let is_last = id == TaskId::NONE;
        let change = (READER * (readers - 1)).wrapping_sub(if is_last { WAITERS } else { 0 });
        // ORDERING: Relaxed: they are counted before they are woken, and the first was counted above.
        on.cpu.fetch_add(&self.count, change, Relaxed);
        for _ in 0..readers {
            let reader = waiters.first;
            waiters.remove(kernel, reader);
            kernel.tasks.get(reader).granted.set(1);
            rouse(on, reader);
        }
    }
}

/// Wakes a task of the queue, which may be the caller on its way to sleep.
fn rouse<M: Machine>(on: &OnCpu<'_, M>, id: TaskId) {
    on.work(costs::WAIT_QUEUE_ENTRY);
    if id == on.current() {
        on.kernel.tasks.get(id).state.set(state::RUNNING);
    } else {
        sched::wake(on, id, state::ASLEEP, WakeHint::Plain);
    }
}
