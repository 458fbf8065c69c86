//! The commands that run on the real machine, as a build without the feature `real-host` knows them: by name.

use std::ffi::OsString;

use clap::{Args, Subcommand};

/// A command that runs on the real machine.
#[derive(Debug, Subcommand)]
pub enum RealHostCommand {
    /// Measure the locks on this machine (not in this build)
    Bench(AnyArgs),
    /// Measure this machine's costs and write them as a machine profile (not in this build)
    Calibrate(AnyArgs),
    /// Examine this host's KVM, or run an experiment's guests on it (not in this build)
    Kvm(AnyArgs),
    /// Record how this host schedules its guests (not in this build)
    Record(AnyArgs),
}

/// What predictions are compared with, other than published figures.
#[derive(Debug, Subcommand)]
pub enum Against {
    /// Compare with the locks on threads of this machine (not in this build)
    Threads(AnyArgs),
    /// Compare with the locks in guests on this machine's KVM (not in this build)
    Kvm(AnyArgs),
    /// Compare the host scheduler with those of stock Linux kernels (not in this build)
    LinuxSched(AnyArgs),
}

/// Arguments that are not read: the answer to all of them is how to build the command.
#[derive(Args, Debug)]
#[command(disable_help_flag = true)]
pub struct AnyArgs {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    _any: Vec<OsString>,
}
