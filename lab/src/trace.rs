//! Records a run as a timeline for ui.perfetto.dev.
//!
//! One run of one cell is recorded within a window of virtual time, so that files stay small. If the user names no
//! window, the run is made twice: once to find the first convoy, and once to record it. Recording changes
//! nothing, so both runs have the same history, which is checked.

mod picture;
mod proto;
mod svg;
mod write;

use std::fmt;

use holdfast_sim::timeline::{Timeline, Window};
use holdfast_sim::{CallOff, Config, Failure, Outcome};

use crate::amount::Amount;
use crate::diagnostic::{Place, Problem, Problems};
use crate::plan::Plan;

pub(crate) use picture::{Event, Mark, Track};
pub use svg::svg;
pub use write::encode;
pub(crate) use write::encode_tracks;

/// Default length of the recording in nanoseconds of virtual time.
pub const SPAN_NS: u64 = 60_000_000;
/// Part of the recording before the start of a convoy, in nanoseconds.
const LEAD_NS: u64 = 10_000_000;
/// Longest window in nanoseconds: the limit of what a browser can show.
const SPAN_MAX_NS: u64 = 10_000_000_000;

/// The requested window.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Wanted {
    /// Value of `--from`.
    pub from: Option<String>,
    /// Value of `--for`.
    pub span: Option<String>,
}

/// Reason for the start of the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The user asked for it.
    Asked,
    /// The first convoy of this guest starts there.
    Convoy(usize),
    /// There was no convoy, and the measured interval of this guest starts there.
    Interval(usize),
    /// The run failed at the end of the window.
    Failure,
    /// No better start is known.
    PowerOn,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Asked => write!(f, "as asked for"),
            Reason::Convoy(_) => write!(f, "just before the first convoy"),
            Reason::Interval(_) => write!(f, "since there is no convoy: where the measured interval begins"),
            Reason::Failure => write!(f, "just before its failure"),
            Reason::PowerOn => write!(f, "at power-on"),
        }
    }
}

/// A recorded run.
#[derive(Clone, Debug)]
pub struct Traced {
    /// Outcome of the run.
    pub outcome: Result<Outcome, Failure>,
    /// The recording.
    pub timeline: Timeline,
    /// Reason for the start of the window.
    pub reason: Reason,
}

/// Error of a recording.
#[derive(Debug)]
pub enum TraceError {
    /// The request is not valid.
    Input(Problems),
    /// The machine could not be built, or the run was called off.
    Run(Failure),
    /// Two equal runs had different histories, which is a bug.
    NotDeterministic,
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TraceError::Input(problems) => problems.fmt(f),
            TraceError::Run(failure) => failure.fmt(f),
            TraceError::NotDeterministic => write!(f, "not deterministic: the run had another history when recorded"),
        }
    }
}

impl std::error::Error for TraceError {}

fn problem(option: &str, found: String, expected: String) -> TraceError {
    TraceError::Input(Problem::new(&Place::whole(option), found, expected).into())
}

/// Reads `text`, the value of `option`, as a time in nanoseconds.
///
/// # Errors
/// [`TraceError::Input`].
pub fn nanos(option: &str, text: &str) -> Result<u64, TraceError> {
    let bare = text.trim().parse().ok();
    bare.or_else(|| Amount::parse(text).and_then(Amount::nanos))
        .ok_or_else(|| {
            let expected = "a time with its unit (ns, us, ms or s), such as \"250 ms\", or whole nanoseconds";
            problem(option, format!("{text:?}"), expected.to_owned())
        })
}

/// Runs the first cell of `plan` with its first seed, and records it.
///
/// # Errors
/// [`TraceError`]. A run that fails is recorded up to its failure and is not an error.
pub fn trace(plan: &Plan, wanted: &Wanted, call_off: &CallOff) -> Result<Traced, TraceError> {
    let span = match &wanted.span {
        None => SPAN_NS,
        Some(text) => nanos("--for", text)?,
    };
    if !(1..=SPAN_MAX_NS).contains(&span) {
        let found = format!("{:?}", wanted.span.as_deref().unwrap_or_default());
        let expected = "more than nothing and at most 10 s of virtual time";
        return Err(problem("--for", found, expected.to_owned()));
    }
    let config = Config {
        seed: plan.seeds[0],
        ..plan.cells[0].config.clone()
    };
    let record = |from_ns: u64, to_ns: u64| {
        holdfast_sim::record(&config, call_off, Window { from_ns, to_ns }).map_err(TraceError::Run)
    };
    let Some(from) = &wanted.from else {
        let (before, timeline) = record(0, 0)?;
        called_off(&before)?;
        let (from, reason) = interesting(&before, &timeline, span);
        let (outcome, timeline) = record(from, from.saturating_add(span))?;
        called_off(&outcome)?;
        return match (&before, &outcome) {
            (Ok(one), Ok(other)) if one.history_hash != other.history_hash => Err(TraceError::NotDeterministic),
            (Ok(_), Err(_)) | (Err(_), Ok(_)) => Err(TraceError::NotDeterministic),
            _ => Ok(Traced {
                outcome,
                timeline,
                reason,
            }),
        };
    };
    let start = nanos("--from", from)?;
    let (outcome, timeline) = record(start, start.saturating_add(span))?;
    called_off(&outcome)?;
    if start >= timeline.end.nanos() {
        let expected = format!("less than {}, where the run ends", milliseconds(timeline.end.nanos()));
        return Err(problem("--from", format!("{from:?}"), expected));
    }
    Ok(Traced {
        outcome,
        timeline,
        reason: Reason::Asked,
    })
}

fn called_off(outcome: &Result<Outcome, Failure>) -> Result<(), TraceError> {
    match outcome {
        Err(Failure::CalledOff) => Err(TraceError::Run(Failure::CalledOff)),
        _ => Ok(()),
    }
}

/// Returns `nanos` in milliseconds.
pub fn milliseconds(nanos: u64) -> String {
    format!("{:.3} ms", nanos as f64 / 1e6)
}

/// Chooses the start of the window.
fn interesting(outcome: &Result<Outcome, Failure>, timeline: &Timeline, span: u64) -> (u64, Reason) {
    let end = timeline.end.nanos();
    let (from, reason) = match outcome {
        Err(_) => (end.saturating_sub(span), Reason::Failure),
        Ok(outcome) => {
            let convoys = outcome.vms.iter().enumerate();
            let first = convoys.filter_map(|(vm, of)| Some((of.convoy?.since_ns, vm))).min();
            let begun = timeline.begun.iter().enumerate();
            let interval = begun
                .filter_map(|(vm, begun)| Some((begun.as_ref()?.nanos(), vm)))
                .min();
            match (first, interval) {
                (Some((since, vm)), _) => (since.saturating_sub(LEAD_NS), Reason::Convoy(vm)),
                (None, Some((begun, vm))) => (begun, Reason::Interval(vm)),
                (None, None) => (0, Reason::PowerOn),
            }
        }
    };
    // A convoy at the very end still leaves a visible window.
    (from.min(end.saturating_sub(1)), reason)
}
