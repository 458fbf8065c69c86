//! System calls of Linux on x86-64 (arch/x86/entry/syscalls/syscall_64.tbl).

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::arch::asm;
use core::ffi::CStr;
use core::sync::atomic::AtomicU32;

use holdfast_protocol::layout::DOORBELL;

const READ: usize = 0;
const OPEN: usize = 2;
const CLOSE: usize = 3;
const DUP: usize = 32;
const NANOSLEEP: usize = 35;
const UNAME: usize = 63;
const SYSLOG: usize = 103;
const IOPERM: usize = 173;
const FUTEX: usize = 202;
const SCHED_GETAFFINITY: usize = 204;
const CLOCK_GETTIME: usize = 228;

const CLOCK_MONOTONIC: usize = 1;
const SYSLOG_ACTION_READ_ALL: usize = 3;
const FUTEX_WAIT_PRIVATE: usize = 128;
const FUTEX_WAKE_PRIVATE: usize = 129;
const FILE_BYTES_MAX: usize = 4096;
const LOG_BYTES_MAX: usize = 256 << 10;
const SECOND_NS: u64 = 1_000_000_000;
const LARGEST_ERROR: isize = 4095;

/// What a system call was refused with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) isize);

/// A system call.
///
/// # Safety
/// What the call reads and writes through its arguments must be the caller's to be read and written.
pub(crate) unsafe fn call(number: usize, arguments: [usize; 5]) -> Result<usize, Errno> {
    let result: isize;
    // SAFETY: by this function's own contract; the instruction itself changes RCX and R11 only.
    unsafe {
        asm!(
            "syscall",
            inout("rax") number => result,
            in("rdi") arguments[0],
            in("rsi") arguments[1],
            in("rdx") arguments[2],
            in("r10") arguments[3],
            in("r8") arguments[4],
            out("rcx") _,
            out("r11") _,
            options(nostack),
        );
    }
    if (-LARGEST_ERROR..0).contains(&result) {
        return Err(Errno(-result));
    }
    Ok(result as usize)
}

/// Lets the calling thread use the VMM's ports.
pub(crate) fn use_ports() -> Result<(), Errno> {
    // SAFETY: touches no memory.
    unsafe { call(IOPERM, [DOORBELL.into(), 16, 1, 0, 0]) }.map(drop)
}

/// A descriptor of the file, which stays open, and what is in it.
pub(crate) fn read_file(path: &CStr) -> Result<(usize, Vec<u8>), Errno> {
    // SAFETY: reads the path up to its end.
    let file = unsafe { call(OPEN, [path.as_ptr().addr(), 0, 0, 0, 0]) }?;
    let mut content = vec![0; FILE_BYTES_MAX];
    // SAFETY: writes to `content`, of whose length it is told.
    let bytes = unsafe { call(READ, [file, content.as_mut_ptr().addr(), content.len(), 0, 0]) }?;
    content.truncate(bytes);
    Ok((file, content))
}

/// What the kernel has printed since it came up.
pub(crate) fn kernel_log() -> Result<Vec<u8>, Errno> {
    let mut log = vec![0; LOG_BYTES_MAX];
    // SAFETY: writes to `log`, of whose length it is told.
    let bytes = unsafe {
        call(
            SYSLOG,
            [SYSLOG_ACTION_READ_ALL, log.as_mut_ptr().addr(), log.len(), 0, 0],
        )
    }?;
    log.truncate(bytes);
    Ok(log)
}

/// The kernel's release.
pub(crate) fn kernel_release() -> Result<String, Errno> {
    // Six names of 65 bytes; the release is the third.
    const NAME: usize = 65;
    let mut names = [0u8; 6 * NAME];
    // SAFETY: writes six names.
    unsafe { call(UNAME, [names.as_mut_ptr().addr(), 0, 0, 0, 0]) }?;
    let release = names[2 * NAME..3 * NAME].split(|byte| *byte == 0).next();
    Ok(String::from_utf8_lossy(release.unwrap_or_default()).into_owned())
}

/// CPUs that this process may use.
pub(crate) fn cpus() -> Result<u32, Errno> {
    let mut set = [0u64; 128];
    // SAFETY: writes to `set`, of whose length it is told.
    unsafe { call(SCHED_GETAFFINITY, [0, size_of_val(&set), set.as_mut_ptr().addr(), 0, 0]) }?;
    Ok(set.iter().map(|word| word.count_ones()).sum())
}

/// Nanoseconds of the monotonic clock.
pub(crate) fn now_ns() -> u64 {
    let mut now = [0u64; 2];
    // SAFETY: writes seconds and nanoseconds. It cannot be refused: the clock is there.
    let _ = unsafe { call(CLOCK_GETTIME, [CLOCK_MONOTONIC, now.as_mut_ptr().addr(), 0, 0, 0]) };
    now[0].saturating_mul(SECOND_NS).saturating_add(now[1])
}

/// Sleeps for `ns` nanoseconds.
pub(crate) fn sleep(ns: u64) {
    let span = [ns / SECOND_NS, ns % SECOND_NS];
    // SAFETY: reads seconds and nanoseconds.
    let _ = unsafe { call(NANOSLEEP, [span.as_ptr().addr(), 0, 0, 0, 0]) };
}

/// Duplicates `file` and closes the duplicate.
pub(crate) fn dup_and_close(file: usize) {
    // SAFETY: touches no memory.
    if let Ok(duplicate) = unsafe { call(DUP, [file, 0, 0, 0, 0]) } {
        // SAFETY: touches no memory, and nobody else knows the duplicate.
        let _ = unsafe { call(CLOSE, [duplicate, 0, 0, 0, 0]) };
    }
}

/// Waits while `word` is `value`.
pub(crate) fn futex_wait(word: &AtomicU32, value: u32) {
    // SAFETY: reads the word.
    let _ = unsafe { call(FUTEX, [word.as_ptr().addr(), FUTEX_WAIT_PRIVATE, value as usize, 0, 0]) };
}

/// Wakes all that wait for `word`.
pub(crate) fn futex_wake(word: &AtomicU32) {
    // SAFETY: takes the word's address only.
    let _ = unsafe {
        call(
            FUTEX,
            [word.as_ptr().addr(), FUTEX_WAKE_PRIVATE, i32::MAX as usize, 0, 0],
        )
    };
}
