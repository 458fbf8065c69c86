//! Processes: fork, exec, exit, wait.

mod exec;
mod exit;
mod fork;
mod table;

pub use exit::Exited;
pub use fork::Fork;
pub use table::Executable;
pub(crate) use table::Processes;
