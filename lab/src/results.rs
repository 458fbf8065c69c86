//! Results of an experiment, schema `holdfast.results/2`.
//!
//! - **Reproducible.** Nothing in a result file depends on the clock, the host's speed or the number of threads: the
//!   same program with the same options writes the same bytes.
//! - **Tolerant.** A reader ignores fields that it does not know, which later versions may add.
//! - **Atomic.** A file is written under another name and then renamed.

mod read;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::file::{self, WriteError};
use crate::operators::Operators;
use crate::service::Service;
use crate::stats::{Samples, Summary};
use crate::swept::Swept;

pub use crate::cell_figures::{ConvoyTimes, OtherFigure, PublishedFigure};
pub use read::{ReadError, parse, read};

/// The schema that this program writes and reads.
pub const SCHEMA: &str = "holdfast.results/2";

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
    /// What the guest's users measure: operations, and how long they take. Absent if they ask how long the guest takes,
    /// without samples, and for a real host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<Service>,
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
    file::placed(folder, Path::new(&format!("{experiment}.results.json")))
}
