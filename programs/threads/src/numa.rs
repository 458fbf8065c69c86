//! The NUMA nodes on which threads run. They are hints, since threads move.

#![expect(unsafe_code, reason = "asks the kernel where the calling thread runs")]

use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU8, AtomicU32};
use std::ptr;

use holdfast_locks::CpuId;

use crate::slot::{self, CPUS_MAX};

/// The node on which each thread was when it last asked.
static NODES: [AtomicU32; CPUS_MAX as usize] = [const { AtomicU32::new(0) }; CPUS_MAX as usize];

/// Returns the NUMA node of the thread that is `cpu`: the current one for the calling thread, otherwise that of the
/// thread's last call.
pub(crate) fn node(cpu: CpuId) -> u32 {
    let node = &NODES[cpu.0 as usize];
    if is_numa() && cpu == slot::current() {
        // ORDERING: Relaxed, both; a hint.
        node.store(current_node(), Relaxed);
    }
    node.load(Relaxed)
}

/// Returns whether the machine has more than one NUMA node.
fn is_numa() -> bool {
    const UNKNOWN: u8 = 0;
    const YES: u8 = 1;
    const NO: u8 = 2;
    static ANSWER: AtomicU8 = AtomicU8::new(UNKNOWN);
    // ORDERING: Relaxed, both; each thread that finds no answer looks it up.
    match ANSWER.load(Relaxed) {
        UNKNOWN => {
            let several = has_several_nodes();
            ANSWER.store(if several { YES } else { NO }, Relaxed);
            several
        }
        answer => answer == YES,
    }
}

/// Reads the list of nodes, "0" or "0-1", by bare system calls: the functions of the C library are cancellation points,
/// and the caller waits for a lock.
fn has_several_nodes() -> bool {
    if cfg!(miri) {
        // Miri has no such system calls.
        return false;
    }
    let mut list = [0u8; 8];
    let path = c"/sys/devices/system/node/online".as_ptr();
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    // SAFETY: the path ends with 0.
    let file = unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path, flags, 0) };
    if file < 0 {
        return false;
    }
    // SAFETY: the kernel writes at most the length of `list`.
    let read = unsafe { libc::syscall(libc::SYS_read, file, list.as_mut_ptr(), list.len()) };
    // SAFETY: the file was opened above.
    unsafe { libc::syscall(libc::SYS_close, file) };
    read > 0 && list[..read as usize].trim_ascii() != b"0"
}

fn current_node() -> u32 {
    let mut node = 0u32;
    // SAFETY: the kernel writes `node`. It accepts null for values that are not wanted.
    let error = unsafe {
        libc::syscall(
            libc::SYS_getcpu,
            ptr::null_mut::<u32>(),
            &raw mut node,
            ptr::null_mut::<u32>(),
        )
    };
    if error == 0 { node } else { 0 }
}
