//! What is written down of a run: the history's hash, lost time, interrupts, convoys, counters and the timeline.
//!
//! **Read only**: the books see what happened and the machine as it is ([`happened::View`]), and change nothing but
//! themselves. A run with more books has the same history.

pub mod account;
pub mod audit;
pub mod blame;
pub mod convoy;
pub mod counters;
pub mod fold;
pub mod gaps;
pub mod guest;
pub mod happened;
pub mod hash;
pub mod ledger;
pub mod locks;
pub mod timeline;
pub mod yields;
