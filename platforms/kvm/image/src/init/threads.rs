//! The threads that call the kernel.

use core::arch::x86_64::_rdtsc;
use core::cell::UnsafeCell;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicU64};

use holdfast_protocol::{Hammer, KernelPath};

use crate::system::{Errno, dup_and_close, futex_wait, futex_wake};

const COUNT_MAX: usize = Hammer::THREADS_MAX as usize;
const STACK_BYTES: usize = 16 << 10;
/// Flags CLONE_VM, FS, FILES, SIGHAND, THREAD and SYSVSEM, as for the threads of a C program.
const CLONE_FLAGS: usize = 0x100 | 0x200 | 0x400 | 0x800 | 0x1_0000 | 0x4_0000;
const CLONE: usize = 56;

/// The counter of one thread, on cache lines of its own. So the threads contend for the kernel's locks only.
#[repr(align(128))]
struct Worker {
    calls: AtomicU64,
}

static WORKERS: [Worker; COUNT_MAX] = [const {
    Worker {
        calls: AtomicU64::new(0),
    }
}; COUNT_MAX];
static ARRIVED: AtomicU32 = AtomicU32::new(0);
static GO: AtomicU32 = AtomicU32::new(0);
/// The word of the `futex` calls. It never has the value that they expect.
static WORD: AtomicU32 = AtomicU32::new(0);

#[repr(C, align(16))]
struct Stack(UnsafeCell<[u8; STACK_BYTES]>);

// SAFETY: each stack is used by the one thread that is started on it.
unsafe impl Sync for Stack {}

static STACKS: [Stack; COUNT_MAX] = [const { Stack(UnsafeCell::new([0; STACK_BYTES])) }; COUNT_MAX];

/// The parameters of a thread, at the top of its stack.
#[repr(C, align(16))]
struct Start {
    index: usize,
    file: usize,
    path: usize,
    think_cycles: u64,
}

/// Starts all threads. `file` is the descriptor that they duplicate.
pub(crate) fn start(orders: &Hammer, file: usize) -> Result<(), Errno> {
    if orders.threads > Hammer::THREADS_MAX {
        return Err(Errno(11));
    }
    for (index, stack) in STACKS.iter().enumerate().take(orders.threads as usize) {
        let top = stack
            .0
            .get()
            .cast::<u8>()
            .wrapping_add(STACK_BYTES - size_of::<Start>())
            .cast::<Start>();
        let start = Start {
            index,
            file,
            path: matches!(orders.path, KernelPath::Futex).into(),
            think_cycles: orders.think_cycles,
        };
        // SAFETY: the address is within this stack, on which no thread runs yet. It is aligned, since stacks and
        // `Start` are aligned to 16.
        unsafe { top.write(start) };
        // SAFETY: the thread gets its own stack, with its `Start` on top.
        let made = unsafe { spawn(CLONE_FLAGS, top.expose_provenance()) };
        if made < 0 {
            return Err(Errno(-made));
        }
    }
    Ok(())
}

/// Creates a thread (`clone`) that calls [`work`] with the [`Start`] at `top`.
///
/// # Safety
/// `top` must be the address of a [`Start`] with an unused stack below it.
#[unsafe(naked)]
unsafe extern "sysv64" fn spawn(flags: usize, top: usize) -> isize {
    core::arch::naked_asm!(
        "xor edx, edx",
        "xor r10d, r10d",
        "xor r8d, r8d",
        "mov eax, {clone}",
        "syscall",
        "test rax, rax",
        "jnz 2f",
        "xor ebp, ebp",
        "mov rdi, rsp",
        "call {work}",
        "ud2",
        "2:",
        "ret",
        clone = const CLONE,
        work = sym work,
    )
}

extern "sysv64" fn work(start: &Start) -> ! {
    let worker = &WORKERS[start.index];
    // ORDERING: Release; pairs with the first thread's Acquire in `arrived`.
    ARRIVED.fetch_add(1, Release);
    // ORDERING: Acquire; pairs with the Release of `go`.
    while GO.load(Acquire) == 0 {
        futex_wait(&GO, 0);
    }
    let mut calls = 0;
    loop {
        match start.path {
            0 => dup_and_close(start.file),
            _ => futex_wait(&WORD, 1),
        }
        calls += 1;
        // ORDERING: Relaxed; the count publishes no other data.
        worker.calls.store(calls, Relaxed);
        think(start.think_cycles);
    }
}

fn think(cycles: u64) {
    if cycles > 0 {
        let begin = cycles_now();
        while cycles_now().wrapping_sub(begin) < cycles {}
    }
}

fn cycles_now() -> u64 {
    // SAFETY: every x86-64 CPU has the counter, and Linux lets processes read it.
    unsafe { _rdtsc() }
}

/// Returns the number of threads that are ready.
pub(crate) fn arrived() -> u32 {
    // ORDERING: Acquire; pairs with `work`.
    ARRIVED.load(Acquire)
}

/// Lets all threads begin.
pub(crate) fn go() {
    // ORDERING: Release; pairs with the Acquire in `work`.
    GO.store(1, Release);
    futex_wake(&GO);
}

/// Returns the number of calls of each thread so far.
pub(crate) fn calls() -> impl Iterator<Item = u64> {
    // ORDERING: Relaxed; see `work`.
    WORKERS.iter().map(|worker| worker.calls.load(Relaxed))
}
