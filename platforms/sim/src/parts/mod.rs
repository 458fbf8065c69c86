//! The parts of a machine, and of the guests on it: their state.

pub mod apic;
pub mod hardware;
pub mod inner;
pub mod nesting;
pub mod pcpu;
pub mod vcpu;
pub mod vm;
