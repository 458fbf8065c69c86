//! The engine: virtual time, and the loop that plays its events.

pub mod clock;
pub mod engine;
pub mod failure;
pub mod watchdog;
