//! State of the bare-metal kernel: its threads, its flows that are not on a pCPU, and their calls to the host's
//! scheduler. `bare_metal.rs` plays it.

use holdfast_host::{IdVec, PcpuId, TaskId, VcpuId, VmId};

use crate::stacks::context::Saved;

/// What a flow of the bare-metal kernel wants from the host's scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// The running thread sleeps, until a time in nanoseconds or until it is woken.
    Sleep(Option<u64>),
    /// The running thread can be preempted.
    Preempt,
    /// The running thread gives way to others (`sched_yield`).
    GiveWay,
    /// The running thread executes a program.
    Execute,
    /// The running thread ends.
    End,
    /// The running thread wakes this one.
    Wake(u32),
    /// The running thread starts this one.
    Start(u32),
    /// A boot flow has nothing to do.
    Idle,
}

/// The vector of the kernel's calls to its other CPUs: Linux's `CALL_FUNCTION_VECTOR`.
pub const CALL_VECTOR: u8 = 0xfc;
/// Given as a vector to a flow in user mode whose pCPU the scheduler wants. No interrupt has this vector.
pub const PREEMPT: u8 = 0;

/// A flow of the kernel that is not on a pCPU.
#[derive(Clone, Copy, Debug)]
pub struct Flow {
    /// Where the flow continues.
    pub saved: Saved,
    /// The flow's stack pointer stays above this address.
    pub stack_limit: usize,
}

impl Flow {
    /// No flow.
    pub const NONE: Flow = Flow {
        saved: Saved::NONE,
        stack_limit: 0,
    };
}

/// A thread of the host that is a task of the kernel.
#[derive(Clone, Copy, Debug)]
pub struct Thread {
    /// Its flow, while it has no pCPU.
    pub flow: Flow,
    /// The pCPU for which it waits.
    pub waits_for: Option<PcpuId>,
}

impl Thread {
    /// A thread that has not started.
    pub const NEW: Thread = Thread {
        flow: Flow::NONE,
        waits_for: None,
    };
}

/// The kernel on one pCPU.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The thread that runs there, interrupted by the host or not.
    pub thread: Option<u32>,
    /// The boot flow, which takes the interrupts that find no thread.
    pub idle: Flow,
    /// Number of threads that wait for this pCPU.
    pub waiting: u32,
}

/// The bare-metal kernel.
#[derive(Clone, Debug)]
pub struct Native {
    /// Its number among the guests.
    pub vm: VmId,
    /// The record of its first CPU.
    first: VcpuId,
    /// Number of pCPUs that have not booted it.
    pub booting: usize,
    /// What it does on each pCPU.
    pub places: IdVec<PcpuId, Place>,
    /// Its threads.
    pub threads: Vec<Thread>,
    /// The host's number of the first thread; the others follow.
    pub first_task: u32,
    /// How the host schedules the threads.
    pub task: holdfast_host::TaskConfig,
    /// The pCPUs on which each thread may run. A thread without an entry may run on all.
    pub affinities: Vec<Vec<u32>>,
}

impl Native {
    /// A kernel with the number `vm` among the guests. The records of its CPUs begin at `first`.
    pub fn new(vm: VmId, first: VcpuId, pcpus: u32, task: holdfast_host::TaskConfig) -> Native {
        let place = Place {
            thread: None,
            idle: Flow::NONE,
            waiting: 0,
        };
        let pcpus = pcpus as usize;
        Native {
            vm,
            first,
            booting: pcpus,
            places: IdVec::filled(place, pcpus),
            threads: Vec::new(),
            first_task: 0,
            task,
            affinities: Vec::new(),
        }
    }

    /// The thread that the host calls `task`, if it is one.
    pub fn thread_of(&self, task: TaskId) -> Option<u32> {
        let thread = task.0.checked_sub(self.first_task)?;
        (thread < self.threads.len() as u32).then_some(thread)
    }

    /// The host's number of `thread`.
    pub fn task_of(&self, thread: u32) -> TaskId {
        TaskId(self.first_task + thread)
    }

    /// The record of the kernel's CPU on `pcpu`.
    pub fn cpu(&self, pcpu: PcpuId) -> VcpuId {
        VcpuId(self.first.0 + pcpu.0)
    }
}
