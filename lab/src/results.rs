//! Results, schema `holdfast.results/1`: what a run of an experiment leaves behind.
//!
//! - **Reproducible.** Nothing in a result file depends on the clock, the host's speed or the number of threads: the same
//!   program with the same options writes the same bytes.
//! - **Whole or not there.** A file is written beside its name and then renamed.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::file::{self, WriteError};
use crate::stats::{Samples, Summary};

/// The schema that this program writes and reads.
pub const SCHEMA: &str = "holdfast.results/1";

/// What a run of an experiment leaves behind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Results {
    /// [`SCHEMA`].
    pub schema: String,
    /// Name of the experiment.
    pub experiment: String,
    /// What the experiment shows, in a line; null in files of older programs.
    #[serde(default)]
    pub title: Option<String>,
    /// The experiment's file, before the command's own changes; null in files of older programs.
    #[serde(default)]
    pub definition: Option<String>,
    /// Machine profile; several where the experiment varies it.
    pub machine: String,
    /// Seeds of every cell.
    pub seeds: Vec<u64>,
    /// Share of the full-size work. Elapsed times are full-size equivalents: measured time divided by this.
    pub scale: f64,
    /// The program that ran it.
    pub version: String,
    /// The command that runs the same again.
    pub command: String,
    /// Whether every run came to an end: `false` after an interruption.
    pub complete: bool,
    /// Case × variant × measured guest.
    pub cases: Vec<Case>,
    /// Guests that ran beside them and are not measured.
    pub background: Vec<Background>,
    /// Runs that failed.
    pub failures: Vec<FailedRun>,
}

/// A measured guest in a case with a variant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// Case.
    pub case: String,
    /// Variant.
    pub variant: String,
    /// Guest.
    pub vm: String,
    /// `elapsed` or `throughput`.
    pub metric: String,
    /// Unit of samples, means and published figures.
    pub unit: String,
    /// `lower` or `higher`.
    pub better: String,
    /// Seed of each sample: those whose runs failed or were called off are missing.
    pub seeds: Vec<u64>,
    /// The samples.
    pub samples: Vec<f64>,
    /// Arithmetic mean of the samples; null without any.
    pub mean: Option<f64>,
    /// Sample standard deviation; null for fewer than two samples.
    pub sd: Option<f64>,
    /// Median.
    pub median: Option<f64>,
    /// Smallest.
    pub min: Option<f64>,
    /// Largest.
    pub max: Option<f64>,
    /// What was published of this cell.
    pub published: Option<PublishedFigure>,
    /// Share of the vCPUs' time that each sample spent working, in critical sections or outside.
    pub work_shares: Vec<f64>,
    /// Share of the vCPUs' time that each sample spun behind a preempted lock holder or a preempted waiter.
    pub preempted_spin_shares: Vec<f64>,
    /// The convoys of each sample; null without any.
    pub convoys: Vec<Option<ConvoyTimes>>,
    /// Longest stall of each sample in nanoseconds of virtual time: no vCPU of the guest did useful work or held a lock
    /// while running.
    pub longest_stalls_ns: Vec<u64>,
    /// The host scheduler's period in nanoseconds: a runnable thread gets its turn within about that long.
    pub period_ns: u64,
    /// Counters of guest, locks, host and machine: mean of the samples, at this scale.
    pub counters: BTreeMap<String, f64>,
    /// Where the vCPUs' time went, as fractions that sum to 1; empty without samples.
    pub lost_time: BTreeMap<String, f64>,
    /// Hash over the histories of all samples, hexadecimal.
    pub history_hash: String,
    /// Hash over the history of each sample.
    pub history_hashes: Vec<String>,
}

/// Windows of virtual time in which a guest's vCPUs spent longer spinning behind vCPUs that were not running than on their
/// own work.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConvoyTimes {
    /// When the first one began, nanoseconds of virtual time since power-on.
    pub since_ns: u64,
    /// How long all of them lasted together, as a share of the run.
    pub share: f64,
}

/// A published figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedFigure {
    /// Mean.
    pub mean: f64,
    /// Standard deviation, if published.
    pub sd: Option<f64>,
    /// Number of runs, if published.
    pub runs: Option<u32>,
    /// Where it was published.
    pub source: String,
    /// Whether a workload's parameters were fixed on this row, so that it is no prediction.
    pub calibrate: bool,
}

/// A guest that is not measured, in a case with a variant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Background {
    /// Case.
    pub case: String,
    /// Variant.
    pub variant: String,
    /// Guest.
    pub vm: String,
    /// Counters: mean of the runs.
    pub counters: BTreeMap<String, f64>,
    /// Where the vCPUs' time went.
    pub lost_time: BTreeMap<String, f64>,
}

/// A run that failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FailedRun {
    /// Case.
    pub case: String,
    /// Variant.
    pub variant: String,
    /// Seed.
    pub seed: u64,
    /// What happened.
    pub error: String,
    /// The command that runs it again.
    pub replay: String,
}

impl Case {
    /// The samples with their seeds.
    pub fn samples(&self) -> Samples<'_> {
        Samples {
            seeds: &self.seeds,
            values: &self.samples,
        }
    }

    /// What the samples are like; `None` without any.
    pub fn summary(&self) -> Option<Summary> {
        Summary::of(&self.samples)
    }

    /// Predicted mean over published mean.
    pub fn ratio(&self) -> Option<f64> {
        Some(self.mean? / self.published.as_ref()?.mean)
    }

    /// What tells this row from the others of its file.
    pub fn id(&self) -> (&str, &str, &str) {
        (&self.case, &self.variant, &self.vm)
    }
}

/// Why a result file could not be read. Each message starts with the file.
#[derive(Debug)]
pub enum ReadError {
    /// It could not be opened or read.
    Io(PathBuf, io::Error),
    /// It ends in the middle.
    Truncated(PathBuf, serde_json::Error),
    /// It is no JSON, or lacks what the schema has, or has what it lacks.
    Malformed(PathBuf, serde_json::Error),
    /// It is something else, or of another version; what it says it is.
    Foreign(PathBuf, String),
    /// It contradicts itself.
    Inconsistent(PathBuf, String),
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReadError::Io(path, error) => write!(f, "{}: cannot read it: {error}", path.display()),
            ReadError::Truncated(path, error) => {
                write!(
                    f,
                    "{}:{}: found the end of the file, expected more of a {SCHEMA} document",
                    path.display(),
                    error.line()
                )
            }
            ReadError::Malformed(path, error) => {
                write!(
                    f,
                    "{}:{}: expected a {SCHEMA} document: {error}",
                    path.display(),
                    error.line()
                )
            }
            ReadError::Foreign(path, found) => {
                write!(
                    f,
                    "{}: found {found}, expected a results file with \"schema\": \"{SCHEMA}\"",
                    path.display()
                )
            }
            ReadError::Inconsistent(path, what) => write!(f, "{}: {what}", path.display()),
        }
    }
}

impl std::error::Error for ReadError {}

/// Reads a result file.
///
/// # Errors
/// Whatever makes it something else than a whole result file of this schema.
pub fn read(path: &Path) -> Result<Results, ReadError> {
    let text = fs::read_to_string(path).map_err(|error| ReadError::Io(path.to_owned(), error))?;
    parse(path, &text)
}

/// Parses the text of a result file; `path` is what messages call it.
///
/// # Errors
/// As [`read`].
pub fn parse(path: &Path, text: &str) -> Result<Results, ReadError> {
    let malformed = |error: serde_json::Error| match error.classify() {
        serde_json::error::Category::Eof => ReadError::Truncated(path.to_owned(), error),
        _ => ReadError::Malformed(path.to_owned(), error),
    };
    // The schema first: a message about a missing field would mislead about a foreign file.
    let document: serde_json::Value = serde_json::from_str(text).map_err(malformed)?;
    match document.get("schema") {
        Some(schema) if schema == SCHEMA => {}
        Some(schema) => return Err(ReadError::Foreign(path.to_owned(), format!("\"schema\": {schema}"))),
        None => return Err(ReadError::Foreign(path.to_owned(), "no schema".to_owned())),
    }
    let results: Results = serde_json::from_str(text).map_err(malformed)?;
    match contradiction(&results) {
        Some(what) => Err(ReadError::Inconsistent(path.to_owned(), what)),
        None => Ok(results),
    }
}

/// What a well-formed file can still get wrong.
fn contradiction(results: &Results) -> Option<String> {
    if !(results.scale > 0.0 && results.scale <= 1.0) {
        return Some(format!(
            "scale: found {}, expected a number above 0, up to 1",
            results.scale
        ));
    }
    let mut seen = Vec::new();
    for case in &results.cases {
        let row = format!("case {} / {} / {}", case.case, case.variant, case.vm);
        if seen.contains(&case.id()) {
            return Some(format!("{row}: found twice, expected once"));
        }
        seen.push(case.id());
        let lengths = [
            case.samples.len(),
            case.longest_stalls_ns.len(),
            case.history_hashes.len(),
        ];
        if let Some(length) = lengths.into_iter().find(|length| *length != case.seeds.len()) {
            return Some(format!(
                "{row}: found {} seeds for {length} samples, expected as many",
                case.seeds.len()
            ));
        }
        if let Some(sample) = case
            .samples
            .iter()
            .find(|sample| **sample <= 0.0 || !sample.is_finite())
        {
            return Some(format!("{row}: found the sample {sample}, expected a positive number"));
        }
        let sum: f64 = case.lost_time.values().sum();
        if !case.lost_time.is_empty() && (sum - 1.0).abs() > 1e-6 {
            return Some(format!("{row}: found lost_time that sums to {sum}, expected 1"));
        }
    }
    None
}

impl Results {
    /// The document, with a final line break.
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("strings, numbers and maps with string keys");
        text.push('\n');
        text
    }

    /// Writes the document to `folder/EXPERIMENT.results.json`, which it replaces; the folder is made if it is missing.
    ///
    /// # Errors
    /// What the file system says. Nothing is left behind then, and a file that was there stays.
    pub fn write(&self, folder: &Path) -> Result<PathBuf, WriteError> {
        let path = folder.join(format!("{}.results.json", self.experiment));
        file::write(&path, self.to_json().as_bytes())?;
        Ok(path)
    }
}
