//! Pipes between tasks.
//!
//! A pipe is a ring of pages. A small write goes into the last page as a whole if it fits there, and otherwise begins a
//! page of its own. A page becomes free when its last byte is read.
//!
//! Before Linux 5.5 readers and writers wait in one queue, and a wakeup wakes all of them. Since 5.6 each kind has a
//! queue of its own ([`exclusive_pipes`](crate::Config::exclusive_pipes)). A write to an empty pipe wakes one reader.
//! A read from a full pipe wakes one writer, even if the pipe stays full (until 6.14, `pipe_read`). A task that was
//! woken wakes the next one, if there is something left for it.
//!
//! **Whole** (`PIPE_BUF`): a write of at most one page is not split by others. **Conserved**: a byte is in one page
//! from its write until its read.

use core::array;

use crate::costs;
use crate::local::{Local32, Shared32};
use crate::machine::Machine;
use crate::mutex::Mutex;
use crate::sched::{self, OnCpu, Scheduler, WakeHint};
use crate::task::state;
use crate::wait::WaitQueue;

/// The most pages in a pipe (`PIPE_DEF_BUFFERS`).
const PAGES: u32 = 16;
const PAGE_BYTES: u32 = 4_096;

/// The contents of a pipe. Under its mutex.
struct Pages {
    /// Where in each page the unread bytes begin and end.
    spans: [(Local32, Local32); PAGES as usize],
    /// The number of the first page in use, modulo [`PAGES`].
    first: Local32,
    /// Written under the mutex. Waiters read it without.
    count: Shared32,
}

impl Pages {
    fn new() -> Self {
        Pages {
            spans: array::from_fn(|_| (Local32::new(0), Local32::new(0))),
            first: Local32::new(0),
            count: Shared32::new(0),
        }
    }

    fn is_empty(&self) -> bool {
        self.count.get() == 0
    }

    fn is_full(&self) -> bool {
        self.count.get() == PAGES
    }

    /// Page `number` of those in use.
    fn span(&self, number: u32) -> &(Local32, Local32) {
        &self.spans[(self.first.get().wrapping_add(number) % PAGES) as usize]
    }

    /// Puts in as many of `bytes` as there is room for, and returns how many.
    fn put(&self, bytes: u32) -> u32 {
        let odd = bytes % PAGE_BYTES;
        let mut merged = 0;
        if odd > 0 && !self.is_empty() {
            let (_, end) = self.span(self.count.get() - 1);
            if end.get() + odd <= PAGE_BYTES {
                end.add(odd);
                merged = odd;
            }
        }
        merged + self.put_in_new_pages(bytes - merged)
    }

    /// [`put`](Pages::put) that leaves the last page as it is.
    fn put_in_new_pages(&self, bytes: u32) -> u32 {
        let mut left = bytes;
        while left > 0 && !self.is_full() {
            let part = left.min(PAGE_BYTES);
            let (begin, end) = self.span(self.count.get());
            begin.set(0);
            end.set(part);
            self.count.set(self.count.get() + 1);
            left -= part;
        }
        bytes - left
    }

    /// Takes up to `want` bytes out. Returns how many, and whether a page became free.
    fn take(&self, want: u32) -> (u32, bool) {
        let (mut got, mut freed) = (0, false);
        while got < want && !self.is_empty() {
            let (begin, end) = self.span(0);
            let part = (end.get() - begin.get()).min(want - got);
            begin.add(part);
            got += part;
            if begin.get() == end.get() {
                self.first.add(1);
                self.count.set(self.count.get() - 1);
                freed = true;
            }
        }
        (got, freed)
    }
}

/// A pipe.
pub(crate) struct Pipe<M: Machine> {
    /// The pipe's inode's `i_mutex`, which protects the rest.
    mutex: Mutex<M>,
    /// Readers. Writers too, unless they have a queue of their own.
    wait: WaitQueue<M>,
    /// Writers, with `exclusive_pipes`.
    writable: WaitQueue<M>,
    pages: Pages,
    /// Written under the mutex. Readers that wait read it without.
    writers: Shared32,
}

impl<M: Machine> Pipe<M> {
    pub(crate) fn new() -> Self {
        Pipe {
            mutex: Mutex::new(),
            wait: WaitQueue::new(),
            writable: WaitQueue::new(),
            pages: Pages::new(),
            writers: Shared32::new(0),
        }
    }

    /// Opens the pipe for `writers` writing processes, and empties it.
    pub(crate) fn open(&self, sched: &Scheduler<M>, writers: u32) {
        self.mutex.lock(sched);
        self.pages.count.set(0);
        self.writers.set(writers);
        self.mutex.unlock(&sched.on_cpu());
    }

    /// Closes the pipe for one writer. Once the last writer has closed it, readers see its end.
    pub(crate) fn close_writer(&self, sched: &Scheduler<M>) {
        self.mutex.lock(sched);
        self.writers.decrement();
        let on = sched.on_cpu();
        self.wait.wake(&on, u32::MAX, WakeHint::Sync);
        self.mutex.unlock(&on);
    }

    /// Reads up to `want` bytes, and sleeps while the pipe is empty. Returns 0 at the end, and `None` if a signal came
    /// instead.
    pub(crate) fn read(&self, sched: &Scheduler<M>, want: u32) -> Option<u32> {
        if sched.system.config.exclusive_pipes {
            return self.read_alone(sched, want);
        }
        self.mutex.lock(sched);
        loop {
            let on = sched.on_cpu();
            if !self.pages.is_empty() || self.writers.get() == 0 {
                let (got, freed) = self.pages.take(want);
                on.work(costs::PIPE + costs::PIPE_PAGE * u64::from(got) / u64::from(PAGE_BYTES));
                self.mutex.unlock(&on);
                // Linux takes the wait queue's lock even if no task waits. With small messages that is once per page.
                if freed && !self.wait.is_idle() {
                    self.wait.wake(&on, u32::MAX, WakeHint::Sync);
                }
                return Some(got);
            }
            self.wait.prepare(&on, state::INTERRUPTIBLE);
            self.mutex.unlock(&on);
            sched::schedule(sched);
            let on = sched.on_cpu();
            self.wait.finish(&on);
            if take_signal(&on) {
                return None;
            }
            self.mutex.lock(sched);
        }
    }

    /// Writes `bytes`, and sleeps while the pipe is full.
    pub(crate) fn write(&self, sched: &Scheduler<M>, bytes: u32) {
        if sched.system.config.exclusive_pipes {
            return self.write_alone(sched, bytes);
        }
        let mut left = bytes;
        self.mutex.lock(sched);
        loop {
            let on = sched.on_cpu();
            let part = self.pages.put(left);
            if part > 0 {
                copy_in(&on, part);
                left -= part;
            }
            if left == 0 {
                self.mutex.unlock(&on);
                self.wait.wake(&on, u32::MAX, WakeHint::Sync);
                return;
            }
            self.wait.wake(&on, u32::MAX, WakeHint::Sync);
            self.wait.prepare(&on, state::UNINTERRUPTIBLE);
            self.mutex.unlock(&on);
            sched::schedule(sched);
            self.wait.finish(&sched.on_cpu());
            self.mutex.lock(sched);
        }
    }

    /// [`read`](Pipe::read) whose wakeups wake one task (`pipe_read` of Linux 6.1).
    fn read_alone(&self, sched: &Scheduler<M>, want: u32) -> Option<u32> {
        let mut has_slept = false;
        loop {
            self.mutex.lock(sched);
            let on = sched.on_cpu();
            if !self.pages.is_empty() || self.writers.get() == 0 {
                let was_full = self.pages.is_full();
                let (got, _) = self.pages.take(want);
                on.work(costs::PIPE + costs::PIPE_PAGE * u64::from(got) / u64::from(PAGE_BYTES));
                let is_more = !self.pages.is_empty();
                self.mutex.unlock(&on);
                if was_full {
                    self.writable.wake(&on, 1, WakeHint::Sync);
                }
                if has_slept && is_more {
                    self.wait.wake(&on, 1, WakeHint::Sync);
                }
                return Some(got);
            }
            self.mutex.unlock(&on);
            let is_readable = || !self.pages.is_empty() || self.writers.get() == 0;
            while !is_readable() {
                self.wait.sleep_unless(sched, state::INTERRUPTIBLE, |_| is_readable());
                // A reader whose wakeup came with a signal must not lose what it was woken for.
                if !is_readable() && take_signal(&sched.on_cpu()) {
                    return None;
                }
            }
            has_slept = true;
        }
    }

    /// [`write`](Pipe::write) whose wakeups wake one task (`pipe_write` of Linux 6.1).
    fn write_alone(&self, sched: &Scheduler<M>, bytes: u32) {
        let (mut left, mut has_slept) = (bytes, false);
        loop {
            self.mutex.lock(sched);
            let on = sched.on_cpu();
            let was_empty = self.pages.is_empty();
            // Only the first attempt looks for room in the last page.
            let part = match has_slept {
                false => self.pages.put(left),
                true => self.pages.put_in_new_pages(left),
            };
            if part > 0 {
                copy_in(&on, part);
                left -= part;
            }
            let is_room = !self.pages.is_full();
            self.mutex.unlock(&on);
            if was_empty {
                self.wait.wake(&on, 1, WakeHint::Sync);
            }
            if left == 0 {
                if has_slept && is_room {
                    self.writable.wake(&on, 1, WakeHint::Sync);
                }
                return;
            }
            while self.pages.is_full() {
                self.writable
                    .sleep_unless(sched, state::UNINTERRUPTIBLE, |_| !self.pages.is_full());
            }
            has_slept = true;
        }
    }
}

/// Copies `bytes` from the writer into pages of the pipe.
fn copy_in<M: Machine>(on: &OnCpu<'_, M>, bytes: u32) {
    on.work(costs::PIPE + costs::PIPE_PAGE * u64::from(bytes) / u64::from(PAGE_BYTES));
    // Less than a page goes where there is room, or in the page that the pipe keeps for reuse (`tmp_page`).
    for _ in 0..bytes / PAGE_BYTES {
        on.sched.memory.take_page(on);
    }
}

/// Runs the signal handler when the caller's task returns from an interrupted system call. Only SIGCHLD is modeled, as
/// an interruption of a sleep. Returns `false` if no signal was pending.
fn take_signal<M: Machine>(on: &OnCpu<'_, M>) -> bool {
    let task = on.current_task();
    if task.signal_pending.get() == 0 {
        return false;
    }
    task.signal_pending.set(0);
    task.signal_lock.hold_irq(on, costs::SIGNAL);
    true
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    #[test]
    fn small_writes_share_a_page_and_are_never_torn() {
        let pages = Pages::new();
        let messages = PAGES * (PAGE_BYTES / 100);
        for number in 0..messages {
            assert_eq!(pages.put(100), 100, "message {number}");
        }
        assert_eq!(
            pages.put(100),
            0,
            "96 bytes are left in each page: no room for a whole message"
        );
        assert_eq!(pages.put(90), 90, "what fits in the last page goes there");
        // Room comes page by page.
        for _ in 1..40 {
            assert_eq!(pages.take(100), (100, false));
            assert_eq!(pages.put(100), 0);
        }
        assert_eq!(pages.take(100), (100, true));
        assert_eq!(pages.put(100), 100);
    }

    #[test]
    fn whatever_is_put_in_comes_out() {
        let (pages, mut state) = (Pages::new(), 1u64);
        let mut next = |bound: u32| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as u32 % bound
        };
        let (mut inside, mut full) = (0, vec![]);
        for round in 0..100_000 {
            let bytes = [1, 100, 4_096, 10_000, 70_000][next(5) as usize] + next(50);
            if next(2) == 0 {
                let part = pages.put(bytes);
                assert!(
                    part == bytes || bytes > PAGE_BYTES || part == 0,
                    "a write of {bytes} was torn"
                );
                inside += part;
                full.extend((part == 0).then_some(round));
            } else {
                let (got, freed) = pages.take(bytes);
                assert_eq!(got, bytes.min(inside), "in round {round}");
                inside -= got;
                assert!(inside > 0 || got == 0 || freed, "the last byte frees its page");
            }
            assert!(inside <= PAGES * PAGE_BYTES);
            assert_eq!(pages.is_empty(), inside == 0);
        }
        assert!(!full.is_empty(), "it was never full");
    }
}
