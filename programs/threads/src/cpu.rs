//! The calling thread as a CPU.

#![expect(unsafe_code, reason = "implements the platform traits")]

use core::cell::Cell;
use core::marker::PhantomData;
use core::sync::atomic::{self, Ordering};
use std::thread;
use std::time::Duration;

use holdfast_locks::thread::{Parker, SHARING, Thread, wait_until};
use holdfast_locks::{
    Budget, CpuId, CpuNodes, HaltedCpu, Interrupts, Node, NodeTable, Nodes, Paravirt, Platform, QueueHead, Sharing,
    WaitTable, Word,
};

#[cfg(target_os = "linux")]
use crate::fork;
use crate::process::process;
use crate::slot::{self, CPUS_MAX};
use crate::word::CompareStore;
use crate::{allowed, os, slice, spin, word};

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

impl ThreadAddress {
    /// The word that holds 0.
    #[expect(
        clippy::declare_interior_mutable_const,
        reason = "each use makes a new word, as an initializer of statics and fields"
    )]
    pub const ZERO: ThreadAddress = ThreadAddress(word::Address::new(0));
}

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
        let needed = (process().settle)();
        if self.is_unsettled() {
            bound_next_halt(GLANCE);
        }
        needed
    }
    fn is_unsettled(&self) -> bool {
        (process().is_unsettled)()
    }
    #[cfg(target_os = "linux")]
    fn wait_begins(&self, word: &ThreadWord, alone: fn(u32) -> u32) {
        fork::wait_begins(word, alone);
    }
    #[cfg(target_os = "linux")]
    fn wait_ends(&self) {
        fork::wait_ends();
    }

    #[inline(always)]
    fn fence(&self, order: Ordering) {
        atomic::fence(order);
    }
    /// PAUSE on x86, ISB on arm64.
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
        word::withdraw();
        slice::outside(thread::yield_now);
    }
    fn futex_wait(&self, word: &ThreadWord, value: u32) {
        allowed::look_if_due();
        os::wait(word, value, BOUND.get());
    }
    fn futex_wake(&self, word: &ThreadWord) {
        os::wake(word);
    }
    /// Does nothing in a process without restartable sequences: its locks interrupt no thread.
    fn interrupt_others(&self) {
        (process().interrupt_others)();
    }
}

#[expect(
    clippy::declare_interior_mutable_const,
    reason = "each use makes a new node, as an initializer of a static"
)]
const NODE: Node<ThreadWord> = {
    const ZERO: ThreadWord = ThreadWord::ZERO;
    Node::from_words(ZERO, ZERO, ZERO, ZERO, ZERO, ZERO)
};

/// The queue nodes of all threads. Memory that is zero takes up room only once it is used.
pub(crate) static NODES: NodeTable<ThreadWord> = {
    static CPUS: [CpuNodes<ThreadWord>; CPUS_MAX as usize] =
        [const { CpuNodes::from_nodes([const { NODE }; 4], ThreadWord::ZERO) }; CPUS_MAX as usize];
    NodeTable::from_static(&CPUS)
};

pub(crate) type Waiting = WaitTable<ThreadWord, ThreadAddress>;

/// The table of halted threads. It is static, since a thread must not allocate when it first halts: the lock may guard
/// the allocator. A thread has no interrupts, so it waits for one lock at a time.
pub(crate) static WAITING: Waiting = {
    const THREADS: usize = CPUS_MAX as usize;
    static CPUS: [ThreadWord; THREADS / 32] = [const { ThreadWord::ZERO }; THREADS / 32];
    static RECORDS: [HaltedCpu<ThreadWord, ThreadAddress>; THREADS] =
        [const { HaltedCpu::from_words(ThreadAddress::ZERO, ThreadWord::ZERO) }; THREADS];
    static HEADS: [QueueHead<ThreadWord, ThreadAddress>; THREADS.next_power_of_two()] =
        [const { QueueHead::from_words(ThreadAddress::ZERO, ThreadWord::ZERO) }; THREADS.next_power_of_two()];
    WaitTable::from_static(&CPUS, &RECORDS, &HEADS)
};

pub(crate) type Parkers = [Parker<ThreadWord>; CPUS_MAX as usize];

/// Where each thread sleeps. A thread sleeps on a word of its own.
pub(crate) static PARKERS: Parkers = [const { Parker::from_word(ThreadWord::ZERO) }; CPUS_MAX as usize];

/// The longest halt of a thread whose announcement may be overwritten.
const GLANCE: Duration = Duration::from_millis(5);

thread_local! {
    /// After what time the next halt must end by itself.
    static BOUND: Cell<Option<Duration>> = const { Cell::new(None) };
}

/// Bounds the next halt of the calling thread by `time`, or by an earlier bound.
fn bound_next_halt(time: Duration) {
    BOUND.set(Some(BOUND.get().map_or(time, |bound| bound.min(time))));
}

/// Removes what is left of `gone`, a thread that does not exist in this process.
#[cfg(target_os = "linux")]
pub(crate) fn abandon(this: &ThisThread, gone: CpuId) {
    PARKERS[gone.0 as usize].abandon(this);
    NODES.abandon(this, gone);
}

/// Removes all halted threads: none exists in this process.
#[cfg(target_os = "linux")]
pub(crate) fn abandon_waiting(this: &ThisThread) {
    WAITING.abandon(this);
}

// SAFETY: there is one table (**One state**), with nodes for each number below `CPUS_MAX`. `slot` gives out no other
// numbers.
unsafe impl Nodes for ThisThread {
    #[inline]
    fn nodes(&self) -> &NodeTable<ThreadWord> {
        process().nodes
    }
    fn has_nodes(&self) -> bool {
        slot::number().is_some()
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
    /// Returns whether the thread has no number, by which others could wake it: it must not halt, as in an NMI.
    fn in_nmi(&self) -> bool {
        slot::number().is_none()
    }
}

// SAFETY: a [`Parker`] keeps **Sticky kick**; there is one table (**One state**).
unsafe impl Paravirt for ThisThread {
    type Recorder = ();

    fn halt_masked(&self) {
        spin::end_streak();
        process().parkers[slot::current().0 as usize].halt(self);
        BOUND.set(None);
    }
    fn halt_unmasked(&self) {
        self.halt_masked();
    }
    fn kick(&self, cpu: CpuId) {
        process().parkers[cpu.0 as usize].kick(self);
    }
    /// Returns `false`: the kernel does not report which threads are preempted.
    #[inline(always)]
    fn is_preempted(&self, _cpu: CpuId) -> bool {
        false
    }
    #[inline]
    fn waiting(&self) -> &Waiting {
        process().waiting
    }
    fn cpus_end(&self) -> usize {
        slot::end() as usize
    }
    #[inline]
    fn spin_threshold(&self) -> Budget {
        spin::spin_threshold()
    }
    #[inline(always)]
    fn sharing(&self) -> Sharing {
        SHARING
    }
    #[inline(always)]
    fn overtook(&self) -> bool {
        spin::overtook()
    }
    fn nap(&self) {
        spin::nap();
    }
    fn now_ns(&self) -> u64 {
        os::now_ns()
    }
    #[inline(always)]
    fn recorder(&self) -> &() {
        &()
    }
}
