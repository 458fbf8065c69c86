//! The commands, one module for each.

pub mod advise;
pub mod capacity;
pub mod compare;
pub mod explain;
pub mod generated;
pub mod import;
pub mod keys;
pub mod list;
pub mod merge;
pub mod new;
pub mod plan;
#[cfg(feature = "real-host")]
pub mod real_host;
#[cfg(not(feature = "real-host"))]
#[path = "commands/without_real_host.rs"]
pub mod real_host;
pub mod replayed;
pub mod report;
pub mod run;
pub mod show;
pub mod status;
pub mod submit;
pub mod trace;
pub mod units;
pub mod validate;
