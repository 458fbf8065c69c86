//! What the platform needs from a model checker.

use std::fmt;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A model checker.
pub trait Checker: Sized + 'static {
    /// Its name in reports.
    const NAME: &'static str;
    /// How many fruitless turns of a spinning thread mean that nobody will make progress; `None` if the checker finds
    /// that out itself.
    const IDLE_TURNS_MAX: Option<u32>;
    /// Which executions to look at.
    type Search: Clone + fmt::Debug + Send + Sync + 'static;
    /// A shared word.
    type Atomic: Atomic;
    /// Memory that needs a lock.
    type Cell: Cell;
    /// A started thread, to be joined.
    type Join;
    /// A thread, to be woken.
    type Thread: Send + Sync;

    /// Runs `body` under every execution of `search`, or until one fails.
    ///
    /// # Errors
    /// The first execution that panics, races or makes no progress.
    fn explore(search: &Self::Search, body: impl Fn() + Send + Sync + 'static) -> Result<Explored, Failure>;

    /// Starts a thread of the current execution.
    fn spawn(body: impl FnOnce() + Send + 'static) -> Self::Join;
    /// Waits for its end.
    fn join(thread: Self::Join);
    /// The calling thread.
    fn current() -> Self::Thread;

    /// A memory fence.
    fn fence(order: Ordering);
    /// Lets others go first: the caller is about to try the same again.
    fn pause(thread: &Self::Thread);
    /// Waits for somebody else's step, in a loop until the caller has what it waits for. Orders no memory.
    fn sleep(thread: &Self::Thread);
    /// After a [`sleep`](Checker::sleep) that was in vain: whether to [`block`](Checker::block) from here on.
    fn is_out_of_turn(thread: &Self::Thread) -> bool;
    /// Blocks the caller until a [`wake`](Checker::wake), whose caller's writes it may acquire. May return for no
    /// reason.
    fn block(thread: &Self::Thread);
    /// Ends what [`block`](Checker::block) began, if it has.
    fn wake(thread: &Self::Thread);
    /// The caller repeats itself without effect: in another execution it comes to this point later, when it has what it
    /// waits for. So what follows needs no exploration, only a look whether it ends.
    fn cut();
    /// Continues the step that the caller has begun: in `operation` nobody goes first.
    fn same_step<R>(operation: impl FnOnce() -> R) -> R;
    /// Whether something happens that happens once in `odds` times. A checker that only branches on schedules and loads
    /// says no.
    fn chance(odds: u32) -> bool;
}

/// A shared word of a checker's memory.
pub trait Atomic: Send + Sync + 'static {
    /// A word that holds `value`.
    fn new(value: u32) -> Self;
    /// Loads.
    fn load(&self, order: Ordering) -> u32;
    /// Stores. Whether the value is another than before.
    fn store(&self, value: u32, order: Ordering) -> bool;
    /// Reads, and writes what `change` says; one atomic step. The value before, as `Err` if nothing was written.
    ///
    /// # Errors
    /// The value found, which is not what `change` expects.
    fn rmw(&self, change: Rmw, success: Ordering, failure: Ordering) -> Result<u32, u32>;
    /// The value last written, for the checker's own use: no step of the program.
    fn newest(&self) -> u32;
    /// Whether `accept`s some value that a load may return, as far as the checker knows. No step of the program.
    fn may_read(&self, accept: impl Fn(u32) -> bool) -> bool;
    /// Ends the word's life: whatever touches it after, or was not ordered before, is a failure.
    fn free(&self);
}

/// How a read-modify-write changes a word.
#[derive(Clone, Copy, Debug)]
pub enum Rmw {
    /// To a value.
    Swap(u32),
    /// By an addition that wraps.
    Add(u32),
    /// Sets bits.
    Or(u32),
    /// Keeps bits.
    And(u32),
    /// To `new`, in the bits of `mask`, if those hold `current` (or whatever they hold).
    Masked {
        /// Which bits are compared and written.
        mask: u32,
        /// What they must hold.
        current: Option<u32>,
        /// What they become.
        new: u32,
    },
}

impl Rmw {
    /// What `value` becomes, if anything.
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

/// Memory that one thread at a time may use: the checker fails an execution in which two may.
pub trait Cell: Send + Sync + 'static {
    /// Memory that holds `value`.
    fn new(value: u32) -> Self;
    /// Replaces what it holds.
    fn update(&self, change: impl FnOnce(u32) -> u32);
    /// What it holds.
    fn get(&self) -> u32;
}

/// A search that found nothing wrong.
#[derive(Clone, Copy, Debug)]
pub struct Explored {
    /// How many executions it looked at.
    pub executions: u64,
    /// How long it took.
    pub elapsed: Duration,
}

/// An execution that went wrong.
#[derive(Clone, Debug)]
pub struct Failure {
    /// What the checker, or a scenario's assertion, says.
    pub message: String,
    /// Which execution it was, counted from 1.
    pub execution: u64,
    /// What its CPUs did, one step a line.
    pub trace: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "execution {}: {}\n{}", self.execution, self.message, self.trace)
    }
}

impl std::error::Error for Failure {}
