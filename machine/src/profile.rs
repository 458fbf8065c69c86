//! A machine profile: topology, and what everything costs, each with unit and source.

use crate::avic::AvicHardware;
use crate::pause::PauseHardware;
use crate::time::Picos;

/// Sockets, cores and threads. pCPUs are numbered thread first, then core, then socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Topology {
    /// Sockets; one last-level cache each.
    pub sockets: u32,
    /// Cores per socket.
    pub cores: u32,
    /// Hardware threads per core.
    pub threads: u32,
}

impl Topology {
    /// Number of pCPUs.
    pub fn pcpus(&self) -> u32 {
        self.sockets * self.cores * self.threads
    }

    /// The socket, and with it the memory node, of `pcpu`.
    pub fn socket_of(&self, pcpu: u32) -> u32 {
        pcpu / (self.cores * self.threads)
    }
}

/// What everything costs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    /// Load that hits this CPU's own copy of the line.
    pub load_hit: Picos,
    /// Store to a line that this CPU owns, or into the store buffer.
    pub store: Picos,
    /// Locked read-modify-write on a line that this CPU owns.
    pub rmw_hit: Picos,
    /// Full memory fence.
    pub fence: Picos,
    /// PAUSE.
    pub pause: Picos,
    /// Line transfer between two threads of one core.
    pub transfer_core: Picos,
    /// Line transfer between two cores of one socket.
    pub transfer_socket: Picos,
    /// Line transfer between two sockets.
    pub transfer_cross: Picos,
    /// For how long a line that is being read is busy for the next reader.
    pub read_occupancy: Picos,
    /// The guest's own instructions around a stretch of computing. 0 where the stretch stands for them, too.
    pub guest_code: Picos,
    /// Interrupt entry and return inside a guest (IDT dispatch, registers, iret).
    pub guest_interrupt: Picos,
    /// Hardware exit and entry, bare.
    pub exit_hardware: Picos,
    /// In-kernel prologue and epilogue around each handled exit.
    pub exit_software: Picos,
    /// HLT handler.
    pub hlt: Picos,
    /// Hypercall dispatch.
    pub hypercall: Picos,
    /// CPUID emulation.
    pub cpuid: Picos,
    /// MSR emulation.
    pub msr: Picos,
    /// OUT to an I/O port: finding the device, signalling its eventfd.
    pub port_write: Picos,
    /// LAPIC page access: fetch, decode, register emulation.
    pub apic_access: Picos,
    /// Delivering one interrupt to one emulated LAPIC.
    pub apic_deliver: Picos,
    /// Event injection at entry.
    pub inject: Picos,
    /// Opening an interrupt window.
    pub interrupt_window: Picos,
    /// Pause-exit handler, for each candidate looked at.
    pub spin_candidate: Picos,
    /// Host interrupt: entry, handler, return.
    pub host_interrupt: Picos,
    /// Scheduler tick.
    pub tick: Picos,
    /// Programming the pCPU's timer.
    pub timer_program: Picos,
    /// Sending a host IPI.
    pub ipi_send: Picos,
    /// From a host IPI's sending to its arrival.
    pub ipi_latency: Picos,
    /// System call: the way in and out, and nothing in between.
    pub syscall: Picos,
    /// Giving way (`sched_yield`) besides the system call and the switch, if there is one.
    pub sched_yield: Picos,
    /// Finding a futex: its key, its bucket and that one's lock.
    pub futex: Picos,
    /// Waking a thread.
    pub wake: Picos,
    /// Direct cost of a context switch.
    pub context_switch: Picos,
    /// Indirect cost of a context switch: what the incoming thread pays to warm its caches.
    pub cache_refill: Picos,
    /// One pass of load balancing.
    pub balance: Picos,
    /// Loading or putting a vCPU.
    pub vcpu_load: Picos,
    /// Updating the steal-time record.
    pub steal_time: Picos,
    /// Reading or writing the guest's word for ends of interrupts.
    pub pv_eoi: Picos,
    /// Flushing a guest's translations at its next entry.
    pub tlb_flush: Picos,
    /// Leaving a pCPU's idle state.
    pub idle_exit: Picos,
    /// The way to the VMM's process and back, beyond what every exit takes.
    pub userspace_exit: Picos,
}

/// AVIC of a part, and what it takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AvicModel {
    /// What it can do.
    pub hardware: AvicHardware,
    /// The part's family, by which hypervisors know its errata.
    pub family: u32,
    /// An access to a register that hardware does alone.
    pub register: Picos,
    /// An IPI, for each target: table lookup, IRR, doorbell.
    pub ipi: Picos,
    /// Ringing a doorbell by software (WRMSR).
    pub doorbell: Picos,
    /// From a doorbell's ringing to the evaluation in the guest.
    pub doorbell_latency: Picos,
    /// Handler of an exit, without what it sends or emulates.
    pub exit: Picos,
}

/// Intel's APIC virtualization of a part, and what it takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ApicvModel {
    /// It can send IPIs, too (Sapphire Rapids and later).
    pub ipiv: bool,
    /// An access to a register that hardware does alone.
    pub register: Picos,
    /// An IPI: table lookup, descriptor, notification.
    pub ipi: Picos,
    /// Moving what is posted into the page, at a notification: adds to its latency.
    pub processing: Picos,
    /// Handler of an exit, without what it sends or emulates.
    pub exit: Picos,
}

/// A machine profile.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// Its name, as in `machines/NAME.toml`.
    pub name: String,
    /// Sockets, cores, threads.
    pub topology: Topology,
    /// Frequency of clock and time-stamp counter.
    pub frequency_hz: u64,
    /// What everything costs.
    pub costs: Costs,
    /// What detects pause loops, where the part has it and it is on. How it is set is the hypervisor's affair.
    pub pause_hardware: Option<PauseHardware>,
    /// AMD's interrupt controller for guests, where the part has it. Whether it is used is the hypervisor's affair.
    pub avic: Option<AvicModel>,
    /// Intel's counterpart, likewise.
    pub apicv: Option<ApicvModel>,
}
