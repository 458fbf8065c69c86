//! Processes: fork, exec, exit, wait.

mod exec;
mod exit;
mod fork;
mod table;

pub use exec::Executable;
pub use exit::Exited;
pub use fork::Fork;
pub(crate) use table::Processes;
