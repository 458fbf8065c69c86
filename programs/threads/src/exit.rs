//! Gives back a thread's CPU number when the thread ends.
//!
//! A destructor of thread-specific data does so. glibc has room for the values of 32 keys in each thread, and allocates
//! the value of a later one, which a waiter must not do. If the library is loaded after so many keys were made, a
//! thread writes down its own number in the kernel (`gettid`) instead. Threads that look for a CPU number then look at
//! a few of these, and give back those whose thread does not exist any more.

#![expect(unsafe_code, reason = "thread-specific data of the C library")]

use core::ptr;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::ffi::c_void;

use holdfast_locks::CpuId;

use crate::os::keep_errno;
use crate::slot::{self, CPUS_MAX};

/// The number of keys for whose values glibc has room in each thread (`PTHREAD_KEY_2NDLEVEL_SIZE`).
const KEYS_WITH_ROOM: libc::pthread_key_t = if cfg!(target_env = "gnu") {
    32
} else {
    libc::pthread_key_t::MAX
};

/// Arranges that the number is given back after the calling thread has ended. Only the last call of a thread counts.
/// Returns `true`.
pub(crate) fn give_back_at_exit(cpu: CpuId) -> bool {
    if !set_value(cpu) {
        write_down(cpu);
    }
    true
}

/// Arranges that [`slot::give_back`] is called when the calling thread ends. Returns `false` if the C library has no
/// room for that.
fn set_value(cpu: CpuId) -> bool {
    // Never a null pointer: those have no destructor.
    let value = ptr::without_provenance::<c_void>(cpu.0 as usize + 1);
    // SAFETY: the key was made below and is never deleted.
    key().is_some_and(|key| key < KEYS_WITH_ROOM && unsafe { libc::pthread_setspecific(key, value) } == 0)
}

/// Returns the key of the destructor. It is made once, when the code is loaded: few keys are in use then. A child of a
/// process that forks meanwhile makes its own, since no thread waits for another one here.
pub(crate) fn key() -> Option<libc::pthread_key_t> {
    /// The key + 1, or 0 if there is none yet.
    static KEY: AtomicU64 = AtomicU64::new(0);
    // ORDERING: Acquire, here and below; pairs with the Release of the thread that made the key.
    if let Some(key) = KEY.load(Acquire).checked_sub(1) {
        return Some(key as libc::pthread_key_t);
    }
    let mut made = 0;
    // SAFETY: `made` is a local variable, and `at_exit` has the type of a destructor.
    if unsafe { libc::pthread_key_create(&mut made, Some(at_exit)) } != 0 {
        return None;
    }
    match KEY.compare_exchange(0, u64::from(made) + 1, AcqRel, Acquire) {
        Ok(_) => Some(made),
        Err(other) => {
            // SAFETY: the key was made above and is not in use.
            unsafe { libc::pthread_key_delete(made) };
            Some((other - 1) as libc::pthread_key_t)
        }
    }
}

/// For each CPU number that no destructor gives back the kernel's number of its thread, otherwise 0.
static OWNERS: [AtomicU32; CPUS_MAX as usize] = [const { AtomicU32::new(0) }; CPUS_MAX as usize];

/// Whether there has been such a number.
static HAS_OWNERS: AtomicBool = AtomicBool::new(false);

/// The number of owners at which a thread looks that needs a number.
const LOOKS: u32 = 8;

#[cold]
fn write_down(cpu: CpuId) {
    // SAFETY: the call has no arguments.
    let thread = unsafe { libc::syscall(libc::SYS_gettid) };
    // ORDERING: Relaxed, here and below but for the exchange; the values order nothing.
    OWNERS[cpu.0 as usize].store(thread as u32, Relaxed);
    HAS_OWNERS.store(true, Relaxed);
}

/// Gives back some numbers of threads that do not exist any more, if no destructor does so.
pub(crate) fn give_back_of_gone_threads() {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    if !HAS_OWNERS.load(Relaxed) {
        return;
    }
    let first = NEXT.fetch_add(LOOKS, Relaxed);
    for look in first..first.saturating_add(LOOKS) {
        let number = look % slot::end().max(1);
        let owner = &OWNERS[number as usize];
        let thread = owner.load(Relaxed);
        // ORDERING: Acquire; the thread's last accesses were before the kernel forgot it. Only one thread gives the
        // number back.
        if thread != 0 && is_gone(thread) && owner.compare_exchange(thread, 0, Acquire, Relaxed).is_ok() {
            slot::free(CpuId(number));
        }
    }
}

/// Returns whether no other thread of this process has the kernel's number `thread`.
fn is_gone(thread: u32) -> bool {
    // SAFETY: the call has no arguments.
    let own = unsafe { libc::syscall(libc::SYS_gettid) };
    // The calling thread has no CPU number: another one had its number in the kernel before.
    own as u32 == thread
        // SAFETY: signal 0 is not sent.
        || keep_errno(|| unsafe { libc::syscall(libc::SYS_tgkill, std::process::id(), thread, 0) }) == Err(libc::ESRCH)
}

/// Forgets all threads but the calling one, whose number in the child of a fork is another one.
pub(crate) fn forked(mine: Option<CpuId>) {
    for (owner, number) in OWNERS.iter().zip(0..).take(slot::end() as usize) {
        if owner.swap(0, Relaxed) != 0 && mine == Some(CpuId(number)) {
            write_down(CpuId(number));
        }
    }
}

extern "C" fn at_exit(value: *mut c_void) {
    slot::give_back(CpuId(value.addr() as u32 - 1));
}

#[cfg(all(test, not(miri)))]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_number_without_a_destructor_is_given_back_after_its_thread_has_ended_and_not_before() {
        slot::tests::with_numbers(|| {
            let ((took, number), (end, ends)) = (channel(), channel::<()>());
            let owner = thread::spawn(move || {
                let cpu = slot::tests::take_any();
                write_down(cpu);
                took.send(cpu).expect("the test waits");
                ends.recv().expect("the test goes on");
            });
            let cpu = number.recv().expect("the thread has taken a number");
            // Each call looks at some of the numbers.
            let look_at_all = || (0..slot::end()).for_each(|_| give_back_of_gone_threads());
            look_at_all();
            assert!(slot::tests::is_taken(cpu));
            end.send(()).expect("the thread waits");
            owner.join().expect("the thread ends");
            // The kernel may forget the thread a little later.
            let given_back = (0..10_000).any(|_| {
                look_at_all();
                thread::sleep(Duration::from_millis(1));
                !slot::tests::is_taken(cpu)
            });
            assert!(given_back);
        });
    }
}
