//! Why a run ends before its guests are done.

use std::fmt;
use std::sync::atomic::AtomicBool;

/// Set by another thread to end a run early.
pub type CallOff = AtomicBool;

/// Why a run did not finish. The message names who waits for what.
#[derive(Clone, Debug, PartialEq)]
pub enum Failure {
    /// Nothing can happen any more: all wait for each other.
    Deadlock(String),
    /// A halted vCPU waits for a lock that is free, and nobody will kick it.
    LostKick(String),
    /// Time passes and no guest makes progress.
    Livelock(String),
    /// The virtual-time limit was reached.
    Limit(String),
    /// The guest gave up.
    GuestPanic(String),
    /// A guest flow of control used up its stack.
    StackOverflow(String),
    /// A vCPU executes user code with translations that its kernel relied on being gone.
    StaleTranslation(String),
    /// The audit of interrupts missed one.
    LostInterrupt(String),
    /// The audit of interrupts found one too many.
    DoubledInterrupt(String),
    /// The configuration cannot be built.
    Invalid(String),
    /// Called off from outside.
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
