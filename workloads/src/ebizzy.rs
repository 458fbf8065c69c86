//! ebizzy, which is what a web server's search does to memory: threads that each allocate a chunk, copy records into it, search
//! it and free it, over and over. Freeing is a TLB shootdown on all CPUs where threads of the process run, and the page faults of
//! all threads meet in the lock of their address space.
//!
//! The chunks' size and the loop are ebizzy 0.3's; user times are estimates.

use alloc::boxed::Box;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use holdfast_guest::{Fork, Limits, Machine, Os, Program, Start, Touch};
use serde::{Deserialize, Serialize};

use crate::stream::Stream;
use crate::workload::{Load, share_of};

/// Where ebizzy's chunks come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Allocation {
    /// The C library's heap (`ebizzy -M`). Each thread has an arena; when a chunk is freed, glibc keeps 128 KiB of it and
    /// gives the rest back with `madvise`, which reads the lock of the address space. Nobody writes it.
    #[default]
    Heap,
    /// A mapping for each (`ebizzy -m`): mmap and munmap, both of which write it.
    Mapping,
}

/// What glibc keeps of a heap's unused end: `M_TOP_PAD`, 128 KiB. As much must be unused before it looks (`M_TRIM_THRESHOLD`).
const KEPT_PAGES: u32 = 32;

/// Parameters of ebizzy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ebizzy {
    /// Threads; `None`: one per vCPU.
    pub threads: Option<u32>,
    /// Pages of a chunk. Default 64: 256 KiB.
    pub pages: u32,
    /// Where chunks come from.
    pub allocation: Allocation,
    /// Mean user time of a record, copying and searching, without page faults. Nanoseconds. Default 60 µs: copying 256 KiB at
    /// about 6 bytes per nanosecond, and a binary search.
    pub record_ns: u64,
    /// Records to process over all threads. Default 100 000.
    pub records: u64,
}

impl Default for Ebizzy {
    fn default() -> Self {
        Ebizzy {
            threads: None,
            pages: 64,
            allocation: Allocation::Heap,
            record_ns: 60_000,
            records: 100_000,
        }
    }
}

/// Spread of the records' times: of the logarithm.
const RECORD_SIGMA: f64 = 0.3;

mod role {
    pub(super) const FIRST: u32 = 0;
    pub(super) const THREAD: u32 = 1;
}

/// The threads and what is left to do.
pub(crate) struct Searches {
    parameters: Ebizzy,
    threads: u32,
    /// Records that nobody has begun. Plain memory: the benchmark's own book-keeping.
    left: AtomicU64,
}

impl Searches {
    pub(crate) fn new(parameters: &Ebizzy, cpus: u32) -> Self {
        Searches {
            parameters: parameters.clone(),
            threads: parameters.threads.unwrap_or(cpus).max(1),
            left: AtomicU64::new(parameters.records),
        }
    }

    fn first<M: Machine>(&self, os: &Os<M>) {
        os.wait_for_cpus();
        for argument in 0..self.threads {
            os.fork(Fork::Share, Start::new(role::THREAD, argument));
        }
        // Everybody waits at the start line by then.
        os.sleep(20_000_000);
        os.begin();
        for _ in 0..self.threads {
            os.semaphore_up(0, 0);
        }
        while os.wait().is_some() {}
        os.done(Some(self.parameters.records));
    }

    fn search<M: Machine>(&self, os: &Os<M>, number: u32) {
        let mut times = Stream::new(os.seed("ebizzy.record"), number);
        os.semaphore_down(0, 0);
        let pages = self.parameters.pages;
        let beyond = pages.saturating_sub(KEPT_PAGES);
        while self.begin_record() {
            let time = times.time(self.parameters.record_ns, RECORD_SIGMA);
            match self.parameters.allocation {
                Allocation::Heap => {
                    os.user_touching(time, Touch::anonymous(beyond));
                    if beyond > 0 {
                        os.discard(beyond);
                    }
                }
                Allocation::Mapping => {
                    os.map(pages);
                    os.user_touching(time, Touch::anonymous(pages));
                    os.unmap(pages);
                }
            }
        }
    }

    fn begin_record(&self) -> bool {
        self.left
            .fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1))
            .is_ok()
    }
}

impl Load for Ebizzy {
    const COUNTS_OPERATIONS: bool = true;

    fn scale_work(&mut self, share: f64) {
        self.records = share_of(self.records, share, self.threads.unwrap_or(1));
    }

    fn program<M: Machine>(&self, cpus: u32) -> Box<dyn Program<M>> {
        Box::new(Searches::new(self, cpus))
    }
}

impl<M: Machine> Program<M> for Searches {
    fn limits(&self) -> Limits {
        Limits {
            tasks: 1 + self.threads,
            semaphore_arrays: 1,
            semaphores: 1,
            ..Limits::default()
        }
    }

    fn run(&self, os: &Os<M>, start: Start) {
        match start.role {
            role::FIRST => self.first(os),
            role::THREAD => self.search(os, start.argument),
            other => unreachable!("no thread has role {other}"),
        }
    }
}
