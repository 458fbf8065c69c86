//! Shuttle: random schedules of many threads, in sequentially consistent memory.
//!
//! An operation on a word is a scheduling point followed by an indivisible step. So every operation of a CPU is one
//! step, sub-word operations included.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use ::shuttle::rand::{Rng, thread_rng};
use ::shuttle::scheduler::{PctScheduler, RandomScheduler};
use ::shuttle::sync::atomic::AtomicBool as SchedulingPoint;
use ::shuttle::{Config, FailurePersistence, MaxSteps, Runner};

use crate::catch::{catch, message};
use crate::checker::{Atomic, Cell, Checker, Explored, Failure, Rmw};
use crate::trace;
use crate::word::restart_numbers;

/// The checker of schedules.
#[derive(Debug)]
pub struct Shuttle;

/// The schedules that Shuttle tries.
#[derive(Clone, Copy, Debug)]
pub struct Schedules {
    /// The number of schedules.
    pub count: usize,
    /// How often priorities change (probabilistic concurrency testing). `None` means any thread at each step.
    pub pct_depth: Option<usize>,
    /// The seed: equal seeds try equal schedules.
    pub seed: u64,
}

impl Schedules {
    /// Returns schedules that choose any thread at each step.
    pub const fn random(count: usize) -> Self {
        Schedules {
            count,
            pct_depth: None,
            seed: 1,
        }
    }

    /// Returns schedules by priorities that change `depth - 1` times.
    pub const fn pct(depth: usize, count: usize) -> Self {
        Schedules {
            count,
            pct_depth: Some(depth),
            seed: 1,
        }
    }
}

impl Checker for Shuttle {
    const NAME: &'static str = "shuttle";
    const IDLE_TURNS_MAX: Option<u32> = None;
    type Search = Schedules;
    type Atomic = ShuttleWord;
    type Cell = ShuttleCell;
    type Join = ::shuttle::thread::JoinHandle<()>;
    type Thread = ::shuttle::thread::Thread;

    fn explore(search: &Schedules, body: impl Fn() + Send + Sync + 'static) -> Result<Explored, Failure> {
        let start = Instant::now();
        let executions = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&executions);
        // Of one type, since the checker would be compiled again for each other one.
        let body: Box<dyn Fn() + Send + Sync> = Box::new(move || {
            count.fetch_add(1, Ordering::Relaxed);
            restart_numbers();
            trace::clear();
            body();
        });
        let mut config = Config::new();
        config.failure_persistence = FailurePersistence::None;
        config.max_steps = MaxSteps::FailAfter(1_000_000);
        config.silence_warnings = true;
        let Schedules { count, pct_depth, seed } = *search;
        let result = catch(|| match pct_depth {
            None => Runner::new(RandomScheduler::new_from_seed(seed, count), config).run(body),
            Some(depth) => Runner::new(PctScheduler::new_from_seed(seed, depth, count), config).run(body),
        });
        let executions = executions.load(Ordering::Relaxed);
        match result {
            Ok(_) => Ok(Explored {
                executions,
                elapsed: start.elapsed(),
            }),
            Err(payload) => Err(Failure {
                message: message(&*payload),
                execution: executions,
                trace: trace::render(),
            }),
        }
    }

    fn spawn(body: impl FnOnce() + Send + 'static) -> Self::Join {
        ::shuttle::thread::spawn(body)
    }
    fn join(thread: Self::Join) {
        thread.join().expect("a panic ends the execution");
    }
    fn current() -> Self::Thread {
        ::shuttle::thread::current()
    }
    fn fence(_: Ordering) {}
    fn pause(_: &Self::Thread) {
        ::shuttle::thread::yield_now();
    }
    fn sleep(thread: &Self::Thread) {
        Self::block(thread);
    }
    fn is_out_of_turn(_: &Self::Thread) -> bool {
        false
    }
    fn block(_: &Self::Thread) {
        ::shuttle::thread::park();
    }
    fn wake(thread: &Self::Thread) {
        thread.unpark();
    }
    fn cut() {}
    fn same_step<R>(operation: impl FnOnce() -> R) -> R {
        let before = IN_STEP.replace(true);
        let result = operation();
        IN_STEP.set(before);
        result
    }
    fn chance(odds: u32) -> bool {
        thread_rng().gen_range(0..odds) == 0
    }
}

thread_local! {
    /// Whether the current step continues, so that no other thread may run.
    static IN_STEP: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Lets any thread run first.
fn step() {
    if IN_STEP.get() {
        return;
    }
    // An access to shared memory is a scheduling point.
    SchedulingPoint::new(false).load(Ordering::SeqCst);
}

/// A word in sequentially consistent memory.
#[derive(Debug)]
pub struct ShuttleWord {
    value: AtomicU32,
    freed: AtomicBool,
}

impl ShuttleWord {
    /// Makes a scheduling point. What follows is indivisible, because all threads of an execution run on one thread of
    /// the host.
    fn begin(&self) {
        step();
        assert!(
            !self.freed.load(Ordering::Relaxed),
            "use after free: a freed word is accessed"
        );
    }
}

impl Atomic for ShuttleWord {
    fn new(value: u32) -> Self {
        ShuttleWord {
            value: AtomicU32::new(value),
            freed: AtomicBool::new(false),
        }
    }

    fn load(&self, _: Ordering) -> u32 {
        self.begin();
        self.value.load(Ordering::Relaxed)
    }

    fn store(&self, value: u32, _: Ordering) -> bool {
        self.begin();
        self.value.swap(value, Ordering::Relaxed) != value
    }

    fn rmw(&self, change: Rmw, _: Ordering, _: Ordering) -> Result<u32, u32> {
        self.begin();
        let before = self.value.load(Ordering::Relaxed);
        let after = change.apply(before).ok_or(before)?;
        self.value.store(after, Ordering::Relaxed);
        Ok(before)
    }

    fn newest(&self) -> u32 {
        self.value.load(Ordering::Relaxed)
    }

    fn may_read(&self, accept: impl Fn(u32) -> bool) -> bool {
        accept(self.newest())
    }

    fn free(&self) {
        self.freed.store(true, Ordering::Relaxed);
    }
}

/// Memory whose accesses take time: two at the same time fail the execution.
#[derive(Debug)]
pub struct ShuttleCell {
    value: AtomicU32,
    used: Mutex<()>,
}

impl Cell for ShuttleCell {
    fn new(value: u32) -> Self {
        ShuttleCell {
            value: AtomicU32::new(value),
            used: Mutex::new(()),
        }
    }

    fn update(&self, change: impl FnOnce(u32) -> u32) {
        let used = self.used.try_lock().expect("two CPUs hold the lock");
        step();
        let value = self.value.load(Ordering::Relaxed);
        self.value.store(change(value), Ordering::Relaxed);
        drop(used);
    }

    fn get(&self) -> u32 {
        self.value.load(Ordering::Relaxed)
    }
}
