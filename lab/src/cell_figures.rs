//! Figures of a cell of results that are structures of their own: convoys, and published figures.

use serde::{Deserialize, Serialize};

use crate::experiment::Quantity;

/// Windows of virtual time in which a guest's vCPUs spent longer spinning behind vCPUs that were not running than on
/// their own work.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConvoyTimes {
    /// Start of the first window, in nanoseconds of virtual time since power-on.
    pub since_ns: u64,
    /// Total length of the windows, as a share of the guest's time from its start to its end.
    pub share: f64,
}

/// A published figure.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PublishedFigure {
    /// Arithmetic mean.
    pub mean: f64,
    /// Standard deviation, if published.
    pub sd: Option<f64>,
    /// Number of runs, if published.
    pub runs: Option<u32>,
    /// The publication and the place in it.
    pub source: String,
    /// Whether the workload's parameters were calibrated on this row, so that it is not a prediction.
    pub calibrate: bool,
    /// The parameters that were calibrated on it, separated by "; ".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fitted: Option<String>,
}

/// A published figure of another quantity than the metric, in percent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OtherFigure {
    /// The quantity.
    pub of: Quantity,
    /// The published figure.
    #[serde(flatten)]
    pub published: PublishedFigure,
    /// The quantity in each run.
    pub samples: Vec<f64>,
}
