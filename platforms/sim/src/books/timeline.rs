//! What happened in a window of virtual time, for a picture of it: who had each pCPU, what each vCPU did, and who woke,
//! kicked or yielded to whom.
//!
//! - **Looking changes nothing**: what is recorded is read off the engine, and nothing in it is ever asked for what comes
//!   next. Histories and ledgers with and without a recorder are the same bit for bit.
//! - **No gap, no overlap**: a track's spans follow each other without gaps, and [`Doing`]s fill exactly those [`Place`]s
//!   where the vCPU has a pCPU. Their sums are the ledger's.
//!
//! Waiting for cache lines belongs to whatever it delays. Whether work is the user's or the kernel's, and for which lock,
//! is read when it is accounted: up to a microsecond after it changed.

mod open;
mod record;

use holdfast_guest::LockClass;
use holdfast_machine::Time;

use crate::books::cause::Cause;

pub use open::Open;
pub use record::Recorder;

/// A stretch of virtual time, from `from` up to `to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Nanoseconds since power-on.
    pub from_ns: u64,
    /// Nanoseconds since power-on.
    pub to_ns: u64,
}

/// What was recorded.
#[derive(Clone, Debug)]
pub struct Timeline {
    /// Start of the window.
    pub from: Time,
    /// End of what was recorded: of the window, or of the run, or when there was too much.
    pub to: Time,
    /// End of the run.
    pub end: Time,
    /// When each guest's measured interval began, inside the window or not.
    pub begun: Vec<Option<Time>>,
    /// Whether it ends before its window because there was too much.
    pub truncated: bool,
    /// Names of the guests.
    pub vms: Vec<String>,
    /// Names of the host tasks that are no vCPUs, by the host's numbers.
    pub tasks: Vec<(u32, String)>,
    /// Physical CPUs.
    pub pcpus: Vec<PcpuTimeline>,
    /// Virtual CPUs of all guests.
    pub vcpus: Vec<VcpuTimeline>,
    /// What happened at once, in the order of time.
    pub moments: Vec<Moment>,
}

/// Something that lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span<T> {
    /// When it began.
    pub start: Time,
    /// When it ended; after `start`.
    pub end: Time,
    /// What it was.
    pub what: T,
}

/// A pCPU's time.
#[derive(Clone, Debug, Default)]
pub struct PcpuTimeline {
    /// Whose it was.
    pub threads: Vec<Span<Thread>>,
    /// Host code that it executed: exits, interrupts, switches.
    pub host: Vec<Span<()>>,
}

/// A vCPU's time.
#[derive(Clone, Debug, Default)]
pub struct VcpuTimeline {
    /// Index of its guest.
    pub vm: u32,
    /// Its number there.
    pub number: u32,
    /// Whether it had a pCPU, and why not.
    pub places: Vec<Span<Place>>,
    /// What it did while it had one.
    pub doings: Vec<Span<Doing>>,
}

/// Whose a pCPU is. vCPUs are indices into [`Timeline::vcpus`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thread {
    /// A vCPU's.
    Vcpu(u32),
    /// It polls for the wake-up of this vCPU.
    Poll(u32),
    /// A host task's.
    Task(u32),
    /// Nobody's.
    Idle,
}

/// A lock of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lock {
    /// Its cache line's number, which tells it from the others.
    pub line: u32,
    /// What it protects; `None` if nobody said.
    pub class: Option<LockClass>,
}

/// Where a vCPU is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// It has this pCPU: in guest mode, or the host works for it.
    Running {
        /// Which.
        pcpu: u32,
    },
    /// Ready to run, and without a pCPU.
    Preempted {
        /// The lock that it took last and holds.
        holds: Option<Lock>,
        /// The lock that it waits for.
        awaits: Option<Lock>,
    },
    /// Ready to run, and not let: its task group's quota is spent.
    Throttled {
        /// The lock that it took last and holds.
        holds: Option<Lock>,
        /// The lock that it waits for.
        awaits: Option<Lock>,
    },
    /// Halted.
    Halted {
        /// Until this lock's holder kicks it; `None`: idle.
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
        /// Which.
        lock: Lock,
        /// Behind whom.
        behind: Behind,
    },
    /// Waiting for this vCPU to answer an IPI.
    AwaitsIpi(u32),
    /// Taking an interrupt.
    Interrupt,
    /// Out of the guest, and why.
    Out(Cause),
}

/// Behind whom a waiter spins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behind {
    /// The holder, who is running.
    RunningHolder(u32),
    /// The holder, who has no pCPU or waits himself for someone without.
    PreemptedHolder(u32),
    /// The longest waiter, who has no pCPU, while the lock is free.
    PreemptedWaiter(u32),
    /// As [`Behind::PreemptedHolder`], for want of its group's quota.
    ThrottledHolder(u32),
    /// As [`Behind::PreemptedWaiter`], for want of its group's quota.
    ThrottledWaiter(u32),
    /// Nobody: the lock is being handed over.
    HandOver,
}

/// Something that happened at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// When.
    pub at: Time,
    /// To whom.
    pub track: Track,
    /// What.
    pub what: Happening,
    /// The chain of cause and effect that it is part of.
    pub flow: Option<Flow>,
}

/// Whom a moment belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Track {
    /// A pCPU.
    Pcpu(u32),
    /// A vCPU.
    Vcpu(u32),
    /// A guest.
    Vm(u32),
}

/// A link of a chain; every chain has two at least.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// The chain's number, from 1.
    pub id: u64,
    /// Whether the chain ends here.
    pub ends: bool,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happening {
    /// It kicked this vCPU.
    Kick(u32),
    /// A kick from this vCPU came before it halted: its next halt ends at once.
    KickedEarly(u32),
    /// It was woken by this vCPU: by a kick, or by an IPI with this vector.
    Woken {
        /// By whom.
        by: u32,
        /// With what; `None`: a kick.
        vector: Option<u8>,
    },
    /// It sent this vCPU an IPI.
    Ipi {
        /// To whom.
        to: u32,
        /// With what.
        vector: u8,
    },
    /// It took the IPI that this vCPU sent.
    TakesIpi {
        /// Who sent it.
        from: u32,
        /// With what.
        vector: u8,
    },
    /// It tried to yield to this vCPU.
    Yield {
        /// To whom.
        to: u32,
        /// Whether the scheduler took it up.
        done: bool,
        /// Whether `to` held a lock.
        to_holder: bool,
    },
    /// It runs, after this vCPU yielded to it.
    YieldedTo(u32),
    /// A pCPU sent this pCPU a reschedule IPI.
    HostIpi(u32),
    /// The reschedule IPI of this pCPU arrived.
    HostIpiArrives(u32),
    /// The measured interval began.
    Begins,
    /// It ended.
    Done,
}
