//! Counts by four threads. The README of the crate shows the file `counts.rs`.

#[cfg(not(feature = "model"))]
include!("counts.rs");

/// The locks of a model checker cannot be in a static.
#[cfg(feature = "model")]
fn main() {}
