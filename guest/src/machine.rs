//! What the guest kernel needs from the machine that it runs on: virtual time or a real KVM.
//!
//! The seam is the hardware's own: MSRs, LAPIC registers, HLT, hypercalls. A kernel that runs here takes exits where a
//! real one does.

#![expect(
    unsafe_code,
    reason = "the kernel's data are only as safe as the machine beneath: unsafe to implement"
)]

use alloc::boxed::Box;
use alloc::string::String;
use core::sync::atomic::Ordering;

use holdfast_abi::StealTime;
use holdfast_locks::{CpuId, Interrupts, Nodes, Numa, Paravirt};

use crate::class::LockClass;

/// One virtual CPU of the machine, as the code that runs on it sees it. A value is only good until the caller blocks or
/// is preempted by the guest's scheduler: afterwards ask [`Machine::cpu`] again.
///
/// # Safety
/// As for [`Platform`](holdfast_locks::Platform); and an interrupt's handler runs only while interrupts are enabled.
pub unsafe trait Cpu: Nodes + Paravirt + Interrupts + Numa {
    /// Computes for `ns` nanoseconds of this CPU's undisturbed time. Enabled interrupts are taken meanwhile, and the
    /// caller may then continue on another CPU.
    fn compute(&self, ns: u64);
    /// Enables interrupts; takes what is pending.
    fn irq_enable(&self);
    /// Masks interrupts.
    fn irq_disable(&self);
    /// Whether interrupts are enabled.
    fn irqs_enabled(&self) -> bool;

    /// CPUID: EAX, EBX, ECX, EDX.
    fn cpuid(&self, leaf: u32) -> [u32; 4];
    /// Writes a model-specific register. The guest knows which ones it has: an unknown one is a guest's fault.
    fn wrmsr(&self, msr: u32, value: u64);
    /// Reads a model-specific register.
    fn rdmsr(&self, msr: u32) -> u64;
    /// Writes a LAPIC register (memory-mapped; `offset` as in the manual: 0x300 is ICR low).
    fn apic_write(&self, offset: u32, value: u32);
    /// Reads a LAPIC register.
    fn apic_read(&self, offset: u32) -> u32;
    /// A hypercall with up to four arguments; the result is RAX.
    fn hypercall(&self, number: u32, arguments: [u64; 4]) -> i64;

    /// Writes to an I/O port. Where there are no devices behind ports, nothing happens.
    fn port_write(&self, port: u16, value: u32) {
        let _ = (port, value);
    }

    /// The steal-time record of `cpu`, shared with the host once its MSR is written.
    fn steal_time(&self, cpu: CpuId) -> &StealTime;
    /// The guest-physical address of that record, for the MSR.
    fn steal_time_address(&self, cpu: CpuId) -> u64;

    /// The state byte of that record: a hint, old as soon as it is read.
    fn preempted_state(&self, cpu: CpuId) -> u8 {
        self.steal_time(cpu).preempted.load(Ordering::Relaxed)
    }
    /// Asks the host to flush `cpu`'s TLB before it runs again: adds [`StealTime::FLUSH_TLB`] to the state byte of its record
    /// if that still is `state`. False if it is not: then `cpu` may run already. A full barrier: what the caller has stored
    /// before is seen by who finds the bit.
    fn ask_for_flush(&self, cpu: CpuId, state: u8) -> bool {
        // ORDERING: SeqCst: a full barrier, as the LOCK prefix makes it.
        self.steal_time(cpu)
            .preempted
            .compare_exchange(state, state | StealTime::FLUSH_TLB, Ordering::SeqCst, Ordering::Relaxed)
            .is_ok()
    }
    /// The guest-physical address of this CPU's word for ends of interrupts, for the MSR; `None` where the machine has no such
    /// word.
    fn pv_eoi_address(&self) -> Option<u64> {
        None
    }
    /// Tests and clears bit 0 of that word in one instruction: whether it was set.
    fn take_pv_eoi(&self) -> bool {
        false
    }

    /// Loads the tables of address space `space` (CR3): this CPU's TLB is empty then. On machines whose kernel executes no user
    /// code in address spaces of their own there is nothing to do, as for the next.
    fn load_tables(&self, space: u32) {
        let _ = space;
    }
    /// Empties this CPU's TLB.
    fn flush_tlb(&self) {}
    /// Tracepoint: translations have been taken out of the tables of `space`. A number for [`Cpu::tables_flushed`].
    fn tables_changed(&self, space: u32) -> u64 {
        let _ = space;
        0
    }
    /// Tracepoint: from now on the caller takes it that no CPU uses what was taken out of `space` up to `change`.
    fn tables_flushed(&self, space: u32, change: u64) {
        let _ = (space, change);
    }

    /// From now on this CPU counts as one of NUMA node `node` (`numa_set_node`): what
    /// [`Numa::numa_node`](holdfast_locks::Numa::numa_node) answers for it. Until then it is of node 0.
    fn join_node(&self, node: u32);

    /// Tracepoint: the caller now holds `lock` (lockdep's `lock_acquired`).
    fn lock_acquired(&self, lock: &Self::Word);
    /// Tracepoint: what `lock`, which the caller now holds, protects.
    fn lock_class(&self, lock: &Self::Word, class: LockClass) {
        let _ = (lock, class);
    }
    /// Tracepoint: the caller is about to release `lock`.
    fn lock_released(&self, lock: &Self::Word);
    /// How many times a lock on this CPU has called
    /// [`contention_begin`](holdfast_locks::Platform::contention_begin); 0 for ever where nobody counts.
    fn contentions(&self) -> u64 {
        0
    }
    /// Tracepoint: the caller waits for `target` to answer an IPI.
    fn ipi_wait_begin(&self, target: CpuId);
    /// Tracepoint: `target` has answered.
    fn ipi_wait_end(&self, target: CpuId);
    /// Tracepoint: from now on this CPU executes `mode`, which says whose time [`Cpu::compute`] and HLT spend.
    fn executing(&self, mode: Mode);
}

/// Whose time a CPU spends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// A task in user mode: preemptible, CPL 3.
    User,
    /// The kernel, on behalf of a task or an interrupt: CPL 0.
    Kernel,
    /// The idle loop.
    Idle,
}

/// The machine: its CPUs, task contexts, and the world outside.
///
/// # Safety
/// [`Machine::cpu`] must name the CPU that runs the caller, and [`Machine::switch`] must preserve all that the ABI's
/// callee must preserve. Once the [`GuestImage`] is dropped no context of this machine runs or is continued.
pub unsafe trait Machine: Sized + 'static {
    /// The CPU type.
    type Cpu: Cpu;
    /// A saved flow of control with a stack of its own.
    type Context: 'static;

    /// How many CPUs this machine has.
    fn cpus(&self) -> u32;
    /// The CPU that executes the caller.
    fn cpu(&self) -> Self::Cpu;
    /// The proximity domain of the CPU with APIC ID `apic_id` in the firmware's table (ACPI SRAT); `None` without a table,
    /// or for a CPU that is not in it.
    fn proximity_domain(&self, apic_id: u32) -> Option<u32> {
        let _ = apic_id;
        None
    }

    /// Where the CPUs other than 0 begin if this kernel starts them itself, as on real hardware, by INIT and SIPI: the page
    /// that SIPI names. `None`: the machine starts all CPUs.
    fn startup_page(&self) -> Option<u8> {
        None
    }

    /// The memory that the driver shares with the network device; `None`: there is no such device.
    fn network(&self) -> Option<&holdfast_abi::virtio::Network> {
        None
    }

    /// Makes a context that runs `body` when it is first switched to. `body` must never return: its last act is to
    /// switch away.
    fn new_context(&self, body: Box<dyn FnOnce()>) -> Self::Context;
    /// Context for a flow of control that runs already (a CPU's boot flow): filled by its first switch away.
    fn empty_context(&self) -> Self::Context;
    /// Saves the caller in `from` and continues `to`, with interrupts masked. Contexts are only ever continued once per
    /// save.
    fn switch(&self, from: &Self::Context, to: &Self::Context);
    /// Gives back the stack of a context that nobody will continue; never the caller's own.
    fn release_context(&self, context: Self::Context);

    /// The threads beneath this kernel's tasks, if they are scheduled by somebody else: a kernel on the machine itself, beside
    /// virtual machines. `None`: it schedules its tasks on its CPUs itself.
    fn threads(&self) -> Option<&dyn Threads<Self::Context>> {
        None
    }

    /// A seed for the random stream `purpose` of this guest: equal in equal runs, unrelated between purposes.
    fn seed(&self, purpose: &str) -> u64;
    /// Tells the world outside something.
    fn report(&self, report: Report);
}

/// The scheduler beneath a kernel on the machine itself: the one that schedules vCPUs as well. Each of the kernel's tasks is a
/// thread; the kernel's CPUs are the machine's, and a thread is preempted only where it says so.
///
/// All but [`Threads::reserve`], [`Threads::wants_to_reschedule`] and [`Threads::call`] are calls of the thread that runs on
/// this CPU. Those that can take the CPU away are made with interrupts masked and return with them masked, maybe on another
/// CPU.
pub trait Threads<C> {
    /// Makes room for `count` threads, 0 and up; before any of them starts.
    fn reserve(&self, count: u32);
    /// Starts `thread` in `context`; one that has lived continues where its last life ended, or is about to end.
    fn start(&self, thread: u32, context: &C);
    /// Ends the sleep of `thread`, or its next one if it has not gone to sleep yet.
    fn wake(&self, thread: u32);
    /// Sleeps until woken, or until `until` nanoseconds.
    fn sleep(&self, until: Option<u64>);
    /// Ends; returns in the thread's next life.
    fn end(&self);
    /// Gives the CPU away if the scheduler wants it.
    fn yield_cpu(&self);
    /// Moves to the idlest CPU: an exec leaves nothing in the caches that is worth staying for.
    fn execute(&self);
    /// Whether the scheduler wants this CPU.
    fn wants_to_reschedule(&self) -> bool;
    /// Sends `target` the interrupt for calls, whatever runs there.
    fn call(&self, target: CpuId);
    /// A CPU's boot flow has nothing to do; returns after an interrupt that no thread was there to take.
    fn idle(&self);
}

/// What a guest tells the world outside.
#[derive(Clone, Debug, PartialEq)]
pub enum Report {
    /// The workload's measured interval begins now.
    Begin,
    /// The workload is done; its result is the time since `Begin`, or this many operations over that time.
    Done {
        /// Operations completed, for workloads that measure throughput.
        operations: Option<u64>,
    },
    /// A named counter of the guest's, to be published with the results.
    Counter(String, u64),
    /// The guest cannot go on, and says why.
    Panic(String),
}

/// What a machine boots: a kernel with its workload.
pub trait GuestImage {
    /// Runs on each CPU's boot flow, interrupts masked, CPU 0 first; never returns. If the kernel starts the other CPUs itself
    /// ([`Machine::startup_page`]), each one's flow begins with its SIPI.
    fn boot(&self, cpu: CpuId) -> !;
    /// The scheduler beneath wants the CPU of the task in user mode that executes the caller ([`Threads`]). Interrupts are
    /// masked; on return they are enabled again.
    ///
    /// # Panics
    /// If the kernel has none beneath it.
    fn preempt(&self) {
        panic!("a kernel that schedules its tasks itself is told to");
    }
    /// The machine delivers `vector`: runs on the interrupted flow's stack, interrupts masked; on return they are enabled
    /// again.
    fn interrupt(&self, vector: u8);
}
