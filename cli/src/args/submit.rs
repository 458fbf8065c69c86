//! Arguments of `holdfast submit`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use holdfast_lab::shipped::DEFAULT_EXPERIMENT;

use super::{AdaptiveArgs, Format, PlanArgs};

/// An engine that runs the shards of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Engine {
    /// Processes on this machine.
    Local,
    /// A Slurm array, by sbatch.
    Slurm,
    /// A HyperQueue job, by hq.
    Hyperqueue,
    /// Tasks of Dask, by a script for python3 that needs the package distributed.
    Dask,
    /// An indexed Kubernetes Job, by kubectl.
    Kubernetes,
}

/// Arguments of `holdfast submit`.
#[derive(Args, Debug)]
pub struct SubmitArgs {
    /// A shipped experiment (`holdfast list`), or a TOML file
    #[arg(default_value = DEFAULT_EXPERIMENT)]
    pub experiment: String,
    #[command(flatten)]
    pub plan: PlanArgs,
    #[command(flatten)]
    pub adaptive: AdaptiveArgs,
    /// The engine
    #[arg(long, value_enum)]
    pub engine: Engine,
    /// Folder that all machines see under this path: plan, cache, logs, and results
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Number of shards, which are divided by predicted cost [default: 8 for each CPU of this machine; for clusters,
    /// one for each minute of predicted CPU time up to 1000, or 200 without predictions]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub shards: Option<u32>,
    /// Print what would be submitted, and submit nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Container image with the command, for Kubernetes
    #[arg(long, value_name = "IMAGE", default_value = "holdfast:latest")]
    pub image: String,
    /// Persistent volume claim that holds --out, for Kubernetes
    #[arg(long, value_name = "NAME", default_value = "holdfast")]
    pub claim: String,
    /// Path of the command on the machines [default: this command's]
    #[arg(long, value_name = "PATH")]
    pub program: Option<String>,
}

/// Arguments of `holdfast status`.
#[derive(Args, Debug)]
pub struct StatusArgs {
    /// The folder that `holdfast submit` got as --out
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
    /// Format of the progress
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
}
