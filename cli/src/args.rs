//! The command line.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use holdfast_lab::plan::Options;
use holdfast_lab::shipped::DEFAULT_EXPERIMENT;

/// Version with the commit.
pub const VERSION: &str = env!("HOLDFAST_VERSION");

/// Locks, vCPU scheduling and interrupt delivery for virtual machines that share too few CPUs: run experiments in virtual
/// time, and see where the time went.
#[derive(Debug, Parser)]
#[command(name = "holdfast", version = VERSION, after_help = AFTER)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const AFTER: &str = "\
Exit status: 0 done, 1 a run failed, 2 bad usage or input, 77 SKIPPED: this machine lacks
what it takes, 130 interrupted by Ctrl-C, which keeps what is done.

Start with:
  holdfast run                          the kernel build beside CPU hogs, ticket against PV ticket locks
  holdfast show kernbench-overcommit    its file, ready to copy and edit
  holdfast keys                         everything that an experiment can set";

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run an experiment: cases × variants × seeds
    Run(RunArgs),
    /// List the shipped experiments and machine profiles
    List(ListArgs),
    /// Print a shipped experiment or machine profile, ready to copy and edit
    Show(ShowArgs),
    /// List every key that an experiment can set, with its default
    Keys(KeysArgs),
    /// Show where the time went, and whether a convoy took it
    Explain(ExplainArgs),
    /// Compare two result files, or the variants of one, with confidence intervals
    Compare(CompareArgs),
    /// Measure the locks on this very machine, beside other people's
    Bench(BenchArgs),
    /// Make one self-contained HTML page of a result file
    Report(ReportArgs),
    /// Record a run as a timeline for ui.perfetto.dev
    Trace(TraceArgs),
    /// Set predictions beside published figures, or beside what this very machine does
    Validate(ValidateArgs),
    /// This host's real KVM
    Kvm(KvmArgs),
    /// Measure this machine's few parameters and make a machine profile of them
    Calibrate(CalibrateArgs),
}

/// How output looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    #[default]
    Table,
    /// Exactly one JSON document.
    Json,
}

/// How the reference looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum KeysFormat {
    /// For people.
    #[default]
    Table,
    /// The page docs/reference.md.
    Markdown,
}

/// What is run, and how much of it.
#[derive(Args, Debug)]
pub struct PlanArgs {
    /// Runs of each cell, with seeds counted up from --first-seed [default: the experiment's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub seeds: Option<u32>,
    /// The first seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub first_seed: u64,
    /// Share of the full-size work, above 0 and up to 1; elapsed times are reported as full-size equivalents
    /// [default: the experiment's]
    #[arg(long, value_name = "S", allow_negative_numbers = true)]
    pub scale: Option<f64>,
    /// Set a key for all cells, as in --set vm.0.lock=tas or --set host.hz=250; see `holdfast keys`
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Run each case with each of several values of a key, as in --sweep guest.spin_threshold=1024,32768
    #[arg(long, value_name = "KEY=V1,V2")]
    pub sweep: Vec<String>,
    /// Only this case; can be given several times
    #[arg(long, value_name = "NAME")]
    pub case: Vec<String>,
    /// Only this variant; can be given several times
    #[arg(long, value_name = "NAME")]
    pub variant: Vec<String>,
    /// Execute every iteration of every spin instead of skipping it: slow, with the same history bit for bit
    #[arg(long)]
    pub no_skip: bool,
    #[command(flatten)]
    pub jobs: JobsArgs,
}

/// On how many threads.
#[derive(Args, Debug)]
pub struct JobsArgs {
    /// Runs at the same time; results do not depend on it [default: one for each CPU]
    #[arg(long, value_name = "N")]
    pub jobs: Option<NonZeroUsize>,
}

impl PlanArgs {
    /// Whether the user said anything at all of what is to be run.
    pub fn says_anything(&self) -> bool {
        self.options() != Options::default() || self.jobs.jobs.is_some()
    }

    /// As options of a plan.
    pub fn options(&self) -> Options {
        Options {
            seeds: self.seeds,
            first_seed: self.first_seed,
            scale: self.scale,
            set: self.set.clone(),
            sweep: self.sweep.clone(),
            cases: self.case.clone(),
            variants: self.variant.clone(),
            no_skip: self.no_skip,
        }
    }
}

impl JobsArgs {
    /// How many threads.
    pub fn count(&self) -> NonZeroUsize {
        self.jobs
            .or_else(|| std::thread::available_parallelism().ok())
            .unwrap_or(NonZeroUsize::MIN)
    }
}

/// `holdfast run`.
#[derive(Args, Debug)]
pub struct RunArgs {
    /// A shipped experiment (`holdfast list`), or a TOML file of your own
    #[arg(default_value = DEFAULT_EXPERIMENT)]
    pub experiment: String,
    #[command(flatten)]
    pub plan: PlanArgs,
    /// How the results look on standard output
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
    /// Write the results to DIR/EXPERIMENT.results.json
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Run everything twice and name the first thing that differs
    #[arg(long)]
    pub check_determinism: bool,
}

/// `holdfast list`.
#[derive(Args, Debug)]
pub struct ListArgs {
    /// How the list looks
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
}

/// `holdfast show`.
#[derive(Args, Debug)]
pub struct ShowArgs {
    /// A shipped experiment or machine profile
    pub name: String,
}

/// `holdfast keys`.
#[derive(Args, Debug)]
pub struct KeysArgs {
    /// Only keys that contain this
    pub pattern: Option<String>,
    /// How the list looks
    #[arg(long, value_enum, default_value_t)]
    pub format: KeysFormat,
}

/// `holdfast explain`.
#[derive(Args, Debug)]
pub struct ExplainArgs {
    /// A result file, or an experiment (shipped or a TOML file) that is then run
    pub results: String,
    #[command(flatten)]
    pub plan: PlanArgs,
    /// Show the guests that are not measured, too
    #[arg(long)]
    pub all: bool,
    /// Show all counters
    #[arg(long)]
    pub counters: bool,
    /// How the explanation looks
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
}

/// `holdfast report`.
#[derive(Args, Debug)]
pub struct ReportArgs {
    /// A result file
    pub results: PathBuf,
    /// The page [default: beside the result file, as .html]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Write the charts as SVG files into this folder, instead of the page
    #[arg(long, value_name = "DIR", conflicts_with = "out")]
    pub svg: Option<PathBuf>,
    /// Draw only cases whose names begin so; can be repeated
    #[arg(long, value_name = "START", requires = "svg")]
    pub case: Vec<String>,
}

/// `holdfast trace`.
#[derive(Args, Debug)]
pub struct TraceArgs {
    /// A shipped experiment (`holdfast list`), or a TOML file of your own
    #[arg(default_value = DEFAULT_EXPERIMENT)]
    pub experiment: String,
    /// The case [default: the experiment's first]
    #[arg(long, value_name = "NAME")]
    pub case: Option<String>,
    /// The variant [default: the experiment's first]
    #[arg(long, value_name = "NAME")]
    pub variant: Option<String>,
    /// The seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Share of the full-size work, above 0 and up to 1 [default: the experiment's]
    #[arg(long, value_name = "S", allow_negative_numbers = true)]
    pub scale: Option<f64>,
    /// Set a key, as in --set vm.0.lock=tas or --set host.hz=250; see `holdfast keys`
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Start of the recording in virtual time since power-on, as in --from "1.5 s" [default: just before the first convoy,
    /// or else where the measured interval begins]
    #[arg(long, value_name = "TIME")]
    pub from: Option<String>,
    /// Length of the recording in virtual time [default: 60 ms]
    #[arg(long = "for", value_name = "TIME")]
    pub span: Option<String>,
    /// The file [default: EXPERIMENT-CASE-VARIANT-SEED.pftrace]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Draw the vCPUs of the recording as an SVG file, too
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// `json`: what was recorded, as one document on standard output
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
}

/// `holdfast compare`.
#[derive(Args, Debug)]
pub struct CompareArgs {
    /// A result file
    pub a: PathBuf,
    /// Another one; without it the variants of A are compared with each other
    pub b: Option<PathBuf>,
    /// The variant that the others of A are compared with [default: its first]
    #[arg(long, value_name = "VARIANT", conflicts_with = "b")]
    pub baseline: Option<String>,
    /// How the comparison looks
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
}

/// `holdfast validate`.
#[derive(Args, Debug)]
pub struct ValidateArgs {
    /// Only these shipped experiments
    #[arg(conflicts_with = "profile")]
    pub experiments: Vec<String>,
    /// What predictions are held against
    #[arg(long, value_enum, default_value_t)]
    pub against: Against,
    /// With --against threads or kvm: this machine profile instead of one that is calibrated first
    #[arg(long, value_name = "FILE")]
    pub profile: Option<String>,
    /// Runs of each cell; with --against threads or kvm, measurements of each [default: each experiment's, or 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub seeds: Option<u32>,
    /// With --against threads or kvm: only these locks, as in --locks ticket,pv-qspin
    #[arg(long, value_name = "NAME,NAME", value_delimiter = ',')]
    pub locks: Vec<String>,
    /// With --against threads or kvm: numbers of threads or vCPUs, on two CPUs
    #[arg(long, value_name = "N,N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=64))]
    pub contenders: Vec<u32>,
    /// With --against threads or kvm: lengths of the critical section in nanoseconds
    #[arg(long, value_name = "NS,NS", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub sections: Vec<u64>,
    /// Share of the full-size work [default: each experiment's]
    #[arg(long, value_name = "S", allow_negative_numbers = true)]
    pub scale: Option<f64>,
    #[command(flatten)]
    pub jobs: JobsArgs,
    /// Write each experiment's results to DIR
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// How the validation looks
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
}

/// What predictions are held against.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Against {
    /// What was published.
    #[default]
    Published,
    /// The locks on this machine's threads.
    Threads,
    /// The locks in guests on this machine's KVM.
    Kvm,
}

/// `holdfast calibrate`.
#[derive(Args, Debug)]
pub struct CalibrateArgs {
    /// The profile that lends what cannot be measured here: a shipped one, or a file
    #[arg(long, value_name = "PROFILE", default_value = holdfast_lab::shipped::DEFAULT_MACHINE)]
    pub base: String,
    /// Write the profile to FILE [default: after the figures on standard output]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Samples of each figure
    #[arg(long, value_name = "N", default_value_t = 101, value_parser = clap::value_parser!(u32).range(5..=100_000))]
    pub samples: u32,
    /// Have guests on this host's KVM measure, too: what exits and kicks cost, and instructions in a guest
    #[arg(long)]
    pub kvm: bool,
    /// Make a profile even of a machine that is too noisy
    #[arg(long)]
    pub force: bool,
    /// How the figures look
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
}

/// `holdfast bench`.
#[derive(Args, Debug)]
pub struct BenchArgs {
    /// Half a minute instead of some minutes; noisy
    #[arg(long)]
    pub quick: bool,
    /// Numbers of threads, as in --threads 1,8
    #[arg(long, value_name = "N,N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: Vec<u32>,
    /// Lengths of the critical section in nanoseconds, as in --sections 100,5000
    #[arg(long, value_name = "NS,NS", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub sections: Vec<u64>,
    /// How often everything is repeated
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: Option<u32>,
    /// Only these locks, as in --locks ticket,qspin
    #[arg(long, value_name = "NAME,NAME", value_delimiter = ',')]
    pub locks: Vec<String>,
    /// How the figures look
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
}

/// `holdfast kvm`.
#[derive(Args, Debug)]
pub struct KvmArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: KvmCommand,
}

/// What to do with this host's KVM.
#[derive(Debug, Subcommand)]
pub enum KvmCommand {
    /// Say what this host can do for guests that share its CPUs, what each lack means, and what to change
    Doctor(DoctorArgs),
    /// Run an experiment's guests on this host's KVM, as far as its CPUs allow
    Run(KvmRunArgs),
}

/// `holdfast kvm run`.
#[derive(Args, Debug)]
pub struct KvmRunArgs {
    /// A shipped experiment (`holdfast list`), or a TOML file of your own
    #[arg(default_value = DEFAULT_EXPERIMENT)]
    pub experiment: String,
    /// Boot a stock Linux in the measured guests, whose workload must be `contend`: BZIMAGE, or this host's own kernel,
    /// /boot/vmlinuz-RELEASE
    #[arg(long, value_name = "BZIMAGE", num_args = 0..=1, require_equals = true)]
    pub linux: Option<Option<PathBuf>>,
    /// With --linux: the path of the kernel that threads call
    #[arg(long, value_enum, default_value_t, requires = "linux")]
    pub path: LinuxPath,
    /// With --linux: more for the kernel's command line, as in --append=mitigations=off
    #[arg(
        long,
        value_name = "OPTIONS",
        default_value = "",
        hide_default_value = true,
        requires = "linux"
    )]
    pub append: String,
    /// Runs of each cell [default: the experiment's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub seeds: Option<u32>,
    /// The first seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub first_seed: u64,
    /// Share of the full-size work, above 0 and up to 1 [default: the experiment's]
    #[arg(long, value_name = "S", allow_negative_numbers = true)]
    pub scale: Option<f64>,
    /// Set a key for all cells, as in --set vm.0.lock=tas; see `holdfast keys`
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Only this case; can be given several times
    #[arg(long, value_name = "NAME")]
    pub case: Vec<String>,
    /// Only this variant; can be given several times
    #[arg(long, value_name = "NAME")]
    pub variant: Vec<String>,
    /// Record the host's tracepoints of sched and kvm as a timeline for ui.perfetto.dev; for a single run, and for root
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// How the results look on standard output
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
    /// Write the results to DIR/EXPERIMENT.results.json
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

/// A path of Linux on which threads of a process meet at a spinlock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LinuxPath {
    /// dup and close: the lock of the file table.
    #[default]
    Dup,
    /// futex: the lock of a hash bucket.
    Futex,
}

/// `holdfast kvm doctor`.
#[derive(Args, Debug)]
pub struct DoctorArgs {
    /// Look at the files beneath DIR as if it were the root directory: a copy of another machine's /proc and /sys
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,
    /// How the findings look
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
}
