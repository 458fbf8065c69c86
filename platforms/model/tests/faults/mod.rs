//! Tests whether the searches find errors: one fault at a time is planted and must be found.

mod exceptions;
mod orderings;
mod steps;
mod trials;
mod weaker;

use holdfast_locks::RawLock;
use holdfast_model::{Checker, Cpu};

/// The body of an execution.
type Body = Box<dyn Fn() + Send + Sync>;

/// A lock under checker `C`.
pub trait Lock<C: Checker>: RawLock<Cpu<C>> + 'static {}
impl<C: Checker, L: RawLock<Cpu<C>> + 'static> Lock<C> for L {}
