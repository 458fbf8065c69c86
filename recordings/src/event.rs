//! The events of a recording, whatever file they were read from.

/// A thread ID of the recorded host. 0 is the idle thread of each CPU.
pub type Tid = u32;

/// One event of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Time on the recording's clock, in ns. Never decreases from one event to the next.
    pub at: u64,
    /// The CPU that wrote the event, by Linux's number.
    pub cpu: u32,
    /// The thread that ran on that CPU.
    pub thread: Tid,
    /// What happened.
    pub what: What,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum What {
    /// `sched_switch`: the CPU changes from one thread to another.
    Switch {
        /// The thread that ran.
        prev: Tid,
        /// Name of `prev`.
        prev_name: Box<str>,
        /// What became of `prev`.
        left: Left,
        /// The thread that runs now.
        next: Tid,
        /// Name of `next`.
        next_name: Box<str>,
    },
    /// `sched_waking` or `sched_wakeup`: `thread` of the event makes another thread ready.
    Waking {
        /// The thread that is woken.
        woken: Tid,
        /// Its name.
        name: Box<str>,
        /// The CPU that it is to run on.
        target: u32,
    },
    /// `sched_migrate_task`: a thread moves to another CPU.
    Migrate {
        /// The thread.
        moved: Tid,
        /// From this CPU.
        from: u32,
        /// To this CPU.
        to: u32,
    },
    /// `kvm_entry`: the thread enters guest mode as this vCPU of its VM.
    Entry {
        /// Number of the vCPU in its VM.
        vcpu: u32,
    },
    /// `kvm_exit`: the thread leaves guest mode.
    Exit {
        /// Number of the vCPU in its VM, if the kernel writes it.
        vcpu: Option<u32>,
        /// The hardware's code of the reason.
        reason: u32,
        /// 1: Intel's VMX. 2: AMD's SVM.
        isa: u32,
    },
    /// `kvm_vcpu_wakeup`: a halted vCPU goes on.
    HaltEnd {
        /// How long it was halted, in ns.
        ns: u64,
        /// It slept. `false`: an event came while the host polled.
        slept: bool,
        /// The wait ended with an event for the guest.
        valid: bool,
    },
    /// `kvm_hypercall`.
    Hypercall {
        /// The number of the call. 5 is a kick.
        nr: u64,
        /// Its first two arguments.
        args: [u64; 2],
    },
    /// `kvm_apic_ipi`: the vCPU that runs sends an inter-processor interrupt.
    Ipi {
        /// Low half of the interrupt command register.
        icr_low: u32,
        /// Destination, as the guest wrote it.
        destination: u32,
    },
    /// `kvm_apic_accept_irq`: the local APIC of a vCPU takes an interrupt.
    Interrupt {
        /// ID of that APIC.
        apic: u32,
        /// Vector.
        vector: u8,
    },
    /// A thread ended (`sched_process_exit`). Its ID may come back as another thread.
    Ended {
        /// The thread.
        ended: Tid,
    },
    /// Events of this CPU are missing since the last one that it wrote.
    Lost {
        /// How many, if the source says it.
        events: Option<u64>,
    },
}

/// What became of a thread that left its CPU (`prev_state` of `sched_switch`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// It can go on: it was preempted (`R`, `R+`).
    Ready,
    /// It waits for something (`S`, `D`, and others).
    Asleep,
    /// It ended (`X`, `Z`).
    Dead,
}
