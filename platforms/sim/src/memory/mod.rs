//! Shared words and their cache lines, skipped spins, TLBs, and guest memory that the host writes.

pub mod dirty;
pub mod lines;
pub mod nodes;
pub mod park;
pub mod probe;
pub mod records;
pub mod tlb;
pub mod word;
