//! The user's choices: which part of an experiment to run, with which changes, and until when.

use serde::{Deserialize, Serialize};

use crate::extensions::Extensions;

/// The user's changes to an experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Options {
    /// Number of runs of each cell, or `None` for the experiment's.
    pub seeds: Option<u32>,
    /// The first seed.
    pub first_seed: u64,
    /// Share of the full-size work, or `None` for the experiment's.
    pub scale: Option<f64>,
    /// Keys set for all cells, as `key=value`.
    pub set: Vec<String>,
    /// Keys swept over, as `key=value,value`: each case runs with each value.
    pub sweep: Vec<String>,
    /// Keys swept over, as `key=value,value`: each variant runs with each value.
    pub sweep_variants: Vec<String>,
    /// The cases to run; all if empty.
    pub cases: Vec<String>,
    /// The variants to run; all if empty.
    pub variants: Vec<String>,
    /// Executes every iteration of every spin.
    pub no_skip: bool,
    /// Adds seeds to each cell as it needs them. The plan then has all seeds that a cell may get.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adaptive: Option<Adaptive>,
    /// What the program adds to the names in experiments. No part of a file: each program has its own.
    #[serde(skip)]
    pub extensions: Extensions,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            seeds: None,
            first_seed: 1,
            scale: None,
            set: Vec::new(),
            sweep: Vec::new(),
            sweep_variants: Vec::new(),
            cases: Vec::new(),
            variants: Vec::new(),
            no_skip: false,
            adaptive: None,
            extensions: Extensions::shipped(),
        }
    }
}

/// When the runs of a cell end.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Adaptive {
    /// The 95 % confidence interval of every measured guest's geometric mean reaches at most this much above the mean,
    /// in percent.
    pub percent: f64,
    /// Limit on the seeds of a cell.
    pub seeds_max: u32,
}

impl Adaptive {
    /// Returns how wide an interval may be, as a share of the mean.
    pub(crate) fn share(self) -> f64 {
        self.percent / 100.0
    }
}
