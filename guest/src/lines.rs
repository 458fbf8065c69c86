//! Cache lines of other CPUs that critical sections of the kernel touch: what a hold takes beyond its instructions.
//!
//! A lock's own line is the lock's cost. The data behind it are in other lines, and a section waits for those that
//! another CPU has changed. Which CPU held the lock last is known, so most lines come from there.
//!
//! # Sources
//! - **[M]** measured under Linux 6.1, eight CPUs, all sections of the class together, except where a comment says
//!   more: `docs/kernels.md`, Cache lines. Sections of 3.3 change the same lists and counts.
//! - **[E]** one line, uncertain: an entry of a list that another CPU has added or removed.
//!
//! Deliberately absent: lines that this CPU's own cache has lost, which the pace of instructions includes.

use crate::class::LockClass;
use crate::profile::LineProfile;

const fn lines(stayed_milli: u32, moved_milli: u32) -> LineProfile {
    LineProfile {
        stayed_milli,
        moved_milli,
        chained: false,
    }
}

const fn chained(lines: LineProfile) -> LineProfile {
    LineProfile { chained: true, ..lines }
}

/// Taking a page from the zone's lists, per page. [M] `rmqueue_bulk`, 35 and 53 lines for 66 pages. The next page is
/// known only from the one before.
pub(crate) const ZONE_TAKEN: LineProfile = chained(lines(530, 800));
/// Giving a page back, per page. [M] `free_pcppages_bulk`, 82 and 133 lines for 510 pages.
pub(crate) const ZONE_GIVEN: LineProfile = lines(160, 260);
/// A batch of pages for the LRU lists. Its pages are in a row: only the list's ends and counts are another CPU's. [M]
pub(crate) const LRU: LineProfile = lines(1_070, 3_360);

/// The lines of a section under a lock of `class`.
pub(crate) const fn of(class: LockClass) -> LineProfile {
    match class {
        // [M]
        LockClass::RunQueue => lines(810, 16_100),
        LockClass::TaskWake => lines(2_850, 5_400),
        LockClass::WaitQueue => lines(180, 1_120),
        LockClass::TimerBase => lines(980, 980),
        LockClass::Xtime => lines(610, 9_830),
        LockClass::Slab => lines(1_200, 2_720),
        LockClass::Signal => lines(530, 850),
        LockClass::Files => lines(20, 20),
        LockClass::Dentry => lines(60, 1_620),
        LockClass::DentryLru => lines(0, 1_130),
        LockClass::Inode => lines(70, 1_510),
        LockClass::InodeList => lines(100, 830),
        LockClass::PageCache => lines(220, 390),
        LockClass::Futex => lines(340, 3_150),
        LockClass::SocketState | LockClass::SocketQueue => lines(0, 0),
        LockClass::PageList => lines(10, 10),
        LockClass::Pid => lines(180, 3_900),
        LockClass::Cgroup => lines(580, 1_570),
        LockClass::Pgd => lines(2_020, 2_570),
        LockClass::Random => lines(500, 1_000),
        LockClass::Rcu => lines(50, 300),
        LockClass::Other => lines(260, 1_060),
        LockClass::DirtyInodes => lines(0, 0),
        // [M] `__handle_mm_fault`. Unmapping touches a line for each page of a file, which other CPUs map, too.
        LockClass::PageTable => lines(100, 500),
        // Counted by the page or the batch.
        LockClass::Zone | LockClass::Lru => lines(0, 0),
        // [E]
        LockClass::CallQueue
        | LockClass::TaskList
        | LockClass::Journal
        | LockClass::JournalState
        | LockClass::JournalList
        | LockClass::BlockGroup
        | LockClass::Cil
        | LockClass::Ail
        | LockClass::Iclog
        | LockClass::Semaphore
        | LockClass::MutexWait
        | LockClass::RwsemWait
        | LockClass::NetTransmit
        | LockClass::IpcSemaphore
        | LockClass::Driver
        | LockClass::Epoll
        | LockClass::PageBuffers
        | LockClass::InodeHash
        | LockClass::Reservation
        | LockClass::BufferCache
        | LockClass::InodeCache
        | LockClass::InodeFlags
        | LockClass::CilPush
        | LockClass::BlockQueue => lines(0, 1_000),
    }
}

impl LineProfile {
    /// The lines of `count` objects.
    pub(crate) const fn times(self, count: u32) -> LineProfile {
        LineProfile {
            stayed_milli: self.stayed_milli * count,
            moved_milli: self.moved_milli * count,
            ..self
        }
    }
}
