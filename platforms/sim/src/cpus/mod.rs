//! Physical and virtual CPUs, and the boundary between guest and host.

pub mod costs;
pub mod exits;
pub mod pcpu;
pub mod vcpu;
