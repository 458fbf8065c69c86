//! Reads results: what a file must be, and what a well-formed file can still get wrong.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::{fmt, io};

use super::{Case, Results, SCHEMA, Total, history_hash};
use crate::file;
use crate::foreign::{kind_of, made_by};
use crate::scale::bad_scale;
use crate::service::Service;
use crate::stats::{self, Summary};

/// The schema of files whose shares are of the whole run, also of guests that ended before it. They are read.
const SCHEMA_BEFORE: &str = "holdfast.results/1";

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
    let served = case.service.iter().flat_map(Service::lengths);
    if let Some(length) = known
        .chain(served)
        .chain([case.samples.len()])
        .find(|length| *length != seeds)
    {
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
