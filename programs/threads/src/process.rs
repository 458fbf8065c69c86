//! The state that the threads of a process share, also if the process contains this code several times.
//!
//! A lock word names a waiter by its number. So all users of a lock need the same numbers, queue nodes, parkers and
//! records. Plugins that each contain this code have it several times: statically linked, with hidden symbols, loaded
//! by `RTLD_LOCAL`. Then each of these copies finds the state of the first one, and its own stays unused:
//!
//! - **One state**: each copy has a note in its object file (System V ABI, "Note Section"), which says where the copy
//!   keeps the address of its state. A copy looks at all notes when it is loaded, by `dl_iterate_phdr(3)`. If another
//!   copy has chosen a state, it chooses the same, otherwise its own. The dynamic linker loads one object at a time.
//! - **Stays loaded**: the object whose state is used is never unloaded (`loaded.rs`). The others may be.
//! - **Same layout**: only copies of the same version and target share a state. What they share has layouts and
//!   functions of C. Two versions of the crate have different types, so they share no lock. The types of C are the same
//!   in all versions: a second version for C ends the process when it is loaded ([`refuse_other_versions`]).
//!
//! Other meeting points would not do. Exported symbols are hidden by linkers and by `RTLD_LOCAL`. Environment variables
//! take memory of the C library, and are inherited by other programs. A page at a fixed address may be in use, and
//! would tell an attacker where the library is. A note needs none of that, and costs nothing later.
//!
//! A copy that waited before it was loaded, for another library's constructor, has its own state by then. If it finds
//! another one it ends the process with a message. A copy in a namespace of its own (`dlmopen(3)`) has its own C
//! library, and is not found. Elsewhere than on Linux each copy has its own state, so copies share no lock.

use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize};

use holdfast_locks::NodeTable;

use crate::cpu::{NODES, ThreadWord, WAITING, Waiting};
#[cfg(target_os = "linux")]
use crate::fork;
use crate::{park, readers, slot, spin, word};

#[cfg(target_os = "linux")]
mod copies;
#[cfg(target_os = "linux")]
pub use copies::refuse_other_versions;
#[cfg(target_os = "linux")]
pub(crate) use copies::{meet, process};

/// Returns the state of this process.
#[cfg(not(target_os = "linux"))]
#[inline]
pub(crate) fn process() -> &'static Process {
    &OWN
}

/// Where the state is, and the functions for what only the copy that has the state knows of a thread.
#[repr(C)]
pub(crate) struct Process {
    pub(crate) numbers: &'static slot::Taken,
    pub(crate) numbers_end: &'static AtomicU32,
    pub(crate) nodes: &'static NodeTable<ThreadWord>,
    pub(crate) waiting: &'static Waiting,
    pub(crate) parkers: &'static park::Parkers,
    pub(crate) lines: &'static readers::Lines,
    pub(crate) lines_end: &'static AtomicUsize,
    pub(crate) spin_threshold: &'static AtomicU32,
    pub(crate) turn_ns: &'static AtomicU64,
    /// The functions of [`slot::of_thread`].
    pub(crate) number: extern "C" fn() -> u32,
    pub(crate) numbered: extern "C" fn() -> u32,
    pub(crate) adopt: extern "C" fn(u32) -> bool,
    /// Returns the number of the calling thread's line.
    pub(crate) line: extern "C" fn() -> usize,
    /// The functions of `word` with these names.
    pub(crate) settle: extern "C" fn() -> bool,
    pub(crate) is_unsettled: extern "C" fn() -> bool,
    pub(crate) interrupt_others: extern "C" fn(),
    #[cfg(target_os = "linux")]
    pub(crate) records: &'static fork::Records,
    #[cfg(target_os = "linux")]
    pub(crate) forking: &'static AtomicU32,
    #[cfg(target_os = "linux")]
    pub(crate) generation: &'static core::sync::atomic::AtomicU8,
    #[cfg(target_os = "linux")]
    pub(crate) forks: extern "C" fn() -> bool,
}

/// The state of this copy.
static OWN: Process = Process {
    numbers: &slot::TAKEN,
    numbers_end: &slot::END,
    nodes: &NODES,
    waiting: &WAITING,
    parkers: &park::PARKERS,
    lines: &readers::LINES,
    lines_end: &readers::END,
    spin_threshold: &spin::THRESHOLD,
    turn_ns: &spin::TURN,
    number: slot::of_thread::number,
    numbered: slot::of_thread::numbered,
    adopt: slot::of_thread::adopt,
    line: readers::line_of_thread,
    settle,
    is_unsettled,
    interrupt_others,
    #[cfg(target_os = "linux")]
    records: &fork::RECORDS,
    #[cfg(target_os = "linux")]
    forking: &fork::FORKING,
    #[cfg(target_os = "linux")]
    generation: &fork::GENERATION,
    #[cfg(target_os = "linux")]
    forks: fork::forks,
};

impl Process {
    /// Returns whether this is the state of this copy.
    pub(crate) fn is_own(&self) -> bool {
        core::ptr::eq(self, &OWN)
    }
}

extern "C" fn settle() -> bool {
    word::settle()
}

extern "C" fn is_unsettled() -> bool {
    word::is_unsettled()
}

extern "C" fn interrupt_others() {
    word::interrupt_others();
}
