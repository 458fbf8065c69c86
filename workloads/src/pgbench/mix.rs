//! The work of a transaction, and the sources of the numbers.
//!
//! # Sources
//! - **[S]** the scripts in pgbench's documentation.
//! - **[G]** the locks that PostgreSQL 9.1's source takes on these paths (README files of the lock manager, the buffer
//!   manager and the log). The counts are from memory of the code, uncertain by about ±30 %.
//! - **[E]** estimates.

use super::Script;

/// Statements, as messages from client to backend.
pub(super) mod statement {
    pub(in super::super) const BEGIN: u32 = 0;
    pub(in super::super) const UPDATE_ACCOUNT: u32 = 1;
    pub(in super::super) const SELECT: u32 = 2;
    pub(in super::super) const UPDATE_TELLER: u32 = 3;
    pub(in super::super) const UPDATE_BRANCH: u32 = 4;
    pub(in super::super) const INSERT: u32 = 5;
    pub(in super::super) const END: u32 = 6;
    /// The client disconnects.
    pub(in super::super) const TERMINATE: u32 = 7;
}

/// Returns the statements of a transaction. [S]
pub(super) fn statements(script: Script) -> &'static [u32] {
    use statement::{BEGIN, END, INSERT, SELECT, UPDATE_ACCOUNT, UPDATE_BRANCH, UPDATE_TELLER};
    match script {
        Script::TpcB => &[BEGIN, UPDATE_ACCOUNT, SELECT, UPDATE_TELLER, UPDATE_BRANCH, INSERT, END],
        Script::SelectOnly => &[SELECT],
    }
}

/// Returns a statement's user time relative to the mean of its script, in percent. [E] Those of TPC-B have mean 100.
pub(super) fn weight(script: Script, number: u32) -> u64 {
    match script {
        Script::TpcB => [15, 160, 90, 140, 140, 110, 45][number as usize],
        Script::SelectOnly => 100,
    }
}

/// Spread of a statement's user time (sigma of the logarithm). [E]
pub(super) const TIME_SPREAD: f64 = 0.15;

/// The lightweight locks.
pub(super) mod lock {
    /// Taken shared by every snapshot, and exclusively at the end of a writing transaction.
    pub(in super::super) const PROC_ARRAY: usize = 0;
    /// Taken shared once per statement, for invalidation messages.
    pub(in super::super) const INVALIDATION: usize = 1;
    /// Taken to insert in the log, by one backend at a time.
    pub(in super::super) const LOG_INSERT: usize = 2;
    /// Taken to write and flush the log, by one backend at a time.
    pub(in super::super) const LOG_WRITE: usize = 3;
    /// Taken for a transaction number.
    pub(in super::super) const XID: usize = 4;
    /// Taken to set the status of a transaction.
    pub(in super::super) const STATUS: usize = 5;
    /// Partitions of the lock manager's table. [G] 16
    pub(in super::super) const MANAGER: usize = 8;
    /// Partitions of the buffer table. [G] 16
    pub(in super::super) const BUFFERS: usize = 24;
    /// Contents of buffers: the hot ones (index roots) and the rest, hashed.
    pub(in super::super) const CONTENTS: usize = 40;
    /// The number of content locks.
    pub(in super::super) const CONTENTS_COUNT: usize = 216;
    pub(in super::super) const COUNT: usize = CONTENTS + CONTENTS_COUNT;
    pub(in super::super) const PARTITIONS: u32 = 16;
}

/// Relations that a statement locks and unlocks: the table and its index. [G]
pub(super) const RELATIONS: u32 = 2;
/// Snapshots per statement in the simple protocol: planning, execution. [G]
pub(super) const SNAPSHOTS: u32 = 2;
/// Buffers of a primary-key lookup: root, inner and leaf page, table page. [G]
pub(super) const BUFFERS: u32 = 4;
/// Work under a lightweight lock, nanoseconds of user time. [E]
pub(super) mod held {
    /// Copying the array of running transactions.
    pub(in super::super) const SNAPSHOT_NS: u64 = 150;
    /// One search of the lock manager's table.
    pub(in super::super) const MANAGER_NS: u64 = 200;
    /// Reading a page.
    pub(in super::super) const PAGE_NS: u64 = 300;
    /// Copying a record to the log buffer.
    pub(in super::super) const LOG_RECORD_NS: u64 = 500;
    /// Leaving the array of running transactions.
    pub(in super::super) const COMMIT_NS: u64 = 150;
}
