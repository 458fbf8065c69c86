//! The commands that run on the real machine, in a build without the feature `real-host`: each says how to build it.

use crate::Done;
use crate::args::{Against, RealHostCommand};
use crate::error::Result;
use crate::refused::Refused;

/// Refuses every command.
pub fn run(_: &RealHostCommand) -> Result<Done> {
    Err(Refused::not_built("real-host").into())
}

/// Refuses `holdfast validate threads`, `kvm` and `linux-sched`.
pub fn validate(_: &Against) -> Result<Done> {
    Err(Refused::not_built("real-host").into())
}
