//! Semaphores for many readers or one writer, whose waiters sleep (`rw_semaphore`).
//!
//! | `count` | |
//! |---|---|
//! | bit 0 | a writer holds it |
//! | bit 1 | tasks sleep in the queue |
//! | bits 8 to 31 | readers that hold it, and readers that have counted themselves but not checked the bits yet |
//!
//! Reading costs two locked instructions on one cache line, however many readers there are. Page faults of a process
//! with many threads pay that.
//!
//! - **Exclusion**: a writer sets bit 0 only where no task holds the semaphore. A reader holds it once it has counted
//!   itself and seen neither bit, or once the waker has counted it. Bit 1 excludes later readers.
//! - **No lost wakeup**: bit 1 changes only under the queue's lock. The task that ends the last hold and sees the bit
//!   wakes the queue. The task that sets the bit checks afterwards whether the semaphore is held.
//! - **Order**: if a writer is first in the queue, only it is woken, and it competes with tasks that are awake. If a
//!   reader is first, all readers up to the first writer are granted the semaphore.
//!
//! Deliberately missing: the hand-off to a waiter after 4 ms, and readers that spin (Linux 5.3 and later).

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use holdfast_locks::{Platform, Word};

use crate::class::LockClass;
use crate::costs;
use crate::ids::TaskId;
use crate::machine::Machine;
use crate::sched::{self, OnCpu, Scheduler, WakeHint};
use crate::spin::Waiters;
use crate::sync::WordOf;
use crate::task::state;
use crate::wait::{WaitList, sleep_until_granted};

const WRITER: u32 = 1;
const WAITERS: u32 = 1 << 1;
const READER: u32 = 1 << 8;
/// The bits of all holders.
const HELD: u32 = !WAITERS;

/// A reader-writer semaphore. It carries no data: it protects plain memory next to it.
pub(crate) struct RwSemaphore<M: Machine> {
    count: WordOf<M>,
    /// The writer, and the tasks that wait. Readers have no owner.
    waiters: Waiters<M>,
}

impl<M: Machine> RwSemaphore<M> {
    pub(crate) fn new() -> Self {
        let count = WordOf::<M>::new(0);
        let waiters = Waiters::new(LockClass::RwsemWait, true, Word::<u32>::line(&count));
        RwSemaphore { count, waiters }
    }

    /// Takes the semaphore for reading, and sleeps until that is possible (`down_read`). The caller may be on another
    /// CPU afterwards.
    pub(crate) fn read(&self, sched: &Scheduler<M>) {
        let on = sched.on_cpu();
        // ORDERING: Acquire pairs with the Release of the last writer, whose writes are seen.
        let before = on.cpu.fetch_add(&self.count, READER, Acquire);
        if before & (WRITER | WAITERS) != 0 {
            self.read_slow(sched);
        }
    }

    fn read_slow(&self, sched: &Scheduler<M>) {
        let on = sched.on_cpu();
        let id = on.current();
        let task = sched.task(id);
        {
            let mut waiters = self.waiters.lock(&on);
            let is_first = waiters.is_empty();
            // ORDERING: Acquire, as above. The caller is still counted, so no writer can take it in between.
            if is_first && on.cpu.load(&self.count, Acquire) & WRITER == 0 {
                return;
            }
            task.wants_write.set(0);
            task.granted.set(0);
            waiters.push(&sched.tasks, id);
            task.state.set(state::UNINTERRUPTIBLE);
            let change = if is_first { WAITERS } else { 0 }.wrapping_sub(READER);
            // ORDERING: Relaxed: the caller read and wrote nothing as a holder. The queue's lock orders the queue.
            let now = on.cpu.fetch_add(&self.count, change, Relaxed).wrapping_add(change);
            if now & HELD == 0 {
                self.wake_first(&on, &mut waiters);
            }
        }
        if task.granted.get() == 0 {
            sleep_until_granted(sched, state::UNINTERRUPTIBLE);
        }
        task.state.set(state::RUNNING);
    }

    /// Ends reading (`up_read`).
    pub(crate) fn read_unlock(&self, on: &OnCpu<'_, M>) {
        // ORDERING: Release pairs with the Acquire of the next writer: this task's reads must not see its writes.
        let now = on
            .cpu
            .fetch_add(&self.count, READER.wrapping_neg(), Release)
            .wrapping_sub(READER);
        if now & HELD == 0 && now & WAITERS != 0 {
            self.wake(on);
        }
    }

    /// Takes the semaphore for writing, and sleeps until that is possible (`down_write`). Spins before it sleeps if
    /// `spins` is set and another writer runs. The caller may be on another CPU afterwards.
    pub(crate) fn write(&self, sched: &Scheduler<M>, spins: bool) {
        let on = sched.on_cpu();
        let id = on.current();
        let is_taken = self.take_from(&on, 0) || spins && self.spin(&on);
        if !is_taken {
            sched.task(id).wants_write.set(1);
            // ORDERING: Relaxed: the exchange that takes the semaphore acquires. Holders that leave after this see the
            // bit.
            let take = |on: &OnCpu<'_, M>| {
                let before = on.cpu.fetch_or(&self.count, WAITERS, Relaxed);
                self.take_from(on, before | WAITERS)
            };
            self.waiters.sleep(sched, id, take, |on| {
                on.cpu.fetch_and(&self.count, !WAITERS, Relaxed);
            });
        }
        self.waiters.set_owner(&sched.on_cpu(), id);
    }

    /// Spins in turn while a writer runs. Returns `true` if the caller has the semaphore. Waiters do not spin for
    /// readers, because the semaphore does not record which tasks they are.
    fn spin(&self, on: &OnCpu<'_, M>) -> bool {
        let count = || on.cpu.load(&self.count, Relaxed);
        let take = || {
            let count = count();
            let is_taken = self.take_from(on, count);
            let is_read = count & WRITER == 0 && count & HELD != 0;
            (is_taken || is_read).then_some(is_taken)
        };
        self.waiters.spin_in_turn(on, || count() & WRITER != 0, take)
    }

    /// Takes the semaphore ahead of the queue, if no task holds it and its count is still `count`.
    fn take_from(&self, on: &OnCpu<'_, M>, count: u32) -> bool {
        // ORDERING: Acquire pairs with the Release of the last holders.
        count & HELD == 0
            && on
                .cpu
                .compare_exchange(&self.count, count, count | WRITER, Acquire, Relaxed)
                .is_ok()
    }

    /// Ends writing (`up_write`).
    pub(crate) fn write_unlock(&self, on: &OnCpu<'_, M>) {
        self.waiters.clear_owner(on);
        // ORDERING: Release pairs with the Acquire of the next holder.
        if on.cpu.fetch_and(&self.count, !WRITER, Release) & WAITERS != 0 {
            self.wake(on);
        }
    }

    /// Makes the writer a reader (`downgrade_write`).
    pub(crate) fn downgrade(&self, on: &OnCpu<'_, M>) {
        self.waiters.clear_owner(on);
        // ORDERING: Release pairs with the Acquire of the readers that take it next.
        let before = on.cpu.fetch_add(&self.count, READER - WRITER, Release);
        if before & WAITERS == 0 {
            return;
        }
        let mut waiters = self.waiters.lock(on);
        if !waiters.is_empty() && !on.sched.task(waiters.first).wants_write.is_set() {
            self.wake_first(on, &mut waiters);
        }
    }

    fn wake(&self, on: &OnCpu<'_, M>) {
        let mut waiters = self.waiters.lock(on);
        self.wake_first(on, &mut waiters);
    }

    /// Wakes the writer at the queue's head, or grants the semaphore to all readers up to the first writer.
    fn wake_first(&self, on: &OnCpu<'_, M>, waiters: &mut WaitList) {
        let is_reader = |id: TaskId| id != TaskId::NONE && !on.task(id).wants_write.is_set();
        if waiters.is_empty() {
            return;
        }
        if !is_reader(waiters.first) {
            wake_waiter(on, waiters.first);
            return;
        }
        // One reader is counted first. After that no writer can take the semaphore, unless one has already.
        // ORDERING: Acquire, on behalf of the granted readers. The wakeup passes it on to them.
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
            id = on.task(id).wait_next.get();
        }
        let is_last = id == TaskId::NONE;
        let change = (READER * (readers - 1)).wrapping_sub(if is_last { WAITERS } else { 0 });
        // ORDERING: Relaxed: the readers are counted before they are woken, and the first was counted above.
        on.cpu.fetch_add(&self.count, change, Relaxed);
        for _ in 0..readers {
            let reader = waiters.first;
            waiters.remove(&on.sched.tasks, reader);
            on.task(reader).granted.set(1);
            wake_waiter(on, reader);
        }
    }
}

/// Wakes a task of the queue. It may be the caller, about to sleep.
fn wake_waiter<M: Machine>(on: &OnCpu<'_, M>, id: TaskId) {
    on.work(costs::WAIT_QUEUE_ENTRY);
    if id == on.current() {
        on.sched.task(id).state.set(state::RUNNING);
    } else {
        sched::wake(on, id, state::ASLEEP, WakeHint::Plain);
    }
}
