//! Comparison of what the locks do on this machine with what the simulator predicts.

pub mod guests;
pub mod judge;
pub mod threads;

pub use holdfast_locks::LockKind;
