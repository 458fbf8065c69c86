//! The NUMA nodes on which threads run. They are hints, since threads move.

#![expect(unsafe_code, reason = "asks the kernel where the calling thread runs")]

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;
use std::ptr;
use std::sync::OnceLock;

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
    static ANSWER: OnceLock<bool> = OnceLock::new();
    // The file holds a list of ranges, "0" or "0-1".
    *ANSWER
        .get_or_init(|| std::fs::read_to_string("/sys/devices/system/node/online").is_ok_and(|list| list.trim() != "0"))
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
