//! The lines on which threads announce themselves as readers of locks with a bias.
//!
//! A thread takes a line with its first biased read: that of its CPU number, so that few lines are in use, and a writer
//! has few to look at. It keeps the line until it ends, even if it gives the number back before: **The line of a hold
//! stays**. Then another thread may share it.

#![expect(unsafe_code, reason = "implements a trait on which exclusion rests")]

use core::cell::Cell;
use core::sync::atomic::Ordering::Relaxed;

use holdfast_locks::{ReaderLine, Readers};

use crate::cpu::{ThisThread, ThreadAddress};
use crate::process::process;

type Line = ReaderLine<ThreadAddress>;

/// The number of reads without a bias after which a thread biases the lock that it reads. A revocation takes less time
/// than these reads even if it looks at all lines and fetches them from other CPUs.
const READS: u32 = 1024;

/// What a thread keeps for its reads.
struct Reader {
    /// This thread's line, once it has one.
    line: Cell<Option<&'static Line>>,
    /// The number of reads without a bias until this thread biases a lock.
    reads_left: Cell<u32>,
}

thread_local! {
    /// It has no destructor, so that it also works in destructors.
    static READER: Reader = const {
        Reader {
            line: Cell::new(None),
            reads_left: Cell::new(READS),
        }
    };
}

/// Calls `look` with what this thread keeps. Inlined: a call, and the registers that it saves, would take as long as a
/// read.
#[inline(always)]
fn of_this_thread<R>(look: impl FnOnce(&Reader) -> R) -> R {
    // Never an error, since there is no destructor. The compiler inlines this, and not `with`.
    READER
        .try_with(look)
        .expect("a thread-local variable without a destructor")
}

#[cold]
fn take_line() -> &'static Line {
    let process = process();
    let line = (process.line)();
    // ORDERING: Relaxed; ordered by the fences of the lock, which follow here and precede the load in `reader_lines`.
    process.lines_end.fetch_max(line + 1, Relaxed);
    let line = &process.lines[line];
    of_this_thread(|reader| reader.line.set(Some(line)));
    line
}

// SAFETY: **The line of a hold stays**. The number of lines in use is increased before a thread gets its line, and
// never decreases.
unsafe impl Readers for ThisThread {
    #[inline]
    fn own_line(&self) -> &Line {
        of_this_thread(|reader| reader.line.get()).unwrap_or_else(take_line)
    }

    fn reader_lines(&self) -> &[Line] {
        // ORDERING: Relaxed; see `take_line`.
        &process().lines[..process().lines_end.load(Relaxed)]
    }

    #[inline]
    fn biases(&self) -> bool {
        of_this_thread(|reader| {
            let left = reader.reads_left.get() - 1;
            reader.reads_left.set(if left == 0 { READS } else { left });
            left == 0
        })
    }

    /// Does nothing: a locked instruction is a full fence, by **Total store order**, and the compiler moves no access
    /// across it.
    #[cfg(all(target_arch = "x86_64", not(any(miri, holdfast_atomics))))]
    #[inline(always)]
    fn fence_after_exchange(&self) {}
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::thread;

    use lock_api_04::RawRwLock;

    use super::*;
    use crate::RawBiasedRwLock;
    use crate::process::{LINES, LINES_MAX};
    use crate::slot::tests::with_numbers;

    /// More threads than lines hold the lock, each by an announcement or, where another thread has the place, below.
    #[test]
    fn readers_on_more_threads_than_there_are_lines_keep_a_writer_out() {
        static LOCK: RawBiasedRwLock = RawBiasedRwLock::INIT;
        const THREADS: usize = LINES_MAX + 8;
        with_numbers(|| {
            for _ in 0..READS {
                LOCK.lock_shared();
                // SAFETY: just locked.
                unsafe { LOCK.unlock_shared() };
            }
            let together = &Barrier::new(THREADS + 1);
            thread::scope(|scope| {
                let readers = [(); THREADS].map(|()| {
                    scope.spawn(move || {
                        LOCK.lock_shared();
                        together.wait();
                        assert!(!LOCK.try_lock_exclusive());
                        together.wait();
                        // SAFETY: locked above.
                        unsafe { LOCK.unlock_shared() };
                    })
                });
                together.wait();
                assert_eq!(ThisThread::new().reader_lines().len(), LINES_MAX);
                let is_empty = |line: &&Line| line.is_empty(&ThisThread::new());
                let free = LINES.iter().filter(is_empty).count();
                assert_eq!(free, 0, "each line has a reader");
                together.wait();
                for reader in readers {
                    reader.join().expect("no writer gets the lock");
                }
            });
            assert!(LOCK.try_lock_exclusive());
        });
    }
}
