//! The jobs of the mix, and the sources of the numbers.
//!
//! # Sources
//! - **[A]** AIM7's disk work file and the programs behind its jobs, from memory. The kinds of jobs are right, weights
//!   and sizes are uncertain.
//! - **[E]** estimates.

use alloc::vec::Vec;

use crate::stream::Stream;

/// A job: one of AIM7's small programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Job {
    /// `disk_rr`: reads a file at random places.
    RandomRead,
    /// `disk_rw`: writes at random places.
    RandomWrite,
    /// `disk_rd`: reads from beginning to end.
    Read,
    /// `disk_wrt`: writes from beginning to end.
    Write,
    /// `disk_cp`: copies a file.
    Copy,
    /// `sync_disk_rw`: like `disk_rw`, but each write is on the disk before the next.
    SyncRandomWrite,
    /// `sync_disk_wrt`: like `disk_wrt`, with synchronous writes.
    SyncWrite,
    /// `sync_disk_cp`: like `disk_cp`, with synchronous writes.
    SyncCopy,
    /// `disk_src`: searches directories for files.
    Search,
    /// `creat-clo`: creates and closes files.
    CreateClose,
    /// `link_test`: adds names of files, and removes them.
    Link,
    /// `dir_rtns_1`: creates, reads and removes directories.
    Directories,
}

/// How many of the 100 jobs on a list are of each kind. [A]
pub(super) const MIX: [(Job, u32); 12] = [
    (Job::RandomRead, 14),
    (Job::RandomWrite, 14),
    (Job::Read, 14),
    (Job::Write, 14),
    (Job::Copy, 12),
    (Job::SyncRandomWrite, 4),
    (Job::SyncWrite, 4),
    (Job::SyncCopy, 4),
    (Job::Search, 8),
    (Job::CreateClose, 4),
    (Job::Link, 4),
    (Job::Directories, 4),
];

/// Pages of a job's file. [E]
pub(super) const FILE_PAGES: u32 = 32;
/// Writes of a synchronous job, each an equal part of the file. [E]
pub(super) const SYNC_WRITES: u32 = 4;
/// Names that a search looks up. [E]
pub(super) const SEARCHED: u32 = 40;
/// Files that `creat-clo` creates, one after another. [E]
pub(super) const CREATED: u32 = 4;
/// Names that `link_test` adds and removes. [E]
pub(super) const LINKS: u32 = 8;
/// Directories that `dir_rtns_1` creates. [E]
pub(super) const DIRECTORIES: u32 = 3;
/// Files of a user: the one that it writes, and the one that it copies to.
pub(super) const FILES_OF_USER: u32 = 2;
/// Directories of a disk, among which its users are divided. [E]
pub(super) const DIRECTORIES_OF_DISK: u32 = 8;
/// Components of a path.
pub(super) const DEPTH: u32 = 3;
/// Mappings of a user's process. [E]
pub(super) const VMAS: u32 = 12;
/// Spread of a job's user time: standard deviation of its logarithm. [E]
pub(super) const SIGMA: f64 = 0.3;

/// Returns the 100 jobs of a list in random order.
pub(super) fn deck(order: &mut Stream) -> Vec<Job> {
    let mut deck: Vec<Job> = MIX
        .iter()
        .flat_map(|&(job, count)| core::iter::repeat_n(job, count as usize))
        .collect();
    for last in (1..deck.len()).rev() {
        deck.swap(last, order.below(last as u32 + 1) as usize);
    }
    deck
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_list_is_the_whole_mix() {
        let (mut one, mut other) = (Stream::new(7, 1), Stream::new(7, 2));
        let (first, second) = (deck(&mut one), deck(&mut other));
        assert_ne!(first, second, "two users have the same order");
        for (job, count) in MIX {
            for deck in [&first, &second] {
                assert_eq!(deck.iter().filter(|other| **other == job).count(), count as usize);
            }
        }
        assert_eq!(first.len(), 100);
    }
}
