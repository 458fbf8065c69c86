//! Stacks for flows of guest code, and the switch between two of them.

pub mod context;
pub mod stack;
