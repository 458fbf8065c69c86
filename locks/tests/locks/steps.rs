//! A machine whose CPUs take turns: each operation is a step, and a [`Chooser`] says whose step is next.
//!
//! Everything runs on one thread; a CPU is a coroutine. Memory is sequentially consistent. What a run may find wrong:
//! a panic in a job, or a **deadlock**, when nobody can take a step: that is how a lost kick shows.

#![expect(
    unsafe_code,
    reason = "implements the platform traits; a CPU points to its coroutine"
)]

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use corosensei::{Coroutine, CoroutineResult, Yielder};
use holdfast_locks::conformance::Job;
use holdfast_locks::{
    Budget, CpuId, Event, Interrupts, LockStats, NodeTable, Nodes, Numa, Paravirt, Platform, Sharing, WaitTable, Word,
};

/// A memory word.
#[derive(Debug)]
pub struct StepWord(AtomicU32);

impl Word<u32> for StepWord {
    fn new(value: u32) -> Self {
        StepWord(AtomicU32::new(value))
    }
}

/// A memory word for keys.
#[derive(Debug)]
pub struct StepAddress(AtomicUsize);

impl Word<usize> for StepAddress {
    fn new(value: usize) -> Self {
        StepAddress(AtomicUsize::new(value))
    }
}

/// Decides what is left open: whose step is next, and whether a wait is spurious.
pub trait Chooser {
    /// One of `options` (at least 2); `options[0]` goes on as before.
    fn choose(&mut self, options: &[u32]) -> u32;
    /// Whether a halt ends for no reason.
    fn spurious(&mut self) -> bool {
        false
    }
}

/// Bounded waits in vain, after which a CPU lets others go first: a schedule that starves them shows nothing.
const SPINS_MAX: u32 = 6;

/// What the machine is like.
#[derive(Clone, Copy)]
pub struct Setup {
    pub cpus: u32,
    /// Iterations before a waiter halts.
    pub threshold: u32,
    /// `node(cpu) = cpu % numa_nodes`.
    pub numa_nodes: u32,
    /// Steps after which a run counts as a livelock.
    pub steps_max: u64,
    /// CPUs are like host threads: a compare-store is two steps, and the head of a hybrid lock's queue is courteous.
    pub hosted: bool,
    /// Whether settling does what it promises.
    pub settles: bool,
    /// Every CPU looks preempted, and waiters behind such a one halt.
    pub preempted: bool,
}

impl Setup {
    pub fn new(cpus: u32) -> Self {
        Setup {
            cpus,
            threshold: 1,
            numa_nodes: 1,
            steps_max: 2_000_000,
            hosted: false,
            settles: true,
            preempted: false,
        }
    }

    /// CPUs like host threads.
    pub fn hosted(cpus: u32) -> Self {
        Setup {
            hosted: true,
            ..Setup::new(cpus)
        }
    }
}

/// Why a CPU takes no step.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Blocked {
    No,
    /// Until another has taken a step, if another can: it spins, and only others can change what it sees.
    Spinning,
    /// Until a word, which it identifies by address, is no longer this.
    Word(*const StepWord, u32),
    /// Until a kick.
    HaltMasked,
    /// Until a kick or an interrupt.
    HaltUnmasked,
}

struct CpuState {
    blocked: Cell<Blocked>,
    kicked: Cell<bool>,
    irqs_enabled: Cell<bool>,
    in_nmi: Cell<bool>,
    interrupts: RefCell<VecDeque<Job<StepCpu>>>,
    halts: Cell<u32>,
    spins: Cell<u32>,
    /// Somebody has settled: a compare-store must compare again.
    compare_again: Cell<bool>,
    /// Locks that it has taken past their queues.
    overtakes: Cell<u32>,
    /// Keys of the locks that it waits for, innermost last.
    contending: RefCell<Vec<usize>>,
}

/// What the CPUs share.
pub struct Machine {
    setup: Setup,
    cpus: Vec<CpuState>,
    nodes: NodeTable<StepWord>,
    waiting: WaitTable<StepWord, StepAddress>,
    pub stats: LockStats,
    chooser: RefCell<Box<dyn Chooser>>,
    steps: Cell<u64>,
}

type Flow = Coroutine<(), (), ()>;

impl Machine {
    pub fn new(setup: Setup, chooser: Box<dyn Chooser>) -> Rc<Self> {
        let cpu = |_| CpuState {
            blocked: Cell::new(Blocked::No),
            kicked: Cell::new(false),
            irqs_enabled: Cell::new(true),
            in_nmi: Cell::new(false),
            interrupts: RefCell::default(),
            halts: Cell::new(0),
            spins: Cell::new(0),
            compare_again: Cell::new(false),
            overtakes: Cell::new(0),
            contending: RefCell::default(),
        };
        Rc::new(Machine {
            setup,
            cpus: (0..setup.cpus).map(cpu).collect(),
            nodes: NodeTable::new(setup.cpus as usize),
            waiting: WaitTable::new(setup.cpus as usize),
            stats: LockStats::new(),
            chooser: RefCell::new(chooser),
            steps: Cell::new(0),
        })
    }

    /// How often `cpu` has halted.
    pub fn halts(&self, cpu: u32) -> u32 {
        self.cpus[cpu as usize].halts.get()
    }

    fn can_step(&self, cpu: u32) -> bool {
        let state = &self.cpus[cpu as usize];
        let interrupted = !state.interrupts.borrow().is_empty();
        match state.blocked.get() {
            Blocked::No | Blocked::Spinning => true,
            Blocked::Word(word, seen) => {
                // SAFETY: the CPU that is blocked borrows the word until it takes its next step.
                let now = unsafe { &*word }.0.load(Ordering::Relaxed);
                now != seen || interrupted && state.irqs_enabled.get()
            }
            Blocked::HaltMasked => state.kicked.get(),
            Blocked::HaltUnmasked => state.kicked.get() || interrupted,
        }
    }

    /// Runs the jobs to their end, or to a deadlock, which it describes.
    pub fn run(self: &Rc<Self>, jobs: Vec<(CpuId, Job<StepCpu>)>) -> Result<(), String> {
        let mut flows: Vec<(u32, Option<Flow>)> = Vec::new();
        for (id, job) in jobs {
            let machine = Rc::clone(self);
            let body = move |yielder: &Yielder<(), ()>, ()| {
                let cpu = StepCpu { id, machine, yielder };
                job.run(&cpu);
                cpu.take_interrupts();
            };
            flows.push((id.0, Some(Coroutine::new(body))));
        }
        let mut current = 0;
        loop {
            let options = self.options(&flows, current);
            self.steps.set(self.steps.get() + 1);
            current = match options.as_slice() {
                [] if flows.iter().all(|(_, flow)| flow.is_none()) => return self.nothing_left_behind(),
                [] => return Err(self.give_up(flows.into_iter(), "deadlock")),
                _ if self.steps.get() > self.setup.steps_max => {
                    return Err(self.give_up(flows.into_iter(), "livelock"));
                }
                [only] => *only,
                options => self.chooser.borrow_mut().choose(options),
            };
            self.spinners_go_on();
            let (_, flow) = &mut flows[current as usize];
            if let CoroutineResult::Return(()) = flow.as_mut().expect("chosen among those that run").resume(()) {
                *flow = None;
            }
        }
    }

    /// A lock that stays listed in the hash table will mislead a later unlock.
    fn nothing_left_behind(self: &Rc<Self>) -> Result<(), String> {
        let contending = self.cpus.iter().any(|cpu| !cpu.contending.borrow().is_empty());
        assert!(!contending, "a wait that is over has not ended");
        let idle = Rc::new(Cell::new(false));
        let (machine, answer) = (Rc::clone(self), Rc::clone(&idle));
        let mut flow = Flow::new(move |yielder: &Yielder<(), ()>, ()| {
            let cpu = StepCpu {
                id: CpuId(0),
                machine,
                yielder,
            };
            answer.set(cpu.waiting().is_idle(&cpu));
        });
        while let CoroutineResult::Yield(()) = flow.resume(()) {}
        if idle.get() {
            Ok(())
        } else {
            Err("a lock is still listed, or a CPU registered".to_owned())
        }
    }

    /// Somebody takes a step, which those who spin may see.
    fn spinners_go_on(&self) {
        for cpu in &self.cpus {
            if cpu.blocked.get() == Blocked::Spinning {
                cpu.blocked.set(Blocked::No);
            }
        }
    }

    /// Who can take a step: first `current`, then the others in turn. Those who spin wait for those who do not.
    fn options(&self, flows: &[(u32, Option<Flow>)], current: u32) -> Vec<u32> {
        let count = flows.len() as u32;
        let spins = |index: u32| self.cpus[flows[index as usize].0 as usize].blocked.get() == Blocked::Spinning;
        let can_step = |&index: &u32| {
            let (cpu, flow) = &flows[index as usize];
            flow.is_some() && self.can_step(*cpu)
        };
        let first = current + u32::from(spins(current));
        let mut options: Vec<u32> = (0..count)
            .map(|offset| (first + offset) % count)
            .filter(can_step)
            .collect();
        if options.iter().any(|&index| !spins(index)) {
            options.retain(|&index| !spins(index));
        }
        options
    }

    fn give_up(&self, flows: impl Iterator<Item = (u32, Option<Flow>)>, what: &str) -> String {
        let mut blocked = Vec::new();
        for (cpu, flow) in flows {
            if let Some(flow) = flow {
                blocked.push(format!("CPU {cpu}: {:?}", self.cpus[cpu as usize].blocked.get()));
                // Unwinding would run guards that take further steps.
                std::mem::forget(flow);
            }
        }
        format!("{what} after {} steps: {}", self.steps.get(), blocked.join(", "))
    }
}

/// A CPU of a [`Machine`], inside its coroutine.
pub struct StepCpu {
    id: CpuId,
    machine: Rc<Machine>,
    yielder: *const Yielder<(), ()>,
}

impl StepCpu {
    fn state(&self) -> &CpuState {
        &self.machine.cpus[self.id.0 as usize]
    }

    /// Lets others go first, if the chooser wants; takes interrupts.
    fn step(&self) {
        self.block(Blocked::No);
        self.take_interrupts();
    }

    fn block(&self, why: Blocked) {
        self.state().blocked.set(why);
        // SAFETY: a `StepCpu` lives inside its coroutine's body, which borrows the yielder.
        unsafe { &*self.yielder }.suspend(());
        self.state().blocked.set(Blocked::No);
    }

    fn take_interrupts(&self) {
        while self.state().irqs_enabled.get() {
            let Some(handler) = self.state().interrupts.borrow_mut().pop_front() else {
                break;
            };
            self.state().irqs_enabled.set(false);
            handler.run(self);
            self.state().irqs_enabled.set(true);
        }
    }

    /// Posts an interrupt.
    pub fn interrupt(&self, target: CpuId, handler: Job<StepCpu>) {
        self.step();
        self.machine.cpus[target.0 as usize]
            .interrupts
            .borrow_mut()
            .push_back(handler);
    }

    /// Runs `handler` as a non-maskable interrupt would, here and now.
    pub fn nmi(&self, handler: impl FnOnce(&StepCpu)) {
        let enabled = self.state().irqs_enabled.replace(false);
        self.state().in_nmi.set(true);
        handler(self);
        self.state().in_nmi.set(false);
        self.state().irqs_enabled.set(enabled);
    }

    /// Compares in one step and stores in another.
    fn compare_store(&self, word: &StepWord, mask: u32, current: u32, new: u32) -> Result<(), u32> {
        loop {
            self.state().compare_again.set(false);
            let seen = self.load(word, SC);
            if seen & mask != current {
                return Err(seen & mask);
            }
            self.step();
            if !self.state().compare_again.get() {
                word.0.store(word.0.load(SC) & !mask | new, SC);
                return Ok(());
            }
        }
    }

    fn halt(&self, why: Blocked) {
        self.state().halts.set(self.state().halts.get() + 1);
        let spurious = self.machine.chooser.borrow_mut().spurious();
        if !spurious {
            self.block(why);
        }
        self.state().kicked.set(false);
    }
}

const SC: Ordering = Ordering::SeqCst;

// SAFETY: one thread runs all CPUs, so every operation is atomic and sequentially consistent; each CPU has its number.
unsafe impl Platform for StepCpu {
    type Word = StepWord;
    type Address = StepAddress;

    fn cpu(&self) -> CpuId {
        self.id
    }
    fn key(&self, word: &StepWord) -> usize {
        std::ptr::from_ref(word).addr()
    }
    fn load(&self, word: &StepWord, _: Ordering) -> u32 {
        self.step();
        word.0.load(SC)
    }
    fn store(&self, word: &StepWord, value: u32, _: Ordering) {
        self.step();
        word.0.store(value, SC);
    }
    fn store_low8(&self, word: &StepWord, value: u8, _: Ordering) {
        self.step();
        word.0.store(word.0.load(SC) & !0xff | u32::from(value), SC);
    }
    fn store_low16(&self, word: &StepWord, value: u16, _: Ordering) {
        self.step();
        word.0.store(word.0.load(SC) & !0xffff | u32::from(value), SC);
    }
    fn swap(&self, word: &StepWord, value: u32, _: Ordering) -> u32 {
        self.step();
        word.0.swap(value, SC)
    }
    fn compare_exchange(&self, word: &StepWord, current: u32, new: u32, _: Ordering, _: Ordering) -> Result<u32, u32> {
        self.step();
        word.0.compare_exchange(current, new, SC, SC)
    }
    fn compare_store_low8(&self, word: &StepWord, current: u8, new: u8, order: Ordering) -> Result<(), u8> {
        if self.machine.setup.hosted {
            let stored = self.compare_store(word, 0xff, current.into(), new.into());
            return stored.map_err(|found| found as u8);
        }
        self.compare_exchange_low8(word, current, new, order, order).map(drop)
    }
    fn compare_store_low16(&self, word: &StepWord, current: u16, new: u16, order: Ordering) -> Result<(), u16> {
        if self.machine.setup.hosted {
            let stored = self.compare_store(word, 0xffff, current.into(), new.into());
            return stored.map_err(|found| found as u16);
        }
        self.compare_exchange_low16(word, current, new, order, order).map(drop)
    }
    fn settle(&self) -> bool {
        if self.machine.setup.hosted {
            self.step();
            for cpu in &self.machine.cpus {
                cpu.compare_again.set(self.machine.setup.settles);
            }
        }
        self.machine.setup.hosted
    }
    fn fetch_add(&self, word: &StepWord, value: u32, _: Ordering) -> u32 {
        self.step();
        word.0.fetch_add(value, SC)
    }
    fn fetch_or(&self, word: &StepWord, bits: u32, _: Ordering) -> u32 {
        self.step();
        word.0.fetch_or(bits, SC)
    }
    fn fetch_and(&self, word: &StepWord, bits: u32, _: Ordering) -> u32 {
        self.step();
        word.0.fetch_and(bits, SC)
    }
    fn load_address(&self, word: &StepAddress, _: Ordering) -> usize {
        self.step();
        word.0.load(SC)
    }
    fn store_address(&self, word: &StepAddress, value: usize, _: Ordering) {
        self.step();
        word.0.store(value, SC);
    }
    fn compare_exchange_address(
        &self,
        word: &StepAddress,
        current: usize,
        new: usize,
        _: Ordering,
        _: Ordering,
    ) -> Result<usize, usize> {
        self.step();
        word.0.compare_exchange(current, new, SC, SC)
    }
    fn fence(&self, _: Ordering) {}
    fn relax(&self) {
        self.step();
    }
    fn contention_begin(&self, lock: &StepWord) {
        self.state().contending.borrow_mut().push(self.key(lock));
    }
    fn contention_end(&self, lock: &StepWord) {
        let begun = self.state().contending.borrow_mut().pop();
        assert_eq!(begun, Some(self.key(lock)), "the end of a wait that has not begun");
    }
    fn count(&self, event: Event) {
        holdfast_locks::Recorder::add(&self.machine.stats, event, 1);
    }
    fn wait_until(
        &self,
        word: &StepWord,
        budget: Budget,
        order: Ordering,
        until: impl Fn(u32) -> bool,
    ) -> Result<u32, u32> {
        let mut spins = 0;
        loop {
            let value = self.load(word, order);
            if until(value) {
                return Ok(value);
            }
            if budget == Budget::UNBOUNDED {
                self.block(Blocked::Word(word, value));
                self.take_interrupts();
            } else if spins == budget.0.min(2) {
                // A longer spin only repeats this step. And who spins in vain again and again lets others go first.
                let spins = &self.state().spins;
                spins.set((spins.get() + 1) % SPINS_MAX);
                if spins.get() == 0 {
                    self.block(Blocked::Spinning);
                }
                return Err(value);
            }
            spins += 1;
        }
    }
}

// SAFETY: handlers only run in `take_interrupts`, which asks whether interrupts are enabled.
unsafe impl Interrupts for StepCpu {
    fn irq_save(&self) -> bool {
        self.step();
        self.state().irqs_enabled.replace(false)
    }
    fn irq_restore(&self, enabled: bool) {
        self.state().irqs_enabled.set(enabled);
        self.step();
    }
    fn in_nmi(&self) -> bool {
        self.state().in_nmi.get()
    }
}

// SAFETY: the machine's table has a place for each of its CPUs.
unsafe impl Nodes for StepCpu {
    fn nodes(&self) -> &NodeTable<StepWord> {
        &self.machine.nodes
    }
}

impl Numa for StepCpu {
    fn numa_node(&self, cpu: CpuId) -> u32 {
        cpu.0 % self.machine.setup.numa_nodes
    }
    fn monotonic_ns(&self) -> u64 {
        self.machine.steps.get() * 1000
    }
    fn is_urgent(&self) -> bool {
        !self.state().irqs_enabled.get()
    }
}

// SAFETY: `kicked` stays set until a halt takes it.
unsafe impl Paravirt for StepCpu {
    type Recorder = LockStats;

    fn halt_masked(&self) {
        self.step();
        self.halt(Blocked::HaltMasked);
    }
    fn halt_unmasked(&self) {
        self.step();
        self.halt(Blocked::HaltUnmasked);
        self.state().irqs_enabled.set(true);
        self.take_interrupts();
        self.state().irqs_enabled.set(false);
    }
    fn kick(&self, cpu: CpuId) {
        self.step();
        self.machine.cpus[cpu.0 as usize].kicked.set(true);
    }
    fn is_preempted(&self, _: CpuId) -> bool {
        self.machine.setup.preempted
    }
    fn halts_behind_preempted(&self) -> bool {
        self.machine.setup.preempted
    }
    fn waiting(&self) -> &WaitTable<StepWord, StepAddress> {
        &self.machine.waiting
    }
    fn spin_threshold(&self) -> Budget {
        Budget(self.machine.setup.threshold)
    }
    fn sharing(&self) -> Sharing {
        if !self.machine.setup.hosted {
            return Sharing::LINUX;
        }
        Sharing {
            newcomer: Budget(1),
            queued: Budget(0),
            courtesy: Budget(1),
        }
    }
    /// Every other time is the last.
    fn overtook(&self) -> bool {
        let overtakes = &self.state().overtakes;
        overtakes.set(overtakes.get() + 1);
        self.machine.setup.hosted && overtakes.get().is_multiple_of(2)
    }
    fn nap(&self) {
        self.block(Blocked::Spinning);
    }
    fn now_ns(&self) -> u64 {
        self.machine.steps.get()
    }
    fn recorder(&self) -> &LockStats {
        &self.machine.stats
    }
}
