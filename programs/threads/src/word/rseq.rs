//! Compare, then store, without a locked instruction: restartable sequences (`rseq(2)`).
//!
//! A locked instruction takes most of the time of an uncontended unlock. It is needed only if a waiter announces itself
//! in the word between the unlocker's compare and its store, which is rare. So the unlocker compares and stores in a
//! *restartable sequence*, which the kernel restarts if it interrupts the thread. A waiter that has announced itself
//! lets the kernel interrupt all running threads of the process: [`settle`], by `membarrier(2)`, since Linux 5.10.
//! After that each sequence either has stored or compares again.
//!
//! **Changeover**: where threads sleep often, that costs more than locked instructions. Then all unlocks of the process
//! are exchanges for a while; when, says [`Changeover`]. A waiter sets [`LEAVING`]: from then on no sequence begins
//! that stores. It settles once more, so that those under way have ended or look again, and sets [`EXCHANGING`]: from
//! then on no waiter needs to settle. Each sequence looks for both bits inside, before it compares.
//!
//! The C library registers each thread's area with the kernel (glibc since 2.35). If it does not, or if the kernel
//! refuses, unlockers use the locked instruction. Threads that use either way may share a lock.
//!
//! **Other users**: a thread has one area, and other libraries announce their sequences in it, too. So a sequence here
//! begins by comparing the announcement with its own, and announces itself again if it differs. Only that field is
//! written. What the kernel promises is the same for both kinds of registration, the one of 32 bytes and the optimized
//! one (Linux 7.0 and later, `Documentation/userspace-api/rseq.rst`): a sequence is aborted if its thread is scheduled
//! out or gets a signal inside it, and on all running threads by `membarrier(2)`. The optimized one leaves the
//! announcement in place more often, which saves announcing it again.
//!
//! **Late refusal**: a process may give up `membarrier(2)` after its threads have begun to contend (seccomp). From then
//! on unlockers use the locked instruction. But one that has compared just before may still store, after any time, and
//! the waiter cannot know when. So a waiter that has announced itself then bounds its halts, and looks again after each
//! ([`Platform::is_unsettled`](holdfast_locks::Platform::is_unsettled)).

#![expect(unsafe_code, reason = "inline assembly on the C library's rseq area; system calls")]

use core::arch::asm;
use core::ffi::CStr;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use core::sync::atomic::{AtomicBool, AtomicIsize, AtomicU32};

use holdfast_locks::thread::{Batch, Changeover};

use crate::loaded::stays_loaded;
use crate::slice;

mod sequence;

/// The area has not been looked up yet: the code is still being loaded. Unlocks are exchanges.
const UNKNOWN: isize = 1;
/// The process has no restartable sequences.
const NONE: isize = 2;
/// The bits of the values above.
const NO_AREA: isize = 3;
/// No sequence begins any more: **Changeover**. A bit next to the distance.
const LEAVING: isize = 4;
/// No sequence is under way, and no sequence begins: **Changeover**. A bit next to the distance.
const EXCHANGING: isize = 8;
/// Bits that are 0 in the distance of an area, which is aligned to 32 bytes, and while sequences are in use.
const NOT_IN_USE: isize = NO_AREA | LEAVING | EXCHANGING;

/// The area's distance from the thread pointer, with the bits above, or one of the values above.
static AREA: AtomicIsize = AtomicIsize::new(UNKNOWN);

static CHANGEOVER: Changeover = Changeover::new();

thread_local! {
    /// It has no destructor, so that it also works in destructors.
    static EXCHANGES: Batch = const { Batch::new() };
}

/// The size in bytes of the first version of the area, which has all fields used here.
const AREA_BYTES_MIN: u32 = 20;

/// Returns [`AREA`].
fn state() -> isize {
    // ORDERING: Acquire; pairs with the Release in `look`, after which the process is registered for `settle`, and with
    // the one in `leave`: what sequences have stored before is visible.
    AREA.load(Acquire)
}

/// Looks the area up. Called once, when the code is loaded. Without sequences of its `own`, unlocks of this copy of the
/// code are exchanges: the changeover of another copy does not reach it.
#[cold]
pub(crate) fn look(own: bool) {
    // A waiter that has found no area has announced itself before, by a locked instruction. So a thread that finds the
    // area afterwards compares with the announcement: by **Total store order** the waiter need not settle.
    // ORDERING: SeqCst; includes the Release that pairs with the Acquire in `state`.
    AREA.store(find(own).unwrap_or(NONE), SeqCst);
}

/// Each area's distance from the thread pointer and its size, as the C library says. The size is 0 if the C library has
/// not registered the areas, or has not been asked yet.
static REGISTRATION: (AtomicIsize, AtomicU32) = (AtomicIsize::new(0), AtomicU32::new(0));

/// Returns the distance of each thread's area from its thread pointer, and the area's size in bytes, or `None` if there
/// are no areas or the C library has not been asked yet.
pub(crate) fn registration() -> Option<(isize, u32)> {
    let (offset, size) = &REGISTRATION;
    // ORDERING: Acquire; pairs with the Release in `ask`.
    let size = size.load(Acquire);
    // ORDERING: Relaxed; published with the size.
    (size != 0).then(|| (offset.load(Relaxed), size))
}

/// Asks the C library for the registration. glibc has the symbols since 2.35. The dynamic linker allocates where there
/// is no such symbol, so no other C library is asked.
fn ask() -> Option<()> {
    if !is_glibc_since(35) {
        return None;
    }
    let (offset, size) = (symbol(c"__rseq_offset")?, symbol(c"__rseq_size")?);
    // SAFETY: by glibc's manual the symbol is a constant `ptrdiff_t`.
    let offset = unsafe { *offset.cast::<isize>() };
    // SAFETY: by glibc's manual the symbol is a constant `unsigned int`.
    let size = unsafe { *size.cast::<u32>() };
    // ORDERING: Relaxed; published with the size.
    REGISTRATION.0.store(offset, Relaxed);
    // ORDERING: Release; pairs with the Acquire in `registration`.
    REGISTRATION.1.store(size, Release);
    Some(())
}

/// Returns whether the C library is glibc 2 with this minor version or a later one.
#[cfg(target_env = "gnu")]
fn is_glibc_since(minor: u32) -> bool {
    // SAFETY: the function has no preconditions.
    let version = unsafe { libc::gnu_get_libc_version() };
    // SAFETY: the function returns a constant text that ends with 0.
    let version = unsafe { CStr::from_ptr(version) };
    let version = version.to_str().ok().and_then(|version| version.strip_prefix("2."));
    let found = version.and_then(|rest| rest.split('.').next()?.parse::<u32>().ok());
    found.is_some_and(|found| found >= minor)
}

#[cfg(not(target_env = "gnu"))]
fn is_glibc_since(_minor: u32) -> bool {
    false
}

fn find(own: bool) -> Option<isize> {
    ask()?;
    let (offset, size) = registration()?;
    let usable = size >= AREA_BYTES_MIN && offset & NOT_IN_USE == 0;
    (usable && own && stays_loaded() && membarrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_RSEQ))
        .then_some(offset)
}

fn symbol(name: &CStr) -> Option<*const libc::c_void> {
    // SAFETY: `name` ends with 0.
    let symbol = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!symbol.is_null()).then_some(symbol.cast_const())
}

fn membarrier(command: i32) -> bool {
    // SAFETY: no memory is passed.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

/// Returns whether unlocks use restartable sequences in this process, at least while few threads sleep.
pub fn has_restartable_sequences() -> bool {
    state() & NO_AREA == 0
}

/// Whether the kernel has refused `membarrier(2)` although it had been registered. It stays set.
static REFUSED: AtomicBool = AtomicBool::new(false);

/// Returns whether [`settle`] cannot wait any more: **Late refusal**.
pub(crate) fn is_unsettled() -> bool {
    // ORDERING: Relaxed. A thread whose own `settle` was refused sees its own store. A thread whose `settle` found no
    // area has acquired the NONE in `state`, and with it this. A thread whose `settle` was not refused needs no look.
    REFUSED.load(Relaxed)
}

/// Waits until each compare-store that another thread has begun either has stored or will compare again; but see
/// [`is_unsettled`]. Returns `false` if there were never restartable sequences, so nothing to wait for.
pub(crate) fn settle() -> bool {
    let state = state();
    if state & NO_AREA != 0 {
        return is_unsettled();
    }
    if state & EXCHANGING != 0 {
        CHANGEOVER.spares();
    } else if state & LEAVING == 0 && CHANGEOVER.settles() {
        leave(state);
    } else {
        interrupt();
    }
    true
}

/// Makes unlocks exchanges, and waits for the compare-stores that other threads have begun: **Changeover**. `state` was
/// read from [`AREA`] while sequences were in use.
fn leave(state: isize) {
    // ORDERING: Relaxed; the interrupt makes it visible to all sequences, also to those that begin later.
    let leaves = AREA.compare_exchange(state, state | LEAVING, Relaxed, Relaxed).is_ok();
    if interrupt() && leaves {
        // Fails if another thread has found since then that the kernel refuses.
        // ORDERING: Release; pairs with the Acquire in `state`.
        let _ = AREA.compare_exchange(state | LEAVING, state | EXCHANGING, Release, Relaxed);
    }
}

/// Lets unlocks be compare-stores again: **Changeover**.
///
/// A waiter that has found [`EXCHANGING`] has announced itself before. So a sequence that does not find it any more
/// compares with the announcement: by **Total store order** the waiter need not settle.
fn return_to_sequences() {
    // ORDERING: Relaxed; a locked instruction is SeqCst anyway on x86.
    AREA.fetch_and(!EXCHANGING, Relaxed);
}

/// Lets the child of a process that forked use sequences. It has only the calling thread, which is in none, while the
/// thread that was to end the changeover may be missing.
pub(crate) fn forked() {
    // ORDERING: Relaxed; only this thread exists.
    AREA.fetch_and(!(LEAVING | EXCHANGING), Relaxed);
}

/// Records that an unlock is an exchange.
#[cold]
fn exchanges() {
    if EXCHANGES.with(|thread| CHANGEOVER.exchanges(thread)) {
        return_to_sequences();
    }
}

/// Interrupts all other running threads of the process, if it has restartable sequences.
pub(crate) fn interrupt_others() {
    if has_restartable_sequences() {
        interrupt();
    }
}

/// Interrupts all running threads of the process. Returns `false` if the kernel refuses, now and forever.
fn interrupt() -> bool {
    let all = || slice::outside(|| membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ));
    // After fork a child keeps its parent's registration in the kernels that were tested. `membarrier(2)` does not
    // promise it, so a failure leads to a new registration.
    let again = || membarrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_RSEQ) && all();
    let done = all() || again();
    if !done {
        refused();
    }
    done
}

#[cold]
fn refused() {
    // ORDERING: Relaxed; published by the store that follows.
    REFUSED.store(true, Relaxed);
    // ORDERING: Release; pairs with the Acquire in `state`: a thread that finds no area, and so does not call the
    // kernel, also finds the refusal, and bounds its halts.
    AREA.store(NONE, Release);
}

/// Withdraws the announcement of the calling thread, which is about to give its CPU up. Otherwise the kernel would read
/// the sequence's descriptor and code to find that the thread is not in it, each time that it schedules the thread.
///
/// The next sequence announces itself again, as it would have to anyway: the kernel clears the announcement then.
#[inline]
pub(crate) fn withdraw() {
    // ORDERING: Relaxed; the area's distance is all there is to know.
    let area = AREA.load(Relaxed);
    if area & NOT_IN_USE == 0 {
        // SAFETY: the area belongs to this thread, which is in no sequence. The kernel accepts 0 at any time.
        unsafe {
            asm!("mov qword ptr fs:[{area} + 8], 0", area = in(reg) area, options(nostack, preserves_flags));
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
