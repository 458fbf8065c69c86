//! ebizzy, which uses memory like the search of a web server. Each thread repeatedly allocates a chunk, copies records
//! into it, searches it and frees it. Freeing is a TLB shootdown on all CPUs where threads of the process run, and the
//! page faults of all threads contend for the lock of their address space.
//!
//! The size of the chunks and the loop are those of ebizzy 0.3. User times are estimates.

use alloc::boxed::Box;

use holdfast_guest::{Fork, Limits, Machine, Os, Program, Start, Touch};
use serde::{Deserialize, Serialize};

use crate::start::{Remaining, StartLine};
use crate::stream::Stream;
use crate::workload::{Load, share_of};

/// Where ebizzy's chunks are allocated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Allocation {
    /// The C library's heap (`ebizzy -M`). Each thread has an arena. When a chunk is freed, glibc keeps 128 KiB of it
    /// and frees the rest with `madvise`, which takes the lock of the address space for reading. No thread takes it for
    /// writing.
    #[default]
    Heap,
    /// A mapping for each chunk (`ebizzy -m`): mmap and munmap, both of which take that lock for writing.
    Mapping,
}

/// Pages that glibc keeps of a heap's unused end: `M_TOP_PAD`, 128 KiB. As many must be unused before it trims the heap
/// (`M_TRIM_THRESHOLD`).
const KEPT_PAGES: u32 = 32;

/// Pages of a chunk, 512 KiB. For each record a thread allocates a chunk, copies into it and frees it. By default
/// ebizzy's chunk is 64 Ki words of `size_t` (`chunk_size` of its `read_options`), which has 8 bytes on x86-64.
const CHUNK_PAGES: u32 = 128;

/// Parameters of ebizzy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ebizzy {
    /// Threads for each vCPU (`ebizzy -t` divided by the CPUs).
    ///
    /// Default 2.
    pub threads_per_vcpu: u32,
    /// Source of the chunks.
    pub allocation: Allocation,
    /// Records over all threads, at scale 1.
    ///
    /// Default 100 000.
    pub records: u64,
}

impl Default for Ebizzy {
    fn default() -> Self {
        Ebizzy {
            threads_per_vcpu: 2,
            allocation: Allocation::Heap,
            records: 100_000,
        }
    }
}

/// Mean user time of a record, without page faults: copying 512 KiB at about 9 bytes per nanosecond, and a binary
/// search. [E] One thread alone took 24 us on an EPYC whose cache of 32 MiB holds all chunks.
const RECORD_NS: u64 = 60_000;
/// Spread of the records' times: standard deviation of the logarithm.
const RECORD_SIGMA: f64 = 0.3;

mod role {
    pub(super) const FIRST: u32 = 0;
    pub(super) const THREAD: u32 = 1;
}

/// The searching threads.
pub(crate) struct Searches {
    parameters: Ebizzy,
    threads: u32,
    records: Remaining,
}

impl Searches {
    fn first<M: Machine>(&self, os: &Os<M>) {
        StartLine::FIRST.launch(os, Fork::Share, role::THREAD, self.threads);
        while os.wait().is_some() {}
        os.done(Some(self.parameters.records));
    }

    fn search<M: Machine>(&self, os: &Os<M>, number: u32) {
        let mut times = Stream::new(os.seed("ebizzy.record"), number);
        StartLine::FIRST.wait(os);
        let beyond = CHUNK_PAGES - KEPT_PAGES;
        while self.records.take() {
            let begun = os.clock();
            let time = times.time(RECORD_NS, RECORD_SIGMA);
            match self.parameters.allocation {
                Allocation::Heap => {
                    os.user_touching(time, Touch::anonymous(beyond));
                    os.discard(beyond);
                }
                Allocation::Mapping => {
                    os.map(CHUNK_PAGES);
                    os.user_touching(time, Touch::anonymous(CHUNK_PAGES));
                    os.unmap(CHUNK_PAGES);
                }
            }
            os.completed(begun);
        }
    }
}

impl Load for Ebizzy {
    const THROUGHPUT: Option<&'static str> = Some("records/s");

    fn scale_work(&mut self, share: f64) {
        self.records = share_of(self.records, share, 1);
    }

    fn program<M: Machine>(&self, cpus: u32) -> Box<dyn Program<M>> {
        Box::new(Searches {
            parameters: self.clone(),
            threads: cpus.saturating_mul(self.threads_per_vcpu).max(1),
            records: Remaining::new(self.records),
        })
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
            other => unreachable!("a task of ebizzy has the unknown role {other}"),
        }
    }
}
