//! Guest, host and machine joined in virtual time.

mod api;

pub use api::{CallOff, Config, Failure, HostTask, Outcome, TimeShare, Vm, VmOutcome, run};
