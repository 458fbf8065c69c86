//! Flows of guest code: their stacks, the switch between them, and how they spend virtual time.

pub mod context;
pub mod flow;
pub mod handle;
pub mod operations;
pub mod pending;
pub mod play;
pub mod stack;
pub mod state;
