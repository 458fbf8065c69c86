//! A machine whose CPUs take turns: each operation is a step, and a [`Chooser`] decides which CPU takes the next step.
//!
//! Everything runs on one thread, and a CPU is a coroutine. Memory is sequentially consistent. A run fails if a job
//! panics, or by a **deadlock**: no CPU can take a step. A lost kick shows as a deadlock.

#![expect(
    unsafe_code,
    reason = "implements the platform traits; a CPU points to its coroutine"
)]

mod cpu;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use holdfast_locks::conformance::Job;
use holdfast_locks::{CpuId, LockStats, NodeTable, Paravirt, ReaderLine, WaitTable, Word};

pub use cpu::StepCpu;

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

/// Decides which CPU takes the next step, and whether a halt ends for no reason.
pub trait Chooser {
    /// Returns an index into `options`, which has at least 2 entries. Entry 0 continues the current CPU.
    fn choose(&mut self, options: &[u32]) -> u32;
    /// Returns whether a halt ends for no reason.
    fn spurious(&mut self) -> bool {
        false
    }
}

/// A fair scheduler: each CPU takes one step in its turn.
pub struct InTurn(pub u32);

impl Chooser for InTurn {
    fn choose(&mut self, options: &[u32]) -> u32 {
        let later = options.iter().filter(|&&cpu| cpu > self.0).min();
        self.0 = *later.or(options.iter().min()).expect("a CPU that can take a step");
        self.0
    }
}

/// The number of bounded waits in vain after which a CPU lets other CPUs run: a schedule that starves them tests
/// nothing.
const SPINS_MAX: u32 = 6;

/// What [`Platform::settle`](holdfast_locks::Platform::settle) does.
#[derive(Clone, Copy, PartialEq)]
pub enum Settling {
    /// It waits for the compare-stores that have begun.
    Waits,
    /// It does not wait, against its contract.
    Fails,
    /// It cannot wait, and says so; it bounds the next halt.
    Refused,
    /// It cannot wait and bounds the next halt, but does not say so.
    RefusedInSilence,
    /// It makes compare-stores exchanges, and waits for those that have begun. While they are exchanges it does not
    /// wait. The next exchange makes them compare-stores again.
    ChangesOver,
    /// The same, but it never waits, against its contract.
    ChangesOverAtOnce,
}

/// The changeover from compare-stores to exchanges.
#[derive(Clone, Copy, PartialEq)]
enum Stores {
    Compare,
    /// No compare-store begins any more.
    Leaving,
    Exchange,
}

/// The properties of the machine.
#[derive(Clone, Copy)]
pub struct Setup {
    pub cpus: u32,
    /// The number of iterations before a waiter halts.
    pub threshold: u32,
    /// The number of NUMA nodes: the node of a CPU is its number modulo this.
    pub numa_nodes: u32,
    /// The number of steps after which a run counts as a livelock.
    pub steps_max: u64,
    /// CPUs are like host threads: a compare-store is two steps, and the head of a hybrid lock's queue competes with
    /// newcomers.
    pub hosted: bool,
    /// What `settle` does.
    pub settling: Settling,
    /// The number of lines on which readers of a biased lock announce themselves. CPUs take turns.
    pub reader_lines: u32,
    /// Whether every CPU seems preempted.
    pub preempted: bool,
    /// Whether waiters behind a preempted CPU halt.
    pub halts_behind: bool,
}

impl Setup {
    pub fn new(cpus: u32) -> Self {
        Setup {
            cpus,
            threshold: 1,
            numa_nodes: 1,
            steps_max: 2_000_000,
            hosted: false,
            settling: Settling::Waits,
            reader_lines: 2,
            preempted: false,
            halts_behind: false,
        }
    }

    /// Returns a machine of `cpus` CPUs like host threads.
    pub fn hosted(cpus: u32) -> Self {
        Setup {
            hosted: true,
            ..Setup::new(cpus)
        }
    }
}

/// The reason why a CPU takes no step.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Blocked {
    No,
    /// Until another CPU has taken a step, if another one can: this CPU spins, and only others can change what it sees.
    Spinning,
    /// Until the word at this address no longer has this value.
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
    /// The number of kicks that this CPU has sent.
    kicks: Cell<u32>,
    spins: Cell<u32>,
    /// The iterations of each bounded wait in vain since the last halt.
    waits: RefCell<Vec<u32>>,
    /// The same for each halt: those between it and the one before.
    halted_after: RefCell<Vec<Vec<u32>>>,
    /// Whether another CPU has called `settle`: a compare-store must compare again.
    compare_again: Cell<bool>,
    /// Whether the next halt ends by itself.
    bounded: Cell<bool>,
    /// The number of locks that this CPU has taken past their queues.
    overtakes: Cell<u32>,
    /// Whether the next read without a bias biases its lock: each second one of a CPU does.
    biases_next: Cell<bool>,
    /// The keys of the locks that this CPU waits for, innermost last.
    contending: RefCell<Vec<usize>>,
    /// How many waits were reported as contention.
    contentions: Cell<u32>,
    /// How often this CPU has recorded a lock before it queued.
    records: Cell<u32>,
    /// The keys of the words in which this CPU may have left a trace, innermost last.
    waiting: RefCell<Vec<usize>>,
    /// The last function by which this CPU said what a word would be without its waiters.
    alone: Cell<Option<Alone>>,
}

/// Returns what a word would be without its waiters.
type Alone = fn(u32) -> u32;

/// The state that the CPUs share.
pub struct Machine {
    setup: Setup,
    cpus: Vec<CpuState>,
    nodes: NodeTable<StepWord>,
    waiting: WaitTable<StepWord, StepAddress>,
    reader_lines: Vec<ReaderLine<StepAddress>>,
    pub stats: LockStats,
    stores: Cell<Stores>,
    chooser: RefCell<Box<dyn Chooser>>,
    steps: Cell<u64>,
    /// The addresses of the words that were asked for their key, in order.
    keyed: RefCell<Vec<usize>>,
    /// The CPUs that wait for a holder, in the order in which they began.
    queue: RefCell<Vec<u32>>,
    /// How many waits have ended before one that had begun earlier.
    overtaken: Cell<u32>,
}

type Flow = Coroutine<(), (), ()>;

thread_local! {
    /// Stacks of flows that have ended. A new one takes longer than a short run.
    static STACKS: RefCell<Vec<DefaultStack>> = const { RefCell::new(Vec::new()) };
}

fn flow(body: impl FnOnce(&Yielder<(), ()>, ()) + 'static) -> Flow {
    let stack = STACKS.with(|stacks| stacks.borrow_mut().pop());
    Flow::with_stack(stack.unwrap_or_default(), body)
}

/// Keeps the stack of a flow that has ended.
fn ended(flow: Flow) {
    STACKS.with(|stacks| stacks.borrow_mut().push(flow.into_stack()));
}

impl Machine {
    pub fn new(setup: Setup, chooser: Box<dyn Chooser>) -> Rc<Self> {
        let cpu = |_| CpuState {
            blocked: Cell::new(Blocked::No),
            kicked: Cell::new(false),
            irqs_enabled: Cell::new(true),
            in_nmi: Cell::new(false),
            interrupts: RefCell::default(),
            halts: Cell::new(0),
            kicks: Cell::new(0),
            spins: Cell::new(0),
            waits: RefCell::default(),
            halted_after: RefCell::default(),
            compare_again: Cell::new(false),
            bounded: Cell::new(false),
            overtakes: Cell::new(0),
            biases_next: Cell::new(false),
            contending: RefCell::default(),
            contentions: Cell::new(0),
            records: Cell::new(0),
            waiting: RefCell::default(),
            alone: Cell::new(None),
        };
        Rc::new(Machine {
            setup,
            cpus: (0..setup.cpus).map(cpu).collect(),
            nodes: NodeTable::new(setup.cpus as usize),
            waiting: WaitTable::new(setup.cpus as usize),
            reader_lines: (0..setup.reader_lines).map(|_| ReaderLine::new()).collect(),
            stats: LockStats::new(),
            stores: Cell::new(Stores::Compare),
            chooser: RefCell::new(chooser),
            steps: Cell::new(0),
            keyed: RefCell::default(),
            queue: RefCell::default(),
            overtaken: Cell::new(0),
        })
    }

    /// Returns the number of steps of all CPUs.
    pub fn steps(&self) -> u64 {
        self.steps.get()
    }

    /// Returns how often `cpu` has halted.
    pub fn halts(&self, cpu: u32) -> u32 {
        self.cpus[cpu as usize].halts.get()
    }

    /// Returns how many kicks `cpu` has sent.
    pub fn kicks(&self, cpu: u32) -> u32 {
        self.cpus[cpu as usize].kicks.get()
    }

    /// Returns how many waits for a holder have ended before one that had begun earlier.
    pub fn overtaken(&self) -> u32 {
        self.overtaken.get()
    }

    /// Returns how often `cpu` has reported a wait for a holder.
    pub fn contentions(&self, cpu: u32) -> u32 {
        self.cpus[cpu as usize].contentions.get()
    }

    /// Returns how often `cpu` has recorded a lock before it queued.
    pub fn records(&self, cpu: u32) -> u32 {
        self.cpus[cpu as usize].records.get()
    }

    /// Returns whether `cpu` has recorded the word with this key, in which it may have left a trace.
    pub fn has_recorded(&self, cpu: u32, key: usize) -> bool {
        self.cpus[cpu as usize].waiting.borrow().contains(&key)
    }

    /// Returns what each waiter says that `word` would be without its waiters.
    pub fn alone(&self, word: u32) -> Vec<u32> {
        self.cpus
            .iter()
            .filter_map(|cpu| Some(cpu.alone.get()?(word)))
            .collect()
    }

    /// Returns the iterations of each bounded wait in vain of `cpu` since its last halt.
    pub fn waits(&self, cpu: u32) -> Vec<u32> {
        self.cpus[cpu as usize].waits.borrow().clone()
    }

    /// Returns for each halt of `cpu` the iterations of the waits in vain between it and the halt before.
    pub fn halted_after(&self, cpu: u32) -> Vec<Vec<u32>> {
        self.cpus[cpu as usize].halted_after.borrow().clone()
    }

    fn can_step(&self, cpu: u32) -> bool {
        let state = &self.cpus[cpu as usize];
        let interrupted = !state.interrupts.borrow().is_empty();
        match state.blocked.get() {
            Blocked::No | Blocked::Spinning => true,
            Blocked::Word(word, seen) => {
                // SAFETY: the blocked CPU borrows the word until its next step.
                let now = unsafe { &*word }.0.load(Ordering::Relaxed);
                now != seen || interrupted && state.irqs_enabled.get()
            }
            Blocked::HaltMasked => state.kicked.get(),
            Blocked::HaltUnmasked => state.kicked.get() || interrupted,
        }
    }

    /// Runs the jobs until all have ended. The error describes a deadlock or livelock.
    pub fn run(self: &Rc<Self>, jobs: Vec<(CpuId, Job<StepCpu>)>) -> Result<(), String> {
        let mut flows: Vec<(u32, Option<Flow>)> = Vec::new();
        for (id, job) in jobs {
            let machine = Rc::clone(self);
            let body = move |yielder: &Yielder<(), ()>, ()| {
                let cpu = StepCpu { id, machine, yielder };
                job.run(&cpu);
                cpu.take_interrupts();
            };
            flows.push((id.0, Some(flow(body))));
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
            let flow = &mut flows[current as usize].1;
            let mut running = flow.take().expect("chosen among those that run");
            match running.resume(()) {
                CoroutineResult::Yield(()) => *flow = Some(running),
                CoroutineResult::Return(()) => ended(running),
            }
        }
    }

    /// Checks that no lock is left in the hash table, where it would mislead a later unlock.
    fn nothing_left_behind(self: &Rc<Self>) -> Result<(), String> {
        let contending = self.cpus.iter().any(|cpu| !cpu.contending.borrow().is_empty());
        assert!(!contending, "a wait that is over has not ended");
        let waiting = self.cpus.iter().any(|cpu| !cpu.waiting.borrow().is_empty());
        assert!(!waiting, "a CPU that waits no more has not said so");
        let idle = Rc::new(Cell::new(false));
        let (machine, answer) = (Rc::clone(self), Rc::clone(&idle));
        let mut flow = flow(move |yielder, ()| {
            let cpu = StepCpu {
                id: CpuId(0),
                machine,
                yielder,
            };
            answer.set(cpu.waiting().is_idle(&cpu));
        });
        while let CoroutineResult::Yield(()) = flow.resume(()) {}
        ended(flow);
        if idle.get() {
            Ok(())
        } else {
            Err("a lock is still listed, or a CPU registered".to_owned())
        }
    }

    /// Records a step of a CPU, which spinning CPUs may see.
    fn spinners_go_on(&self) {
        for cpu in &self.cpus {
            if cpu.blocked.get() == Blocked::Spinning {
                cpu.blocked.set(Blocked::No);
            }
        }
    }

    /// Returns the CPUs that can take a step: first `current`, then the others in turn. A spinning CPU can take a step
    /// only if no other CPU can.
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
                // Unwinding would drop guards, which take further steps.
                std::mem::forget(flow);
            }
        }
        format!("{what} after {} steps: {}", self.steps.get(), blocked.join(", "))
    }
}
