//! A machine of modelled CPUs, and jobs on them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use holdfast_locks::conformance::{Job, World};
use holdfast_locks::{CpuId, NodeTable, WaitTable};

use crate::checker::{Atomic, Checker};
use crate::cpu::Cpu;
use crate::fault::Orderings;
use crate::word::ModelWord;

/// What the machine is like.
#[derive(Clone, Debug)]
pub struct Setup {
    /// From 2 on.
    pub cpus: u32,
    /// How many iterations a paravirtual waiter spins before it halts.
    pub spin_threshold: u32,
    /// How often a bounded wait looks again at its word, at most: a longer one only repeats the step.
    pub looks_max: u32,
    /// Whether CPUs look for interrupts. Each look is a step.
    pub interrupts: bool,
    /// One halt in so many ends for no reason, and one hint in so many says that a CPU is preempted, where the checker
    /// can throw dice; 0: none.
    pub odds: u32,
    /// Whether a halt acquires what was written before the kick that it takes, as the contract has it.
    pub kick_orders: bool,
    /// Whether the CPU has compare-stores, which are a comparison and then a store, and half-word additions: what is
    /// one step otherwise is two.
    pub compare_stores: bool,
    /// `node(cpu) = cpu % numa_nodes`.
    pub numa_nodes: u32,
    /// How often the conformance suite repeats what it tries.
    pub rounds: u32,
    /// What becomes of the orderings asked for.
    pub orderings: Orderings,
}

impl Setup {
    /// `cpus` CPUs whose waiters halt after one look.
    pub fn new(cpus: u32) -> Self {
        Setup {
            cpus,
            spin_threshold: 0,
            looks_max: 0,
            interrupts: false,
            odds: 0,
            kick_orders: true,
            compare_stores: false,
            numa_nodes: 1,
            rounds: 1,
            orderings: Orderings::AsWritten,
        }
    }
}

/// In place of a word's number.
pub(crate) const HALTED: u32 = u32::MAX;

/// What other CPUs do to a CPU.
pub(crate) struct CpuState<C: Checker> {
    /// The sticky kick, as a modelled word: whose order among kicks and halts the checker explores.
    pub kick: C::Atomic,
    /// The same, for the sleeping thread, which may not look at modelled memory: the look would order something.
    pub kicked: AtomicBool,
    /// Changed by who makes this CPU compare again, as a modelled word.
    pub restarts: C::Atomic,
    /// Has compared, and may store.
    pub comparing: AtomicBool,
    /// How many interrupts were posted, as a modelled word: how long each is under way is explored.
    pub posted: C::Atomic,
    pub interrupts: Mutex<VecDeque<Job<Cpu<C>>>>,
    /// The word whose change the CPU sleeps for, [`HALTED`], or 0.
    pub sleeps_on: AtomicU32,
    pub thread: OnceLock<C::Thread>,
    pub halts: AtomicU32,
}

/// CPUs that share memory.
pub struct Machine<C: Checker> {
    pub(crate) setup: Setup,
    pub(crate) cpus: Vec<CpuState<C>>,
    pub(crate) nodes: NodeTable<ModelWord<C>>,
    pub(crate) waiting: WaitTable<ModelWord<C>, ModelWord<C>>,
    /// Changes of words, kicks, interrupts: who sees this stand still, waits in vain.
    pub(crate) progress: AtomicU64,
}

impl<C: Checker> std::fmt::Debug for Machine<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Machine")
            .field("setup", &self.setup)
            .finish_non_exhaustive()
    }
}

impl<C: Checker> Machine<C> {
    /// A machine at rest. Belongs to the execution that makes it.
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
            halts: AtomicU32::new(0),
        };
        Arc::new(Machine {
            cpus: (0..setup.cpus).map(cpu).collect(),
            nodes: NodeTable::new(setup.cpus as usize),
            waiting: WaitTable::new(setup.cpus as usize),
            progress: AtomicU64::new(0),
            setup: setup.clone(),
        })
    }

    /// Runs each job on its CPU, all at the same time, and returns when all are done. The first runs on the caller's
    /// thread.
    pub fn run(self: &Arc<Self>, jobs: Vec<(CpuId, Job<Cpu<C>>)>) {
        self.run_after(|_| (), jobs);
    }

    /// Runs `prologue` on the first job's CPU, alone, and then the jobs.
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
            "a waiter's record is left behind"
        );
    }

    /// How often `cpu` has halted.
    pub fn halts(&self, cpu: CpuId) -> u32 {
        self.cpus[cpu.0 as usize].halts.load(Ordering::Relaxed)
    }

    /// `word` has a new value.
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

/// A machine as a world for the conformance suite. Each run has a machine of its own, so that jobs may name any CPU.
#[derive(Debug)]
pub struct ModelWorld<C: Checker> {
    setup: Setup,
    checker: std::marker::PhantomData<fn() -> C>,
}

impl<C: Checker> ModelWorld<C> {
    /// A world of the current execution.
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
