//! The host scheduler compared with real Linux kernels: scripted threads, played by both.
//!
//! A real kernel plays them under QEMU with instruction counting, where other programs of the machine change nothing
//! but the time it takes (`platforms/kvm/testhost/schedule`). Its tracepoints and the commands of
//! [`holdfast_host::Host`] become the same [`events`](Event), from which the same code makes the [`figures`].
//!
//! **One source**: the scheduler is the simulator's, driven through the host's step function. The driver ([`play`])
//! only plays the threads, and delays what they do by the costs of the emulated machine.

pub mod figures;
pub mod judge;
pub mod measure;
pub mod play;
pub mod scenario;
pub mod trace;

pub use figures::{Figures, GroupFigures};
pub use scenario::Scenario;

/// Time from the first event to the common start of all threads. Nanoseconds.
pub const START_NS: u64 = 300_000_000;
/// Time from the start that is left out of all figures. Nanoseconds.
pub const LEFT_OUT_NS: u64 = 500_000_000;

/// A thread of a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Thread {
    /// Its entry in [`Scenario::threads`].
    pub of: usize,
    /// Its number there, from 0.
    pub index: u32,
}

/// An event of the scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Time since the common start of all threads; negative before it. Nanoseconds.
    pub at_ns: i64,
    /// The event.
    pub what: What,
}

/// What an event is about. Threads that are not of the scenario are `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A CPU switches threads (`sched_switch`).
    Switch {
        /// The CPU.
        cpu: u32,
        /// The previous thread.
        from: Option<Thread>,
        /// Whether the previous thread is still runnable.
        runnable: bool,
        /// The next thread.
        to: Option<Thread>,
    },
    /// A thread is woken (`sched_wakeup`).
    Wakeup(Thread),
}
