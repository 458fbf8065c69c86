//! Recorded guests again, on a simulated host.
//!
//! `experiment.rs` writes the experiment that has them, `costs.rs` says what the simulated host charges, `events.rs`
//! writes down what a real host would have recorded of it (`ids.rs` numbers its threads, `tasks.rs` follows those that
//! are no vCPUs), and `check.rs` compares that with the recording. `folder.rs` makes a recording of any simulated host,
//! whose events `text.rs` prints.

mod check;
mod costs;
mod events;
mod experiment;
mod folder;
mod ids;
mod tasks;
mod text;

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::path::Path;

use holdfast_recordings::account::{self, Account, Books};
use holdfast_recordings::import::guest_names;
use holdfast_recordings::repeat::{Reading, Repeated};
use holdfast_sim::timeline::{Timeline, Window};
use holdfast_sim::{CallOff, Config, Failure};
use holdfast_workloads::{RecordedHost, Workload};

pub use check::{Check, GuestCheck, Pair, SHARE, SHARE_OF_WANTED, VcpuCheck, check};
pub use costs::{forgive, idle_exits_ns};
pub use events::events;
pub use experiment::{EXPECTED, HOST_THREADS, experiment, fill, listed};
pub use folder::{File, recording};
pub use ids::{beside, process, thread_id};

use crate::diagnostic::Problems;
use crate::experiment::Experiment;
use crate::options::Options;
use crate::plan::Plan;

/// Why a replay has no account.
#[derive(Debug)]
pub enum ReplayError {
    /// The experiment, or a change of it, is not valid.
    Input(Problems),
    /// The run failed, or was called off.
    Run(Failure),
    /// The run has more events than are kept.
    TooLong,
}

impl fmt::Display for ReplayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReplayError::Input(problems) => problems.fmt(f),
            ReplayError::Run(failure) => failure.fmt(f),
            ReplayError::TooLong => write!(f, "the replay has too many events to keep; use a shorter recording"),
        }
    }
}

impl std::error::Error for ReplayError {}

/// An experiment that repeats recorded guests.
#[derive(Clone, Debug)]
pub struct Replay {
    /// The name of the experiment's file, with `.toml`.
    pub file: String,
    /// The text of the experiment.
    pub text: String,
    /// The name of the file of the recorded threads, next to the experiment.
    pub threads_file: String,
    /// The text of that file.
    pub threads: String,
    /// How it reads what cannot be known of the waits.
    pub reading: Reading,
    /// The length of the recording in ns. The account of a replay ends there.
    span_ns: u64,
}

impl Replay {
    /// Makes an experiment called `name` of what the threads of a recording did, whose account is `account`.
    pub fn new(name: &str, account: &Account, repeated: &Repeated, reading: &Reading) -> Replay {
        let host = repeated.read(reading);
        let threads_file = format!("{name}.recorded.json");
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
        let title: String = name.chars().map(plain).collect();
        Replay {
            file: format!("{name}.toml"),
            text: experiment(&title, account, &guest_names(account), &host, &threads_file),
            threads: serde_json::to_string(&host).expect("numbers and texts can be written"),
            threads_file,
            reading: reading.clone(),
            span_ns: host.span_ns,
        }
    }

    /// Makes the experiment that gives the recording back best, and checks it. First each wait that another thread
    /// ended is tied to that thread, spins have their recorded lengths, and devices end waits at the recorded times.
    /// Where a guest's ready time is then not the recorded one, spins that look as if they end when a woken thread goes
    /// on do so; devices answer; the waits of these guests keep their recorded lengths; and if that is not enough,
    /// those of all guests.
    ///
    /// # Errors
    /// [`ReplayError`].
    pub fn checked(
        name: &str,
        account: &Account,
        repeated: &Repeated,
        call_off: &CallOff,
    ) -> Result<(Replay, Check), ReplayError> {
        let can_be_timed = repeated.with_tied_waits();
        let attempt = |reading: &Reading| -> Result<(Replay, Check), ReplayError> {
            let replay = Replay::new(name, account, repeated, reading);
            let check = check(account, &replay.run(&[], 1, call_off)?);
            Ok((replay, check))
        };
        let mut best = attempt(&Reading::default())?;
        let failed = best
            .1
            .guests
            .iter()
            .filter(|guest| !guest.passes())
            .map(|guest| guest.name.clone());
        let failed = failed.filter(|name| can_be_timed.contains(name)).collect();
        let (spins, answers, ticks) = (repeated.has_spins(), repeated.has_answers(), repeated.has_ticks());
        let timed = [BTreeSet::new(), failed, can_be_timed].into_iter();
        let readings = timed.flat_map(|timed| {
            let of = |ticks, spins, answers| Reading {
                timed: timed.clone(),
                ticks,
                spins,
                answers,
            };
            [
                of(ticks, false, false),
                of(false, spins, false),
                of(ticks, spins, false),
                of(ticks, spins, answers),
                of(false, spins, answers),
            ]
        });
        let mut tried = vec![Reading::default()];
        for reading in readings {
            if best.1.passes() || tried.contains(&reading) {
                continue;
            }
            tried.push(reading.clone());
            let next = attempt(&reading)?;
            if next.1.excess() < best.1.excess() {
                best = next;
            }
        }
        Ok(best)
    }

    /// Returns the text of the file `path` next to the experiment.
    ///
    /// # Errors
    /// If it is not that of the recorded threads.
    pub(crate) fn read(&self, path: &Path) -> io::Result<String> {
        match path == Path::new(&self.threads_file) {
            true => Ok(self.threads.clone()),
            false => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Returns the plan of the experiment.
    ///
    /// # Errors
    /// If the experiment or `options` are not valid.
    pub(crate) fn plan(&self, options: &Options) -> Result<Plan, Problems> {
        let experiment = Experiment::parse(&self.file, &self.text)?;
        Plan::of_cells(experiment, options, &|path| self.read(path), None)
    }

    /// Runs the replay with the keys of `overrides` set, as `--set` takes them, and returns its account, up to the time
    /// at which the recording ended.
    ///
    /// # Errors
    /// [`ReplayError`].
    pub fn run(&self, overrides: &[(String, String)], seed: u64, call_off: &CallOff) -> Result<Account, ReplayError> {
        let options = Options {
            seeds: Some(1),
            first_seed: seed,
            set: overrides.iter().map(|(key, value)| format!("{key}={value}")).collect(),
            variants: vec!["as-recorded".to_owned()],
            ..Options::default()
        };
        let plan = self.plan(&options).map_err(ReplayError::Input)?;
        let config = Config {
            seed,
            ..plan.cells[0].config.clone()
        };
        account_of(&config, self.span_ns, call_off)
    }
}

/// Runs `config`, and returns the account of what a real host would have recorded in the first `span_ns` nanoseconds.
///
/// # Errors
/// [`ReplayError::Run`], [`ReplayError::TooLong`].
pub fn account_of(config: &Config, span_ns: u64, call_off: &CallOff) -> Result<Account, ReplayError> {
    let window = Window {
        from_ns: 0,
        to_ns: span_ns,
    };
    let (outcome, timeline) = holdfast_sim::record(config, call_off, window).map_err(ReplayError::Run)?;
    outcome.map_err(ReplayError::Run)?;
    if timeline.truncated {
        return Err(ReplayError::TooLong);
    }
    Ok(account(&timeline, others(config)))
}

/// Returns the guest of `config` whose vCPUs are the threads of the recorded host itself.
pub fn others(config: &Config) -> Option<u32> {
    let is_host =
        |workload: &Workload| matches!(workload, Workload::Recorded(recorded) if recorded.guest == RecordedHost::HOST);
    (0..)
        .zip(&config.vms)
        .find(|(_, vm)| is_host(&vm.boot.workload))
        .map(|(index, _)| index)
}

/// Returns the account of what a real host would have recorded. The vCPUs of the guest `others` are threads of the
/// host itself.
pub fn account(timeline: &Timeline, others: Option<u32>) -> Account {
    let beside = beside(timeline, others);
    let mut follower = account::follower(&beside);
    let mut books = Books::default();
    for event in events(timeline, others) {
        follower.follow(&event, &mut books);
    }
    follower.end(Some(timeline.to.0 / 1000), &mut books);
    account::of(&books, &follower, &beside)
}
