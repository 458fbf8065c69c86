//! Experiments: read, run cases × variants × seeds, statistics, lost time, results.
//!
//! A TOML file becomes an [`Experiment`](experiment::Experiment). With the user's options it becomes a
//! [`Plan`](plan::Plan) of cells and seeds. A [run](run::run) of the plan gives [`Results`](results::Results), which
//! are written, read, [compared](compare) and [explained](explain).
//!
//! # Where things are
//! - `experiment.rs`, `options.rs` and `plan.rs` make a plan, `run.rs` `run` runs it, `results.rs` keeps it. A mistake
//!   in a file is reported with file, line, key, found and expected.
//! - A key reaches its parameter by `keys/mod.rs` and the tables in `keys/table/`. Its documentation is the first
//!   paragraph of the doc comment of that parameter's field, which `lab/build.rs` collects.
//! - `units/` divides a plan among processes: `units/record.rs` is a finished unit, `merge.rs` `merge` puts them
//!   together, `engines.rs` writes the jobs of engines.
//! - `replay/` makes experiments of recorded hosts, and compares their replays with the recordings.
//! - `advise/mod.rs` `proposals` are remedies for a recorded host, `capacity.rs` `search` finds how many VMs fit.
//! - `adaptive.rs` `run` adds seeds until intervals are narrow, and `sweep.rs` `groups` finds the cells along a swept
//!   key.
//!
//! # Scale
//! A run at scale *s* does that share of the work, and elapsed times are reported divided by *s*. What is metastable
//! does not scale: a convoy that has begun does not end, so a longer run spends a larger part of its time in it.
#![forbid(unsafe_code)]

pub mod adaptive;
pub mod advise;
pub mod amount;
pub mod capacity;
mod cell_figures;
pub mod collect;
pub mod compare;
pub mod determinism;
pub mod diagnostic;
pub mod digest;
pub mod display;
pub mod document;
pub mod doubts;
pub mod draft;
pub mod draws;
pub mod experiment;
pub mod explain;
pub mod extensions;
pub mod figure;
pub mod file;
pub mod filter;
mod foreign;
pub mod groups;
pub mod kernel;
pub mod keys;
pub mod linux;
pub mod meter;
pub mod operators;
pub mod options;
pub mod plan;
pub mod profile;
pub mod quick;
pub mod recorded;
pub mod remarks;
pub mod replay;
pub mod report;
pub mod rerun;
pub mod results;
pub mod run;
mod scale;
pub mod service;
pub mod setup;
pub mod sheet;
pub mod shipped;
pub mod slot;
pub mod stats;
pub mod sweep;
pub mod swept;
pub mod template;
pub mod tidy;
mod topology;
pub mod trace;
pub mod units;
pub mod validate;
