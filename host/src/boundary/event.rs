//! The events of the host: its input.

#[cfg(doc)]
use super::{Command, VcpuState};
use super::{Exit, GuestState, HostInterrupt, Nanos, PcpuId, TaskId, VcpuId, VmId};
#[cfg(doc)]
use crate::config::TaskConfig;
use crate::interrupts::Inhibit;

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// The CPU reports it.
    Hardware(HardwareEvent),
    /// A VMM, or the host's side of a device, does it. This is host work on a pCPU that runs a task (such as vhost's),
    /// polls, or is idle.
    Vmm(VmmEvent),
    /// The task that runs on a pCPU does it. It is not a vCPU in guest mode.
    Task(TaskEvent),
}

/// What the CPU reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HardwareEvent {
    /// The vCPU that runs on `pcpu` left guest mode. The pCPU executes host code until the next [`Command::Run`] for
    /// it.
    Exit {
        /// The pCPU concerned.
        pcpu: PcpuId,
        /// The reason of the exit.
        exit: Exit,
        /// The guest's state.
        guest: GuestState,
    },
    /// An interrupt came while `pcpu` was not in guest mode: it ran a task, polled, or was idle.
    Interrupt {
        /// The pCPU concerned.
        pcpu: PcpuId,
        /// The kind of interrupt.
        interrupt: HostInterrupt,
    },
    /// Hardware has set a bit in the IRR, or in the descriptor, of the vCPU for which `pcpu` polls. The polling loop
    /// sees it. Must be reported for polling pCPUs, and is harmless for others.
    Posted {
        /// The pCPU concerned.
        pcpu: PcpuId,
    },
}

/// What a VMM or the host's side of a device does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VmmEvent {
    /// A device of `vm` signals an interrupt by a message (irqfd). This is host work on `pcpu`, which runs a task (such
    /// as vhost's), polls, or is idle. The message goes to the LAPICs that address and data name. A message to any
    /// other address has no effect.
    Msi {
        /// The pCPU where the host's side of the device works.
        pcpu: PcpuId,
        /// The VM to which the device belongs.
        vm: VmId,
        /// The address of the message, as the guest set it up. Any value can come.
        address: u64,
        /// The data of the message. Any value can come.
        data: u32,
    },
    /// The VMM adds or removes an inhibit reason of `vm`. Host work as for [`VmmEvent::Msi`].
    Inhibit {
        /// The pCPU where the VMM works.
        pcpu: PcpuId,
        /// The VM concerned.
        vm: VmId,
        /// The inhibit reason.
        reason: Inhibit,
        /// `true`: the reason is added.
        inhibited: bool,
    },
    /// A task sets where the thread of `vcpu` may run (`sched_setaffinity`, libvirt's vcpupin). Host work as for
    /// [`VmmEvent::Msi`].
    Affinity {
        /// The pCPU where that task runs.
        pcpu: PcpuId,
        /// The vCPU whose thread it is.
        vcpu: VcpuId,
        /// The only pCPU where the thread may run from now on. `None`: it may run on all.
        only: Option<PcpuId>,
    },
    /// The VMM starts `vm`, which was added [dormant](crate::VmConfig::dormant) or while the host ran. Host work as for
    /// [`VmmEvent::Msi`].
    VmStarts {
        /// The pCPU where the VMM works.
        pcpu: PcpuId,
        /// The VM to start.
        vm: VmId,
    },
    /// The VMM removes `vm`. The VM has ended at [`Command::VmEnded`], and its devices have no effect any more. Host
    /// work as for [`VmmEvent::Msi`].
    VmEnds {
        /// The pCPU where the VMM works.
        pcpu: PcpuId,
        /// The VM to remove.
        vm: VmId,
    },
}

/// What the running task does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TaskEvent {
    /// The task that runs on `pcpu` (not a vCPU) sleeps, until `until` or without a time limit.
    Sleeps {
        /// The pCPU concerned.
        pcpu: PcpuId,
        /// When it wants to run again.
        until: Option<Nanos>,
    },
    /// The task that runs on `pcpu` can be preempted now: it returns to user mode, or yields within its kernel work
    /// (`cond_resched`). A [voluntary](TaskConfig) task is preempted only here, or when it sleeps.
    Yields {
        /// The pCPU concerned.
        pcpu: PcpuId,
    },
    /// The task that runs on `pcpu` gives way to other runnable tasks there, if the scheduler's rule allows it
    /// (`sched_yield`).
    GivesWay {
        /// The pCPU concerned.
        pcpu: PcpuId,
    },
    /// The task that runs on `pcpu` wakes `task`. If `task` is not asleep yet, its next sleep ends at once.
    Wakes {
        /// The pCPU concerned.
        pcpu: PcpuId,
        /// The other task.
        task: TaskId,
    },
    /// The same of a task that is about to sleep (`WF_SYNC`): `task` may as well have its pCPU. A write to a pipe is
    /// such a wakeup.
    WakesSync {
        /// The pCPU concerned.
        pcpu: PcpuId,
        /// The other task.
        task: TaskId,
    },
    /// The task that runs on `pcpu` creates `task`, which starts on the idlest pCPU, for the first time or again after
    /// its end. If `task` has not ended yet, it starts when it has.
    Starts {
        /// The pCPU concerned.
        pcpu: PcpuId,
        /// The other task.
        task: TaskId,
    },
    /// The task that runs on `pcpu` executes a program. Its caches have no value any more, so it moves to the idlest
    /// pCPU.
    Executes {
        /// The pCPU concerned.
        pcpu: PcpuId,
    },
    /// The task that runs on `pcpu` ends.
    Ends {
        /// The pCPU concerned.
        pcpu: PcpuId,
    },
    /// The task that runs on `pcpu`, a thread of the VMM, enters `KVM_RUN` for `vcpu`, which left it by
    /// [`Exit::Userspace`]. It may be another thread than the last one of the vCPU.
    RunsVcpu {
        /// The pCPU concerned.
        pcpu: PcpuId,
        /// The vCPU to run.
        vcpu: VcpuId,
    },
}

impl Event {
    /// Returns the pCPU on which the event happened.
    pub fn pcpu(&self) -> PcpuId {
        match self {
            Event::Hardware(event) => event.pcpu(),
            Event::Vmm(event) => event.pcpu(),
            Event::Task(event) => event.pcpu(),
        }
    }
}

impl HardwareEvent {
    fn pcpu(&self) -> PcpuId {
        match *self {
            HardwareEvent::Exit { pcpu, .. }
            | HardwareEvent::Interrupt { pcpu, .. }
            | HardwareEvent::Posted { pcpu } => pcpu,
        }
    }
}

impl VmmEvent {
    fn pcpu(&self) -> PcpuId {
        match *self {
            VmmEvent::Msi { pcpu, .. }
            | VmmEvent::Inhibit { pcpu, .. }
            | VmmEvent::Affinity { pcpu, .. }
            | VmmEvent::VmStarts { pcpu, .. }
            | VmmEvent::VmEnds { pcpu, .. } => pcpu,
        }
    }
}

impl TaskEvent {
    fn pcpu(&self) -> PcpuId {
        match *self {
            TaskEvent::Sleeps { pcpu, .. }
            | TaskEvent::Yields { pcpu }
            | TaskEvent::GivesWay { pcpu }
            | TaskEvent::Wakes { pcpu, .. }
            | TaskEvent::WakesSync { pcpu, .. }
            | TaskEvent::Starts { pcpu, .. }
            | TaskEvent::Executes { pcpu }
            | TaskEvent::Ends { pcpu }
            | TaskEvent::RunsVcpu { pcpu, .. } => pcpu,
        }
    }
}
