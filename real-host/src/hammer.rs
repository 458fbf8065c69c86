//! Threads that take one lock repeatedly. The same source runs on host threads and on simulated threads.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use holdfast_locks::{BootLock, LockKind, Nodes, Paravirt, Platform, Word};
use holdfast_sim::SimThread;
use holdfast_threads::ThisThread;

use crate::work::Work;

/// Work of a known length.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// Length without disturbance, in nanoseconds.
    pub ns: u64,
    work: Work,
}

impl Span {
    /// Creates work of `ns` nanoseconds on this CPU at its current clock rate.
    pub fn lasting(ns: u64) -> Span {
        Span {
            ns,
            work: Work::lasting(Duration::from_nanos(ns)),
        }
    }
}

/// A thread that can compute for a given time and make an empty system call.
pub trait Computes {
    /// Computes for `span`.
    fn compute(&self, span: Span);
    /// A system call that does nothing.
    fn call_kernel(&self);
}

impl Computes for ThisThread {
    #[inline]
    fn compute(&self, span: Span) {
        let mut value = 0;
        span.work.run(&mut value);
    }

    fn call_kernel(&self) {
        // getppid, which the C library does not cache.
        std::hint::black_box(std::os::unix::process::parent_id());
    }
}

impl Computes for SimThread {
    fn compute(&self, span: Span) {
        SimThread::compute(self, span.ns);
    }

    fn call_kernel(&self) {
        SimThread::call_kernel(self);
    }
}

/// A value on its own cache lines.
#[derive(Debug)]
#[repr(align(128))]
struct Alone<T>(T);

/// A lock, its data, and the number of acquisitions of each thread.
#[derive(Debug)]
pub struct Hammer<W> {
    kind: LockKind,
    section: Span,
    pause: Span,
    lock: Alone<BootLock<W>>,
    data: Alone<W>,
    stop: Alone<W>,
    counts: Box<[Alone<AtomicU64>]>,
}

impl<W: Word<u32>> Hammer<W> {
    /// Creates the state for `threads` threads. Each holds the lock for `section` and then computes for `pause` without
    /// it.
    pub fn new(kind: LockKind, threads: u32, section: Span, pause: Span) -> Self {
        Hammer {
            kind,
            section,
            pause,
            lock: Alone(BootLock::new()),
            data: Alone(W::new(0)),
            stop: Alone(W::new(0)),
            counts: (0..threads).map(|_| Alone(AtomicU64::new(0))).collect(),
        }
    }

    /// Runs thread `index` until it is stopped.
    pub fn contend<T>(&self, thread: &T, index: usize)
    where
        T: Nodes + Paravirt + Platform<Word = W> + Computes + 'static,
    {
        let mut count = 0;
        // ORDERING: Relaxed, here and below: the lock orders its data, and a stale value of the other words does no
        // harm.
        while thread.load(&self.stop.0, Relaxed) == 0 {
            self.lock.0.lock(self.kind, thread);
            let value = thread.load(&self.data.0, Relaxed);
            thread.compute(self.section);
            thread.store(&self.data.0, value.wrapping_add(1), Relaxed);
            self.lock.0.unlock(self.kind, thread);
            count += 1;
            self.counts[index].0.store(count, Relaxed);
            thread.compute(self.pause);
        }
    }

    /// Stops all threads. Returns the number of acquisitions until now.
    pub fn stop<T: Platform<Word = W>>(&self, thread: &T) -> u64 {
        let total = self.total();
        thread.store(&self.stop.0, 1, Relaxed);
        total
    }

    /// Returns the number of acquisitions of all threads.
    pub fn total(&self) -> u64 {
        self.counts.iter().map(|count| count.0.load(Relaxed)).sum()
    }

    /// Returns whether every acquisition is counted in the data. Otherwise the lock admitted two threads at once. Call
    /// it after all threads have ended.
    pub fn excluded<T: Platform<Word = W>>(&self, thread: &T) -> bool {
        thread.load(&self.data.0, Relaxed) == self.total() as u32
    }
}
