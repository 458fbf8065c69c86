//! The locks on two platforms: `steps`, which executes interleavings one by one on a single thread, and `threads`, the
//! host's own.

mod contract;
mod explore;
mod hosted;
mod queued;
mod races;
mod scenes;
mod steps;
mod threads;
