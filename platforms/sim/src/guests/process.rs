//! A bare-metal program: threads of the host's scheduler, with only system calls below them.
//!
//! The kernel consists of the host's scheduler and of the costs of its system calls
//! ([`Costs`](holdfast_machine::Costs): `syscall`, `futex`, `wake`, `context_switch`). The threads are host tasks, as
//! those of the bare-metal kernel (`bare_metal.rs`). A thread can be preempted at any point in user mode, and at the
//! end of a system call.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

use holdfast_guest::{Cpu, GuestImage, Machine, Mode, Threads};
use holdfast_locks::thread::{Batch, Changeover, Parker, SPIN_THRESHOLD, TURN_NS, Turns};
use holdfast_locks::{Budget, CpuId, NodeTable, Platform, WaitTable, Word};

use crate::guests::machine::{SimContext, SimMachine};
use crate::guests::thread::SimThread;
use crate::memory::word::{SimAddress, SimWord};

/// How long threads spin and overtake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waits {
    /// Iterations before a waiter halts.
    pub spin_threshold: Budget,
    /// How long running threads may overtake the head of a hybrid lock's queue, in nanoseconds.
    pub turn_ns: u64,
}

impl Default for Waits {
    fn default() -> Waits {
        Waits {
            spin_threshold: SPIN_THRESHOLD,
            turn_ns: TURN_NS,
        }
    }
}

/// The state that the threads of a process share.
pub(crate) struct Process {
    pub(crate) waits: Waits,
    pub(crate) nodes: NodeTable<SimWord>,
    pub(crate) waiting: WaitTable<SimWord, SimAddress>,
    pub(crate) parkers: Box<[Parker<SimWord>]>,
    pub(crate) turns: Box<[Turns]>,
    pub(crate) changeover: Changeover,
    /// Unlocks are exchanges at present.
    pub(crate) exchanging: Cell<bool>,
    pub(crate) batches: Box<[Batch]>,
    /// The thread that each pCPU executed last.
    pub(crate) last: Box<[Cell<u32>]>,
    /// The thread that sleeps on the word with this key. Each thread has its own word.
    sleepers: RefCell<BTreeMap<usize, u32>>,
    /// The work of each thread.
    body: Body,
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process")
            .field("threads", &self.parkers.len())
            .finish_non_exhaustive()
    }
}

/// No thread.
const NO_THREAD: u32 = u32::MAX;

impl Process {
    pub(crate) fn new(threads: u32, pcpus: u32, waits: Waits, body: Body) -> Process {
        Process {
            waits,
            nodes: NodeTable::new(threads as usize),
            waiting: WaitTable::new(threads as usize),
            parkers: (0..threads).map(|_| Parker::from_word(SimWord::new(0))).collect(),
            turns: (0..threads).map(|_| Turns::new()).collect(),
            changeover: Changeover::new(),
            exchanging: Cell::new(false),
            batches: (0..threads).map(|_| Batch::new()).collect(),
            last: (0..pcpus).map(|_| Cell::new(NO_THREAD)).collect(),
            sleepers: RefCell::default(),
            body,
        }
    }

    /// `thread` is about to check whether it has to sleep on the word with this key.
    pub(crate) fn queue(&self, key: usize, thread: u32) {
        self.sleepers.borrow_mut().insert(key, thread);
    }

    /// Removes and returns the thread that sleeps on the word with this key.
    pub(crate) fn take(&self, key: usize) -> Option<u32> {
        self.sleepers.borrow_mut().remove(&key)
    }
}

/// The work of a thread.
pub(crate) type Body = Rc<dyn Fn(&SimThread)>;

/// The program, as the kernel that the machine boots.
pub(crate) struct Image {
    machine: SimMachine,
    /// Boxed because flows have its address.
    process: Box<Process>,
    contexts: RefCell<Vec<SimContext>>,
}

impl Image {
    /// The image of `process`, which `machine` boots.
    pub(crate) fn new(machine: SimMachine, process: Process) -> Image {
        Image {
            machine,
            process: Box::new(process),
            contexts: RefCell::default(),
        }
    }

    fn thread(&self, index: u32) -> SimThread {
        SimThread::new(self.machine, &raw const *self.process, index)
    }

    /// The whole of a thread.
    fn run_thread(thread: &SimThread, machine: SimMachine) -> ! {
        thread.arrive();
        thread.return_to_user();
        (thread.process().body)(thread);
        loop {
            machine.cpu().irq_disable();
            machine.cpu().executing(Mode::Idle);
            Threads::end(&machine);
        }
    }

    fn start(&self) {
        let threads = self.process.parkers.len() as u32;
        self.machine.reserve(threads);
        for index in 0..threads {
            let (thread, machine) = (self.thread(index), self.machine);
            let context = machine.new_context(Box::new(move || Image::run_thread(&thread, machine)));
            Threads::start(&self.machine, index, &context);
            self.contexts.borrow_mut().push(context);
        }
    }
}

impl GuestImage for Image {
    fn boot(&self, cpu: CpuId) -> ! {
        if cpu.0 == 0 {
            self.start();
        }
        self.machine.cpu().executing(Mode::Idle);
        loop {
            self.machine.idle();
        }
    }

    fn preempt(&self) {
        let here = self.machine.cpu();
        here.executing(Mode::Kernel);
        let index = self.process.last[here.cpu().0 as usize].get();
        self.thread(index).return_to_user();
    }

    /// A call from another thread (`settle`) needs only the interrupt.
    fn interrupt(&self, _: u8) {}
}
