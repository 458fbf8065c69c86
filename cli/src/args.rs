//! The command line.

mod filter;
mod new;
mod plan;
#[cfg(feature = "real-host")]
mod real_host;
#[cfg(not(feature = "real-host"))]
#[path = "args/without_real_host.rs"]
mod real_host;
mod submit;
mod units;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use holdfast_lab::filter::Filter;
use holdfast_lab::shipped::DEFAULT_EXPERIMENT;

pub use filter::*;
pub use new::*;
use plan::percent;
pub use plan::*;
pub use real_host::*;
pub use submit::*;
pub use units::*;

/// Version with the commit.
pub const VERSION: &str = env!("HOLDFAST_VERSION");

/// Locks, vCPU scheduling and interrupt delivery for virtual machines that share too few CPUs: runs experiments in
/// virtual time and shows where the time went.
#[derive(Debug, Parser)]
#[command(name = "holdfast", version = VERSION, after_help = AFTER)]
pub struct Cli {
    /// The command to run.
    #[command(subcommand)]
    pub command: Command,
    /// Print no progress and no remarks, only results and errors
    #[arg(long, global = true)]
    pub quiet: bool,
}

const AFTER: &str = "\
Exit status: 0 done, 1 a run failed, 2 bad usage or input, 77 SKIPPED (this machine lacks
what the command needs, such as KVM), 130 interrupted by Ctrl-C (143 by SIGTERM, 129 by SIGHUP;
finished work is kept).

A dash stands for standard input where an experiment or a result file is read.

Start with:
  holdfast run                          a kernel build next to CPU hogs, ticket and PV ticket locks
  holdfast show kernbench-overcommit    the experiment file of that run, ready to copy and edit
  holdfast new mine.toml                an experiment about your own host and guests
  holdfast keys                         every key that an experiment can set";

/// A command of the program.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run an experiment: cases × variants × seeds
    Run(RunArgs),
    /// List the units of an experiment, one for each run, for several processes or machines to run
    Plan(PlanCommandArgs),
    /// Merge the records of units into the results that one run gives
    Merge(MergeArgs),
    /// Give the units of an experiment to an engine: processes, Slurm, HyperQueue, Kubernetes
    Submit(SubmitArgs),
    /// Show the progress of submitted units, and when they will be done
    Status(StatusArgs),
    /// List the shipped experiments and machine profiles
    List(ListArgs),
    /// Print a shipped experiment or machine profile, ready to copy and edit
    Show(ShowArgs),
    /// Write a new experiment file with comments, from options or, on a terminal, from answers to questions
    New(NewArgs),
    /// List every key that an experiment can set, with its default, or search them by words
    Keys(KeysArgs),
    /// Show where the time of a run went, and whether a lock convoy took it
    Explain(ExplainArgs),
    /// Compare two result files, or the variants of one file, with confidence intervals
    Compare(CompareArgs),
    /// Write one self-contained HTML page about a result file
    Report(ReportArgs),
    /// Record one run as a timeline for ui.perfetto.dev
    Trace(TraceArgs),
    /// Read a recording of a real host, and show where the time of its virtual machines went
    Import(ImportArgs),
    /// Say what would help the virtual machines of a recorded host: replays measure the remedies, and nothing is
    /// changed
    Advise(AdviseArgs),
    /// Say how many VMs of one kind fit on a recorded or described host, within a budget
    Capacity(CapacityArgs),
    /// Compare predictions with published figures, or with measurements on this machine
    Validate(ValidateArgs),
    /// Print a script that completes this command's words in a shell
    Completions(CompletionsArgs),
    /// Write the manual pages of this command and its subcommands
    Man(ManArgs),
    /// Commands that run on the real machine.
    #[command(flatten)]
    RealHost(RealHostCommand),
}

/// Format of a command's output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Tables of text.
    #[default]
    Table,
    /// Exactly one JSON document.
    Json,
}

/// Format of results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ResultFormat {
    /// Tables of text.
    #[default]
    Table,
    /// Exactly one JSON document.
    Json,
    /// One line for each sample.
    Csv,
}

/// Format of the list of keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum KeysFormat {
    /// Tables of text.
    #[default]
    Table,
    /// The page docs/reference.md.
    Markdown,
    /// Exactly one JSON document.
    Json,
}

/// What becomes of the results of a run.
#[derive(Args, Debug)]
pub struct ResultArgs {
    /// Format of the results on standard output
    #[arg(long, value_enum, default_value_t)]
    pub format: ResultFormat,
    /// Write the results to PLACE/EXPERIMENT.results.json, or to a file that ends in .json; other results there are
    /// kept as EXPERIMENT.results.1.json
    #[arg(long, value_name = "PLACE")]
    pub out: Option<PathBuf>,
    /// Print only this guest in tables, by its name or the beginning of several names; can be given several times
    #[arg(long, value_name = "NAME")]
    pub guest: Vec<String>,
}

impl ResultArgs {
    /// Returns the filter that stands for these arguments.
    pub fn filter(&self) -> Filter {
        Filter {
            guests: self.guest.clone(),
            ..Filter::default()
        }
    }
}

/// Arguments of `holdfast run`.
#[derive(Args, Debug)]
pub struct RunArgs {
    /// A shipped experiment (`holdfast list`), or a TOML file
    #[arg(default_value = DEFAULT_EXPERIMENT)]
    pub experiment: String,
    #[command(flatten)]
    pub plan: PlanArgs,
    #[command(flatten)]
    pub adaptive: AdaptiveArgs,
    #[command(flatten)]
    pub results: ResultArgs,
    /// Run everything twice and report the first difference
    #[arg(long)]
    pub check_determinism: bool,
    #[command(flatten)]
    pub units: UnitArgs,
}

/// Arguments of `holdfast list`.
#[derive(Args, Debug)]
pub struct ListArgs {
    /// Print what runs cost by the records in DIR, as lab/src/shipped/costs.csv has it; `holdfast run EXPERIMENT
    /// --cache DIR` makes the records, and a few --seeds suffice
    #[arg(long, value_name = "DIR")]
    pub costs: Option<PathBuf>,
    /// Format of the list
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
}

/// Arguments of `holdfast show`.
#[derive(Args, Debug)]
pub struct ShowArgs {
    /// A shipped experiment or machine profile
    pub name: String,
}

/// Arguments of `holdfast keys`.
#[derive(Args, Debug)]
pub struct KeysArgs {
    /// List only keys with these words in their path, their meaning or their documentation, as in `keys kernel version`
    #[arg(value_name = "WORD")]
    pub words: Vec<String>,
    /// Format of the list
    #[arg(long, value_enum, default_value_t)]
    pub format: KeysFormat,
}

/// Arguments of `holdfast completions`.
#[derive(Args, Debug)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

/// Arguments of `holdfast man`.
#[derive(Args, Debug)]
pub struct ManArgs {
    /// The folder for holdfast.1, holdfast-run.1 and so on, as in ~/.local/share/man/man1
    pub folder: PathBuf,
}

/// Arguments of `holdfast explain`.
#[derive(Args, Debug)]
pub struct ExplainArgs {
    /// A result file; or an experiment (shipped or a TOML file), which is run first
    pub results: String,
    #[command(flatten)]
    pub plan: PlanArgs,
    /// Show only this guest, or identical guests by their common name; can be given several times
    #[arg(long, value_name = "NAME")]
    pub guest: Vec<String>,
    /// Show everything: guests that are not measured, small causes, all locks, guests without convoys
    #[arg(long)]
    pub all: bool,
    /// Show all counters
    #[arg(long)]
    pub counters: bool,
    /// Show each run, to choose the seed of a trace
    #[arg(long)]
    pub by_seed: bool,
    /// Format of the explanation
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
}

/// Arguments of `holdfast report`.
#[derive(Args, Debug)]
pub struct ReportArgs {
    /// A result file
    pub results: PathBuf,
    /// Write the page to PLACE/EXPERIMENT.html, or to a file that ends in .html [default: next to the result file, with
    /// the extension .html]
    #[arg(long, value_name = "PLACE")]
    pub out: Option<PathBuf>,
    /// Write the charts as SVG files to this folder, instead of the page
    #[arg(long, value_name = "DIR", conflicts_with = "out")]
    pub svg: Option<PathBuf>,
    #[command(flatten)]
    pub filter: FilterArgs,
    /// Write tidy tables as CSV files to this folder, instead of the page: samples, lost time, counters
    #[arg(long, value_name = "DIR", conflicts_with_all = ["out", "svg"])]
    pub csv: Option<PathBuf>,
    /// Write the same tables as Parquet files to this folder (in a build with the feature `parquet`)
    #[arg(long, value_name = "DIR", conflicts_with_all = ["out", "svg", "csv"])]
    pub parquet: Option<PathBuf>,
}

/// Arguments of `holdfast trace`.
#[derive(Args, Debug)]
pub struct TraceArgs {
    /// A shipped experiment (`holdfast list`), or a TOML file
    #[arg(default_value = DEFAULT_EXPERIMENT)]
    pub experiment: String,
    /// The case [default: the experiment's first]
    #[arg(long, value_name = "NAME")]
    pub case: Option<String>,
    /// The variant [default: the experiment's first]
    #[arg(long, value_name = "NAME")]
    pub variant: Option<String>,
    /// The seed
    #[arg(long, value_name = "N", default_value_t = 1, allow_negative_numbers = true)]
    pub seed: u64,
    #[command(flatten)]
    pub changes: ChangeArgs,
    /// Start of the recording in virtual time since power-on, as in --from "1.5 s" [default: just before the first
    /// convoy; without a convoy, the start of the measured interval]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub from: Option<String>,
    /// Length of the recording in virtual time [default: 60 ms]
    #[arg(long = "for", value_name = "TIME", allow_hyphen_values = true)]
    pub span: Option<String>,
    /// Write no timeline, but a recording of the whole run as a real host would make it, to a new folder: for `holdfast
    /// import`, `holdfast advise` and `holdfast capacity`
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["from", "span", "out", "svg"])]
    pub recording: Option<PathBuf>,
    /// Write the timeline to PLACE/EXPERIMENT-CASE-VARIANT-SEED.pftrace, or to a file that ends in .pftrace [default:
    /// to a file of that name here]
    #[arg(long, value_name = "PLACE")]
    pub out: Option<PathBuf>,
    /// Also draw the vCPUs of the recording as an SVG file
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// `json`: describe the recording as one document on standard output
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
}

/// Arguments of `holdfast import`.
#[derive(Args, Debug)]
pub struct ImportArgs {
    /// A recording: a file of `perf record`, `trace-cmd record` or `perf script`, or a folder of `holdfast record`; and
    /// what explains it: folders with copies of /proc and /sys, XML of libvirt, JSON of lscpu
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Format of the account
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
    /// Write the account as an HTML page to FILE, or to NAME.html in a folder
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Write all figures as text for Prometheus to FILE, or to NAME.prom in a folder
    #[arg(long, value_name = "FILE")]
    pub metrics: Option<PathBuf>,
    /// Write a timeline for ui.perfetto.dev to FILE, or to NAME.pftrace in a folder
    #[arg(long, value_name = "FILE")]
    pub timeline: Option<PathBuf>,
    /// Write an experiment whose guests repeat the recorded vCPUs to FILE.toml, and what they did to FILE.recorded.json
    #[arg(long, value_name = "FILE")]
    pub experiment: Option<PathBuf>,
    /// Start of the timeline since the begin of the recording, as in --from "1.5 s" [default: half of its length before
    /// the longest wait]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, requires = "timeline")]
    pub from: Option<String>,
    /// Length of the timeline [default: 1 s]
    #[arg(long = "for", value_name = "TIME", allow_hyphen_values = true, requires = "timeline")]
    pub span: Option<String>,
    /// Show everything: each vCPU, all figures, exits, what woke vCPUs, the pCPUs
    #[arg(long)]
    pub all: bool,
}

/// Arguments of `holdfast advise`.
#[derive(Args, Debug)]
pub struct AdviseArgs {
    /// A recording, and what explains it, as `holdfast import` reads them
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Draws of each replay; ranges are over them
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub seeds: u32,
    #[command(flatten)]
    pub jobs: JobsArgs,
    /// Format of the advice
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
}

/// Arguments of `holdfast capacity`.
#[derive(Args, Debug)]
pub struct CapacityArgs {
    /// A recording as `holdfast import` reads it, or an experiment (shipped, or a TOML file) with a [machine], a
    /// [host] and kinds of VM
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// The kind of VM: a name in the recording or the experiment [default: the only one]
    #[arg(long, value_name = "NAME")]
    pub vm: Option<String>,
    /// Budget: time ready without a pCPU, in percent of the wanted time [default: 5%]
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub ready: Option<f64>,
    /// Budget: 99th percentile of the times of the VM's own operations, as in --p99 20ms
    #[arg(long, value_name = "TIME", conflicts_with = "ready")]
    pub p99: Option<String>,
    /// Copies that are tried, at most
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    pub most: u32,
    #[command(flatten)]
    pub selection: SelectionArgs,
    #[command(flatten)]
    pub jobs: JobsArgs,
    /// Format of the answer
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
}

/// Arguments of `holdfast compare`.
#[derive(Args, Debug)]
pub struct CompareArgs {
    /// A result file
    pub a: PathBuf,
    /// A second result file; without it the variants of A are compared with each other
    pub b: Option<PathBuf>,
    /// The variant that the others of A are compared with [default: its first]
    #[arg(long, value_name = "VARIANT", conflicts_with = "b")]
    pub baseline: Option<String>,
    /// Compare the values of this swept key with its first one, as in --along host.hz; `variant` stands for the
    /// variants
    #[arg(long, value_name = "KEY", conflicts_with = "b")]
    pub along: Option<String>,
    /// Compare how long operations took in place of the metric
    #[arg(long, value_enum, value_name = "METRIC")]
    pub metric: Option<CompareMetric>,
    #[command(flatten)]
    pub filter: FilterArgs,
    /// Show each comparison with means and interval, and identical guests one by one
    #[arg(long)]
    pub all: bool,
    /// Format of the comparison
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
}

/// What `holdfast compare` can compare in place of the metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CompareMetric {
    /// Median time of an operation
    P50,
    /// 99th percentile of the operations' times
    P99,
}

/// Arguments of `holdfast validate`.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub struct ValidateArgs {
    /// What predictions are compared with; published figures, if it is missing.
    #[command(subcommand)]
    pub against: Option<Against>,
    #[command(flatten)]
    pub published: PublishedArgs,
}

/// Arguments of `holdfast validate` without a command of its own: a comparison with published figures.
#[derive(Args, Debug)]
pub struct PublishedArgs {
    /// Validate only these shipped experiments [default: all with published figures]
    pub experiments: Vec<String>,
    /// Runs of each cell [default: each experiment's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub seeds: Option<u32>,
    /// Share of the full-size work [default: each experiment's]
    #[arg(long, value_name = "S", allow_negative_numbers = true)]
    pub scale: Option<f64>,
    /// Run what can be judged within 5 minutes on 2 CPUs, by measured costs, and say what is left out
    #[arg(long, conflicts_with_all = ["seeds", "scale"])]
    pub quick: bool,
    #[command(flatten)]
    pub jobs: JobsArgs,
    /// Keep the record of each finished run in DIR, and do not run what has a record there: the same command continues
    /// after an interruption
    #[arg(long, value_name = "DIR")]
    pub cache: Option<PathBuf>,
    /// Write each experiment's results to PLACE/EXPERIMENT.results.json, or those of one to a file that ends in .json
    #[arg(long, value_name = "PLACE")]
    pub out: Option<PathBuf>,
    /// Format of the validation
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
}
