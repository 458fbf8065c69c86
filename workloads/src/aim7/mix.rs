//! What the mix consists of, and where the numbers come from.
//!
//! # Sources
//! - **[A]** AIM7's disk work file and the programs behind its jobs, from memory: the kinds of jobs are right, weights and
//!   sizes uncertain;
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
    /// `sync_disk_rw`: as `disk_rw`, each write on the disk before the next.
    SyncRandomWrite,
    /// `sync_disk_wrt`.
    SyncWrite,
    /// `sync_disk_cp`.
    SyncCopy,
    /// `disk_src`: looks for files in directories.
    Search,
    /// `creat-clo`: creates and closes files.
    CreateClose,
    /// `link_test`: gives files more names, and takes them away.
    Link,
    /// `dir_rtns_1`: makes, reads and removes directories.
    Directories,
}

/// Jobs of a list by kind, 100 in all. [A]
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
/// Writes that a synchronous job waits for; as many pages each as make the file. [E]
pub(super) const SYNC_WRITES: u32 = 4;
/// Names that a search looks up. [E]
pub(super) const SEARCHED: u32 = 40;
/// Files that `creat-clo` creates, one after another. [E]
pub(super) const CREATED: u32 = 4;
/// Names that `link_test` gives and takes away. [E]
pub(super) const LINKS: u32 = 8;
/// Directories that `dir_rtns_1` makes. [E]
pub(super) const DIRECTORIES: u32 = 3;
/// Files of a user: what it writes, and what it copies to.
pub(super) const FILES_OF_USER: u32 = 2;
/// Directories of a disk, over which its users spread. [E]
pub(super) const DIRECTORIES_OF_DISK: u32 = 8;
/// Components of a path.
pub(super) const DEPTH: u32 = 3;
/// Mappings of a user's process. [E]
pub(super) const VMAS: u32 = 12;
/// Spread of a job's user time: standard deviation of its logarithm. [E]
pub(super) const SIGMA: f64 = 0.3;

/// A list of 100 jobs in an order of its own.
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
        assert_ne!(first, second, "each user has an order of its own");
        for (job, count) in MIX {
            for deck in [&first, &second] {
                assert_eq!(deck.iter().filter(|other| **other == job).count(), count as usize);
            }
        }
        assert_eq!(first.len(), 100);
    }
}
