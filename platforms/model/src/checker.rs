//! The interface to a model checker.

use std::fmt;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A model checker.
pub trait Checker: Sized + 'static {
    /// The checker's name in reports.
    const NAME: &'static str;
    /// The number of turns without progress after which a spinning thread fails the execution. `None` if the checker
    /// detects a lack of progress itself.
    const IDLE_TURNS_MAX: Option<u32>;
    /// The choice of executions to explore.
    type Search: Clone + fmt::Debug + Send + Sync + 'static;
    /// A shared word.
    type Atomic: Atomic;
    /// Memory that must be protected by a lock.
    type Cell: Cell;
    /// A handle to join a started thread.
    type Join;
    /// A handle to wake a thread.
    type Thread: Send + Sync;

    /// Runs `body` under every execution of `search`, or until one fails.
    ///
    /// # Errors
    /// The first execution that panics, races or makes no progress.
    fn explore(search: &Self::Search, body: impl Fn() + Send + Sync + 'static) -> Result<Explored, Failure>;

    /// Starts a thread of the current execution.
    fn spawn(body: impl FnOnce() + Send + 'static) -> Self::Join;
    /// Waits for the end of a thread.
    fn join(thread: Self::Join);
    /// Returns a handle to the calling thread.
    fn current() -> Self::Thread;

    /// Executes a memory fence.
    fn fence(order: Ordering);
    /// Lets other threads run: the caller is about to repeat the same step.
    fn pause(thread: &Self::Thread);
    /// Waits for a step of another thread. The caller calls it in a loop until its condition holds. Orders no memory.
    fn sleep(thread: &Self::Thread);
    /// Returns whether the caller should [`block`](Checker::block) from here on, after a [`sleep`](Checker::sleep) in
    /// vain.
    fn is_out_of_turn(thread: &Self::Thread) -> bool;
    /// Blocks the caller until a [`wake`](Checker::wake), whose caller's writes it may acquire. May return for no
    /// reason.
    fn block(thread: &Self::Thread);
    /// Ends the [`block`](Checker::block) of a thread, if it is blocked.
    fn wake(thread: &Self::Thread);
    /// Stops the exploration of this execution, in which the caller repeats a step without effect. In another execution
    /// the caller reaches this point later, when its condition holds. The checker only tests whether this one ends.
    fn cut();
    /// Runs `operation` as a part of the caller's current step: no other thread runs in between.
    fn same_step<R>(operation: impl FnOnce() -> R) -> R;
    /// Returns `true` once in `odds` calls on average. A checker that branches only on schedules and loads returns
    /// `false`.
    fn chance(odds: u32) -> bool;
}

/// A shared word of a checker's memory.
pub trait Atomic: Send + Sync + 'static {
    /// Makes a word that holds `value`.
    fn new(value: u32) -> Self;
    /// Loads the value.
    fn load(&self, order: Ordering) -> u32;
    /// Stores `value`. Returns whether it differs from the previous value.
    fn store(&self, value: u32, order: Ordering) -> bool;
    /// Applies `change` in one atomic step and returns the previous value.
    ///
    /// # Errors
    /// If the value is not the one that `change` expects. The error is the value; nothing was written.
    fn rmw(&self, change: Rmw, success: Ordering, failure: Ordering) -> Result<u32, u32>;
    /// Returns the newest value, for the checker's own use. Not a step of the program.
    fn newest(&self) -> u32;
    /// Returns whether `accept` holds for some value that a load may return, as far as the checker knows. Not a step of
    /// the program.
    fn may_read(&self, accept: impl Fn(u32) -> bool) -> bool;
    /// Frees the word. A later access, or one that is not ordered before this call, fails the execution.
    fn free(&self);
}

/// A change of a word by a read-modify-write.
#[derive(Clone, Copy, Debug)]
pub enum Rmw {
    /// Stores a value.
    Swap(u32),
    /// Adds a value, wrapping.
    Add(u32),
    /// Sets these bits.
    Or(u32),
    /// Clears all other bits.
    And(u32),
    /// Stores `new` to the bits of `mask` if they hold `current`, or without a condition.
    Masked {
        /// The bits that are compared and written.
        mask: u32,
        /// The value that the bits must hold, if any.
        current: Option<u32>,
        /// The new value of the bits.
        new: u32,
    },
}

impl Rmw {
    /// Returns the value that the change makes of `value`, or `None` if its condition does not hold.
    pub fn apply(self, value: u32) -> Option<u32> {
        match self {
            Rmw::Swap(new) => Some(new),
            Rmw::Add(by) => Some(value.wrapping_add(by)),
            Rmw::Or(bits) => Some(value | bits),
            Rmw::And(bits) => Some(value & bits),
            Rmw::Masked { mask, current, new } => {
                let matches = current.is_none_or(|current| value & mask == current);
                matches.then_some(value & !mask | new)
            }
        }
    }
}

/// Memory that only one thread at a time may access: the checker fails an execution in which two threads may.
pub trait Cell: Send + Sync + 'static {
    /// Makes memory that holds `value`.
    fn new(value: u32) -> Self;
    /// Applies `change` to the value.
    fn update(&self, change: impl FnOnce(u32) -> u32);
    /// Returns the value.
    fn get(&self) -> u32;
}

/// The statistics of a search that found no error.
#[derive(Clone, Copy, Debug)]
pub struct Explored {
    /// The number of executions explored.
    pub executions: u64,
    /// The time that the search took.
    pub elapsed: Duration,
}

/// An execution that failed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The message of the checker or of a scenario's assertion.
    pub message: String,
    /// The number of the execution, counted from 1.
    pub execution: u64,
    /// The steps of the CPUs, one on each line.
    pub trace: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "execution {}: {}\n{}", self.execution, self.message, self.trace)
    }
}

impl std::error::Error for Failure {}
