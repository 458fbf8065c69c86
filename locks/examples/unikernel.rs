//! A kernel's own platform: the traits that it implements, a lock that its interrupt handlers take, too, and the
//! conformance suite over it.
//!
//! The CPUs are threads here, so that the example runs. Two functions stand for instructions: `irq_save` for PUSHF and
//! CLI, `irq_restore` for STI. Everything else is as in a kernel, where `MachineCpu` would have the number that the
//! boot code gave this CPU.

#![expect(unsafe_code, reason = "implements the platform traits")]

use std::cell::Cell;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering, fence};
use std::thread;
use std::time::Instant;

use holdfast_locks::conformance::{self, Job, World};
use holdfast_locks::{
    Budget, CpuId, HybridPvQspin, Interrupts, LockKind, NodeTable, Nodes, Paravirt, Platform, SpinLock, WaitTable, Word,
};

/// A word of the kernel's memory: an atomic integer. On x86-64 `holdfast-words` has one with byte instructions.
struct Shared<T>(T);

impl Word<u32> for Shared<AtomicU32> {
    fn new(value: u32) -> Self {
        Shared(AtomicU32::new(value))
    }
}

impl Word<usize> for Shared<AtomicUsize> {
    fn new(value: usize) -> Self {
        Shared(AtomicUsize::new(value))
    }
}

/// The CPU that executes the caller.
struct MachineCpu {
    number: CpuId,
    /// The interrupt flag of this CPU.
    enabled: Cell<bool>,
}

// SAFETY: each operation is that of an atomic integer, with the order that is given. `main` and the world below make
// one value for each number, each on a thread of its own.
unsafe impl Platform for MachineCpu {
    type Word = Shared<AtomicU32>;
    type Address = Shared<AtomicUsize>;

    fn cpu(&self) -> CpuId {
        self.number
    }
    fn key(&self, word: &Self::Word) -> usize {
        std::ptr::from_ref(word).addr()
    }
    fn load(&self, word: &Self::Word, order: Ordering) -> u32 {
        word.0.load(order)
    }
    fn store(&self, word: &Self::Word, value: u32, order: Ordering) {
        word.0.store(value, order);
    }
    fn store_low8(&self, word: &Self::Word, value: u8, order: Ordering) {
        let set = |seen| Some(seen & !0xff | u32::from(value));
        // The update never refuses.
        let _ = word.0.fetch_update(order, Ordering::Relaxed, set);
    }
    fn store_low16(&self, word: &Self::Word, value: u16, order: Ordering) {
        let set = |seen| Some(seen & !0xffff | u32::from(value));
        let _ = word.0.fetch_update(order, Ordering::Relaxed, set);
    }
    fn swap(&self, word: &Self::Word, value: u32, order: Ordering) -> u32 {
        word.0.swap(value, order)
    }
    fn compare_exchange(
        &self,
        word: &Self::Word,
        current: u32,
        new: u32,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u32, u32> {
        word.0.compare_exchange(current, new, success, failure)
    }
    fn fetch_add(&self, word: &Self::Word, value: u32, order: Ordering) -> u32 {
        word.0.fetch_add(value, order)
    }
    fn fetch_or(&self, word: &Self::Word, bits: u32, order: Ordering) -> u32 {
        word.0.fetch_or(bits, order)
    }
    fn fetch_and(&self, word: &Self::Word, bits: u32, order: Ordering) -> u32 {
        word.0.fetch_and(bits, order)
    }
    fn load_address(&self, word: &Self::Address, order: Ordering) -> usize {
        word.0.load(order)
    }
    fn store_address(&self, word: &Self::Address, value: usize, order: Ordering) {
        word.0.store(value, order);
    }
    fn compare_exchange_address(
        &self,
        word: &Self::Address,
        current: usize,
        new: usize,
        success: Ordering,
        failure: Ordering,
    ) -> Result<usize, usize> {
        word.0.compare_exchange(current, new, success, failure)
    }
    fn fence(&self, order: Ordering) {
        fence(order);
    }
    fn relax(&self) {
        // A kernel has `std::hint::spin_loop` here. These CPUs are threads, which may be more than the machine has
        // CPUs.
        thread::yield_now();
    }
}

// SAFETY: the flag says whether a handler may run on this CPU, and only this CPU changes it.
unsafe impl Interrupts for MachineCpu {
    fn irq_save(&self) -> bool {
        self.enabled.replace(false)
    }
    fn irq_restore(&self, enabled: bool) {
        self.enabled.set(enabled);
    }
    fn in_nmi(&self) -> bool {
        false
    }
}

const CPUS: usize = 4;

/// The queue nodes of all CPUs, and the records of those that halt. In a kernel the boot code makes both for the CPUs
/// that it finds.
static NODES: LazyLock<NodeTable<Shared<AtomicU32>>> = LazyLock::new(|| NodeTable::new(CPUS));
static WAITING: LazyLock<WaitTable<Shared<AtomicU32>, Shared<AtomicUsize>>> = LazyLock::new(|| WaitTable::new(CPUS));

// SAFETY: there is one table, with nodes for each number below `CPUS`.
unsafe impl Nodes for MachineCpu {
    fn nodes(&self) -> &NodeTable<Self::Word> {
        &NODES
    }
}

/// Whether a kick is pending for each CPU. In a kernel, the interrupt controller has that.
static KICKED: [AtomicBool; CPUS] = [const { AtomicBool::new(false) }; CPUS];

// SAFETY: a kick stays pending until a halt removes it, and the halt then returns. There is one table.
unsafe impl Paravirt for MachineCpu {
    type Recorder = ();

    fn halt_masked(&self) {
        // HLT. Acquire pairs with the Release in `kick`.
        while !KICKED[self.number.0 as usize].swap(false, Ordering::Acquire) {
            thread::yield_now();
        }
    }
    fn halt_unmasked(&self) {
        // STI, HLT. No interrupts come here, so there is none to end the halt.
        self.halt_masked();
    }
    fn kick(&self, cpu: CpuId) {
        // The hypercall that wakes a vCPU, or an IPI.
        KICKED[cpu.0 as usize].store(true, Ordering::Release);
    }
    fn is_preempted(&self, _: CpuId) -> bool {
        // The hypervisor's flag for `cpu`, if it has one.
        false
    }
    fn waiting(&self) -> &WaitTable<Self::Word, Self::Address> {
        &WAITING
    }
    fn spin_threshold(&self) -> Budget {
        Budget(64)
    }
    fn now_ns(&self) -> u64 {
        static START: LazyLock<Instant> = LazyLock::new(Instant::now);
        START.elapsed().as_nanos() as u64
    }
    fn recorder(&self) -> &() {
        &()
    }
}

/// What an interrupt handler and the rest of the kernel share.
static TICKS: SpinLock<u64, HybridPvQspin, Shared<AtomicU32>> = SpinLock::from_word(Shared(AtomicU32::new(0)), 0);

fn boot(number: u32) -> MachineCpu {
    MachineCpu {
        number: CpuId(number),
        enabled: Cell::new(true),
    }
}

/// The CPUs as the conformance suite wants them.
struct Machine;

impl World for Machine {
    type Cpu = MachineCpu;

    fn cpus(&self) -> u32 {
        2
    }
    fn rounds(&self) -> u32 {
        20
    }
    fn run(&self, jobs: Vec<(CpuId, Job<MachineCpu>)>) {
        thread::scope(|scope| {
            for (number, job) in jobs {
                scope.spawn(move || job.run(&boot(number.0)));
            }
        });
    }
}

fn main() {
    thread::scope(|scope| {
        for number in 0..2 {
            scope.spawn(move || {
                let cpu = boot(number);
                for _ in 0..1000 {
                    let mut ticks = TICKS.lock_irqsave(&cpu);
                    assert!(!cpu.enabled.get(), "no handler may run that would wait for this lock");
                    *ticks += 1;
                }
                assert!(cpu.enabled.get());
            });
        }
    });
    println!("{} ticks", *TICKS.lock(&boot(0)));

    // In a kernel's own tests: each lock over this platform.
    for kind in [LockKind::Ticket, LockKind::Qspin, LockKind::HybridPvQspin] {
        conformance::check(&Machine, kind);
        println!("{kind} conforms");
    }
}
