//! A machine profile: topology, costs, pause-loop detection and APIC virtualization of one machine.
//!
//! The values come from `machines/NAME.toml`, where each has a unit and a source.

use crate::avic::AvicHardware;

use crate::pause::PauseHardware;
use crate::time::Picos;
use crate::topology::{Numbering, Topology};

/// Defines the costs of a part of the machine once: the fields with their documentation, their names for the readers of
/// profiles, and the struct made from costs by name. Fields that are no costs follow in `with`.
macro_rules! costs {
    (
        $(#[$attribute:meta])*
        pub struct $type:ident { $($(#[$doc:meta])* pub $name:ident: Picos,)* }
        $(with { $($(#[$more_doc:meta])* pub $more:ident: $more_type:ty,)* })?
    ) => {
        $(#[$attribute])*
        pub struct $type {
            $($($(#[$more_doc])* pub $more: $more_type,)*)?
            $($(#[$doc])* pub $name: Picos,)*
        }

        impl $type {
            /// Names of all costs.
            pub const COSTS: &[&str] = &[$(stringify!($name)),*];

            /// Returns the struct with each cost as `cost` returns it for its name, or `None` if one is missing.
            pub fn from_costs(cost: impl Fn(&str) -> Option<Picos> $($(, $more: $more_type)*)?) -> Option<$type> {
                Some($type { $($($more,)*)? $($name: cost(stringify!($name))?,)* })
            }
        }
    };
}

costs! {
    /// The costs of a machine's operations, each the time of one operation.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct Costs {
        /// Load that hits this CPU's own copy of the line.
        pub load_hit: Picos,
        /// Store to a line that this CPU owns, or into the store buffer. The transfer of the line is not included.
        pub store: Picos,
        /// Locked read-modify-write on a line that this CPU owns.
        pub rmw_hit: Picos,
        /// Full memory fence.
        pub fence: Picos,
        /// PAUSE instruction.
        pub pause: Picos,
        /// Line transfer between two threads of one core.
        pub transfer_core: Picos,
        /// Line transfer between two cores of one socket, or from the socket's last-level cache.
        pub transfer_socket: Picos,
        /// Line transfer between two sockets.
        pub transfer_cross: Picos,
        /// Time for which one reader keeps a line busy for the next reader.
        pub read_occupancy: Picos,
        /// The guest's own instructions around a stretch of computing. 0 if the stretch includes them.
        pub guest_code: Picos,
        /// Interrupt entry and return inside a guest: IDT dispatch, saving and restoring registers, IRET. The handler
        /// is not included.
        pub guest_interrupt: Picos,
        /// VM exit and VM entry in hardware, together.
        pub exit_hardware: Picos,
        /// Host kernel's prologue and epilogue around the handler of each exit.
        pub exit_software: Picos,
        /// Handler of a HLT exit. Polling, blocking and the switch are not included.
        pub hlt: Picos,
        /// Dispatch of a hypercall. Its effect is charged separately.
        pub hypercall: Picos,
        /// Emulation of CPUID.
        pub cpuid: Picos,
        /// Emulation of RDMSR or WRMSR.
        pub msr: Picos,
        /// Emulation of OUT to an I/O port: the search for the device and the signal to its eventfd.
        pub port_write: Picos,
        /// Emulation of an access to the LAPIC page: instruction fetch, decode and the register's effect.
        pub apic_access: Picos,
        /// Delivery of one interrupt to one emulated LAPIC, without waking or kicking its vCPU.
        pub apic_deliver: Picos,
        /// Injection of an event at a VM entry.
        pub inject: Picos,
        /// Request for an interrupt window. Also the handler of an IRET exit, which ends the blocking of NMIs.
        pub interrupt_window: Picos,
        /// Handler of a pause exit, for each candidate that it examines. Also the target's check in a directed-yield
        /// hypercall.
        pub spin_candidate: Picos,
        /// Host interrupt: entry, handler and return.
        pub host_interrupt: Picos,
        /// Handler of the scheduler tick, beyond `host_interrupt`.
        pub tick: Picos,
        /// Longest time by which a timer's interrupt reaches the host late: host code masks interrupts now and then.
        /// Each delay is drawn evenly up to this. Without it, slices of equal length end at the same tick forever.
        pub timer_delay: Picos,
        /// Write of the pCPU's timer.
        pub timer_program: Picos,
        /// Time that the sender of a host IPI is busy.
        pub ipi_send: Picos,
        /// Time from the sending of a host IPI to its arrival. The handler is not included.
        pub ipi_latency: Picos,
        /// Entry into and return from a system call. Its work is not included.
        pub syscall: Picos,
        /// Work of `sched_yield`. The system call and the context switch are not included.
        pub sched_yield: Picos,
        /// Lookup of a futex: hash of its key, its bucket and the bucket's lock.
        pub futex: Picos,
        /// Wakeup of a thread, by code and data in the caches: its placement on a run queue. The IPI is not included.
        pub wake: Picos,
        /// Time that a wakeup takes longer if the pCPU's caches have lost the scheduler's code and data. Guests and
        /// tasks displace them: it is at most the time for which those ran there since its last wakeup.
        pub wake_cold: Picos,
        /// Direct cost of a context switch.
        pub context_switch: Picos,
        /// Indirect cost of a context switch: the time in which the incoming thread refills its caches.
        pub cache_refill: Picos,
        /// One pass of load balancing over a scheduling domain.
        pub balance: Picos,
        /// Loading a vCPU onto a pCPU, or putting it.
        pub vcpu_load: Picos,
        /// Update of a vCPU's steal-time record.
        pub steal_time: Picos,
        /// Host's read or write of the guest's paravirtual EOI word.
        pub pv_eoi: Picos,
        /// Flush of a guest's address translations at a VM entry.
        pub tlb_flush: Picos,
        /// Way out of the host's idle loop. The exit from the idle state is not included, unless the profile states
        /// no idle states.
        pub idle_exit: Picos,
        /// Return to the VMM's process and back into the kernel, beyond the costs of every exit.
        pub userspace_exit: Picos,
        /// Time by which a microsecond of computing takes longer for each other thread of the core that computes.
        pub smt_computing: Picos,
        /// Time by which a microsecond of computing takes longer for each other thread of the core that spins with
        /// PAUSE.
        pub smt_pausing: Picos,
        /// Handler of a nested page fault: the host gives a guest a page that the guest touches for the first time. The
        /// costs of every exit are not included.
        pub nested_fault: Picos,
        /// Emulation of VMRUN for a guest that is a hypervisor: checks, merged tables, and what the instructions around
        /// it cost there. The costs of every exit are not included.
        pub nested_entry: Picos,
        /// Reflection of an exit to the hypervisor in a guest, and its accesses to the control block beyond those of a
        /// host. The costs of every exit are not included.
        pub nested_exit: Picos,
        /// Record of one page that the CPU has logged as written (Intel's PML), when its log is full.
        pub logged_page: Picos,
        /// Time by which a microsecond of user code takes longer in a guest: at each TLB miss the CPU walks the host's
        /// page tables too.
        pub nested_walks: Picos,
        /// Time by which user code takes longer in a guest because its TLB was emptied, until the TLB is full again.
        pub nested_refill: Picos,
        /// Time by which a microsecond of user code takes longer in a guest whose memory is on another node: the misses
        /// of its caches wait for the link between the sockets.
        pub remote_memory: Picos,
    }
}

costs! {
    /// AVIC of a CPU model, and the costs of its operations.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct AvicModel {
        /// Access to a register that hardware completes without an exit.
        pub register: Picos,
        /// IPI sent by hardware, for each target: table lookup, IRR and doorbell.
        pub ipi: Picos,
        /// Doorbell rung by the hypervisor (WRMSR).
        pub doorbell: Picos,
        /// Time from a doorbell's ringing to the target's evaluation of its IRR.
        pub doorbell_latency: Picos,
        /// Handler of an AVIC exit. The interrupts that it sends and the registers that it emulates are not included.
        pub exit: Picos,
    }
    with {
        /// Features and errata that change the behavior of the hardware.
        pub hardware: AvicHardware,
        /// CPU family, by which hypervisors recognize errata. For example 0x17 for Zen 1 and 2.
        pub family: u32,
    }
}

costs! {
    /// Intel's APIC virtualization of a CPU model, and the costs of its operations.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct ApicvModel {
        /// Access to a register that hardware completes without an exit.
        pub register: Picos,
        /// IPI sent by hardware: table lookup, descriptor and notification.
        pub ipi: Picos,
        /// Transfer of posted vectors to the virtual-APIC page. Adds to the latency of a notification.
        pub processing: Picos,
        /// Handler of an exit. The interrupts that it sends and the registers that it emulates are not included.
        pub exit: Picos,
    }
    with {
        /// Whether hardware can send IPIs (IPI virtualization, Sapphire Rapids and later).
        pub ipiv: bool,
    }
}

/// An idle state of a pCPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdleState {
    /// Time from an interrupt to the first instruction.
    pub exit: Picos,
    /// Shortest idle time for which the kernel enters the state.
    pub residency: Picos,
}

/// Returns how long a pCPU takes to leave its idle state after `idle` without work. The kernel's governor is taken to
/// predict well: it has chosen the deepest of `states` for which the time was long enough. `states` are in order of
/// depth.
pub fn idle_exit_latency(states: &[IdleState], idle: Picos) -> Picos {
    let chosen = states.iter().rev().find(|state| state.residency <= idle);
    chosen.map_or(Picos::ZERO, |state| state.exit)
}

/// A machine profile.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// Name of the profile, as in `machines/NAME.toml`.
    pub name: String,
    /// Numbers of sockets, cores and threads.
    pub topology: Topology,
    /// The numbers by which users know the pCPUs.
    pub numbering: Numbering,
    /// Frequency of the core clock and of the time-stamp counter, in hertz.
    pub frequency_hz: u64,
    /// Costs of the machine's operations.
    pub costs: Costs,
    /// Idle states of a pCPU, in order of depth. It polls until the first of them.
    pub idle_states: Vec<IdleState>,
    /// Whether the CPU's TLB tells address spaces apart (process-context identifiers).
    pub pcid: bool,
    /// The pause-loop detector, or `None` if the CPU model has none or it is off. The hypervisor sets its limits.
    pub pause_hardware: Option<PauseHardware>,
    /// AMD's APIC virtualization, or `None` if the CPU model has none. The hypervisor decides whether to use it.
    pub avic: Option<AvicModel>,
    /// Intel's APIC virtualization, or `None` if the CPU model has none. The hypervisor decides whether to use it.
    pub apicv: Option<ApicvModel>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pcpu_sinks_as_deep_as_its_idle_time_is_worth() {
        let us = |us: u64| Picos::from_nanos(1_000 * us);
        let state = |exit, residency| IdleState {
            exit: us(exit),
            residency: us(residency),
        };
        let states = [state(2, 2), state(10, 20), state(133, 600)];
        let exits = [0, 1, 2, 19, 20, 599, 600, 1_000_000].map(|idle| idle_exit_latency(&states, us(idle)));
        assert_eq!(exits, [0, 0, 2, 2, 10, 10, 133, 133].map(us));
        assert_eq!(idle_exit_latency(&[], us(1_000)), Picos::ZERO);
    }
}
