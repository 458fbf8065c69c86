//! What happens to the host.

#[cfg(doc)]
use super::Command;
use super::{Exit, GuestState, HostInterrupt, Nanos, PcpuId, TaskId, VcpuId, VmId};
#[cfg(doc)]
use crate::config::TaskConfig;
use crate::interrupts::Inhibit;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// The vCPU that runs on `pcpu` left guest mode. The pCPU executes host code until the next [`Command::Run`] for
    /// it.
    Exit {
        /// Where.
        pcpu: PcpuId,
        /// Why.
        exit: Exit,
        /// The guest's state.
        guest: GuestState,
    },
    /// An interrupt came while `pcpu` was not in guest mode: it ran a task, polled, or was idle.
    Interrupt {
        /// Where.
        pcpu: PcpuId,
        /// Which.
        interrupt: HostInterrupt,
    },
    /// The task that runs on `pcpu` (not a vCPU) sleeps, until a time or forever.
    TaskSleeps {
        /// Where.
        pcpu: PcpuId,
        /// When it wants to run again.
        until: Option<Nanos>,
    },
    /// The task that runs on `pcpu` can be preempted now: it returns to user mode, or asks in the middle of its
    /// kernel's work (`cond_resched`). For a [voluntary](TaskConfig) one there is no other occasion but its sleep.
    TaskYields {
        /// Where.
        pcpu: PcpuId,
    },
    /// The task that runs on `pcpu` gives way to others that are runnable there, if the scheduler's rule lets it
    /// (`sched_yield`).
    TaskGivesWay {
        /// Where.
        pcpu: PcpuId,
    },
    /// The task that runs on `pcpu` wakes `task`. One that has not gone to sleep yet will not.
    TaskWakes {
        /// Where.
        pcpu: PcpuId,
        /// Whom.
        task: TaskId,
    },
    /// The task that runs on `pcpu` creates `task`, which starts on the idlest pCPU: for the first time, or again after
    /// its end. One that has not quite ended yet starts when it has.
    TaskStarts {
        /// Where.
        pcpu: PcpuId,
        /// Whom.
        task: TaskId,
    },
    /// The task that runs on `pcpu` executes a program: its caches are worth nothing any more, so it moves to the
    /// idlest pCPU.
    TaskExecutes {
        /// Where.
        pcpu: PcpuId,
    },
    /// The task that runs on `pcpu` ends.
    TaskEnds {
        /// Where.
        pcpu: PcpuId,
    },
    /// The task that runs on `pcpu`, a thread of the VMM, enters `KVM_RUN` for `vcpu`, which has left it by
    /// [`Exit::Userspace`]: the thread that had it last, or another one.
    VcpuRuns {
        /// Where.
        pcpu: PcpuId,
        /// Which.
        vcpu: VcpuId,
    },
    /// A device of `vm` signals an interrupt by a message (irqfd): host work on `pcpu`, which runs a task (say,
    /// vhost's), polls, or is idle. Goes to the LAPICs that address and data name; a message to elsewhere goes nowhere.
    Msi {
        /// Where the host's side of the device works.
        pcpu: PcpuId,
        /// Whose device it is.
        vm: VmId,
        /// Where the message is stored, as the guest set it up: any value can come.
        address: u64,
        /// What is stored: likewise.
        data: u32,
    },
    /// The VMM inhibits AVIC in `vm` for a reason, or does so no longer. Host work as for [`Event::Msi`].
    Inhibit {
        /// Where the VMM works.
        pcpu: PcpuId,
        /// Which VM.
        vm: VmId,
        /// Why.
        reason: Inhibit,
        /// Whether from now on, or no longer.
        inhibited: bool,
    },
    /// A task sets where the thread of `vcpu` may run (`sched_setaffinity`; libvirt's vcpupin). Host work as for
    /// [`Event::Msi`].
    Affinity {
        /// Where that task runs.
        pcpu: PcpuId,
        /// Whose thread.
        vcpu: VcpuId,
        /// The one pCPU where it may run from now on; `None`: all.
        only: Option<PcpuId>,
    },
    /// Hardware has set a bit in the IRR, or the descriptor, of the vCPU for which `pcpu` polls: its loop sees it. To
    /// be reported for polling pCPUs; harmless for others.
    Posted {
        /// Where.
        pcpu: PcpuId,
    },
    /// A device of `vm` asserts its line to the I/O APIC, or does so no longer. Host work as for [`Event::Msi`].
    Line {
        /// Where the host's side of the device works.
        pcpu: PcpuId,
        /// Whose device it is.
        vm: VmId,
        /// The pin, 0-23: the host's own wiring.
        pin: u32,
        /// Whether the line is asserted from now on.
        level: bool,
    },
}

impl Event {
    /// Returns the pCPU on which it happened.
    pub fn pcpu(&self) -> PcpuId {
        match *self {
            Event::Exit { pcpu, .. }
            | Event::Interrupt { pcpu, .. }
            | Event::TaskSleeps { pcpu, .. }
            | Event::TaskYields { pcpu }
            | Event::TaskGivesWay { pcpu }
            | Event::TaskWakes { pcpu, .. }
            | Event::TaskStarts { pcpu, .. }
            | Event::TaskExecutes { pcpu }
            | Event::TaskEnds { pcpu }
            | Event::VcpuRuns { pcpu, .. }
            | Event::Msi { pcpu, .. }
            | Event::Inhibit { pcpu, .. }
            | Event::Affinity { pcpu, .. }
            | Event::Posted { pcpu }
            | Event::Line { pcpu, .. } => pcpu,
        }
    }
}
