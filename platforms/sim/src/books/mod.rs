//! What is written down of a run: the history's hash, lost time, interrupts, convoys, the timeline.

pub mod account;
pub mod audit;
pub mod blame;
pub mod cause;
pub mod convoy;
pub mod hash;
pub mod ledger;
pub mod timeline;
pub mod yields;
