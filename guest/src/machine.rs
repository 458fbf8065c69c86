//! The interface between the guest kernel and the machine that it runs on, in virtual time or on a real KVM.
//!
//! The interface is the hardware's own: MSRs, LAPIC registers, HLT, hypercalls. A kernel on this interface takes exits
//! where a real one does.

#![expect(
    unsafe_code,
    reason = "the kernel's data are only as safe as the machine below it, so its traits are unsafe to implement"
)]

use alloc::boxed::Box;
use alloc::string::String;
use core::sync::atomic::Ordering;

use holdfast_abi::StealTime;
use holdfast_locks::{Budget, CpuId, Interrupts, Nodes, Numa, Paravirt};

use crate::class::LockClass;
use crate::pcid::Pcid;

/// The caches of one CPU of the hardware, by the machine's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caches(pub u32);

/// One virtual CPU of the machine, for the code that runs on it. A value is valid until the caller blocks or is
/// preempted by the guest's scheduler. After that the caller must call [`Machine::cpu`] again.
///
/// # Safety
/// As for [`Platform`](holdfast_locks::Platform). In addition, an interrupt handler runs only while interrupts are
/// enabled.
pub unsafe trait Cpu: Nodes + Paravirt + Interrupts + Numa + 'static {
    /// Computes for `ns` nanoseconds of this CPU's undisturbed time. Enabled interrupts are taken during that, and the
    /// caller may then continue on another CPU.
    fn compute(&self, ns: u64);
    /// Returns the caches that hold what this CPU changes now.
    fn caches(&self) -> Caches;
    /// Touches `milli` thousandths of cache lines that were changed in `from`: data behind a lock. If they are
    /// `chained`, each has the address of the next one.
    fn fetch_lines(&self, from: Caches, milli: u32, chained: bool);
    /// Enables interrupts, and takes pending ones.
    fn irq_enable(&self);
    /// Masks interrupts.
    fn irq_disable(&self);
    /// Returns `true` if interrupts are enabled.
    fn irqs_enabled(&self) -> bool;

    /// Executes CPUID, and returns EAX, EBX, ECX and EDX.
    fn cpuid(&self, leaf: u32) -> [u32; 4];
    /// Writes a model-specific register. Writing one that the machine does not have is an error of the guest.
    fn wrmsr(&self, msr: u32, value: u64);
    /// Reads a model-specific register.
    fn rdmsr(&self, msr: u32) -> u64;
    /// Writes a memory-mapped LAPIC register. `offset` is that of the manual: 0x300 is ICR low.
    fn apic_write(&self, offset: u32, value: u32);
    /// Reads a memory-mapped LAPIC register.
    fn apic_read(&self, offset: u32) -> u32;
    /// Makes a hypercall with up to four arguments, and returns RAX.
    fn hypercall(&self, number: u32, arguments: [u64; 4]) -> i64;

    /// Writes to an I/O port. Does nothing on machines without devices behind ports.
    fn port_write(&self, port: u16, value: u32) {
        let _ = (port, value);
    }

    /// Writes to an anonymous page that the kernel has just taken. Real hardware needs no announcement.
    fn touch_page(&self, page: TakenPage) {
        let _ = page;
    }
    /// The kernel has freed anonymous pages of address space `space`, which has `pages` left. Real hardware needs no
    /// announcement.
    fn pages_freed(&self, space: u32, pages: u32) {
        let _ = (space, pages);
    }

    /// The steal-time record of `cpu`. The host uses it once its MSR is written.
    fn steal_time(&self, cpu: CpuId) -> &StealTime;
    /// The guest-physical address of the steal-time record of `cpu`, for the MSR.
    fn steal_time_address(&self, cpu: CpuId) -> u64;

    /// The state byte of `cpu`'s steal-time record. A hint: it may be stale as soon as it is read.
    fn preempted_state(&self, cpu: CpuId) -> u8 {
        self.steal_time(cpu).preempted.load(Ordering::Relaxed)
    }
    /// Asks the host to flush `cpu`'s TLB before it runs again: adds [`StealTime::FLUSH_TLB`] to the state byte of its
    /// record if that is still `state`. Returns `false` if it is not, so that `cpu` may already run. A full barrier: a
    /// reader that finds the bit sees the caller's earlier stores.
    fn ask_for_flush(&self, cpu: CpuId, state: u8) -> bool {
        // ORDERING: SeqCst: a full barrier, as the LOCK prefix makes it.
        self.steal_time(cpu)
            .preempted
            .compare_exchange(state, state | StealTime::FLUSH_TLB, Ordering::SeqCst, Ordering::Relaxed)
            .is_ok()
    }
    /// The guest-physical address of this CPU's paravirtual EOI word, for the MSR. `None` if the machine has no such
    /// word.
    fn pv_eoi_address(&self) -> Option<u64> {
        None
    }
    /// Tests and clears bit 0 of the paravirtual EOI word in one instruction. Returns `true` if it was set.
    fn take_pv_eoi(&self) -> bool {
        false
    }

    /// Waits until `word` is not `value`, or for an interrupt, without a pause loop (MONITOR and MWAIT). Interrupts are
    /// enabled, and may be taken meanwhile. The caller's handlers change the word.
    fn monitor_wait(&self, word: &Self::Word, value: u32) {
        let _ = self.wait_until(word, Budget::UNBOUNDED, Ordering::Acquire, |found| found != value);
    }

    /// Loads the tables of address space `space` under `pcid` (CR3). What this CPU's TLB has under that identifier is
    /// lost unless `pcid` keeps it. Like [`Cpu::flush_tlb`], it does nothing on machines where user code has no address
    /// spaces of its own.
    fn load_tables(&self, space: u32, pcid: Pcid) {
        let _ = (space, pcid);
    }
    /// Flushes what this CPU's TLB has of the loaded tables.
    fn flush_tlb(&self) {}
    /// Tracepoint: translations were removed from the tables of `space`. Returns a number for [`Cpu::tables_flushed`].
    fn tables_changed(&self, space: u32) -> u64 {
        let _ = space;
        0
    }
    /// Tracepoint: from now on the caller relies on no CPU using the translations removed from `space` up to `change`.
    fn tables_flushed(&self, space: u32, change: u64) {
        let _ = (space, change);
    }

    /// Makes [`Numa::numa_node`](holdfast_locks::Numa::numa_node) return `node` for this CPU (`numa_set_node`). Until
    /// then it returns node 0.
    fn join_node(&self, node: u32);

    /// Tracepoint: the caller now holds `lock` (lockdep's `lock_acquired`).
    fn lock_acquired(&self, lock: &Self::Word);
    /// Tracepoint: the class of `lock`, which the caller now holds.
    fn lock_class(&self, lock: &Self::Word, class: LockClass) {
        let _ = (lock, class);
    }
    /// Tracepoint: the caller is about to release `lock`.
    fn lock_released(&self, lock: &Self::Word);
    /// How many times locks on this CPU have called
    /// [`contention_begin`](holdfast_locks::Platform::contention_begin). Always 0 on machines that do not count.
    fn contentions(&self) -> u64 {
        0
    }
    /// Returns a clock in nanoseconds by which the waits for locks are measured. Always 0 on machines where reading it
    /// would cost time that is measured.
    fn lock_clock_ns(&self) -> u64 {
        0
    }
    /// Tracepoint: the caller waits for `target` to answer an IPI.
    fn ipi_wait_begin(&self, target: CpuId);
    /// Tracepoint: `target` has answered.
    fn ipi_wait_end(&self, target: CpuId);
    /// Tracepoint: from now on this CPU executes in `mode`. The time of [`Cpu::compute`] and HLT is accounted to it.
    fn executing(&self, mode: Mode);
}

/// An anonymous page that a kernel has just taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TakenPage {
    /// The address space.
    pub space: u32,
    /// Pages of that space, this one included.
    pub of_space: u32,
    /// Pages in use in the whole guest, this one included.
    pub in_use: u32,
    /// Whether it was never touched before.
    pub is_first_touch: bool,
}

/// What a CPU executes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// A task in user mode: CPL 3, and preemptible.
    User,
    /// The kernel, for a task or an interrupt: CPL 0.
    Kernel,
    /// The idle loop.
    Idle,
}

/// The machine: its CPUs, task contexts, and the connection to the program that runs it.
///
/// # Safety
/// [`Machine::cpu`] must return the CPU that runs the caller, and [`Machine::switch`] must preserve everything that a
/// callee of the ABI must preserve. Once the [`GuestImage`] is dropped, no context of this machine runs or is
/// continued.
pub unsafe trait Machine: Sized + 'static {
    /// The CPU type.
    type Cpu: Cpu;
    /// A saved flow of control with a stack of its own.
    type Context: 'static;

    /// The number of CPUs.
    fn cpus(&self) -> u32;
    /// The CPU that executes the caller.
    fn cpu(&self) -> Self::Cpu;
    /// The proximity domain of the CPU with APIC ID `apic_id` in the firmware's table (ACPI SRAT). `None` if there is
    /// no table, or if the CPU is not in it.
    fn proximity_domain(&self, apic_id: u32) -> Option<u32> {
        let _ = apic_id;
        None
    }

    /// The page that SIPI names, where CPUs other than 0 begin, if this kernel starts them itself by INIT and SIPI as
    /// on real hardware. `None` if the machine starts all CPUs.
    fn startup_page(&self) -> Option<u8> {
        None
    }

    /// The memory that the driver shares with the network device. `None` if there is no such device.
    fn network(&self) -> Option<&holdfast_abi::virtio::Network> {
        None
    }

    /// The memory that the driver shares with the block device. `None` if there is no such device.
    fn disk(&self) -> Option<&holdfast_abi::virtio::Disk> {
        None
    }

    /// Makes a context that runs `body` when it is first switched to. `body` must never return. Its last act is to
    /// switch away.
    fn new_context(&self, body: Box<dyn FnOnce()>) -> Self::Context;
    /// Makes a context for a flow of control that already runs (a CPU's boot flow). The first switch away fills it.
    fn empty_context(&self) -> Self::Context;
    /// Saves the caller in `from` and continues `to`, with interrupts masked. A saved context is continued only once.
    fn switch(&self, from: &Self::Context, to: &Self::Context);

    /// The host's threads that run this kernel's tasks, for a kernel on the machine itself, next to virtual machines.
    /// `None` if this kernel schedules its tasks itself.
    fn threads(&self) -> Option<&dyn Threads<Self::Context>> {
        None
    }

    /// Returns the seed of this guest's random stream `purpose`. Seeds are equal in equal runs, and unrelated between
    /// purposes.
    fn seed(&self, purpose: &str) -> u64;
    /// Reports something to the program that runs this machine.
    fn report(&self, report: Report);
    /// Tracepoint: the workload has completed an operation, which took `ns` nanoseconds of
    /// [`lock_clock_ns`](Cpu::lock_clock_ns).
    fn operation_completed(&self, ns: u64) {
        let _ = ns;
    }
}

/// The host's scheduler, for a kernel on the machine itself. It also schedules vCPUs. Each of the kernel's tasks is a
/// thread. The kernel's CPUs are the machine's. A thread is preempted only where it allows that.
///
/// All functions but [`Threads::reserve`], [`Threads::wants_to_reschedule`] and [`Threads::call`] are for the thread
/// that runs on this CPU. Those that can take the CPU away are called with interrupts masked, and return with
/// interrupts masked, maybe on another CPU.
pub trait Threads<C> {
    /// Makes room for `count` threads, numbered from 0, before any of them starts.
    fn reserve(&self, count: u32);
    /// Starts `thread` in `context`. If it has run before, it returns from its last [`Threads::end`], which may still
    /// be to come.
    fn start(&self, thread: u32, context: &C);
    /// Ends the sleep of `thread`, or its next sleep if it does not sleep yet.
    fn wake(&self, thread: u32);
    /// Sleeps until woken, or until `until` nanoseconds.
    fn sleep(&self, until: Option<u64>);
    /// Ends this thread. Returns when the thread is started again.
    fn end(&self);
    /// Gives the CPU up if the scheduler wants it.
    fn yield_cpu(&self);
    /// Moves to the least loaded CPU, for an exec, after which the cache contents are worthless.
    fn execute(&self);
    /// Returns `true` if the scheduler wants this CPU.
    fn wants_to_reschedule(&self) -> bool;
    /// Sends `target` the interrupt for calls, whichever thread runs there.
    fn call(&self, target: CpuId);
    /// Idles in a CPU's boot flow. Returns after an interrupt that came while no thread ran.
    fn idle(&self);
}

/// What a guest reports to the program that runs it.
#[derive(Clone, Debug, PartialEq)]
pub enum Report {
    /// The workload's measured interval begins now.
    Begin,
    /// The workload is done. Its result is the time since `Begin`, or this many operations over that time.
    Done {
        /// Operations completed, for a workload that measures throughput.
        operations: Option<u64>,
    },
    /// A named counter, to be published with the results.
    Counter(String, u64),
    /// The guest cannot continue, for this reason.
    Panic(String),
}

/// The image that a machine boots: a kernel with its workload.
pub trait GuestImage {
    /// Boots `cpu`, as that CPU's boot flow, with interrupts masked, CPU 0 first. Never returns. If the kernel starts
    /// the other CPUs itself ([`Machine::startup_page`]), the flow of each begins with its SIPI.
    fn boot(&self, cpu: CpuId) -> !;
    /// Gives up the CPU of the task in user mode that executes the caller, because the host's scheduler wants the CPU
    /// ([`Threads`]). Interrupts are masked, and enabled again on return.
    ///
    /// # Panics
    /// Panics if the kernel schedules its tasks itself.
    fn preempt(&self) {
        panic!("preempt a task of a kernel that schedules its tasks itself");
    }
    /// Handles `vector`, on the stack of the interrupted flow. Interrupts are masked, and enabled again on return.
    fn interrupt(&self, vector: u8);
    /// Handles a non-maskable interrupt, on the stack of the interrupted flow. Interrupts are masked; on return they
    /// are as before.
    fn nmi(&self) {}
    /// Sets the kernel's counters to zero, from outside of its flows: events, and locks by class. Times stay. A machine
    /// whose CPUs run meanwhile must not call it.
    fn zero_statistics(&self) {}
    /// Passes each of those counters, with its name in the results, to `counter`. CPUs may count meanwhile.
    fn statistics(&self, counter: &mut dyn FnMut(String, u64)) {
        let _ = counter;
    }
}
