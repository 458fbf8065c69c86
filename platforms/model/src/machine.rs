//! A machine of modeled CPUs, which run jobs.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use holdfast_locks::conformance::{Job, World};
use holdfast_locks::{CpuId, NodeTable, ReaderLine, Sharing, WaitTable};

use crate::checker::{Atomic, Checker};
use crate::cpu::Cpu;
use crate::fault::Orderings;
use crate::word::ModelWord;

/// The properties of a machine.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The number of CPUs, at least 2.
    pub cpus: u32,
    /// The number of iterations that a paravirtual waiter spins before it halts.
    pub spin_threshold: u32,
    /// The number of CPUs for which the table of waiters is made, if it is more than [`Setup::cpus`].
    pub cpus_possible: u32,
    /// How often a bounded wait reads its word again, at most. Further reads would only repeat the step.
    pub looks_max: u32,
    /// Whether CPUs check for interrupts. Each check is a step.
    pub interrupts: bool,
    /// One of this many halts ends for no reason, and one of this many hints says that a CPU is preempted, if the
    /// checker has random numbers. 0 means none.
    pub odds: u32,
    /// Whether a halt acquires what was written before the kick that ends it, as the contract demands.
    pub kick_orders: bool,
    /// Whether compare-stores and half-word additions are two steps each: a compare and a store, an addition and a
    /// load.
    pub compare_stores: bool,
    /// The number of NUMA nodes: the node of a CPU is its number modulo this.
    pub numa_nodes: u32,
    /// The number of lines on which readers of a biased lock announce themselves. CPUs take turns.
    pub reader_lines: u32,
    /// How hybrid locks are shared between their queue and newcomers.
    pub sharing: Sharing,
    /// How often the conformance suite repeats its attempts.
    pub rounds: u32,
    /// The treatment of the orderings in the locks' source.
    pub orderings: Orderings,
}

impl Setup {
    /// Returns a machine of `cpus` CPUs whose waiters halt after reading the word once.
    pub fn new(cpus: u32) -> Self {
        Setup {
            cpus,
            spin_threshold: 0,
            cpus_possible: 0,
            looks_max: 0,
            interrupts: false,
            odds: 0,
            kick_orders: true,
            compare_stores: false,
            numa_nodes: 1,
            reader_lines: 0,
            sharing: Sharing::LINUX,
            rounds: 1,
            orderings: Orderings::default(),
        }
    }
}

/// Stands for a halt in place of a word's number.
pub(crate) const HALTED: u32 = u32::MAX;

/// The state of a CPU that other CPUs access.
pub(crate) struct CpuState<C: Checker> {
    /// The sticky kick, as a modeled word: the checker explores the order of kicks and halts.
    pub kick: C::Atomic,
    /// The sticky kick for the sleeping thread, which must not read modeled memory: the read would order something.
    pub kicked: AtomicBool,
    /// A modeled word that another CPU changes to make this CPU compare again.
    pub restarts: C::Atomic,
    /// Whether the CPU has compared and may store.
    pub comparing: AtomicBool,
    /// The number of posted interrupts, as a modeled word: the checker explores when each arrives.
    pub posted: C::Atomic,
    pub interrupts: Mutex<VecDeque<Job<Cpu<C>>>>,
    /// The number of the word for whose change the CPU sleeps, [`HALTED`], or 0.
    pub sleeps_on: AtomicU32,
    pub thread: OnceLock<C::Thread>,
}

/// CPUs that share memory.
pub struct Machine<C: Checker> {
    pub(crate) setup: Setup,
    pub(crate) cpus: Vec<CpuState<C>>,
    pub(crate) nodes: NodeTable<ModelWord<C>>,
    pub(crate) waiting: WaitTable<ModelWord<C>, ModelWord<C>>,
    pub(crate) reader_lines: Vec<ReaderLine<ModelWord<C>>>,
    /// The number of changes of words, kicks and interrupts. A CPU that sees no increase waits in vain.
    pub(crate) progress: AtomicU64,
    /// The sleepers in the kernel's queues: the key of a word and a CPU, in order of arrival.
    pub(crate) sleepers: Mutex<Vec<(usize, CpuId)>>,
    /// A modeled word that each operation on the queues changes: the operations have a total order.
    pub(crate) queues: C::Atomic,
}

impl<C: Checker> std::fmt::Debug for Machine<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Machine")
            .field("setup", &self.setup)
            .finish_non_exhaustive()
    }
}

impl<C: Checker> Machine<C> {
    /// Makes a machine without running CPUs. It belongs to the execution that makes it.
    pub fn new(setup: &Setup) -> Arc<Self> {
        let cpu = |_| CpuState {
            kick: C::Atomic::new(0),
            kicked: AtomicBool::new(false),
            restarts: C::Atomic::new(0),
            comparing: AtomicBool::new(false),
            posted: C::Atomic::new(0),
            interrupts: Mutex::default(),
            sleeps_on: AtomicU32::new(0),
            thread: OnceLock::new(),
        };
        Arc::new(Machine {
            cpus: (0..setup.cpus).map(cpu).collect(),
            nodes: NodeTable::new(setup.cpus as usize),
            waiting: WaitTable::new(setup.cpus.max(setup.cpus_possible) as usize),
            reader_lines: (0..setup.reader_lines).map(|_| ReaderLine::new()).collect(),
            progress: AtomicU64::new(0),
            sleepers: Mutex::default(),
            queues: C::Atomic::new(0),
            setup: setup.clone(),
        })
    }

    /// Runs each job on its CPU, all at the same time, and returns when all have ended. The first job runs on the
    /// caller's thread.
    pub fn run(self: &Arc<Self>, jobs: Vec<(CpuId, Job<Cpu<C>>)>) {
        self.run_after(|_| (), jobs);
    }

    /// Runs `prologue` alone on the first job's CPU, then runs the jobs.
    pub fn run_after(self: &Arc<Self>, prologue: impl FnOnce(&Cpu<C>), jobs: Vec<(CpuId, Job<Cpu<C>>)>) {
        let mut jobs = jobs.into_iter();
        let Some((first, job)) = jobs.next() else { return };
        let first = Cpu::new(Arc::clone(self), first);
        prologue(&first);
        let start = |(id, job): (CpuId, Job<Cpu<C>>)| {
            let machine = Arc::clone(self);
            C::spawn(move || Cpu::new(machine, id).play(job))
        };
        let others: Vec<C::Join> = jobs.map(start).collect();
        first.play(job);
        others.into_iter().for_each(C::join);
        assert!(
            self.waiting.is_idle(&Cpu::inspector(Arc::clone(self))),
            "a waiter is still registered or listed after all jobs have ended"
        );
        assert!(
            self.reader_lines
                .iter()
                .all(|line| line.is_empty(&Cpu::inspector(Arc::clone(self)))),
            "a reader is still announced after all jobs have ended"
        );
    }

    /// Counts the change of `word` as progress and wakes the CPUs that sleep for it.
    pub(crate) fn changed(&self, word: &ModelWord<C>) {
        self.progress.fetch_add(1, Ordering::Relaxed);
        for cpu in &self.cpus {
            if cpu.sleeps_on.load(Ordering::Relaxed) == word.number {
                wake(cpu);
            }
        }
    }
}

pub(crate) fn wake<C: Checker>(cpu: &CpuState<C>) {
    if let Some(thread) = cpu.thread.get() {
        C::wake(thread);
    }
}

/// A world for the conformance suite. Each run has a machine of its own, so that jobs may name any CPU.
#[derive(Debug)]
pub struct ModelWorld<C: Checker> {
    setup: Setup,
    checker: std::marker::PhantomData<fn() -> C>,
}

impl<C: Checker> ModelWorld<C> {
    /// Makes a world for the current execution.
    pub fn new(setup: &Setup) -> Self {
        ModelWorld {
            setup: setup.clone(),
            checker: std::marker::PhantomData,
        }
    }
}

impl<C: Checker> World for ModelWorld<C> {
    type Cpu = Cpu<C>;

    fn cpus(&self) -> u32 {
        self.setup.cpus
    }

    fn rounds(&self) -> u32 {
        self.setup.rounds
    }

    fn run(&self, jobs: Vec<(CpuId, Job<Cpu<C>>)>) {
        Machine::new(&self.setup).run(jobs);
    }

    fn interrupt(cpu: &Cpu<C>, target: CpuId, handler: Job<Cpu<C>>) -> bool {
        cpu.interrupt(target, handler);
        cpu.takes_interrupts()
    }
}
