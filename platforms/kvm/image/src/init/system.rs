//! System calls of Linux on x86-64 (arch/x86/entry/syscalls/syscall_64.tbl).

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::arch::asm;
use core::ffi::CStr;
use core::ptr::with_exposed_provenance;
use core::sync::atomic::AtomicU32;

use holdfast_protocol::layout::DOORBELL;

use crate::messages::Shared;

const READ: usize = 0;
const WRITE: usize = 1;
const OPEN: usize = 2;
const CLOSE: usize = 3;
const MMAP: usize = 9;
const PIPE: usize = 22;
const DUP: usize = 32;
const NANOSLEEP: usize = 35;
const SOCKETPAIR: usize = 53;
const FORK: usize = 57;
const UNAME: usize = 63;
const SYSLOG: usize = 103;
const IOPERM: usize = 173;
const FUTEX: usize = 202;
const SCHED_GETAFFINITY: usize = 204;
const CLOCK_GETTIME: usize = 228;
const EXIT_GROUP: usize = 231;

const CLOCK_MONOTONIC: usize = 1;
const SYSLOG_ACTION_READ_ALL: usize = 3;
const FUTEX_WAIT: usize = 0;
const FUTEX_WAKE: usize = 1;
const FUTEX_WAIT_PRIVATE: usize = 128;
const FUTEX_WAKE_PRIVATE: usize = 129;
const AF_UNIX: usize = 1;
const SOCK_STREAM: usize = 1;
const PROT_READ_WRITE: usize = 3;
const MAP_SHARED_ANONYMOUS: usize = 0x21;
const FILE_BYTES_MAX: usize = 4096;
const LOG_BYTES_MAX: usize = 256 << 10;
const SECOND_NS: u64 = 1_000_000_000;
const LARGEST_ERROR: isize = 4095;

/// The error number of a failed system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) isize);

/// Executes a system call.
///
/// # Safety
/// The caller must be allowed to read and write the memory that the call reads and writes through its arguments.
unsafe fn call(number: usize, arguments: [usize; 5]) -> Result<usize, Errno> {
    let result: isize;
    // The sixth argument of the calls here is 0 where they have one.
    // SAFETY: this function's contract covers memory. The instruction itself changes RCX and R11 only.
    unsafe {
        asm!(
            "syscall",
            inout("rax") number => result,
            in("rdi") arguments[0],
            in("rsi") arguments[1],
            in("rdx") arguments[2],
            in("r10") arguments[3],
            in("r8") arguments[4],
            in("r9") 0,
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

/// Allows the calling thread to use the VMM's I/O ports.
pub(crate) fn use_ports() -> Result<(), Errno> {
    // SAFETY: the call accesses no memory.
    unsafe { call(IOPERM, [DOORBELL.into(), 16, 1, 0, 0]) }.map(drop)
}

/// Opens and reads a file. Returns its descriptor, which stays open, and its content.
pub(crate) fn read_file(path: &CStr) -> Result<(usize, Vec<u8>), Errno> {
    // SAFETY: the call reads the path up to its terminator.
    let file = unsafe { call(OPEN, [path.as_ptr().addr(), 0, 0, 0, 0]) }?;
    let mut content = vec![0; FILE_BYTES_MAX];
    // SAFETY: the call writes to `content` up to the given length.
    let bytes = unsafe { call(READ, [file, content.as_mut_ptr().addr(), content.len(), 0, 0]) }?;
    content.truncate(bytes);
    Ok((file, content))
}

/// Returns the kernel's log since its start.
pub(crate) fn kernel_log() -> Result<Vec<u8>, Errno> {
    let mut log = vec![0; LOG_BYTES_MAX];
    // SAFETY: the call writes to `log` up to the given length.
    let bytes = unsafe {
        call(
            SYSLOG,
            [SYSLOG_ACTION_READ_ALL, log.as_mut_ptr().addr(), log.len(), 0, 0],
        )
    }?;
    log.truncate(bytes);
    Ok(log)
}

/// Returns the kernel's release.
pub(crate) fn kernel_release() -> Result<String, Errno> {
    // The call returns six names of 65 bytes. The release is the third.
    const NAME: usize = 65;
    let mut names = [0u8; 6 * NAME];
    // SAFETY: the call writes six names.
    unsafe { call(UNAME, [names.as_mut_ptr().addr(), 0, 0, 0, 0]) }?;
    let release = names[2 * NAME..3 * NAME].split(|byte| *byte == 0).next();
    Ok(String::from_utf8_lossy(release.unwrap_or_default()).into_owned())
}

/// Returns the number of CPUs that this process may use.
pub(crate) fn cpus() -> Result<u32, Errno> {
    let mut set = [0u64; 128];
    // SAFETY: the call writes to `set` up to the given length.
    unsafe { call(SCHED_GETAFFINITY, [0, size_of_val(&set), set.as_mut_ptr().addr(), 0, 0]) }?;
    Ok(set.iter().map(|word| word.count_ones()).sum())
}

/// Returns the nanoseconds of the monotonic clock.
pub(crate) fn now_ns() -> u64 {
    let mut now = [0u64; 2];
    // SAFETY: the call writes seconds and nanoseconds. It cannot fail, since Linux always has this clock.
    let _ = unsafe { call(CLOCK_GETTIME, [CLOCK_MONOTONIC, now.as_mut_ptr().addr(), 0, 0, 0]) };
    now[0].saturating_mul(SECOND_NS).saturating_add(now[1])
}

/// Sleeps for `ns` nanoseconds.
pub(crate) fn sleep(ns: u64) {
    let span = [ns / SECOND_NS, ns % SECOND_NS];
    // SAFETY: the call reads seconds and nanoseconds.
    let _ = unsafe { call(NANOSLEEP, [span.as_ptr().addr(), 0, 0, 0, 0]) };
}

/// Duplicates `file` and closes the duplicate.
pub(crate) fn dup_and_close(file: usize) {
    // SAFETY: the call accesses no memory.
    if let Ok(duplicate) = unsafe { call(DUP, [file, 0, 0, 0, 0]) } {
        // SAFETY: the call accesses no memory, and nothing else uses the duplicate.
        let _ = unsafe { call(CLOSE, [duplicate, 0, 0, 0, 0]) };
    }
}

/// Waits on `word` if its value is `value`.
pub(crate) fn futex_wait(word: &AtomicU32, value: u32) {
    // SAFETY: the call reads the word.
    let _ = unsafe { call(FUTEX, [word.as_ptr().addr(), FUTEX_WAIT_PRIVATE, value as usize, 0, 0]) };
}

/// Wakes all threads that wait on `word`.
pub(crate) fn futex_wake(word: &AtomicU32) {
    // SAFETY: the call uses the word's address only.
    let _ = unsafe {
        call(
            FUTEX,
            [word.as_ptr().addr(), FUTEX_WAKE_PRIVATE, i32::MAX as usize, 0, 0],
        )
    };
}

/// Waits on `word`, in memory that processes share, if its value is `value`.
pub(crate) fn shared_futex_wait(word: &AtomicU32, value: u32) {
    // SAFETY: the call reads the word.
    let _ = unsafe { call(FUTEX, [word.as_ptr().addr(), FUTEX_WAIT, value as usize, 0, 0]) };
}

/// Wakes all processes that wait on `word`.
pub(crate) fn shared_futex_wake(word: &AtomicU32) {
    // SAFETY: the call uses the word's address only.
    let _ = unsafe { call(FUTEX, [word.as_ptr().addr(), FUTEX_WAKE, i32::MAX as usize, 0, 0]) };
}

/// Maps memory that this process shares with those that it starts.
pub(crate) fn map_shared() -> Result<&'static Shared, Errno> {
    let flags = MAP_SHARED_ANONYMOUS;
    // The fifth argument is the descriptor, -1: none.
    // SAFETY: the call makes a new mapping.
    let address = unsafe { call(MMAP, [0, size_of::<Shared>(), PROT_READ_WRITE, flags, usize::MAX]) }?;
    // SAFETY: the mapping is aligned to a page, has at least the size of `Shared`, is never removed and is zeroed. Zero
    // is a valid value of its atomic integers. All accesses are atomic.
    Ok(unsafe { &*with_exposed_provenance(address) })
}

/// Starts a process. Returns 0 in it, and its ID in the caller.
///
/// The process has a copy of this one's memory, so the caller must be its only thread.
pub(crate) fn fork() -> Result<usize, Errno> {
    // SAFETY: the call accesses no memory. The new process goes on with a copy of this stack.
    unsafe { call(FORK, [0; 5]) }
}

/// Ends the calling process.
pub(crate) fn exit() -> ! {
    loop {
        // SAFETY: the call does not return.
        let _ = unsafe { call(EXIT_GROUP, [0; 5]) };
    }
}

/// Two connected descriptors.
pub(crate) struct Ends {
    pub(crate) read: usize,
    pub(crate) write: usize,
}

impl Ends {
    /// Opens a pair of local stream sockets, or a pipe.
    pub(crate) fn open(sockets: bool) -> Result<Ends, Errno> {
        let mut ends = [0u32; 2];
        let (number, arguments) = match sockets {
            true => (
                SOCKETPAIR,
                [AF_UNIX, SOCK_STREAM, 0, ends.as_mut_ptr().expose_provenance(), 0],
            ),
            false => (PIPE, [ends.as_mut_ptr().expose_provenance(), 0, 0, 0, 0]),
        };
        // SAFETY: both calls write two descriptors to `ends`.
        unsafe { call(number, arguments) }?;
        Ok(Ends {
            read: ends[0] as usize,
            write: ends[1] as usize,
        })
    }
}

/// Closes `file`.
pub(crate) fn close(file: usize) {
    // SAFETY: the call accesses no memory.
    let _ = unsafe { call(CLOSE, [file, 0, 0, 0, 0]) };
}

/// Writes `bytes` to `file`, whole if that is a pipe or a socket. Ends the process if that fails.
pub(crate) fn write(file: usize, bytes: &[u8]) {
    // SAFETY: the call reads `bytes`.
    let written = unsafe { call(WRITE, [file, bytes.as_ptr().expose_provenance(), bytes.len(), 0, 0]) };
    if written != Ok(bytes.len()) {
        exit();
    }
}

/// Reads from `file`. Returns the number of bytes, at least 1. Ends the process if there are none.
pub(crate) fn read(file: usize, bytes: &mut [u8]) -> usize {
    // SAFETY: the call writes to `bytes` up to its length.
    match unsafe { call(READ, [file, bytes.as_mut_ptr().expose_provenance(), bytes.len(), 0, 0]) } {
        Ok(read) if read > 0 => read,
        _ => exit(),
    }
}
