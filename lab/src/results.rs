//! Results of an experiment, schema `holdfast.results/2`.
//!
//! - **Reproducible.** Nothing in a result file depends on the clock, the host's speed or the number of threads: the
//!   same
//!   program with the same options writes the same bytes.
//! - **Tolerant.** A reader ignores fields that it does not know, which later versions may add.
//! - **Atomic.** A file is written under another name and then renamed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::file::{self, WriteError};
use crate::foreign::{kind_of, made_by};
use crate::operators::Operators;
use crate::scale::bad_scale;
use crate::stats::{self, Samples, Summary};
use crate::swept::Swept;

pub use crate::cell_figures::{ConvoyTimes, OtherFigure, PublishedFigure};

/// The schema that this program writes and reads.
pub const SCHEMA: &str = "holdfast.results/2";
/// The schema of files whose shares are of the whole run, also of guests that ended before it. They are read.
const SCHEMA_BEFORE: &str = "holdfast.results/1";

/// Results of an experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// The schema, [`SCHEMA`].
    pub schema: String,
    /// Name of the experiment.
    pub experiment: String,
    /// Title of the experiment; null in files of older versions.
    #[serde(default)]
    pub title: Option<String>,
    /// Text of the experiment's file, without the changes by options; null in files of older versions.
    #[serde(default)]
    pub definition: Option<String>,
    /// Machine profile; several where the experiment varies it.
    pub machine: String,
    /// Seeds of every cell.
    pub seeds: Vec<u64>,
    /// Share of the full-size work. Elapsed times are full-size equivalents: measured time divided by this.
    pub scale: f64,
    /// Version of the program.
    pub version: String,
    /// Command that repeats the run.
    pub command: String,
    /// Whether every run ended; `false` after an interruption.
    pub complete: bool,
    /// Cells: case × variant × measured guest.
    pub cases: Vec<Case>,
    /// Identical guests together; empty in files of older versions.
    #[serde(default)]
    pub totals: Vec<Total>,
    /// Guests that are not measured.
    pub background: Vec<Background>,
    /// Runs that failed.
    pub failures: Vec<FailedRun>,
}

/// A measured guest in a case with a variant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Case {
    /// Name of the case.
    pub case: String,
    /// Name of the variant.
    pub variant: String,
    /// Name of the guest.
    pub vm: String,
    /// Name of the metric: `elapsed` or `throughput`.
    pub metric: String,
    /// Unit of samples, means and published figures.
    pub unit: String,
    /// Better direction: `lower` or `higher`.
    pub better: String,
    /// Seed of each sample, without those whose runs failed or were called off.
    pub seeds: Vec<u64>,
    /// The samples themselves.
    pub samples: Vec<f64>,
    /// Length of each sample's measured interval in nanoseconds of virtual time, at this scale. Empty in files of older
    /// versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lengths_ns: Vec<u64>,
    /// Arithmetic mean of the samples; null without any.
    pub mean: Option<f64>,
    /// Sample standard deviation; null for fewer than two samples.
    pub sd: Option<f64>,
    /// Median sample.
    pub median: Option<f64>,
    /// Smallest sample.
    pub min: Option<f64>,
    /// Largest sample.
    pub max: Option<f64>,
    /// Published figure of this cell, if any.
    pub published: Option<PublishedFigure>,
    /// Other published figures of this cell, beside what each run says of the same quantity.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also_published: Vec<OtherFigure>,
    /// Share of the vCPUs' time that each sample spent working, in critical sections or outside. Empty for a real host,
    /// as are all figures that only the simulator knows.
    pub work_shares: Vec<f64>,
    /// Share of the vCPUs' time that each sample spun behind a preempted lock holder or a preempted waiter.
    pub preempted_spin_shares: Vec<f64>,
    /// The convoys of each sample; null without any.
    pub convoys: Vec<Option<ConvoyTimes>>,
    /// Longest stall of each sample in nanoseconds of virtual time: no vCPU of the guest did useful work or ran with
    /// a lock.
    pub longest_stalls_ns: Vec<u64>,
    /// Period of the simulated host's scheduler in nanoseconds. A runnable thread gets its turn within about this time.
    pub period_ns: u64,
    /// What operators measure of the guest; null without samples and for a real host.
    #[serde(default)]
    pub operators: Option<Operators>,
    /// Counters of guest, locks, host and machine: mean of the samples, at this scale.
    pub counters: BTreeMap<String, f64>,
    /// Where the vCPUs' time went from the guest's start to its end, as fractions that sum to 1; empty without samples
    /// and for a real host.
    pub lost_time: BTreeMap<String, f64>,
    /// Hash over the histories of all samples, hexadecimal; empty for a real host, which has no history.
    pub history_hash: String,
    /// Hash over the history of each sample.
    pub history_hashes: Vec<String>,
    /// The values of the swept keys, which are steps of the case's and the variant's names; absent without a sweep.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub swept: Vec<Swept>,
}

/// The guests of one `[[vm]]` with a `count`, together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Total {
    /// Name of the case.
    pub case: String,
    /// Name of the variant.
    pub variant: String,
    /// Common name of the guests.
    pub vm: String,
    /// Number of guests.
    pub guests: usize,
    /// Unit of the samples.
    pub unit: String,
    /// For each run the sum of the guests' throughputs, or the time until the last guest was done.
    pub samples: Vec<f64>,
    /// Arithmetic mean of the samples; null without any.
    pub mean: Option<f64>,
    /// Sample standard deviation; null for fewer than two samples.
    pub sd: Option<f64>,
    /// For each run, the smallest sample of a guest divided by the largest: 1 if all got the same.
    pub evenness: Vec<f64>,
}

/// A guest that is not measured, in a case with a variant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Background {
    /// Name of the case.
    pub case: String,
    /// Name of the variant.
    pub variant: String,
    /// Name of the guest.
    pub vm: String,
    /// What operators measure of the guest; null without runs and for a real host.
    #[serde(default)]
    pub operators: Option<Operators>,
    /// Counters, as means over the runs.
    pub counters: BTreeMap<String, f64>,
    /// Where the vCPUs' time went.
    pub lost_time: BTreeMap<String, f64>,
}

/// A run that failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FailedRun {
    /// Name of the case.
    pub case: String,
    /// Name of the variant.
    pub variant: String,
    /// The seed of the runs.
    pub seed: u64,
    /// The error.
    pub error: String,
    /// Command that repeats the run.
    pub replay: String,
}

impl Case {
    /// The samples with their seeds.
    pub fn samples(&self) -> Samples<'_> {
        Samples {
            seeds: &self.seeds,
            values: &self.samples,
            paired: !self.is_of_real_host(),
        }
    }

    /// Returns whether the samples come from a real host, which cannot know where its guests' time went. Files of older
    /// versions have zeros for what is not known.
    pub fn is_of_real_host(&self) -> bool {
        !self.samples.is_empty() && self.lost_time.is_empty()
    }

    /// Returns the summary of the samples, or `None` without samples.
    pub fn summary(&self) -> Option<Summary> {
        Summary::of(&self.samples)
    }

    /// Returns predicted mean over published mean.
    pub fn ratio(&self) -> Option<f64> {
        Some(self.mean? / self.published.as_ref()?.mean)
    }

    /// Returns the names that identify this row in its file.
    pub fn id(&self) -> (&str, &str, &str) {
        (&self.case, &self.variant, &self.vm)
    }
}

/// Error of a result file that could not be read. Each message starts with the file.
#[derive(Debug)]
pub enum ReadError {
    /// The file could not be opened or read.
    Io(PathBuf, io::Error),
    /// The file is truncated.
    Truncated(PathBuf, serde_json::Error),
    /// The file is not JSON, or does not have the fields of the schema.
    Malformed(PathBuf, serde_json::Error),
    /// The file has another schema, named here if the file states it.
    Foreign(PathBuf, Option<String>),
    /// The file is something else, as its text shows.
    Other(PathBuf, &'static str),
    /// The file contradicts itself.
    Inconsistent(PathBuf, String),
}

/// What a reader expects.
const EXPECTED: &str =
    "expected a results file with \"schema\": \"holdfast.results/2\", as `holdfast run --out DIR` writes it";

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
                let found = match found {
                    None => "no schema".to_owned(),
                    Some(schema) if is_newer(schema) => {
                        format!("\"schema\": {schema}, which a newer version of this program wrote")
                    }
                    Some(schema) => format!("\"schema\": {schema}{}", made_by(schema)),
                };
                write!(f, "{}: found {found}, {EXPECTED}", path.display())
            }
            ReadError::Other(path, what) => write!(f, "{}: found {what}, {EXPECTED}", path.display()),
            ReadError::Inconsistent(path, what) => write!(f, "{}: {what}", path.display()),
        }
    }
}

impl std::error::Error for ReadError {}

/// Returns whether `schema`, a JSON value, is a later version of [`SCHEMA`].
fn is_newer(schema: &str) -> bool {
    let version = |text: &str| text.strip_prefix("holdfast.results/")?.parse::<u64>().ok();
    version(schema.trim_matches('"')) > version(SCHEMA)
}

/// Reads a result file.
///
/// # Errors
/// Whatever makes it something else than a whole result file of this schema.
pub fn read(path: &Path) -> Result<Results, ReadError> {
    let text = file::read_text(path, file::BYTES_MAX).map_err(|error| ReadError::Io(path.to_owned(), error))?;
    parse(path, &text)
}

/// Parses the text of a result file; `path` is what messages call it.
///
/// # Errors
/// As [`read`].
pub fn parse(path: &Path, text: &str) -> Result<Results, ReadError> {
    let is_json = text.trim_start().is_empty() || text.trim_start().starts_with(['{', '[', '"']);
    let malformed = |error: serde_json::Error| match error.classify() {
        _ if !is_json => ReadError::Other(path.to_owned(), kind_of(text)),
        serde_json::error::Category::Eof => ReadError::Truncated(path.to_owned(), error),
        _ => ReadError::Malformed(path.to_owned(), error),
    };
    // The schema first: a message about a missing field would mislead about a foreign file.
    let document: serde_json::Value = serde_json::from_str(text).map_err(malformed)?;
    match document.get("schema") {
        Some(schema) if schema == SCHEMA || schema == SCHEMA_BEFORE => {}
        Some(schema) => return Err(ReadError::Foreign(path.to_owned(), Some(schema.to_string()))),
        None => return Err(ReadError::Foreign(path.to_owned(), None)),
    }
    let results: Results = serde_json::from_str(text).map_err(malformed)?;
    match contradiction(&results) {
        Some(what) => Err(ReadError::Inconsistent(path.to_owned(), what)),
        None => Ok(results),
    }
}

/// What a well-formed file can still get wrong.
fn contradiction(results: &Results) -> Option<String> {
    if let Some((found, expected)) = bad_scale(results.scale) {
        return Some(format!("scale: found {found}, expected {expected}"));
    }
    let beside = results.background.iter();
    let beside = beside.flat_map(|beside| {
        [&beside.case, &beside.variant, &beside.vm]
            .into_iter()
            .chain(beside.counters.keys())
    });
    if let Some(name) = beside.chain([&results.experiment]).find_map(|name| unprintable(name)) {
        return Some(name);
    }
    let mut seen = BTreeSet::new();
    for case in &results.cases {
        if !seen.insert(case.id()) {
            let (name, variant, vm) = case.id();
            return Some(format!(
                "case {name:?} / {variant:?} / {vm:?}: found twice, expected once"
            ));
        }
        if let Some(what) = contradiction_in(case) {
            let (name, variant, vm) = case.id();
            return Some(format!("case {name:?} / {variant:?} / {vm:?}: {what}"));
        }
        if let Some(what) = misfit_of_length(results.scale, case) {
            let (name, variant, vm) = case.id();
            return Some(format!("case {name:?} / {variant:?} / {vm:?}: {what}"));
        }
    }
    results.totals.iter().find_map(misfit_of_total)
}

/// Which elapsed time of `case` is not its run's length at `scale`.
fn misfit_of_length(scale: f64, case: &Case) -> Option<String> {
    if case.metric != "elapsed" || case.unit != "s" || case.lengths_ns.is_empty() {
        return None;
    }
    let pairs = case.samples.iter().zip(&case.lengths_ns);
    let lengths = pairs.map(|(sample, ns)| (*sample, *ns as f64 / 1e9 / scale));
    let wrong = lengths
        .into_iter()
        .find(|(sample, length)| (sample - length).abs() > length.abs() * stats::ROUNDING);
    wrong.map(|(sample, length)| format!("found the sample {sample}, expected {length}, which the run's length gives"))
}

/// What `case` by itself can get wrong.
fn contradiction_in(case: &Case) -> Option<String> {
    let names = [&case.case, &case.variant, &case.vm, &case.metric, &case.unit];
    let names = names
        .into_iter()
        .chain(case.lost_time.keys())
        .chain(case.counters.keys());
    if let Some(name) = names.into_iter().find_map(|name| unprintable(name)) {
        return Some(name);
    }
    if case.better != "lower" && case.better != "higher" {
        return Some(format!(
            "better: found {:?}, expected \"lower\" or \"higher\"",
            case.better
        ));
    }
    let seeds = case.seeds.len();
    let known = [
        case.work_shares.len(),
        case.preempted_spin_shares.len(),
        case.convoys.len(),
        case.longest_stalls_ns.len(),
        case.history_hashes.len(),
    ];
    // A real host knows nothing of these.
    let known = known
        .into_iter()
        .filter(|length| *length > 0 || !case.is_of_real_host());
    if let Some(length) = known.chain([case.samples.len()]).find(|length| *length != seeds) {
        return Some(format!("found {seeds} seeds for {length} samples, expected as many"));
    }
    let positive = |value: f64| value > 0.0 && value.is_finite();
    if let Some(sample) = case.samples.iter().find(|sample| !positive(**sample)) {
        return Some(format!("found the sample {sample}, expected a positive number"));
    }
    if let Some(what) = misfit(case) {
        return Some(what);
    }
    let others = case.also_published.iter().map(|other| &other.published);
    let mut published = case.published.iter().chain(others);
    if let Some(published) = published.find(|published| !positive(published.mean)) {
        return Some(format!(
            "published.mean: found {}, expected a positive number",
            published.mean
        ));
    }
    if let Some((cause, share)) = case.lost_time.iter().find(|(_, share)| !(0.0..=1.0).contains(*share)) {
        return Some(format!(
            "lost_time.{cause}: found {share}, expected a share from 0 to 1"
        ));
    }
    let sum: f64 = case.lost_time.values().sum();
    if !case.lost_time.is_empty() && (sum - 1.0).abs() > 1e-6 {
        return Some(format!("found lost_time that sums to {sum}, expected 1"));
    }
    None
}

/// Which figure of `case` does not fit its samples or its runs.
fn misfit(case: &Case) -> Option<String> {
    let figures = [case.mean, case.sd, case.median, case.min, case.max];
    if let Some(what) = stats::misfit(&case.samples, figures) {
        return Some(what);
    }
    let hashes = case.history_hashes.iter().map(|hash| u64::from_str_radix(hash, 16));
    let Ok(hashes) = hashes.collect::<Result<Vec<u64>, _>>() else {
        return Some("found a history hash that is no hexadecimal number".to_owned());
    };
    let is_whole = !hashes.is_empty() && hashes.len() == case.seeds.len();
    let expected = history_hash(case.seeds.iter().copied().zip(hashes));
    let found = &case.history_hash;
    (is_whole && *found != expected)
        .then(|| format!("found the history hash {found}, expected {expected}, which its runs give"))
}

/// Which total does not fit its samples.
fn misfit_of_total(total: &Total) -> Option<String> {
    let summary = Summary::of(&total.samples);
    let others = [
        summary.map(|all| all.median),
        summary.map(|all| all.min),
        summary.map(|all| all.max),
    ];
    let what = stats::misfit(&total.samples, [total.mean, total.sd, others[0], others[1], others[2]])?;
    let Total { case, variant, vm, .. } = total;
    Some(format!("total {case:?} / {variant:?} / {vm:?}: {what}"))
}

/// What is wrong with a name that a terminal would not show as it stands, or would obey.
fn unprintable(name: &str) -> Option<String> {
    name.contains(char::is_control)
        .then(|| format!("found the name {name:?}, expected one without control characters"))
}

impl Results {
    /// The document, with a final line break.
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("strings, numbers and maps with string keys");
        text.push('\n');
        text
    }

    /// Writes the document to [`path_in`] `folder`, which it replaces. The folder is made if it is missing.
    ///
    /// # Errors
    /// If the file cannot be written. Nothing is left behind then, and an existing file is unchanged.
    pub fn write(&self, folder: &Path) -> Result<PathBuf, WriteError> {
        let path = path_in(folder, &self.experiment);
        file::write(&path, self.to_json().as_bytes())?;
        Ok(path)
    }

    /// Whether a real host gave them, and not the simulator; so [`Case::is_of_real_host`].
    pub fn are_of_real_host(&self) -> bool {
        self.cases.iter().any(Case::is_of_real_host)
    }
}

/// Returns an FNV-1a hash over seeds and histories' hashes, in the order of the seeds.
pub(crate) fn history_hash(runs: impl IntoIterator<Item = (u64, u64)>) -> String {
    let bytes = runs
        .into_iter()
        .flat_map(|(seed, hash)| [seed, hash])
        .flat_map(u64::to_le_bytes);
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    format!("{:016x}", bytes.fold(0xcbf2_9ce4_8422_2325, step))
}

/// Returns where [`Results::write`] puts the results of `experiment`: in the folder, or in the file that ends in .json.
pub fn path_in(folder: &Path, experiment: &str) -> PathBuf {
    if folder.extension().is_some_and(|extension| extension == "json") && !folder.is_dir() {
        return folder.to_owned();
    }
    folder.join(format!("{experiment}.results.json"))
}
