//! Why a run ends before its guests are done, and how others end it.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use holdfast_machine::Time;

/// What runs share with other threads: these can end the runs early, and read how much virtual time has passed.
#[derive(Debug, Default)]
pub struct CallOff {
    called: AtomicBool,
    passed_ns: AtomicU64,
}

impl CallOff {
    /// Nothing is called off, and no time has passed.
    pub const fn new() -> CallOff {
        CallOff {
            called: AtomicBool::new(false),
            passed_ns: AtomicU64::new(0),
        }
    }

    /// Ends the runs at their next event. Returns whether this is the first call.
    pub fn call(&self) -> bool {
        !self.called.swap(true, Ordering::Relaxed)
    }

    /// Returns whether the runs are called off.
    pub fn is_called(&self) -> bool {
        self.called.load(Ordering::Relaxed)
    }

    /// Returns the flag that ends the runs, for guests that are not simulated.
    pub fn flag(&self) -> &AtomicBool {
        &self.called
    }

    /// A run has simulated another `span_ns` nanoseconds.
    pub(crate) fn pass(&self, span_ns: u64) {
        self.passed_ns.fetch_add(span_ns, Ordering::Relaxed);
    }

    /// Returns the virtual time that all runs together have simulated, in nanoseconds. A run counts in whole half
    /// seconds.
    pub fn passed_ns(&self) -> u64 {
        self.passed_ns.load(Ordering::Relaxed)
    }
}

/// Why a run did not finish. The message names the vCPUs and what they wait for.
#[derive(Clone, Debug, PartialEq)]
pub enum Failure {
    /// No event is to come: all vCPUs wait for each other.
    Deadlock(String),
    /// A halted vCPU waits for a lock that is free, and no vCPU will kick it.
    LostKick(String),
    /// Time passes and no guest makes progress.
    Livelock(String),
    /// The virtual-time limit was reached.
    Limit(String),
    /// The guest gave up.
    GuestPanic(String),
    /// A flow of guest code used up its stack.
    StackOverflow(String),
    /// A vCPU executes user code with translations that its kernel relies on being gone.
    StaleTranslation(String),
    /// The audit found that an interrupt was lost or noticed too late.
    LostInterrupt(String),
    /// The audit found an interrupt that was taken and not sent.
    DoubledInterrupt(String),
    /// The configuration cannot be built.
    Invalid(String),
    /// Another thread ended the run early.
    CalledOff,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Deadlock(what) => write!(f, "deadlock: {what}"),
            Failure::LostKick(what) => write!(f, "lost kick: {what}"),
            Failure::Livelock(what) => write!(f, "livelock: {what}"),
            Failure::Limit(what) => write!(f, "virtual-time limit reached: {what}"),
            Failure::GuestPanic(what) => write!(f, "guest panic: {what}"),
            Failure::StackOverflow(what) => write!(f, "guest stack overflow: {what}"),
            Failure::StaleTranslation(what) => write!(f, "stale translation: {what}"),
            Failure::LostInterrupt(what) => write!(f, "lost interrupt: {what}"),
            Failure::DoubledInterrupt(what) => write!(f, "doubled interrupt: {what}"),
            Failure::Invalid(what) => write!(f, "invalid machine: {what}"),
            Failure::CalledOff => write!(f, "called off"),
        }
    }
}

impl std::error::Error for Failure {}

/// Whether and why a run is over.
#[derive(Debug)]
pub struct Ending {
    /// The run cannot continue.
    pub failure: Option<Failure>,
    /// All measured guests are done.
    pub finished: bool,
    /// The virtual time after which an unfinished run is a failure.
    pub limit: Time,
}

impl Default for Ending {
    fn default() -> Ending {
        Ending {
            failure: None,
            finished: false,
            limit: Time::NEVER,
        }
    }
}

impl Ending {
    /// The run fails with what `failure` returns, unless it has failed before.
    pub fn fail(&mut self, failure: impl FnOnce() -> Failure) {
        self.failure.get_or_insert_with(failure);
    }

    /// The configuration cannot be run because of `what`.
    pub fn invalid(&mut self, what: impl std::fmt::Display) {
        self.fail(|| Failure::Invalid(what.to_string()));
    }
}
