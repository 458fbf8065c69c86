//! What a transaction consists of, and where the numbers come from.
//!
//! # Sources
//! - **[S]** the scripts in pgbench's documentation;
//! - **[G]** the locks that PostgreSQL 9.1's source takes on these paths (README files of the lock manager, the buffer
//!   manager and the log); counts from memory of the code, uncertain by about ±30 %;
//! - **[E]** estimates.

use super::Script;

/// A statement, as it travels from client to backend.
pub(super) mod statement {
    pub(in super::super) const BEGIN: u32 = 0;
    pub(in super::super) const UPDATE_ACCOUNT: u32 = 1;
    pub(in super::super) const SELECT: u32 = 2;
    pub(in super::super) const UPDATE_TELLER: u32 = 3;
    pub(in super::super) const UPDATE_BRANCH: u32 = 4;
    pub(in super::super) const INSERT: u32 = 5;
    pub(in super::super) const END: u32 = 6;
    /// The client says good-bye.
    pub(in super::super) const TERMINATE: u32 = 7;
}

/// The statements of a transaction. [S]
pub(super) fn statements(script: Script) -> &'static [u32] {
    use statement::{BEGIN, END, INSERT, SELECT, UPDATE_ACCOUNT, UPDATE_BRANCH, UPDATE_TELLER};
    match script {
        Script::TpcB => &[BEGIN, UPDATE_ACCOUNT, SELECT, UPDATE_TELLER, UPDATE_BRANCH, INSERT, END],
        Script::SelectOnly => &[SELECT],
    }
}

/// A statement's user time relative to the mean of its script, in percent. [E]; those of TPC-B have mean 100.
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
    /// Shared by every snapshot, exclusive at the end of a writing transaction.
    pub(in super::super) const PROC_ARRAY: usize = 0;
    /// Shared once per statement: invalidation messages.
    pub(in super::super) const INVALIDATION: usize = 1;
    /// One at a time may insert in the log.
    pub(in super::super) const LOG_INSERT: usize = 2;
    /// One at a time writes and flushes it.
    pub(in super::super) const LOG_WRITE: usize = 3;
    /// Transaction numbers.
    pub(in super::super) const XID: usize = 4;
    /// Transaction status.
    pub(in super::super) const STATUS: usize = 5;
    /// Partitions of the lock manager's table. [G] 16
    pub(in super::super) const MANAGER: usize = 8;
    /// Partitions of the buffer table. [G] 16
    pub(in super::super) const BUFFERS: usize = 24;
    /// Contents of buffers: the hot ones (index roots) and the rest, hashed.
    pub(in super::super) const CONTENTS: usize = 40;
    /// How many of those.
    pub(in super::super) const CONTENTS_COUNT: usize = 216;
    pub(in super::super) const COUNT: usize = CONTENTS + CONTENTS_COUNT;
    pub(in super::super) const PARTITIONS: u32 = 16;
}

/// Relations that a statement locks and unlocks: the table and its index. [G]
pub(super) const RELATIONS: u32 = 2;
/// Snapshots per statement in the simple protocol: planning, execution. [G]
pub(super) const SNAPSHOTS: u32 = 2;
/// Buffers looked up by a primary-key look-up: root, inner and leaf page, table page. [G]
pub(super) const BUFFERS: u32 = 4;
/// Work under a lightweight lock, nanoseconds of user time. [E]
pub(super) mod held {
    /// Copying the array of running transactions.
    pub(in super::super) const SNAPSHOT_NS: u64 = 150;
    /// One look at the lock manager's table.
    pub(in super::super) const MANAGER_NS: u64 = 200;
    /// Reading a page.
    pub(in super::super) const PAGE_NS: u64 = 300;
    /// Copying a record to the log buffer.
    pub(in super::super) const LOG_RECORD_NS: u64 = 500;
    /// Leaving the array of running transactions.
    pub(in super::super) const COMMIT_NS: u64 = 150;
}
