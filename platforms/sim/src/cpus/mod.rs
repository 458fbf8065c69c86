//! Physical and virtual CPUs, and the boundary between guest and host.

pub mod commands;
pub mod exits;
pub mod hardware;
pub mod pcpu;
pub mod runqueues;
pub mod siblings;
pub mod time;
pub mod vcpu;
