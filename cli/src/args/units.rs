//! Arguments about units: one run each, for several processes or machines.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use holdfast_lab::shipped::DEFAULT_EXPERIMENT;
use holdfast_lab::units::Shard;

use super::{AdaptiveArgs, PlanArgs, ResultFormat};

/// The units that one process runs.
#[derive(Args, Debug)]
pub struct UnitArgs {
    /// Run the units in FILE, a plan as `holdfast plan --format jsonl` writes it, and print their records; a dash is
    /// standard input
    #[arg(long, value_name = "FILE", conflicts_with = "experiment")]
    pub units: Option<PathBuf>,
    /// Run the shard K of N and print its records, which `holdfast merge` puts together
    #[arg(long, value_name = "K/N")]
    pub shard: Option<Shard>,
    /// Keep the record of each finished unit in DIR, and do not run units whose records are there; any number of
    /// processes can use one DIR
    #[arg(long, value_name = "DIR")]
    pub cache: Option<PathBuf>,
}

/// Format of a plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum PlanFormat {
    /// A table of cells.
    #[default]
    Table,
    /// One line of JSON for the plan, and one for each unit.
    Jsonl,
}

/// Arguments of `holdfast plan`.
#[derive(Args, Debug)]
pub struct PlanCommandArgs {
    /// A shipped experiment (`holdfast list`), or a TOML file
    #[arg(default_value = DEFAULT_EXPERIMENT)]
    pub experiment: String,
    #[command(flatten)]
    pub plan: PlanArgs,
    #[command(flatten)]
    pub adaptive: AdaptiveArgs,
    /// Predict the cost of units from the records in DIR, and mark units whose records are there
    #[arg(long, value_name = "DIR")]
    pub cache: Option<PathBuf>,
    /// List only units without a record in --cache
    #[arg(long, requires = "cache")]
    pub missing: bool,
    /// Format of the plan
    #[arg(long, value_enum, default_value_t)]
    pub format: PlanFormat,
}

/// Format of merged records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum MergeFormat {
    /// Tables of text.
    #[default]
    Table,
    /// Exactly one JSON document, as `holdfast run` prints it.
    Json,
    /// One line for each sample.
    Csv,
    /// The records, in the order of the plan.
    Jsonl,
}

impl MergeFormat {
    /// Returns the format of results, or `None` for records.
    pub fn of_results(self) -> Option<ResultFormat> {
        match self {
            MergeFormat::Table => Some(ResultFormat::Table),
            MergeFormat::Json => Some(ResultFormat::Json),
            MergeFormat::Csv => Some(ResultFormat::Csv),
            MergeFormat::Jsonl => None,
        }
    }
}

/// Arguments of `holdfast merge`.
#[derive(Args, Debug)]
pub struct MergeArgs {
    /// Files with records, units and the plan, folders with such files (*.jsonl), and folders of --cache; at least one
    /// file has the plan
    #[arg(required = true)]
    pub inputs: Vec<PathBuf>,
    /// Format of the results on standard output
    #[arg(long, value_enum, default_value_t)]
    pub format: MergeFormat,
    /// Write the results to DIR/EXPERIMENT.results.json; other results there are kept as EXPERIMENT.results.1.json
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Write the units without a record to FILE, for `holdfast run --units FILE`
    #[arg(long, value_name = "FILE")]
    pub missing: Option<PathBuf>,
    /// Merge records of several builds, which can differ in anything
    #[arg(long)]
    pub mixed_builds: bool,
    /// Leave out damaged records instead of refusing them
    #[arg(long)]
    pub skip_damaged: bool,
}
