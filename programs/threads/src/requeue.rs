//! The condition variable for C: over the kernel's queues, and destroyed while woken threads still leave.

#![expect(unsafe_code, reason = "unlocks a mutex for which the caller vouches")]

use core::ptr;
use std::time::{Duration, Instant};

use holdfast_locks::{Futexes, HybridPvQspin, Platform, RawLock, RequeueCondvar};

use crate::cpu::{ThisThread, ThreadAddress, ThreadWord};
use crate::raw::RawHybrid;
use crate::{allowed, fork, os};

impl Futexes for ThisThread {
    fn sleep(&self, word: &ThreadWord, value: u32) -> bool {
        os::sleep_on(word, value, None)
    }
    fn wake(&self, key: usize, count: u32) {
        os::wake_at(key, count);
    }
    fn wake_word(&self, word: &ThreadWord, count: u32) {
        os::wake_some(word, count);
    }
    fn requeue(&self, word: &ThreadWord, value: u32, count: u32, key: usize) -> bool {
        os::requeue(word, value, count, key)
    }
    fn generation(&self) -> u8 {
        fork::generation()
    }
}

/// A condition variable for threads that hold a [`RawHybrid`] or any other mutex. It takes 16 bytes.
///
/// A broadcast wakes 64 threads for each CPU by one system call, and moves the others to the mutex: each thread wakes
/// the next one when it has got the mutex. The condition variable may be freed before the woken threads have the mutex,
/// after [`destroy`](RawRequeueCondvar::destroy), and the child of a `fork` may use it.
#[derive(Debug)]
#[repr(transparent)]
pub struct RawRequeueCondvar(RequeueCondvar<ThreadWord, ThreadAddress>);

impl RawRequeueCondvar {
    /// Makes a condition variable for which no thread waits.
    pub const fn new() -> Self {
        RawRequeueCondvar(RequeueCondvar::from_words(
            ThreadWord::ZERO,
            ThreadWord::ZERO,
            ThreadAddress::ZERO,
        ))
    }

    /// Unlocks `mutex` and waits until the calling thread is notified or `deadline` has passed, then locks `mutex`
    /// again. Returns `false` if the time was up. May return `true` for no reason.
    ///
    /// # Safety
    /// The calling thread must hold `mutex`. What the mutex protects must not be borrowed.
    pub unsafe fn wait(&self, mutex: &RawHybrid, deadline: Option<Instant>) -> bool {
        let (this, word) = (ThisThread::new(), mutex.word());
        let mut in_time = true;
        let sleep = |sequence: &ThreadWord, value| {
            allowed::look_if_due();
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let woken = left != Some(Duration::ZERO) && os::sleep_on(sequence, value, left);
            in_time = woken || deadline.is_none_or(|deadline| Instant::now() < deadline);
            woken
        };
        self.0.wait(
            &this,
            this.key(word),
            || <HybridPvQspin>::unlock(&this, word),
            sleep,
            || <HybridPvQspin>::lock(&this, word),
        );
        in_time
    }

    /// Counts the caller as a waiter with the mutex of `queue`, which it holds: the first part of a wait whose sleep
    /// the caller arranges. `queue` is an address in the mutex on which no thread sleeps otherwise. Returns the value
    /// of [`word`](RawRequeueCondvar::word) to sleep on. The caller then unlocks the mutex, sleeps, calls
    /// [`leave`](RawRequeueCondvar::leave), and locks the mutex.
    pub fn enter(&self, queue: usize) -> u32 {
        self.0.enter(&ThisThread::new(), queue)
    }

    /// Returns the address of the word on which waiters sleep.
    pub fn word(&self) -> *const u32 {
        ptr::from_ref(self.0.words().0).cast()
    }

    /// Counts the caller out. Returns whether it must call [`pass_on`](RawRequeueCondvar::pass_on) once it has locked
    /// the mutex, if it was woken from its sleep.
    pub fn leave(&self) -> bool {
        self.0.leave(&ThisThread::new())
    }

    /// Wakes the next thread that a broadcast has moved to the mutex of `queue`, which the caller holds.
    pub fn pass_on(queue: usize) {
        ThisThread::new().wake(queue, 1);
    }

    /// Notifies the thread that has slept for longest. Returns `false` if no thread waits.
    #[inline]
    pub fn notify_one(&self) -> bool {
        self.0.notify_one(&ThisThread::new())
    }

    /// Notifies all waiting threads. Returns how many there were, with those that were notified before and have not
    /// woken yet.
    #[inline]
    pub fn notify_all(&self) -> u32 {
        self.0.notify_all(&ThisThread::new(), allowed::at_once())
    }

    /// Waits until no thread accesses the condition variable any more, so that its memory may be freed. All waiting
    /// threads must have been notified. The caller may hold their mutex.
    pub fn destroy(&self) {
        self.0.destroy(&ThisThread::new());
    }
}

impl Default for RawRequeueCondvar {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use core::sync::atomic::AtomicU32;
    use core::sync::atomic::Ordering::Relaxed;
    use std::thread;

    use lock_api_04::RawMutex;

    use super::*;
    use crate::condvar::tests::take_turns;
    use crate::slot::tests::with_numbers;

    #[test]
    fn two_threads_take_turns() {
        let changed = RawRequeueCondvar::new();
        with_numbers(|| take_turns(&changed, RawRequeueCondvar::wait, RawRequeueCondvar::notify_all, || ()));
    }

    /// The kernel moves the threads that a broadcast does not wake, and each thread wakes the next one.
    #[test]
    fn a_broadcast_that_wakes_one_thread_reaches_all() {
        with_numbers(broadcast_one_at_a_time);
    }

    fn broadcast_one_at_a_time() {
        const THREADS: u32 = 8;
        const ROUNDS: u32 = 50;
        let (mutex, changed) = (RawHybrid::INIT, RawRequeueCondvar::new());
        let (mutex, changed) = (&mutex, &changed);
        let (round, arrived) = (&AtomicU32::new(0), &AtomicU32::new(0));
        let locked = |section: &dyn Fn()| {
            mutex.lock();
            section();
            // SAFETY: locked above.
            unsafe { mutex.unlock() };
        };
        thread::scope(|scope| {
            let threads = [(); THREADS as usize].map(|()| {
                scope.spawn(move || {
                    for this in 1..=ROUNDS {
                        locked(&|| {
                            arrived.fetch_add(1, Relaxed);
                            while round.load(Relaxed) < this {
                                // SAFETY: locked by `locked`.
                                unsafe { changed.wait(mutex, None) };
                            }
                        });
                    }
                })
            });
            for this in 1..=ROUNDS {
                // All threads wait for the round, most of them asleep.
                while arrived.load(Relaxed) < this * THREADS {
                    thread::yield_now();
                }
                locked(&|| round.store(this, Relaxed));
                changed.0.notify_all(&ThisThread::new(), 1);
            }
            for thread in threads {
                thread.join().expect("each round is announced");
            }
        });
        assert_eq!(arrived.load(Relaxed), ROUNDS * THREADS);
    }
}
