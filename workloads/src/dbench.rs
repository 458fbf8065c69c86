//! dbench, which does to a file system what a file server does for its clients. Each client is a process with a
//! directory of its own. All data stay in the page cache.
//!
//! The operations and their sizes are those of the trace that dbench 4.0 replays (`client.txt`, 458 344 operations),
//! counted. Which system calls an operation makes was counted with strace. Both are means per opened file here, so that
//! a client draws its operations in place of replaying a list.
//!
//! **Work is conserved**: the reported number is that of the bytes that clients have read and written.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use holdfast_guest::{FileId, Fork, Format, Limits, Machine, Os, Program, Start};
use serde::{Deserialize, Serialize};

use crate::start::{Remaining, StartLine};
use crate::stream::Stream;
use crate::workload::{Load, share_of};

/// Parameters of dbench.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dbench {
    /// Number of clients. `None` is one for each vCPU.
    pub clients: Option<u32>,
    /// Megabytes (10^6 bytes) that all clients together read and write, at scale 1.
    ///
    /// Default 20 000.
    pub megabytes: u64,
    /// File system of the disk.
    ///
    /// Default ext4.
    pub format: Format,
}

impl Default for Dbench {
    fn default() -> Self {
        Dbench {
            clients: None,
            megabytes: 20_000,
            format: Format::Ext4,
        }
    }
}

/// Files that a client has at most.
const FILES: u32 = 96;
/// Components of a path.
const DEPTH: u32 = 5;
/// Mappings of a client. [E]
const VMAS: u32 = 25;

/// User time for an opened file, in nanoseconds: 2.04 s for 328 101 of them on an EPYC of the first generation.
const USER_NS: u64 = 6_200;
/// Spread of these times: standard deviation of the logarithm. [E]
const SIGMA: f64 = 0.3;

/// Means per 1000 opened files.
mod mean {
    /// Operations before which a client asks whether its parent lives: `kill` with signal 0. And `statfs`, 200.
    pub(super) const NULL_CALLS: u32 = 8_080;
    pub(super) const STATS: u32 = 5_260;
    /// Names that do not exist, as the server looks for other spellings.
    pub(super) const MISSING: u32 = 1_950;
    /// Directories that are read from begin to end, for the same reason or for a listing.
    pub(super) const SCANS: u32 = 2_060;
    pub(super) const READS: u32 = 2_134;
    pub(super) const OVERWRITES: u32 = 379;
    pub(super) const SYNCS: u32 = 95;
    pub(super) const RENAMES: u32 = 58;
    pub(super) const UNLINKS: u32 = 275;
}

/// Pages of a large and of a small access, and how many of 1000 accesses are large.
struct Sizes {
    large: u32,
    of_thousand: u32,
}

const READ: Sizes = Sizes {
    large: 15,
    of_thousand: 142,
};
/// Writes into a new file: 7.4 pages in the mean.
const APPEND: Sizes = Sizes {
    large: 16,
    of_thousand: 427,
};
/// Writes where the file has pages already: 6.4 pages in the mean.
const OVERWRITE: Sizes = Sizes {
    large: 16,
    of_thousand: 360,
};

/// Bytes of a page that are read or written in the mean.
const PAGE_BYTES: u64 = 3_940;
/// Bytes that are read and written for an opened file in the mean.
const FILE_BYTES: u64 = 42_750;
const MEGABYTE: u64 = 1_000_000;

mod role {
    pub(super) const FIRST: u32 = 0;
    pub(super) const CLIENT: u32 = 1;
}

/// The clients of a run.
pub(crate) struct Clients {
    parameters: Dbench,
    clients: u32,
    /// Files that are still to be opened.
    files: Remaining,
    /// Bytes that clients have moved. Plain memory: real clients would each count their own.
    bytes: AtomicU64,
}

impl Clients {
    fn first<M: Machine>(&self, os: &Os<M>) {
        StartLine::FIRST.launch(os, Fork::Copy { vmas: VMAS }, role::CLIENT, self.clients);
        while os.wait().is_some() {}
        os.done(Some(self.bytes.load(Relaxed) / MEGABYTE));
    }

    fn client<M: Machine>(&self, os: &Os<M>, number: u32) {
        let mut random = Stream::new(os.seed("dbench.operations"), number);
        // As many files are there at the start as later.
        let mut exists: Vec<bool> = (0..FILES).map(|_| some(&mut random, mean::UNLINKS) == 0).collect();
        let first = number * (1 + FILES);
        StartLine::FIRST.wait(os);
        while self.files.take() {
            let begun = os.clock();
            let slot = random.below(FILES);
            let there = &mut exists[slot as usize];
            let pages = open_file(os, &mut random, FileId(first), FileId(first + 1 + slot), there);
            self.bytes.fetch_add(u64::from(pages) * PAGE_BYTES, Relaxed);
            os.completed(begun);
        }
    }
}

/// Does all that belongs to an opened file: look-ups, the calls on it, and its end. `exists` says whether the file is
/// there, before and after. Returns the number of pages that were read and written.
fn open_file<M: Machine>(os: &Os<M>, random: &mut Stream, directory: FileId, file: FileId, exists: &mut bool) -> u32 {
    let user_ns = random.time(USER_NS, SIGMA);
    os.user(user_ns / 2);
    for _ in 0..some(random, mean::NULL_CALLS) {
        os.null_call();
    }
    for _ in 0..some(random, mean::STATS) {
        os.stat(directory, DEPTH);
    }
    for _ in 0..some(random, mean::MISSING) {
        os.open_missing(DEPTH);
    }
    for _ in 0..some(random, mean::SCANS) {
        os.open(directory, DEPTH - 1);
        os.status();
        os.read(1);
        os.close(directory);
    }
    let (mut moved, mut written) = (0, 0);
    if *exists {
        os.open(file, DEPTH);
    } else {
        os.create(directory, file, DEPTH);
        written += APPEND.draw(random);
        os.write(file, written);
    }
    for _ in 0..some(random, mean::READS) {
        let pages = READ.draw(random);
        os.read(pages);
        moved += pages;
    }
    for _ in 0..some(random, mean::OVERWRITES) {
        let pages = OVERWRITE.draw(random);
        os.overwrite(file, pages);
        written += pages;
    }
    if some(random, mean::SYNCS) > 0 {
        os.sync(file, written);
    }
    os.close(file);
    if some(random, mean::RENAMES) > 0 {
        os.rename(directory, file, DEPTH);
    }
    *exists = some(random, mean::UNLINKS) == 0;
    if !*exists {
        os.unlink(directory, file, DEPTH);
    }
    os.user(user_ns - user_ns / 2);
    moved + written
}

/// Returns a whole number whose mean is a thousandth of `mean`.
fn some(random: &mut Stream, mean: u32) -> u32 {
    mean / 1_000 + u32::from(random.below(1_000) < mean % 1_000)
}

impl Sizes {
    fn draw(&self, random: &mut Stream) -> u32 {
        if random.below(1_000) < self.of_thousand {
            self.large
        } else {
            1
        }
    }
}

impl Load for Dbench {
    const THROUGHPUT: Option<&'static str> = Some("MB/s");

    fn scale_work(&mut self, share: f64) {
        self.megabytes = share_of(self.megabytes, share, self.clients.unwrap_or(1));
    }

    fn program<M: Machine>(&self, cpus: u32) -> Box<dyn Program<M>> {
        Box::new(Clients {
            parameters: self.clone(),
            clients: self.clients.unwrap_or(cpus).max(1),
            files: Remaining::new(self.megabytes.saturating_mul(MEGABYTE) / FILE_BYTES),
            bytes: AtomicU64::new(0),
        })
    }
}

impl<M: Machine> Program<M> for Clients {
    fn limits(&self) -> Limits {
        Limits {
            tasks: 1 + self.clients,
            files: self.clients * (1 + FILES),
            volumes: 1,
            format: self.parameters.format,
            semaphore_arrays: 1,
            semaphores: 1,
            ..Limits::default()
        }
    }

    fn run(&self, os: &Os<M>, start: Start) {
        match start.role {
            role::FIRST => self.first(os),
            role::CLIENT => self.client(os, start.argument),
            other => unreachable!("a task of dbench has the unknown role {other}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts of the trace.
    const OPENED: f64 = 58_200.0;
    const READS: f64 = 124_199.0;
    const WRITES: f64 = 39_502.0;
    const CREATED: f64 = 16_068.0;

    fn near(drawn: f64, counted: f64) {
        assert!((drawn / counted - 1.0).abs() < 0.02, "{drawn} drawn, {counted} counted");
    }

    #[test]
    fn a_thousand_files_have_the_operations_and_pages_of_the_trace() {
        let mut random = Stream::new(1, 0);
        let rounds = 200_000;
        let mut count = |mean| f64::from((0..rounds).map(|_| some(&mut random, mean)).sum::<u32>()) / f64::from(rounds);
        near(count(mean::READS), READS / OPENED);
        // A file that was removed is created when it is opened next, and a new file is written to once.
        let created = count(mean::UNLINKS);
        near(created, CREATED / OPENED);
        near(created + count(mean::OVERWRITES), WRITES / OPENED - 0.024);
        let mut pages =
            |sizes: &Sizes| f64::from((0..rounds).map(|_| sizes.draw(&mut random)).sum::<u32>()) / f64::from(rounds);
        near(pages(&READ), 2.993);
        near(pages(&APPEND), 118_708.0 / CREATED);
        near(pages(&OVERWRITE), 140_953.0 / 22_032.0);
    }

    #[test]
    fn an_opened_file_moves_the_bytes_of_the_trace() {
        let bytes = (READS * 11_852.66 + WRITES * 25_719.56) / OPENED;
        near(FILE_BYTES as f64, bytes);
        let pages = |sizes: &Sizes| 1.0 + f64::from((sizes.large - 1) * sizes.of_thousand) / 1_000.0;
        let thousand = f64::from(mean::READS) * pages(&READ)
            + f64::from(mean::UNLINKS) * pages(&APPEND)
            + f64::from(mean::OVERWRITES) * pages(&OVERWRITE);
        near(thousand / 1_000.0 * PAGE_BYTES as f64, FILE_BYTES as f64);
    }
}
