//! The jobs of the mix, and the sources of the numbers.
//!
//! # Sources
//! - **[R]** `reaim` as HP ran it (osdl-aim-7 7.0.1.13): `data/workfile.disk`, `data/reaim.config`, `src/disk1.c`,
//!   `src/disk_src.c`, `src/driver.c`, `Support_scripts/master_disk_list`. The published run does not name its files,
//!   so these are likely, not certain.
//! - **[E]** estimates.

use alloc::vec::Vec;

use crate::stream::Stream;

/// A job: one of reaim's tests. Each makes a file in the root of a disk and removes it again, unless told otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Job {
    /// `disk_rr`, `disk_brr`: writes a file, opens it again, and reads blocks at random places.
    RandomRead,
    /// `disk_rw`, `disk_brw`: the same, and writes blocks.
    RandomWrite,
    /// `disk_rd`: writes a file, opens it again, and reads it from beginning to end.
    Read,
    /// `disk_wrt`, `disk_bwrt`: writes a file.
    Write,
    /// `disk_cp`, `disk_bcp`: copies the disk's common file.
    Copy,
    /// `disk_brd`: reads the disk's common file.
    SharedRead,
    /// `disk_dio_rr`: like `disk_rr`, past the page cache.
    DirectRandomRead,
    /// `disk_dio_rw`: like `disk_rw`, past the page cache.
    DirectRandomWrite,
    /// `disk_dio_rd`: reads the disk's common file, past the page cache.
    DirectSharedRead,
    /// `disk_dio_wrt`: creates a file and writes nothing. Its loop counts down from the result of an allocation, 0.
    CreateOnly,
    /// `disk_dio_cp`: opens the disk's common file, and does as `disk_dio_wrt`.
    OpenAndCreateOnly,
    /// `sync_disk_rw`: writes a file of half the size, opens it again, and writes blocks at random places, each on the
    /// disk before the next.
    SyncRandomWrite,
    /// `sync_disk_wrt`: writes a file of half the size, each block on the disk before the next.
    SyncWrite,
    /// `sync_disk_cp`: copies half of the disk's common file, each block on the disk before the next.
    SyncCopy,
    /// `sync_disk_update`: writes a file, then reads half as many blocks and writes each of them to the disk.
    SyncUpdate,
    /// `disk_src`: looks names up, and creates and removes files, in a directory of the disk.
    Search,
}

/// How many of the 100 jobs on a list are of each kind. [R]
pub(super) const MIX: [(Job, u32); 16] = [
    (Job::RandomRead, 10),
    (Job::RandomWrite, 10),
    (Job::Read, 5),
    (Job::Write, 10),
    (Job::Copy, 10),
    (Job::SharedRead, 5),
    (Job::DirectRandomRead, 5),
    (Job::DirectRandomWrite, 5),
    (Job::DirectSharedRead, 5),
    (Job::CreateOnly, 5),
    (Job::OpenAndCreateOnly, 5),
    (Job::SyncRandomWrite, 5),
    (Job::SyncWrite, 5),
    (Job::SyncCopy, 5),
    (Job::SyncUpdate, 5),
    (Job::Search, 5),
];

/// Blocks of 1 KiB of a job's file: `FILESIZE 10k`, to which 2000 users add nothing. [R]
pub(super) const BLOCKS: u32 = 10;
/// Blocks in a page.
pub(super) const BLOCKS_OF_PAGE: u32 = 4;
/// Names that a search looks up. [R]
pub(super) const SEARCHED: u32 = 75;
/// Files that a search creates. [E] of the comment "100 c and s files"
pub(super) const CREATED: u32 = 25;
/// Components of a path: the disk's mount point and the file. [R]
pub(super) const DEPTH: u32 = 2;
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
