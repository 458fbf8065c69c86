//! The CPUs on which a thread may run.

#![expect(unsafe_code, reason = "CPU sets of the C library")]

use core::mem;

/// Keeps the calling thread on one of the CPUs that it may run on: number `index` of them, counted round and round.
/// Returns `false` if the system refuses.
pub fn pin(index: usize) -> bool {
    let Some(allowed) = allowed() else { return false };
    let Some(&cpu) = allowed.get(index % allowed.len().max(1)) else {
        return false;
    };
    let mut one = empty();
    // SAFETY: `cpu` came out of a set of the same size.
    unsafe { libc::CPU_SET(cpu, &mut one) };
    // SAFETY: the system reads `one`, of the size that is given.
    unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &one) == 0 }
}

fn allowed() -> Option<Vec<usize>> {
    let mut set = empty();
    // SAFETY: the system writes `set`, of the size that is given.
    let error = unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set) };
    // SAFETY: the numbers are within the set.
    let is_in = |&cpu: &usize| unsafe { libc::CPU_ISSET(cpu, &set) };
    (error == 0).then(|| (0..libc::CPU_SETSIZE as usize).filter(is_in).collect())
}

fn empty() -> libc::cpu_set_t {
    // SAFETY: a set is an array of bits: all zero is the empty one.
    unsafe { mem::zeroed() }
}
