//! Experiments: read, run cases × variants × seeds, statistics, lost time, results.
//!
//! A TOML file becomes an [`Experiment`](experiment::Experiment). With the user's options it becomes a
//! [`Plan`](plan::Plan) of cells and seeds. A [run](run::run) of the plan gives [`Results`](results::Results), which
//! are written, read, [compared](compare) and [explained](explain).
#![forbid(unsafe_code)]

pub mod adaptive;
pub mod amount;
pub mod collect;
pub mod compare;
pub mod determinism;
pub mod diagnostic;
pub mod display;
pub mod document;
pub mod doubts;
pub mod draft;
pub mod experiment;
pub mod explain;
pub mod extensions;
pub mod file;
pub mod groups;
pub mod kernel;
pub mod keys;
pub mod meter;
pub mod options;
pub mod plan;
pub mod profile;
pub mod replay;
pub mod report;
pub mod results;
pub mod run;
mod scale;
pub mod shipped;
pub mod slot;
pub mod stats;
pub mod sweep;
pub mod swept;
pub mod tidy;
pub mod trace;
pub mod units;
pub mod validate;
