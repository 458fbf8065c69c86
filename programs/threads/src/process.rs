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

#![cfg_attr(
    target_os = "linux",
    expect(unsafe_code, reason = "the state of another copy, and the note in the object file")
)]

use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize};

use holdfast_locks::thread::{SPIN_THRESHOLD, TURN_NS};
use holdfast_locks::{NodeTable, ReaderLine};

use crate::cpu::{NODES, PARKERS, Parkers, ThreadAddress, ThreadWord, WAITING, Waiting};
#[cfg(target_os = "linux")]
use crate::fork;
use crate::{slot, word};

#[cfg(target_os = "linux")]
mod copies;

/// Returns the state of this process.
#[cfg(target_os = "linux")]
#[inline]
pub(crate) fn process() -> &'static Process {
    #[cold]
    fn choose() -> *const Process {
        HERE.choose((&raw const OWN).cast()).cast()
    }
    let mut chosen: *const Process = HERE.chosen().cast();
    if chosen.is_null() {
        chosen = choose();
    }
    // SAFETY: it is the state of this copy or of another one of the same version (**Same layout**), which **stays
    // loaded**.
    unsafe { &*chosen }
}

/// Returns the state of this process.
#[cfg(not(target_os = "linux"))]
#[inline]
pub(crate) fn process() -> &'static Process {
    &OWN
}

/// What this copy says to others.
#[cfg(target_os = "linux")]
static HERE: copies::Copy = copies::Copy::new(size_of::<Process>());

/// Chooses the state of this process: **One state**. Called when the code is loaded. Returns whether it is this copy's.
#[cfg(target_os = "linux")]
pub(crate) fn meet() -> bool {
    note();
    HERE.meet((&raw const OWN).cast());
    process().is_own()
}

/// Ends the process with a message if it contains this code for C in another version: a C lock is the same type in all
/// versions, and would be broken. The C library calls this when it is loaded.
#[cfg(target_os = "linux")]
#[doc(hidden)]
pub fn refuse_other_versions() {
    HERE.refuse_other_versions();
}

/// Puts the note into the object file. Its content is the distance from there to [`HERE`], in 4 bytes.
#[cfg(target_os = "linux")]
#[inline(never)]
fn note() {
    // SAFETY: there are no instructions. Each instance of the code makes a note of its own.
    unsafe {
        core::arch::asm!(
            ".pushsection .note.holdfast, \"a\", %note",
            ".balign 4",
            ".long 9, 4, 1",
            ".asciz \"Holdfast\"",
            ".balign 4",
            "7:",
            // Otherwise the symbol could be another object's, and the distance is not known.
            ".hidden {here}",
            ".long {here} - 7b",
            ".popsection",
            here = sym HERE,
            options(nomem, nostack, preserves_flags),
        );
    }
}

/// The number of lines on which readers announce themselves. More threads share them.
pub(crate) const LINES_MAX: usize = 512;

type Lines = [ReaderLine<ThreadAddress>; LINES_MAX];

/// All lines. Memory that is zero takes up room only once it is used.
pub(crate) static LINES: Lines = [const { ReaderLine::from_places([const { ThreadAddress::ZERO }; 8]) }; LINES_MAX];

/// The number of lines in use.
static LINES_END: AtomicUsize = AtomicUsize::new(0);

static THRESHOLD: AtomicU32 = AtomicU32::new(SPIN_THRESHOLD.0);
static TURN: AtomicU64 = AtomicU64::new(TURN_NS);

/// Where the state is, and the functions for what only the copy that has the state knows of a thread.
#[repr(C)]
pub(crate) struct Process {
    pub(crate) numbers: &'static slot::Taken,
    pub(crate) numbers_end: &'static AtomicU32,
    pub(crate) nodes: &'static NodeTable<ThreadWord>,
    pub(crate) waiting: &'static Waiting,
    pub(crate) parkers: &'static Parkers,
    pub(crate) lines: &'static Lines,
    pub(crate) lines_end: &'static AtomicUsize,
    pub(crate) spin_threshold: &'static AtomicU32,
    pub(crate) turn_ns: &'static AtomicU64,
    /// The functions of `slot` for all copies.
    pub(crate) number: extern "C" fn() -> u32,
    pub(crate) numbered: extern "C" fn() -> u32,
    pub(crate) adopt: extern "C" fn(u32) -> bool,
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
    parkers: &PARKERS,
    lines: &LINES,
    lines_end: &LINES_END,
    spin_threshold: &THRESHOLD,
    turn_ns: &TURN,
    number: slot::thread_number,
    numbered: slot::thread_numbered,
    adopt: slot::thread_adopts,
    line: slot::thread_line,
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

/// The functions of `word` with the C ABI.
extern "C" fn settle() -> bool {
    word::settle()
}

extern "C" fn is_unsettled() -> bool {
    word::is_unsettled()
}

extern "C" fn interrupt_others() {
    word::interrupt_others();
}
