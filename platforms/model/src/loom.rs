//! Loom: every execution that its memory model allows.
//!
//! - **A store after a read-modify-write is later**: loom orders a plain store and another thread's exchange only
//!   partially, and then lets the next exchange read either value. If the first exchange has read what the storing
//!   thread wrote before, no real memory allows that. So such a store first reads the newest value. This leaves one
//!   case unexplored: a racing plain store that is older than an exchange executed before it. Plain stores that race
//!   with plain stores are left to loom.
//! - **Only accessed words are modeled**: a machine has many hundred words, an execution accesses a few dozen, and each
//!   modeled word costs time. If a search accesses a further word, it starts again with that word modeled.

#![expect(unsafe_code, reason = "loom's cell gives a pointer")]

use std::cell::{Cell as StdCell, RefCell};
use std::collections::BTreeSet;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicU32 as StdAtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Instant;

use ::loom::cell::UnsafeCell;
use ::loom::sync::atomic::AtomicU32;

use crate::catch::{catch, message};
use crate::checker::{Atomic, Cell, Checker, Explored, Failure, Rmw};
use crate::trace;
use crate::word::restart_numbers;

mod turns;

/// The checker of orderings.
#[derive(Debug)]
pub struct Loom;

/// The executions that loom explores.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// The largest number of preemptions of threads that could have continued. `None` means no limit.
    pub preemptions: Option<usize>,
    /// The largest number of steps and loads of an execution.
    pub branches_max: usize,
    /// The largest number of executions. If a search needs more it fails, so that a search that has grown is noticed.
    pub executions_max: u64,
}

impl Bounds {
    /// Explores every execution.
    pub const ALL: Bounds = Bounds {
        preemptions: None,
        branches_max: 4000,
        executions_max: 500_000,
    };

    /// Returns bounds that explore the executions with at most this many preemptions.
    pub const fn preemptions(preemptions: usize) -> Self {
        Bounds {
            preemptions: Some(preemptions),
            ..Self::ALL
        }
    }
}

thread_local! {
    static EXECUTIONS: StdCell<u64> = const { StdCell::new(0) };
    /// The number of words that this execution has made.
    static WORDS: StdCell<u32> = const { StdCell::new(0) };
    /// The words that some execution accesses.
    static TOUCHED: RefCell<BTreeSet<u32>> = const { RefCell::new(BTreeSet::new()) };
}

/// Held by the search that runs. Each execution maps and unmaps the stacks of its threads, and every unmapping
/// interrupts the CPUs that run other threads of the process: two searches at once take longer than one after another.
static SEARCH: Mutex<()> = Mutex::new(());

/// What a search executes. Of one type, since the checker would be compiled again for each other one.
type Body = Arc<dyn Fn() + Send + Sync>;

/// The panic payload of an execution that accessed a word for the first time.
struct FirstTouch(u32);

impl Checker for Loom {
    const NAME: &'static str = "loom";
    const IDLE_TURNS_MAX: Option<u32> = Some(64);
    type Search = Bounds;
    type Atomic = LoomWord;
    type Cell = LoomCell;
    type Join = ::loom::thread::JoinHandle<()>;
    type Thread = LoomThread;

    fn explore(search: &Bounds, body: impl Fn() + Send + Sync + 'static) -> Result<Explored, Failure> {
        let _alone = SEARCH.lock().unwrap_or_else(PoisonError::into_inner);
        let start = Instant::now();
        let body: Body = Arc::new(body);
        TOUCHED.take();
        // The first search, which is short, finds most words.
        for preemptions in [Some(1), search.preemptions] {
            let mut builder = ::loom::model::Builder::new();
            builder.preemption_bound = preemptions;
            builder.max_branches = search.branches_max;
            while let Err(payload) = search_once(&builder, search.executions_max, &body) {
                match payload.downcast_ref() {
                    Some(&FirstTouch(word)) => TOUCHED.with_borrow_mut(|touched| touched.insert(word)),
                    None => {
                        return Err(Failure {
                            message: message(&*payload),
                            execution: EXECUTIONS.get(),
                            trace: trace::render(),
                        });
                    }
                };
            }
        }
        Ok(Explored {
            executions: EXECUTIONS.get(),
            elapsed: start.elapsed(),
        })
    }

    fn spawn(body: impl FnOnce() + Send + 'static) -> Self::Join {
        let thread = turns::add_thread();
        ::loom::thread::spawn(move || {
            turns::start(thread);
            body();
            turns::set_alive(thread, false);
        })
    }
    fn join(thread: Self::Join) {
        turns::set_alive(turns::MAIN, false);
        thread.join().expect("a panic ends the execution");
        turns::set_alive(turns::MAIN, true);
    }
    fn current() -> LoomThread {
        LoomThread {
            index: turns::current(),
            handle: ::loom::thread::current(),
            blocked: AtomicBool::new(false),
        }
    }
    fn fence(order: Ordering) {
        ::loom::sync::atomic::fence(order);
    }
    fn pause(thread: &LoomThread) {
        turns::note_yield(thread.index);
        ::loom::thread::yield_now();
    }
    /// Yields: this orders nothing, but loom considers the thread able to run.
    fn sleep(thread: &LoomThread) {
        Self::pause(thread);
    }
    fn is_out_of_turn(thread: &LoomThread) -> bool {
        turns::is_out_of_turn(thread.index)
    }
    /// Blocks: loom knows that the thread cannot run and explores the others in its place. But the wakeup orders
    /// memory.
    fn block(thread: &LoomThread) {
        thread.blocked.store(true, Ordering::Relaxed);
        turns::set_alive(thread.index, false);
        ::loom::thread::park();
        turns::set_alive(thread.index, true);
        thread.blocked.store(false, Ordering::Relaxed);
    }
    fn wake(thread: &LoomThread) {
        if thread.blocked.load(Ordering::Relaxed) {
            turns::set_alive(thread.index, true);
            thread.handle.unpark();
        }
    }
    fn cut() {
        ::loom::skip_branch();
    }
    fn same_step<R>(operation: impl FnOnce() -> R) -> R {
        ::loom::stop_exploring();
        let result = operation();
        ::loom::explore();
        result
    }
    fn chance(_: u32) -> bool {
        false
    }
}

fn search_once(
    builder: &::loom::model::Builder,
    executions_max: u64,
    body: &Body,
) -> Result<(), Box<dyn std::any::Any + Send>> {
    EXECUTIONS.set(0);
    let body = Arc::clone(body);
    catch(|| {
        builder.check(move || {
            EXECUTIONS.set(EXECUTIONS.get() + 1);
            assert!(
                EXECUTIONS.get() <= executions_max,
                "the search has more than {executions_max} executions"
            );
            WORDS.set(0);
            restart_numbers();
            trace::clear();
            turns::clear();
            body();
        });
    })
}

/// A thread of loom.
#[derive(Debug)]
pub struct LoomThread {
    index: usize,
    handle: ::loom::thread::Thread,
    blocked: AtomicBool,
}

/// A word in loom's memory.
#[derive(Debug)]
pub struct LoomWord {
    number: u32,
    /// The newest value, for operations that loom lacks. It is a guess, which a compare-exchange confirms.
    newest: StdAtomicU32,
    /// All values that were written.
    values: Mutex<Vec<u32>>,
    /// Whether the last write was a read-modify-write.
    exchanged: AtomicBool,
    /// `None` if the word must not be accessed: it is freed, or not modeled (**Only accessed words are modeled**).
    word: RwLock<Option<AtomicU32>>,
}

impl LoomWord {
    fn with<R>(&self, operation: impl FnOnce(&AtomicU32) -> R) -> R {
        let word = self.word.read().expect("no writer panics");
        match &*word {
            Some(word) => operation(word),
            None if TOUCHED.with_borrow(|touched| touched.contains(&self.number)) => {
                panic!("use after free: word {} is accessed", self.number)
            }
            None => resume_unwind(Box::new(FirstTouch(self.number))),
        }
    }
}

impl LoomWord {
    /// Records `value` as the newest. Returns whether it differs from the previous one.
    fn wrote(&self, value: u32) -> bool {
        self.values.lock().expect("no holder panics").push(value);
        self.newest.swap(value, Ordering::Relaxed) != value
    }
}

impl Atomic for LoomWord {
    fn new(value: u32) -> Self {
        let number = WORDS.get();
        WORDS.set(number + 1);
        let touched = TOUCHED.with_borrow(|touched| touched.contains(&number));
        LoomWord {
            number,
            newest: StdAtomicU32::new(value),
            values: Mutex::new(vec![value]),
            exchanged: AtomicBool::new(false),
            word: RwLock::new(touched.then(|| AtomicU32::new(value))),
        }
    }

    fn load(&self, order: Ordering) -> u32 {
        self.with(|word| word.load(order))
    }

    fn store(&self, value: u32, order: Ordering) -> bool {
        self.with(|word| {
            if !self.exchanged.load(Ordering::Relaxed) {
                return word.store(value, order);
            }
            // See **A store after a read-modify-write is later**. This exchange fails.
            let other = !self.newest();
            let _ = word.compare_exchange(other, other, Ordering::Relaxed, Ordering::Relaxed);
            Loom::same_step(|| word.store(value, order));
        });
        self.exchanged.store(false, Ordering::Relaxed);
        self.wrote(value)
    }

    fn rmw(&self, change: Rmw, success: Ordering, failure: Ordering) -> Result<u32, u32> {
        let result = self.with(|word| match change {
            Rmw::Swap(new) => Ok(word.swap(new, success)),
            Rmw::Add(by) => Ok(word.fetch_add(by, success)),
            Rmw::Or(bits) => Ok(word.fetch_or(bits, success)),
            Rmw::And(bits) => Ok(word.fetch_and(bits, success)),
            Rmw::Masked { .. } => {
                let guess = self.newest();
                // If the guess is right and does not match, this must fail.
                let (expected, new) = change.apply(guess).map_or((!guess, !guess), |new| (guess, new));
                let first = word.compare_exchange(expected, new, success, failure);
                match first {
                    Ok(before) if expected == guess => Ok(before),
                    Ok(found) | Err(found) => match change.apply(found) {
                        None => Err(found),
                        Some(new) => Loom::same_step(|| word.compare_exchange(found, new, success, failure)),
                    },
                }
            }
        });
        if let Ok(before) = result
            && let Some(new) = change.apply(before)
        {
            self.wrote(new);
            self.exchanged.store(true, Ordering::Relaxed);
        }
        result
    }

    fn newest(&self) -> u32 {
        self.newest.load(Ordering::Relaxed)
    }

    fn may_read(&self, accept: impl Fn(u32) -> bool) -> bool {
        let values = self.values.lock().expect("no holder panics");
        values.iter().any(|&value| accept(value))
    }

    fn free(&self) {
        let mut word = self
            .word
            .try_write()
            .expect("use after free: a freed word is freed again");
        if let Some(word) = &mut *word {
            // Fails if some operation was not ordered before.
            word.with_mut(|_| ());
        }
        *word = None;
        TOUCHED.with_borrow_mut(|touched| touched.insert(self.number));
    }
}

/// Memory whose accesses loom compares: two accesses that are not ordered are a data race, whichever is executed first.
#[derive(Debug)]
pub struct LoomCell(UnsafeCell<u32>);

// SAFETY: loom runs all threads of an execution on one thread of the host, and `update` and `get` do not yield during
// an access.
unsafe impl Send for LoomCell {}
// SAFETY: as above.
unsafe impl Sync for LoomCell {}

impl Cell for LoomCell {
    fn new(value: u32) -> Self {
        LoomCell(UnsafeCell::new(value))
    }

    fn update(&self, change: impl FnOnce(u32) -> u32) {
        self.0.with_mut(|value| {
            // SAFETY: the pointer is valid as long as `self`, and no other thread accesses the memory meanwhile, as
            // argued for `Sync`.
            let value = unsafe { &mut *value };
            *value = change(*value);
        });
    }

    fn get(&self) -> u32 {
        // SAFETY: as in `update`.
        self.0.with(|value| unsafe { *value })
    }
}
