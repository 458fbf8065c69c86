//! Address spaces.
//!
//! Pages are counted, not stored. What matters is which CPU takes which lock, how often, and for how long.

mod lock;
mod space;

pub(crate) use space::{Fault, Spaces};
