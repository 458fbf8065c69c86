//! Semaphores for many readers or one writer, whose waiters sleep (`rw_semaphore`).
//!
//! | `count` | |
//! |---|---|
//! | bit 0 | a writer holds it |
//! | bit 1 | tasks sleep in the queue |
//! | bit 2 | hand-off: only the first task of the queue may take it |
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
//! With [`rwsem_stealing`](crate::config::Config::rwsem_stealing) as in Linux 6.1 (`rwsem_down_read_slowpath`,
//! `rwsem_optimistic_spin`, `rwsem_mark_wake`): a reader takes what only bit 1 keeps it from, writers spin for readers
//! for a while, all readers of the queue are granted at once, and bit 2 ends all of that after 4 ms.
//!
//! Deliberately missing: spinning of the task to which it is handed over, and readers that spin (Linux 5.3 to 5.10).

use core::cell::Cell;
use core::sync::atomic::{
    AtomicBool,
    Ordering::{Acquire, Relaxed, Release},
};

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
const HANDOFF: u32 = 1 << 2;
const READER: u32 = 1 << 8;
/// The bits of all holders.
const HELD: u32 = !(WAITERS | HANDOFF);

/// After this time in the queue the first task gets the semaphore next (`RWSEM_WAIT_TIMEOUT`).
const PATIENCE_NS: u64 = 4_000_000;
/// How long writers spin for readers: this for 20, and for each reader up to 30 (`rwsem_rspin_threshold`).
const SPIN_PER_READER_NS: u64 = 500;

/// A reader-writer semaphore. It carries no data: it protects plain memory next to it.
pub(crate) struct RwSemaphore<M: Machine> {
    count: WordOf<M>,
    /// The writer, and the tasks that wait. Readers have no owner.
    waiters: Waiters<M>,
    /// Writers have spun for these readers in vain (`RWSEM_NONSPINNABLE`). A hint.
    readers_stay: AtomicBool,
}

impl<M: Machine> RwSemaphore<M> {
    pub(crate) fn new() -> Self {
        let count = WordOf::<M>::new(0);
        let waiters = Waiters::new(LockClass::RwsemWait, true, Word::<u32>::line(&count));
        RwSemaphore {
            count,
            waiters,
            readers_stay: AtomicBool::new(false),
        }
    }

    /// Takes the semaphore for reading, and sleeps until that is possible (`down_read`). The caller may be on another
    /// CPU afterwards.
    pub(crate) fn read(&self, sched: &Scheduler<M>) {
        let on = sched.on_cpu();
        // ORDERING: Acquire pairs with the Release of the last writer, whose writes are seen.
        let before = on.cpu.fetch_add(&self.count, READER, Acquire);
        if before & (WRITER | WAITERS) != 0 {
            self.read_slow(sched, before);
        }
    }

    fn read_slow(&self, sched: &Scheduler<M>, before: u32) {
        let on = sched.on_cpu();
        let steals = on.system.config.rwsem_stealing;
        // A constant stream of readers must not starve the queue: only the first takes it ahead of the queue.
        if steals && before & (HELD | HANDOFF) == 0 {
            let mut waiters = self.waiters.lock(&on);
            if self.is_reader(&on, waiters.first) {
                self.wake_first(&on, &mut waiters);
            }
            return;
        }
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
            task.waits_since.set(on.now());
            waiters.push(&sched.tasks, id);
            task.state.set(state::UNINTERRUPTIBLE);
            let change = if is_first { WAITERS } else { 0 }.wrapping_sub(READER);
            // ORDERING: Relaxed: the caller read and wrote nothing as a holder. The queue's lock orders the queue.
            let now = on.cpu.fetch_add(&self.count, change, Relaxed).wrapping_add(change);
            if now & HELD == 0 || steals && now & WRITER == 0 && self.is_reader(&on, waiters.first) {
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
            self.readers_stay.store(false, Relaxed);
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
            sched.task(id).waits_since.set(on.now());
            // ORDERING: Relaxed: the exchange that takes the semaphore acquires. Holders that leave after this see the
            // bit.
            let take = |on: &OnCpu<'_, M>| {
                let before = on.cpu.fetch_or(&self.count, WAITERS, Relaxed);
                self.take_in_turn(on, id, before | WAITERS)
            };
            self.waiters.sleep(sched, id, take, |on| {
                on.cpu.fetch_and(&self.count, !WAITERS, Relaxed);
            });
        }
        self.readers_stay.store(false, Relaxed);
        self.waiters.set_owner(&sched.on_cpu(), id);
    }

    /// Spins in turn while a writer runs. Returns `true` if the caller has the semaphore. The semaphore does not record
    /// which tasks read, so that waiters spin for readers either not at all or for a limited time.
    fn spin(&self, on: &OnCpu<'_, M>) -> bool {
        let count = || on.cpu.load(&self.count, Relaxed);
        let steals = on.system.config.rwsem_stealing;
        let until = Cell::new(None);
        let take = || {
            let count = count();
            let is_taken = self.take_from(on, count);
            let is_read = count & WRITER == 0 && count & HELD != 0;
            if !is_read {
                until.set(None);
            }
            let ends = is_read && (!steals || self.outlasts(on, count, &until));
            (is_taken || ends).then_some(is_taken)
        };
        let may_spin = || match steals {
            false => count() & WRITER != 0,
            true => !self.readers_stay.load(Relaxed),
        };
        self.waiters.spin_in_turn(on, may_spin, take)
    }

    /// Returns `true` if a writer has spun for the readers of `count` for long enough. `until` is when it will have.
    fn outlasts(&self, on: &OnCpu<'_, M>, count: u32, until: &Cell<Option<u64>>) -> bool {
        let Some(end) = until.get() else {
            let readers = u64::from(count / READER).min(30);
            until.set(Some(on.now() + SPIN_PER_READER_NS * (20 + readers)));
            return self.readers_stay.load(Relaxed);
        };
        let is_over = on.now() > end;
        if is_over {
            self.readers_stay.store(true, Relaxed);
        }
        is_over
    }

    /// [`take_from`](RwSemaphore::take_from) for task `id`, which is in the queue, whose lock the caller holds.
    fn take_in_turn(&self, on: &OnCpu<'_, M>, id: TaskId, count: u32) -> bool {
        if !on.system.config.rwsem_stealing {
            return self.take_from(on, count);
        }
        let is_first = on.task(id).wait_previous.get() == TaskId::NONE;
        if count & HELD == 0 && is_first {
            return on
                .cpu
                // ORDERING: Acquire, as in `take_from`.
                .compare_exchange(&self.count, count, (count | WRITER) & !HANDOFF, Acquire, Relaxed)
                .is_ok();
        }
        if is_first {
            self.insist(on, id);
        }
        self.take_from(on, count)
    }

    /// Keeps the others from taking the semaphore if task `id`, the first of the queue, has waited for too long.
    fn insist(&self, on: &OnCpu<'_, M>, id: TaskId) {
        if on.system.config.rwsem_stealing && on.now() > on.task(id).waits_since.get() + PATIENCE_NS {
            on.cpu.fetch_or(&self.count, HANDOFF, Relaxed);
        }
    }

    /// Takes the semaphore ahead of the queue, if no task holds it and its count is still `count`.
    fn take_from(&self, on: &OnCpu<'_, M>, count: u32) -> bool {
        // ORDERING: Acquire pairs with the Release of the last holders.
        count & (HELD | HANDOFF) == 0
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

    fn is_reader(&self, on: &OnCpu<'_, M>, id: TaskId) -> bool {
        id != TaskId::NONE && !on.task(id).wants_write.is_set()
    }

    /// Wakes the writer at the queue's head, or grants the semaphore to all readers up to the first writer, or also to
    /// those behind it.
    fn wake_first(&self, on: &OnCpu<'_, M>, waiters: &mut WaitList) {
        if waiters.is_empty() {
            return;
        }
        if !self.is_reader(on, waiters.first) {
            wake_waiter(on, waiters.first);
            return;
        }
        // One reader is counted first. After that no writer can take the semaphore, unless one has already.
        // ORDERING: Acquire, on behalf of the granted readers. The wakeup passes it on to them.
        if on.cpu.fetch_add(&self.count, READER, Acquire) & WRITER != 0 {
            let change = READER.wrapping_neg();
            self.insist(on, waiters.first);
            let now = on.cpu.fetch_add(&self.count, change, Relaxed).wrapping_add(change);
            if now & HELD == 0 {
                self.wake_first(on, waiters);
            }
            return;
        }
        let steals = on.system.config.rwsem_stealing;
        let (mut readers, mut writers) = (0, 0);
        let mut id = waiters.first;
        while id != TaskId::NONE && (steals || self.is_reader(on, id)) {
            match self.is_reader(on, id) {
                true => readers += 1,
                false => writers += 1,
            }
            id = on.task(id).wait_next.get();
        }
        let is_last = writers == 0 && id == TaskId::NONE;
        let change = (READER * (readers - 1)).wrapping_sub(if is_last { WAITERS } else { 0 });
        // ORDERING: Relaxed: the readers are counted before they are woken, and the first was counted above.
        on.cpu.fetch_add(&self.count, change, Relaxed);
        if steals {
            on.cpu.fetch_and(&self.count, !HANDOFF, Relaxed);
        }
        let mut next = waiters.first;
        while readers > 0 {
            let reader = next;
            next = on.task(reader).wait_next.get();
            if !self.is_reader(on, reader) {
                continue;
            }
            readers -= 1;
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
