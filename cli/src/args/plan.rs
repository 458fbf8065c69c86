//! Arguments that say what is run: changes, cells and seeds, sweeps, threads.

use std::num::NonZeroUsize;

use clap::Args;
use holdfast_lab::options::Options;

/// Changes to an experiment's size and keys.
#[derive(Args, Debug)]
pub struct ChangeArgs {
    /// Share of the full-size work, above 0 and up to 1; elapsed times are reported as full-size equivalents
    /// [default: the experiment's]
    #[arg(long, value_name = "S", allow_negative_numbers = true)]
    pub scale: Option<f64>,
    /// Set a key for all cells, as in --set vm.0.lock=tas or --set host.hz=250; see `holdfast keys`
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
}

/// The cells and seeds that are run, in virtual time or on KVM.
#[derive(Args, Debug)]
pub struct SelectionArgs {
    /// Runs of each cell, with seeds counted up from --first-seed [default: the experiment's]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..))]
    pub seeds: Option<u32>,
    /// The first seed
    #[arg(long, value_name = "N", default_value_t = 1, allow_negative_numbers = true)]
    pub first_seed: u64,
    #[command(flatten)]
    pub changes: ChangeArgs,
    /// Run only this case, with each of its swept values; can be given several times
    #[arg(long, value_name = "NAME")]
    pub case: Vec<String>,
    /// Run only this variant; can be given several times
    #[arg(long, value_name = "NAME")]
    pub variant: Vec<String>,
    /// Count from this moment on, as --set zero_at=TIME does: virtual time, or on a real KVM time since the run's start
    #[arg(long, value_name = "TIME")]
    pub zero_at: Option<String>,
    /// Migrate all guests live after every TIME, as --set host.migration.every=TIME does, with a stop of a tenth of it
    /// unless host.migration.downtime is set; in virtual time it fails if an interrupt is lost or doubled
    #[arg(long, value_name = "TIME")]
    pub migrate: Option<String>,
}

impl SelectionArgs {
    /// Returns the options of a plan that stand for these arguments.
    pub fn options(&self) -> Options {
        let mut set = self.changes.set.clone();
        // A bare number is whole nanoseconds, as in `--set`.
        let time = |time: &String| match time.trim().parse::<u64>() {
            Ok(nanos) => nanos.to_string(),
            Err(_) => format!("\"{time}\""),
        };
        set.extend(self.zero_at.iter().map(|at| format!("zero_at={}", time(at))));
        let every = self.migrate.iter();
        set.extend(every.map(|every| format!("host.migration.every={}", time(every))));
        Options {
            seeds: self.seeds,
            first_seed: self.first_seed,
            scale: self.changes.scale,
            set,
            cases: self.case.clone(),
            variants: self.variant.clone(),
            ..Options::default()
        }
    }
}

/// The runs in virtual time: how many, of what, on how many threads.
#[derive(Args, Debug)]
pub struct PlanArgs {
    #[command(flatten)]
    pub selection: SelectionArgs,
    /// Run each case with each of several values of a key, as in --sweep guest.spin_threshold=1024,32768
    #[arg(long, value_name = "KEY=V1,V2")]
    pub sweep: Vec<String>,
    /// Run each variant with each of several values of a key, as in --sweep-variants vm.*.lock=ticket,qspin
    #[arg(long, value_name = "KEY=V1,V2")]
    pub sweep_variants: Vec<String>,
    /// Execute every iteration of every spin instead of skipping it: slow, with exactly the same history
    #[arg(long)]
    pub no_skip: bool,
    #[command(flatten)]
    pub jobs: JobsArgs,
    /// Start more than 10000 runs without a question
    #[arg(long)]
    pub yes: bool,
}

/// The number of threads.
#[derive(Args, Debug)]
pub struct JobsArgs {
    /// Number of runs at the same time; results do not depend on it [default: one for each CPU]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..))]
    pub jobs: Option<u32>,
}

impl PlanArgs {
    /// Returns whether any of these arguments was given, besides those that choose cases and variants.
    pub fn is_given(&self) -> bool {
        let chosen = Options {
            cases: self.selection.case.clone(),
            variants: self.selection.variant.clone(),
            ..Options::default()
        };
        self.options() != chosen || self.jobs.jobs.is_some() || self.yes
    }

    /// Returns the options of a plan that stand for these arguments.
    pub fn options(&self) -> Options {
        Options {
            sweep: self.sweep.clone(),
            sweep_variants: self.sweep_variants.clone(),
            no_skip: self.no_skip,
            ..self.selection.options()
        }
    }
}

impl JobsArgs {
    /// Returns the number of threads.
    pub fn count(&self) -> NonZeroUsize {
        let given = self.jobs.and_then(|jobs| NonZeroUsize::new(jobs as usize));
        given
            .or_else(|| std::thread::available_parallelism().ok())
            .unwrap_or(NonZeroUsize::MIN)
    }
}

/// Seeds that are added as they are needed.
#[derive(Args, Debug)]
pub struct AdaptiveArgs {
    /// Add seeds to each cell until the 95 % confidence interval of its mean reaches at most this much above it, as in
    /// --until-ci 5%
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub until_ci: Option<f64>,
    /// Seeds of a cell at most [default: 10 times --seeds]
    #[arg(long, value_name = "N", requires = "until_ci", value_parser = clap::value_parser!(u32).range(1..))]
    pub seeds_max: Option<u32>,
}

/// Reads a share as in `5%`.
pub(super) fn percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').and_then(|number| number.trim().parse().ok());
    number
        .filter(|percent| (0.01..=100.0).contains(percent))
        .ok_or_else(|| "expected a percentage from 0.01% to 100%, as in 5%".to_owned())
}
