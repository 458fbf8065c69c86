//! The work of a transaction, and the sources of the numbers.
//!
//! # Sources
//! - **[G]** the locks that PostgreSQL 9.1's source takes on these paths (README files of the lock manager, the buffer
//!   manager). The counts are from memory of the code, uncertain by about ±30 %.
//! - **[E]** estimates.

/// Messages from client to backend.
pub(super) mod statement {
    /// One lookup. Its number also chooses the partitions that its relations and its index root hash to.
    pub(in super::super) const SELECT: u32 = 2;
    /// The client disconnects.
    pub(in super::super) const TERMINATE: u32 = 7;
}

/// Mean user time of the backend for a statement, without lightweight locks. Calibrated: one client makes 7 600
/// transactions a second on the x5570 profile.
pub(super) const BACKEND_NS: u64 = 92_200;
/// User time between an answer and the wait for the next statement: activity and statistics are reported
/// (`PostgresMain`). [E]
pub(super) const BETWEEN_NS: u64 = 1_000;
/// Spread of a statement's user time (sigma of the logarithm). [E]
pub(super) const TIME_SPREAD: f64 = 0.15;

/// The lightweight locks.
pub(super) mod lock {
    /// Taken shared by every snapshot.
    pub(in super::super) const PROC_ARRAY: usize = 0;
    /// Taken shared once per statement, for invalidation messages.
    pub(in super::super) const INVALIDATION: usize = 1;
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
}
