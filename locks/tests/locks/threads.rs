//! A platform of host threads: a halt waits on a condition variable, an interrupt is a job in the target's mailbox.

#![expect(unsafe_code, reason = "implements the platform traits")]

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use holdfast_locks::conformance::{Job, World};
use holdfast_locks::{
    Budget, CpuId, Interrupts, LockStats, NodeTable, Nodes, Numa, Paravirt, Platform, WaitTable, Word,
};

/// A halt of this length counts as a lost kick.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub struct HostWord(AtomicU32);

impl Word<u32> for HostWord {
    fn new(value: u32) -> Self {
        HostWord(AtomicU32::new(value))
    }
}

#[derive(Debug)]
pub struct HostAddress(AtomicUsize);

impl Word<usize> for HostAddress {
    fn new(value: usize) -> Self {
        HostAddress(AtomicUsize::new(value))
    }
}

#[derive(Default)]
struct Mailbox {
    kicked: bool,
    interrupts: Vec<Job<HostCpu>>,
}

#[derive(Default)]
struct CpuState {
    mailbox: Mutex<Mailbox>,
    /// A hint that the mailbox has interrupts.
    interrupted: AtomicBool,
    arrived: Condvar,
}

struct Machine {
    cpus: Vec<CpuState>,
    nodes: NodeTable<HostWord>,
    waiting: WaitTable<HostWord, HostAddress>,
    stats: LockStats,
    start: Instant,
}

/// A thread that acts as a CPU.
pub struct HostCpu {
    id: CpuId,
    machine: Arc<Machine>,
    irqs_enabled: Cell<bool>,
}

impl HostCpu {
    fn state(&self) -> &CpuState {
        &self.machine.cpus[self.id.0 as usize]
    }

    fn take_interrupts(&self) {
        while self.irqs_enabled.get() && self.state().interrupted.load(Ordering::Acquire) {
            let handler = {
                let mut mailbox = self.state().mailbox.lock().unwrap();
                let handler = mailbox.interrupts.pop();
                self.state()
                    .interrupted
                    .store(!mailbox.interrupts.is_empty(), Ordering::Release);
                handler
            };
            if let Some(handler) = handler {
                self.irqs_enabled.set(false);
                handler.run(self);
                self.irqs_enabled.set(true);
            }
        }
    }

    fn halt(&self, ends: impl Fn(&Mailbox) -> bool) {
        let mailbox = self.state().mailbox.lock().unwrap();
        let (mut mailbox, timeout) = self
            .state()
            .arrived
            .wait_timeout_while(mailbox, PATIENCE, |mailbox| !ends(mailbox))
            .unwrap();
        assert!(
            !timeout.timed_out(),
            "CPU {} has halted for {PATIENCE:?}: its kick was lost",
            self.id.0
        );
        mailbox.kicked = false;
    }
}

// SAFETY: the operations are those of the host's atomics, with the orderings asked for; each thread has its number.
unsafe impl Platform for HostCpu {
    type Word = HostWord;
    type Address = HostAddress;

    fn cpu(&self) -> CpuId {
        self.id
    }
    fn key(&self, word: &HostWord) -> usize {
        std::ptr::from_ref(word).addr()
    }
    fn load(&self, word: &HostWord, order: Ordering) -> u32 {
        word.0.load(order)
    }
    fn store(&self, word: &HostWord, value: u32, order: Ordering) {
        word.0.store(value, order);
    }
    fn store_low8(&self, word: &HostWord, value: u8, order: Ordering) {
        let _ = word
            .0
            .fetch_update(order, Ordering::Relaxed, |now| Some(now & !0xff | u32::from(value)));
    }
    fn store_low16(&self, word: &HostWord, value: u16, order: Ordering) {
        let _ = word
            .0
            .fetch_update(order, Ordering::Relaxed, |now| Some(now & !0xffff | u32::from(value)));
    }
    fn swap(&self, word: &HostWord, value: u32, order: Ordering) -> u32 {
        word.0.swap(value, order)
    }
    fn compare_exchange(
        &self,
        word: &HostWord,
        current: u32,
        new: u32,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u32, u32> {
        word.0.compare_exchange(current, new, success, failure)
    }
    fn fetch_add(&self, word: &HostWord, value: u32, order: Ordering) -> u32 {
        word.0.fetch_add(value, order)
    }
    fn fetch_or(&self, word: &HostWord, bits: u32, order: Ordering) -> u32 {
        word.0.fetch_or(bits, order)
    }
    fn fetch_and(&self, word: &HostWord, bits: u32, order: Ordering) -> u32 {
        word.0.fetch_and(bits, order)
    }
    fn load_address(&self, word: &HostAddress, order: Ordering) -> usize {
        word.0.load(order)
    }
    fn store_address(&self, word: &HostAddress, value: usize, order: Ordering) {
        word.0.store(value, order);
    }
    fn compare_exchange_address(
        &self,
        word: &HostAddress,
        current: usize,
        new: usize,
        success: Ordering,
        failure: Ordering,
    ) -> Result<usize, usize> {
        word.0.compare_exchange(current, new, success, failure)
    }
    fn fence(&self, order: Ordering) {
        std::sync::atomic::fence(order);
    }
    /// Yields the physical CPU: there may be fewer of them than threads.
    fn relax(&self) {
        self.take_interrupts();
        std::thread::yield_now();
    }
}

// SAFETY: handlers run only in `take_interrupts`, on this thread, and only if interrupts are enabled.
unsafe impl Interrupts for HostCpu {
    fn irq_save(&self) -> bool {
        self.irqs_enabled.replace(false)
    }
    fn irq_restore(&self, enabled: bool) {
        self.irqs_enabled.set(enabled);
        self.take_interrupts();
    }
    fn in_nmi(&self) -> bool {
        false
    }
}

// SAFETY: the machine has one table, with nodes for each of its CPUs.
unsafe impl Nodes for HostCpu {
    fn nodes(&self) -> &NodeTable<HostWord> {
        &self.machine.nodes
    }
}

impl Numa for HostCpu {
    fn numa_node(&self, cpu: CpuId) -> u32 {
        cpu.0 % 2
    }
    fn monotonic_ns(&self) -> u64 {
        self.now_ns()
    }
    fn is_urgent(&self) -> bool {
        !self.irqs_enabled.get()
    }
}

// SAFETY: `kicked` stays set until a halt consumes it.
unsafe impl Paravirt for HostCpu {
    type Recorder = LockStats;

    fn halt_masked(&self) {
        self.halt(|mailbox| mailbox.kicked);
    }
    fn halt_unmasked(&self) {
        self.halt(|mailbox| mailbox.kicked || !mailbox.interrupts.is_empty());
        self.irqs_enabled.set(true);
        self.take_interrupts();
        self.irqs_enabled.set(false);
    }
    fn kick(&self, cpu: CpuId) {
        let target = &self.machine.cpus[cpu.0 as usize];
        target.mailbox.lock().unwrap().kicked = true;
        target.arrived.notify_one();
    }
    fn is_preempted(&self, _: CpuId) -> bool {
        false
    }
    fn waiting(&self) -> &WaitTable<HostWord, HostAddress> {
        &self.machine.waiting
    }
    fn spin_threshold(&self) -> Budget {
        Budget(8)
    }
    fn now_ns(&self) -> u64 {
        self.machine.start.elapsed().as_nanos() as u64
    }
    fn recorder(&self) -> &LockStats {
        &self.machine.stats
    }
}

/// Host threads as a world for the conformance suite.
pub struct ThreadWorld {
    machine: Arc<Machine>,
}

impl ThreadWorld {
    pub fn new(cpus: usize) -> Self {
        let machine = Machine {
            cpus: (0..cpus).map(|_| CpuState::default()).collect(),
            nodes: NodeTable::new(cpus),
            waiting: WaitTable::new(cpus),
            stats: LockStats::new(),
            start: Instant::now(),
        };
        ThreadWorld {
            machine: Arc::new(machine),
        }
    }
}

impl World for ThreadWorld {
    type Cpu = HostCpu;

    fn cpus(&self) -> u32 {
        self.machine.cpus.len() as u32
    }

    fn rounds(&self) -> u32 {
        // With other tests beside it, each handover to a thread that does not run takes a time slice.
        if cfg!(miri) { 4 } else { 200 }
    }

    fn run(&self, jobs: Vec<(CpuId, Job<HostCpu>)>) {
        std::thread::scope(|scope| {
            for (id, job) in jobs {
                let machine = Arc::clone(&self.machine);
                scope.spawn(move || {
                    let cpu = HostCpu {
                        id,
                        machine,
                        irqs_enabled: true.into(),
                    };
                    job.run(&cpu);
                    cpu.take_interrupts();
                });
            }
        });
    }

    fn interrupt(cpu: &HostCpu, target: CpuId, handler: Job<HostCpu>) -> bool {
        let state = &cpu.machine.cpus[target.0 as usize];
        state.mailbox.lock().unwrap().interrupts.push(handler);
        state.interrupted.store(true, Ordering::Release);
        state.arrived.notify_one();
        true
    }
}
