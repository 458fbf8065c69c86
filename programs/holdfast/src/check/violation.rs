//! What is reported.

use std::fmt;

use super::Stack;

/// A mistake in the use of locks.
#[derive(Clone, Debug)]
pub struct Violation {
    /// What is wrong.
    pub kind: ViolationKind,
    /// For a circle its steps, of which the first has closed it; otherwise one step.
    pub steps: Vec<Step>,
}

/// The kinds of violations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ViolationKind {
    /// Locks were taken in orders that form a circle.
    Order,
    /// A thread takes a lock that it holds, and would wait forever.
    Twice,
    /// A thread reads what it reads already, and waits forever if a writer comes in between.
    ReadTwice,
    /// Threads wait for one condition variable with two mutexes at the same time. No mutex protects the condition then.
    TwoMutexes,
}

/// How a lock is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Access {
    /// A mutex.
    Lock,
    /// A mutex, by the end of a wait for a condition variable.
    Wait,
    /// A reader-writer lock, by a reader.
    Read,
    /// A reader-writer lock, by the writer.
    Write,
}

impl Access {
    fn held(self) -> &'static str {
        match self {
            Access::Lock | Access::Wait => "is held",
            Access::Read => "is held by reading",
            Access::Write => "is held by writing",
        }
    }

    fn taken(self) -> &'static str {
        match self {
            Access::Lock => "is taken",
            Access::Wait => "is taken again after a wait for a condition variable",
            Access::Read => "is taken for reading",
            Access::Write => "is taken for writing",
        }
    }
}

/// A lock was taken while another one was held. For [`ViolationKind::TwoMutexes`]: a thread waits with one mutex while
/// another thread waits with the other one.
#[derive(Clone, Debug)]
pub struct Step {
    /// The name, or number and address, of the lock that was held.
    pub held: String,
    /// How it was taken.
    pub held_as: Access,
    /// Where it was taken.
    pub held_at: Stack,
    /// The name, or number and address, of the lock that was taken then.
    pub taken: String,
    /// How it was taken.
    pub taken_as: Access,
    /// Where that was.
    pub taken_at: Stack,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            ViolationKind::Order => writeln!(f, "lock order: threads may wait for each other forever")?,
            ViolationKind::Twice => writeln!(f, "a thread takes a lock that it holds")?,
            ViolationKind::ReadTwice => {
                writeln!(f, "a thread reads twice, and waits forever if a writer comes between")?
            }
            ViolationKind::TwoMutexes => {
                writeln!(f, "threads wait for one condition variable with two mutexes")?;
                for step in &self.steps {
                    write!(f, "  before: with {}, at\n{}", step.held, step.held_at)?;
                    write!(f, "  now: with {}, at\n{}", step.taken, step.taken_at)?;
                }
                return Ok(());
            }
        }
        let when = std::iter::once("now").chain(std::iter::repeat("before"));
        for (step, when) in self.steps.iter().zip(when) {
            let (held, taken) = (step.held_as.held(), step.taken_as.taken());
            write!(f, "  {when}: {} {held}, taken at\n{}", step.held, step.held_at)?;
            write!(f, "  {when}: {} {taken} at\n{}", step.taken, step.taken_at)?;
        }
        Ok(())
    }
}
