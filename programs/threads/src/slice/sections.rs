//! The critical sections of a thread, and the two bytes by which it asks for more time.

#![expect(unsafe_code, reason = "inline assembly on the C library's rseq area; system calls")]

use core::arch::asm;
use core::cell::Cell;
use core::sync::atomic::AtomicIsize;
use core::sync::atomic::Ordering::Relaxed;

use crate::loaded;
use crate::os;
use crate::word::registration;

/// Offset of the flags, 4 bytes that the kernel writes, in the area (`include/uapi/linux/rseq.h`).
const FLAGS: usize = 16;
/// Offset of the byte by which the thread asks. The next byte says that the kernel has granted.
const REQUEST: usize = 28;
/// The flag of a thread for which the extension is enabled: bit 5.
const ENABLED: u32 = 1 << 5;
/// The smallest registration with which the kernel enables the extension, in bytes. Up to 32 bytes are a registration
/// of the first version, in which these two bytes mean nothing.
const REGISTERED_BYTES_MIN: u32 = 33;

/// The error number of the kernel if it has no such extension. It has no name in C libraries (`include/linux/errno.h`).
const ENOTSUPP: i32 = 524;

/// The area has not been looked up yet.
const UNKNOWN: isize = 1;
/// The process has no time slice extension.
const NONE: isize = 2;
/// A thread looks the area up. Meanwhile no section asks.
const LOOKING: isize = 3;
/// Bits that are 0 in the distance of an area, which is aligned, but not in the values above.
const NOT_AN_AREA: isize = 3;

/// The area's distance from the thread pointer, or one of the values above.
static AREA: AtomicIsize = AtomicIsize::new(UNKNOWN);

/// The area of the calling thread: its distance from the thread pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Area(isize);

impl Area {
    /// # Safety
    /// At this distance from the thread pointer the calling thread has 32 bytes or more, which it and the kernel alone
    /// access, as long as the value is used.
    #[inline(always)]
    const unsafe fn at(distance: isize) -> Self {
        Area(distance)
    }

    /// Returns whether the kernel has the extension enabled for this thread.
    #[inline(always)]
    fn is_enabled(self) -> bool {
        let flags: u32;
        // SAFETY: by `at` the area belongs to this thread.
        unsafe {
            asm!(
                "mov {flags:e}, dword ptr fs:[{area} + {FLAGS}]",
                flags = lateout(reg) flags, area = in(reg) self.0, FLAGS = const FLAGS,
                options(nostack, preserves_flags),
            );
        }
        flags & ENABLED != 0
    }

    /// Returns both bytes: request, and granted as the high one.
    #[inline(always)]
    fn control(self) -> u16 {
        let control: u16;
        // SAFETY: as above.
        unsafe {
            asm!(
                "mov {control:x}, word ptr fs:[{area} + {REQUEST}]",
                control = lateout(reg) control, area = in(reg) self.0, REQUEST = const REQUEST,
                options(nostack, preserves_flags),
            );
        }
        control
    }

    #[inline(always)]
    fn is_granted(self) -> bool {
        self.control() & 0xff00 != 0
    }

    /// Asks (1) or withdraws (0). The compiler moves no memory access across it.
    #[inline(always)]
    fn set_request(self, request: u8) {
        // SAFETY: as above. The kernel accepts any value of this byte at any time.
        unsafe {
            asm!(
                "mov byte ptr fs:[{area} + {REQUEST}], {request}",
                request = in(reg_byte) request, area = in(reg) self.0, REQUEST = const REQUEST,
                options(nostack, preserves_flags),
            );
        }
    }
}

/// The two system calls.
trait Kernel {
    /// Enables the extension for the calling thread.
    ///
    /// # Errors
    /// The kernel's error number.
    fn enable(&self) -> Result<(), i32>;
    /// Gives the CPU back at the end of a section that was granted more time.
    ///
    /// # Errors
    /// The kernel's error number.
    fn give_back(&self) -> Result<(), i32>;
}

struct Linux;

impl Kernel for Linux {
    fn enable(&self) -> Result<(), i32> {
        // `include/uapi/linux/prctl.h`: PR_RSEQ_SLICE_EXTENSION, its SET, and ENABLE.
        const SLICE_EXTENSION: i32 = 79;
        const SET: u64 = 2;
        const ENABLE: u64 = 1;
        // SAFETY: no memory is passed.
        os::keep_errno(|| unsafe { libc::syscall(libc::SYS_prctl, SLICE_EXTENSION, SET, ENABLE, 0_u64, 0_u64) })
    }

    fn give_back(&self) -> Result<(), i32> {
        /// `rseq_slice_yield`, which returns 1, or 0 if the grant has ended before.
        const SLICE_YIELD: libc::c_long = 471;
        // SAFETY: no memory is passed.
        os::keep_errno(|| unsafe { libc::syscall(SLICE_YIELD) })
    }
}

/// What a thread knows of the extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It has not enabled the extension yet.
    Fresh,
    /// It has. Whether it still is enabled, the flag says.
    Enabled,
    /// A call has failed: **Off on any error**.
    Off,
}

/// The sections of one thread.
#[derive(Debug)]
struct Sections {
    /// The number of sections that have begun and not ended.
    depth: Cell<u32>,
    /// Whether the last request came from here and not from another library.
    asked: Cell<bool>,
    state: Cell<State>,
}

impl Sections {
    const fn new() -> Self {
        Sections {
            depth: Cell::new(0),
            asked: Cell::new(false),
            state: Cell::new(State::Fresh),
        }
    }

    /// Begins a section, before the operation that takes the lock.
    #[inline(always)]
    fn begin(&self, area: Area, kernel: &impl Kernel) {
        self.depth.set(self.depth.get().saturating_add(1));
        if self.is_on(kernel) {
            self.ask(area);
        }
    }

    #[inline(always)]
    fn is_on(&self, kernel: &impl Kernel) -> bool {
        match self.state.get() {
            State::Enabled => true,
            State::Fresh => self.enable(kernel).is_ok(),
            State::Off => false,
        }
    }

    #[cold]
    fn enable(&self, kernel: &impl Kernel) -> Result<(), i32> {
        let result = kernel.enable();
        self.state.set(if result.is_ok() { State::Enabled } else { State::Off });
        result
    }

    /// Asks, unless there is a request or a grant already: of this thread's sections or of another library.
    #[inline(always)]
    fn ask(&self, area: Area) {
        if area.is_enabled() && area.control() == 0 {
            self.asked.set(true);
            area.set_request(1);
        }
    }

    /// Ends a section, after the release of the lock.
    #[inline(always)]
    fn end(&self, area: Area, kernel: &impl Kernel) {
        // A section that has begun while the area was looked up was not counted.
        let depth = self.depth.get().saturating_sub(1);
        self.depth.set(depth);
        if depth == 0 && self.asked.replace(false) {
            area.set_request(0);
            // An interrupt may end the grant here. Then the call does nothing.
            if area.is_granted() {
                self.give_back(kernel);
            }
        }
    }

    #[cold]
    fn give_back(&self, kernel: &impl Kernel) {
        if kernel.give_back().is_err() {
            self.state.set(State::Off);
        }
    }

    /// Makes a system call without a request, and asks again if sections go on.
    fn outside<T>(&self, area: Area, call: impl FnOnce() -> T) -> T {
        let asked = self.asked.get();
        if asked {
            area.set_request(0);
        }
        let result = call();
        if asked && self.depth.get() > 0 && self.state.get() == State::Enabled {
            self.ask(area);
        }
        result
    }
}

thread_local! {
    static SECTIONS: Sections = const { Sections::new() };
}

/// Returns the calling thread's area, or `None` if this process has no time slice extension.
#[inline(always)]
fn area() -> Option<Area> {
    // ORDERING: Relaxed; the value is all there is to know.
    match AREA.load(Relaxed) {
        // First, so that it costs least.
        NONE => None,
        // SAFETY: `look` has stored the distance of the C library's area. It belongs to this thread as long as the
        // thread runs.
        area if area & NOT_AN_AREA == 0 => Some(unsafe { Area::at(area) }),
        _ => look(),
    }
}

#[cold]
fn look() -> Option<Area> {
    if !loaded::is_done() {
        return None;
    }
    // ORDERING: Relaxed, here and below; as in `area`.
    AREA.compare_exchange(UNKNOWN, LOOKING, Relaxed, Relaxed).ok()?;
    let usable = registration().filter(|&(distance, size)| size >= REGISTERED_BYTES_MIN && distance & NOT_AN_AREA == 0);
    // Refusals that hold for the whole process: the kernel is built or started without the extension, or does not have
    // the registrations of the second version. Any other refusal is this thread's.
    let lacking = || {
        let result = SECTIONS.with(|sections| sections.enable(&Linux));
        matches!(result, Err(libc::EINVAL | ENOTSUPP))
    };
    let found = usable.map_or(NONE, |(distance, _)| if lacking() { NONE } else { distance });
    AREA.store(found, Relaxed);
    // SAFETY: as in `area`.
    (found != NONE).then(|| unsafe { Area::at(found) })
}

#[inline(always)]
pub(super) fn begin() {
    if let Some(area) = area() {
        SECTIONS.with(|sections| sections.begin(area, &Linux));
    }
}

#[inline(always)]
pub(super) fn end() {
    if let Some(area) = area() {
        SECTIONS.with(|sections| sections.end(area, &Linux));
    }
}

/// Makes a system call without a request for more time: **Withdrawn for system calls**.
pub(crate) fn outside<T>(call: impl FnOnce() -> T) -> T {
    // ORDERING: Relaxed; as in `area`. If the area is not known, no section has asked.
    let area = AREA.load(Relaxed);
    if area & NOT_AN_AREA != 0 {
        return call();
    }
    // SAFETY: as in `area`.
    SECTIONS.with(|sections| sections.outside(unsafe { Area::at(area) }, call))
}

/// Returns whether critical sections of the calling thread can ask for more time: whether kernel and C library have the
/// time slice extension, and it is enabled for this thread.
pub fn has_slice_extension() -> bool {
    area().is_some_and(|area| SECTIONS.with(|sections| sections.is_on(&Linux)) && area.is_enabled())
}

#[cfg(test)]
mod tests;
