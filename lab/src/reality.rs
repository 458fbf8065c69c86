//! The real machine beneath this program: what it can do, and what the locks do on it, beside what the simulator predicts.

pub mod doctor;
pub mod guests;
mod hammer;
pub mod judge;
pub mod kvm;
pub mod linux;
pub mod threads;
pub mod tracing;

pub use hammer::{Computes, Span};
pub use holdfast_locks::LockKind;
