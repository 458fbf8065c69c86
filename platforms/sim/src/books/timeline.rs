//! The timeline: a record of a window of virtual time, for a picture of it. It shows which thread had each pCPU, what
//! each vCPU did, and which vCPUs woke, kicked or yielded to which.
//!
//! - **Recording changes nothing**: the recorder is one of the books. Histories and ledgers with and without it are
//!   the same bit for bit.
//! - **No gap, no overlap**: the spans of a track follow each other without gaps. [`Doing`]s fill exactly the
//!   [`Place`]s in which the vCPU has a pCPU. Their sums are the ledger's.
//!
//! The time for cache lines belongs to the work that it delays. Whether work is the user's or the kernel's, and for
//! which lock, is read when the work is accounted: up to a microsecond after it changed.

mod open;
mod record;

use holdfast_guest::LockClass;
use holdfast_machine::Time;

use crate::core::cause::Cause;

pub use open::Open;
pub use record::Recorder;

/// A stretch of virtual time, from `from` up to `to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Start, in nanoseconds since power-on.
    pub from_ns: u64,
    /// End, in nanoseconds since power-on.
    pub to_ns: u64,
}

/// A recorded timeline.
#[derive(Clone, Debug)]
pub struct Timeline {
    /// Start of the window.
    pub from: Time,
    /// End of the recording: the end of the window or of the run, or the time at which the record became too large.
    pub to: Time,
    /// End of the run.
    pub end: Time,
    /// The begin of each guest's measured interval, inside the window or not.
    pub begun: Vec<Option<Time>>,
    /// Whether the recording ended before its window because it became too large.
    pub truncated: bool,
    /// Names of the guests.
    pub vms: Vec<String>,
    /// Host tasks other than vCPUs.
    pub tasks: Vec<TaskTimeline>,
    /// Physical CPUs.
    pub pcpus: Vec<PcpuTimeline>,
    /// Virtual CPUs of all guests.
    pub vcpus: Vec<VcpuTimeline>,
    /// Happenings without a length, in the order of time.
    pub moments: Vec<Moment>,
}

/// Something that lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span<T> {
    /// The time at which it began.
    pub start: Time,
    /// The time at which it ended, after `start`.
    pub end: Time,
    /// What went on.
    pub what: T,
}

/// A pCPU's time.
#[derive(Clone, Debug, Default)]
pub struct PcpuTimeline {
    /// The number by which users know it.
    pub number: u32,
    /// The thread that had it.
    pub threads: Vec<Span<Thread>>,
    /// Host code that it executed: exits, interrupts, switches.
    pub host: Vec<Span<()>>,
}

/// A vCPU's time.
#[derive(Clone, Debug, Default)]
pub struct VcpuTimeline {
    /// Index of its guest.
    pub vm: u32,
    /// Its number in the guest.
    pub number: u32,
    /// Whether it had a pCPU, and if not, why.
    pub places: Vec<Span<Place>>,
    /// What it did while it had one.
    pub doings: Vec<Span<Doing>>,
}

/// A host task's time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskTimeline {
    /// The host's number of it.
    pub number: u32,
    /// Its name.
    pub name: String,
    /// Its sleeps. Otherwise it has a pCPU or waits for one.
    pub sleeps: Vec<Span<()>>,
}

/// The thread that has a pCPU. vCPUs are indices into [`Timeline::vcpus`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thread {
    /// This vCPU.
    Vcpu(u32),
    /// No thread yet: the pCPU polls for the wakeup of this vCPU.
    Poll(u32),
    /// This host task.
    Task(u32),
    /// No thread.
    Idle,
}

/// A lock of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lock {
    /// The number of its cache line, which identifies it.
    pub line: u32,
    /// What it protects; `None` if the guest has not said.
    pub class: Option<LockClass>,
}

/// Where a vCPU is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// It has a pCPU: it is in guest mode, or the host works for it.
    Running {
        /// The pCPU.
        pcpu: u32,
    },
    /// Ready to run, without a pCPU.
    Preempted {
        /// The lock that it took last and holds.
        holds: Option<Lock>,
        /// The lock that it waits for.
        awaits: Option<Lock>,
    },
    /// Ready to run, and throttled.
    Throttled {
        /// The lock that it took last and holds.
        holds: Option<Lock>,
        /// The lock that it waits for.
        awaits: Option<Lock>,
    },
    /// Halted in HLT.
    Halted {
        /// The lock whose holder will kick it; `None` if it is idle.
        awaits: Option<Lock>,
    },
    /// Woken, and not yet on a pCPU.
    Woken,
    /// Its thread sleeps after a pause exit.
    PauseSleep,
    /// Powered off.
    Off,
}

/// What a vCPU does while it has a pCPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// A task's own work, in user mode.
    User,
    /// The kernel's work outside critical sections.
    Kernel,
    /// The guest's idle loop.
    IdleLoop,
    /// Work with this lock held, which was taken last.
    Critical(Lock),
    /// Spinning for a lock.
    Spin {
        /// The lock.
        lock: Lock,
        /// Why it waits.
        behind: Behind,
    },
    /// Waiting for this vCPU to acknowledge an IPI.
    AwaitsIpi(u32),
    /// Taking an interrupt.
    Interrupt,
    /// Out of its guest, for this cause.
    Out(Cause),
}

/// Why a waiter spins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behind {
    /// This vCPU holds the lock and is running.
    RunningHolder(u32),
    /// This vCPU holds the lock; it has no pCPU, or waits itself for a vCPU without one.
    PreemptedHolder(u32),
    /// The lock is free; this vCPU, the longest waiter, has no pCPU.
    PreemptedWaiter(u32),
    /// As [`Behind::PreemptedHolder`], because of a spent quota.
    ThrottledHolder(u32),
    /// As [`Behind::PreemptedWaiter`], because of a spent quota.
    ThrottledWaiter(u32),
    /// The lock is being handed over.
    HandOver,
}

/// A happening without a length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// The time.
    pub at: Time,
    /// The pCPU, vCPU or guest that it happened to.
    pub track: Track,
    /// The happening.
    pub what: Happening,
    /// The chain of cause and effect that it is part of.
    pub flow: Option<Flow>,
}

/// The owner of a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Track {
    /// This pCPU.
    Pcpu(u32),
    /// This vCPU.
    Vcpu(u32),
    /// This guest.
    Vm(u32),
}

/// A link of a chain of cause and effect. Every chain has at least two links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// The chain's number, from 1.
    pub id: u64,
    /// Whether the chain ends here.
    pub ends: bool,
}

/// What happened at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happening {
    /// It kicked this vCPU.
    Kick(u32),
    /// A kick from this vCPU came before it halted: its next halt ends at once.
    KickedEarly(u32),
    /// It was woken by this vCPU: by a kick, or by an IPI with this vector.
    Woken {
        /// The vCPU that woke it.
        by: u32,
        /// The IPI's vector; `None` for a kick.
        vector: Option<u8>,
    },
    /// It sent this vCPU an IPI.
    Ipi {
        /// The target.
        to: u32,
        /// The vector.
        vector: u8,
    },
    /// It took the IPI that this vCPU sent.
    TakesIpi {
        /// The sender.
        from: u32,
        /// The vector.
        vector: u8,
    },
    /// Its AVIC rang so many doorbells for the IPI that it sent.
    Doorbells(u64),
    /// Host software on it rang the doorbell of this pCPU, or sent it a notification of posted interrupts.
    HostRings(u32),
    /// A doorbell for it found its pCPU out of guest mode, and had no effect.
    DoorbellMissed,
    /// It tried to yield to this vCPU.
    Yield {
        /// The target.
        to: u32,
        /// Whether the scheduler took it up.
        done: bool,
        /// Whether `to` held a lock.
        to_holder: bool,
    },
    /// It runs, after this vCPU yielded to it.
    YieldedTo(u32),
    /// It sent this pCPU a reschedule IPI.
    HostIpi(u32),
    /// The reschedule IPI of this pCPU arrived.
    HostIpiArrives(u32),
    /// The measured interval began.
    Begins,
    /// The measured interval ended.
    Done,
}
