//! Arguments of the commands that run on the real machine.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use holdfast_lab::shipped::{DEFAULT_EXPERIMENT, GENERIC_MACHINE};

use super::{Format, ResultArgs, SelectionArgs};

/// A command that runs on the real machine.
#[derive(Debug, Subcommand)]
pub enum RealHostCommand {
    /// Measure the locks on this machine and compare them with locks of other libraries
    Bench(BenchArgs),
    /// Measure this machine's costs and write them as a machine profile
    Calibrate(CalibrateArgs),
    /// Examine this host's KVM, or run an experiment's guests on it
    Kvm(KvmArgs),
    /// Record how this host schedules its guests: events of the kernel, and the settings that explain them
    Record(RecordArgs),
}

/// Arguments of `holdfast bench`.
#[derive(Args, Debug)]
pub struct BenchArgs {
    /// Take half a minute instead of some minutes; the figures are noisier
    #[arg(long)]
    pub quick: bool,
    /// Numbers of threads, as in --threads 1,8
    #[arg(long, value_name = "N,N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: Vec<u32>,
    /// Lengths of the critical section in nanoseconds, as in --sections 100,5000
    #[arg(long, value_name = "NS,NS", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub sections: Vec<u64>,
    /// Number of rounds; each round measures every lock once
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: Option<u32>,
    /// Measure only these locks, as in --locks ticket,qspin
    #[arg(long, value_name = "NAME,NAME", value_delimiter = ',')]
    pub locks: Vec<String>,
    /// Write the figures to PLACE/bench.json, or to a file that ends in .json
    #[arg(long, value_name = "PLACE")]
    pub out: Option<PathBuf>,
    /// Format of the figures
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
}

/// Arguments of `holdfast calibrate`.
#[derive(Args, Debug)]
pub struct CalibrateArgs {
    /// The profile that supplies the costs that cannot be measured here: a shipped profile, or a file
    #[arg(long, value_name = "PROFILE", default_value = GENERIC_MACHINE)]
    pub base: String,
    /// Write the profile to PLACE/calibrated.toml, or to a file that ends in .toml [default: to standard output, after
    /// the figures]
    #[arg(long, value_name = "PLACE")]
    pub out: Option<PathBuf>,
    /// Number of samples of each figure
    #[arg(long, value_name = "N", default_value_t = 101, value_parser = clap::value_parser!(u32).range(5..=100_000))]
    pub samples: u32,
    /// Also measure in guests on this host's KVM: exits, kicks, and instructions in a guest
    #[arg(long)]
    pub kvm: bool,
    /// Make a profile even if the machine is too noisy
    #[arg(long)]
    pub force: bool,
    /// Format of the figures
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
}

/// Arguments of `holdfast kvm`.
#[derive(Args, Debug)]
pub struct KvmArgs {
    /// The command to run.
    #[command(subcommand)]
    pub command: KvmCommand,
}

/// A command that uses this host's KVM.
#[derive(Debug, Subcommand)]
pub enum KvmCommand {
    /// Check how well this host serves guests that share its CPUs, and say what to change
    Doctor(DoctorArgs),
    /// Run an experiment's guests on this host's KVM, as far as its CPUs allow
    Run(Box<KvmRunArgs>),
}

/// Arguments of `holdfast kvm doctor`.
#[derive(Args, Debug)]
pub struct DoctorArgs {
    /// Use DIR as the root directory: a copy of another machine's /proc and /sys, of which missing files make findings
    /// unknown; guests that run are then those of that machine
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,
    /// Format of the findings
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
}

/// Arguments of `holdfast kvm run`.
#[derive(Args, Debug)]
pub struct KvmRunArgs {
    /// A shipped experiment (`holdfast list`), or a TOML file
    #[arg(default_value = DEFAULT_EXPERIMENT)]
    pub experiment: String,
    #[command(flatten)]
    pub linux: LinuxArgs,
    #[command(flatten)]
    pub selection: SelectionArgs,
    /// Record the host's sched and kvm tracepoints as a timeline for ui.perfetto.dev; needs a single run, and root
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    #[command(flatten)]
    pub results: ResultArgs,
}

/// A stock Linux in place of the guest kernel.
#[derive(Args, Debug)]
pub struct LinuxArgs {
    /// Boot a stock Linux in the measured guests, whose workload must be `contend` or `hackbench`: BZIMAGE, or by
    /// default this host's own kernel, /boot/vmlinuz-RELEASE
    #[arg(long, value_name = "BZIMAGE", num_args = 0..=1, require_equals = true)]
    pub linux: Option<Option<PathBuf>>,
    /// With --linux: the kernel path that the threads call
    #[arg(long, value_enum, default_value_t, requires = "linux")]
    pub path: LinuxPath,
    /// With --linux: options to append to the kernel's command line, as in --append=mitigations=off
    #[arg(
        long,
        value_name = "OPTIONS",
        default_value = "",
        hide_default_value = true,
        requires = "linux"
    )]
    pub append: String,
}

/// A path of Linux on which the threads of a process contend for a spinlock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LinuxPath {
    /// dup and close: the lock of the file table.
    #[default]
    Dup,
    /// futex: the lock of a hash bucket.
    Futex,
}

/// Arguments of `holdfast record`.
#[derive(Args, Debug)]
pub struct RecordArgs {
    /// Length of the recording; Ctrl-C ends it early, and keeps what is recorded
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub seconds: u64,
    /// Limit on the events of each CPU; the newest are kept
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=65_536))]
    pub size: u64,
    /// The folder to make: trace.dat for `trace-cmd report`, and copies of the host's settings
    #[arg(long, value_name = "DIR", default_value = "host.recording")]
    pub out: PathBuf,
    /// Format of the summary
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
}

/// What predictions are compared with, other than published figures.
#[derive(Debug, Subcommand)]
pub enum Against {
    /// Compare with the locks on threads of this machine
    Threads(ContendedArgs),
    /// Compare with the locks in guests on this machine's KVM
    Kvm(ValidateKvmArgs),
    /// Compare the host scheduler with those of stock Linux kernels: recorded figures, or new ones (--measure)
    LinuxSched(LinuxSchedArgs),
}

/// Arguments of `holdfast validate threads`, and of other comparisons of contended locks on this machine.
#[derive(Args, Debug)]
pub struct ContendedArgs {
    /// Use this machine profile instead of calibrating first
    #[arg(long, value_name = "FILE")]
    pub profile: Option<String>,
    /// Measurements of each cell [default: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub seeds: Option<u32>,
    /// Only these locks, as in --locks ticket,pv-qspin; of stock Linux guests pvspin, nopvspin and test-and-set
    #[arg(long, value_name = "NAME,NAME", value_delimiter = ',')]
    pub locks: Vec<String>,
    /// Numbers of threads or vCPUs, on two CPUs
    #[arg(long, value_name = "N,N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=64))]
    pub contenders: Vec<u32>,
    /// Write the comparison to PLACE/reality-COMMAND.json, or to a file that ends in .json, each row when it is
    /// complete
    #[arg(long, value_name = "PLACE")]
    pub out: Option<PathBuf>,
    /// Format of the comparison
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
    /// Lengths of the critical section in nanoseconds
    #[arg(long, value_name = "NS,NS", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub sections: Vec<u64>,
}

/// Arguments of `holdfast validate kvm`.
#[derive(Args, Debug)]
pub struct ValidateKvmArgs {
    #[command(flatten)]
    pub contended: ContendedArgs,
    /// Boot a stock Linux in the guests, whose threads call a path of it: BZIMAGE, or by default this host's own
    /// kernel, /boot/vmlinuz-RELEASE
    #[arg(long, value_name = "BZIMAGE", num_args = 0..=1, require_equals = true, conflicts_with = "sections")]
    pub linux: Option<Option<PathBuf>>,
}

/// Arguments of `holdfast validate linux-sched`.
#[derive(Args, Debug)]
pub struct LinuxSchedArgs {
    /// Play only these scenarios [default: all]
    pub scenarios: Vec<String>,
    /// Play the scenarios again on these kernels of Debian, as in --measure 6.1,6.18, instead of using the recorded
    /// figures. It needs Debian's packages and a checkout's root folder.
    #[arg(long, value_name = "SERIES,SERIES", value_delimiter = ',')]
    pub measure: Vec<String>,
    /// Write the new figures to PLACE/linux-SERIES.json, or those of one kernel to a file that ends in .json
    #[arg(long, value_name = "PLACE", requires = "measure")]
    pub out: Option<PathBuf>,
    /// Format of the comparison
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
}

/// Replaces `setting` by `values`, if there are any.
pub fn given<T: Clone>(setting: &mut Vec<T>, values: &[T]) {
    if !values.is_empty() {
        *setting = values.to_vec();
    }
}
