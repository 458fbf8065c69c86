//! The calling thread as a CPU.

#![expect(unsafe_code, reason = "implements the platform traits")]

use core::marker::PhantomData;
use core::sync::atomic::{self, Ordering};
use std::sync::OnceLock;
use std::thread;
use std::time::Instant;

use holdfast_locks::thread::{SHARING, Thread, wait_until};
use holdfast_locks::{Budget, CpuId, Interrupts, NodeTable, Nodes, Numa, Paravirt, Platform, Sharing, WaitTable, Word};

use crate::slot::{self, CPUS_MAX};
use crate::word::CompareStore;
use crate::{numa, park, spin, word};

/// A 32-bit word that threads share.
#[derive(Debug)]
#[repr(transparent)]
pub struct ThreadWord(word::Word);

impl ThreadWord {
    /// The word of an unlocked lock.
    #[expect(
        clippy::declare_interior_mutable_const,
        reason = "each use makes a new word, as an initializer of statics and fields"
    )]
    pub const ZERO: ThreadWord = ThreadWord(word::Word::new(0));
}

impl Word<u32> for ThreadWord {
    fn new(value: u32) -> Self {
        ThreadWord(word::Word::new(value))
    }
}

/// A pointer-sized word that threads share.
#[derive(Debug)]
#[repr(transparent)]
pub struct ThreadAddress(word::Address);

impl Word<usize> for ThreadAddress {
    fn new(value: usize) -> Self {
        ThreadAddress(word::Address::new(value))
    }
}

/// The calling thread as a CPU.
///
/// The value has no content, so it costs nothing to make one for each call. A lock asks for the thread's number only
/// when it has to wait. Threads have no interrupts, so there is nothing to mask.
#[derive(Clone, Copy, Debug, Default)]
pub struct ThisThread(
    /// Makes the type `!Send` and `!Sync`: it stands for the thread that made it.
    PhantomData<*const ()>,
);

impl ThisThread {
    /// Returns the calling thread as a CPU.
    #[inline(always)]
    pub const fn new() -> Self {
        ThisThread(PhantomData)
    }
}

// SAFETY: the operations of `word` are atomic. Each has at least the ordering that it is given; on x86, by **Total
// store order**. `cpu` is the calling thread's number by **One thread per number**.
unsafe impl Platform for ThisThread {
    type Word = ThreadWord;
    type Address = ThreadAddress;

    #[inline]
    fn cpu(&self) -> CpuId {
        slot::current()
    }
    holdfast_locks::operations_of_words!(ThreadWord, ThreadAddress);

    #[inline(always)]
    fn compare_store_low8(&self, word: &ThreadWord, current: u8, new: u8, order: Ordering) -> Result<(), u8> {
        word.0.compare_store_low8(current, new, order)
    }
    #[inline(always)]
    fn compare_store_low16(&self, word: &ThreadWord, current: u16, new: u16, order: Ordering) -> Result<(), u16> {
        word.0.compare_store_low16(current, new, order)
    }
    fn settle(&self) -> bool {
        word::settle()
    }

    #[inline(always)]
    fn fence(&self, order: Ordering) {
        atomic::fence(order);
    }
    #[inline(always)]
    fn relax(&self) {
        core::hint::spin_loop();
    }
    fn wait_until(
        &self,
        word: &ThreadWord,
        budget: Budget,
        order: Ordering,
        until: impl Fn(u32) -> bool,
    ) -> Result<u32, u32> {
        wait_until(self, word, budget, order, until)
    }
}

impl Thread for ThisThread {
    fn give_way(&self) {
        thread::yield_now();
    }
    fn futex_wait(&self, word: &ThreadWord, value: u32) {
        park::wait(word, value);
    }
    fn futex_wake(&self, word: &ThreadWord) {
        park::wake(word);
    }
}

/// The tables that the threads of a process share. Made when a thread first waits, and never freed.
struct Tables {
    nodes: NodeTable<ThreadWord>,
    waiting: WaitTable<ThreadWord, ThreadAddress>,
}

fn tables() -> &'static Tables {
    static TABLES: OnceLock<Tables> = OnceLock::new();
    TABLES.get_or_init(|| Tables {
        nodes: NodeTable::new(CPUS_MAX as usize),
        waiting: WaitTable::new(CPUS_MAX as usize),
    })
}

// SAFETY: there is one table, with nodes for each number below `CPUS_MAX`. `slot` gives out no other numbers.
unsafe impl Nodes for ThisThread {
    #[inline]
    fn nodes(&self) -> &NodeTable<ThreadWord> {
        &tables().nodes
    }
}

impl Numa for ThisThread {
    fn numa_node(&self, cpu: CpuId) -> u32 {
        numa::node(cpu)
    }
    fn monotonic_ns(&self) -> u64 {
        now_ns()
    }
}

// SAFETY: a thread has no interrupts, so no handler runs. Signal handlers must not use these locks, as with any mutex.
unsafe impl Interrupts for ThisThread {
    #[inline(always)]
    fn irq_save(&self) -> bool {
        true
    }
    #[inline(always)]
    fn irq_restore(&self, _enabled: bool) {}
    #[inline(always)]
    fn in_nmi(&self) -> bool {
        false
    }
}

// SAFETY: `park` keeps **Sticky kick**; there is one table.
unsafe impl Paravirt for ThisThread {
    type Recorder = ();

    fn halt_masked(&self) {
        spin::end_streak();
        park::halt(self, slot::current());
    }
    fn halt_unmasked(&self) {
        self.halt_masked();
    }
    fn kick(&self, cpu: CpuId) {
        park::kick(self, cpu);
    }
    /// Returns `false`: the kernel does not report which threads are preempted.
    #[inline(always)]
    fn is_preempted(&self, _cpu: CpuId) -> bool {
        false
    }
    #[inline]
    fn waiting(&self) -> &WaitTable<ThreadWord, ThreadAddress> {
        &tables().waiting
    }
    #[inline]
    fn spin_threshold(&self) -> Budget {
        spin::spin_threshold()
    }
    #[inline(always)]
    fn sharing(&self) -> Sharing {
        SHARING
    }
    #[inline]
    fn overtook(&self) -> bool {
        spin::overtook()
    }
    fn nap(&self) {
        spin::nap();
    }
    fn now_ns(&self) -> u64 {
        now_ns()
    }
    #[inline(always)]
    fn recorder(&self) -> &() {
        &()
    }
}

pub(crate) fn now_ns() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}
