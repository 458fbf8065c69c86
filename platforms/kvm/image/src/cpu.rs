//! A vCPU of a KVM guest, for the code that runs on it.

#![expect(unsafe_code, reason = "the platform's traits are unsafe to implement")]

use core::marker::PhantomData;
use core::sync::atomic::Ordering::{self, Relaxed};
use core::sync::atomic::{compiler_fence, fence};

use holdfast_abi::{StealTime, hypercall, lapic, msr};
use holdfast_guest::{Caches, Cpu, LockClass, Mode};
use holdfast_locks::{
    Budget, CpuId, Event, Interrupts, LockStats, NodeTable, Nodes, Numa, Paravirt, Platform, Recorder, WaitTable,
};

use crate::instructions::{self, cli, interrupts_enabled, sti};
use crate::percpu::{self, PerCpu, Shared};
use crate::word::{KvmAddress, KvmWord};

/// The vCPU that executes the caller. It is valid until the caller is switched to another CPU.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct KvmCpu {
    block: &'static PerCpu,
    /// Makes the type neither `Send` nor `Sync`.
    here: PhantomData<*const ()>,
}

impl KvmCpu {
    /// Returns the executing vCPU.
    #[inline(always)]
    pub(crate) fn current() -> KvmCpu {
        KvmCpu {
            block: percpu::this(),
            here: PhantomData,
        }
    }

    #[inline(always)]
    pub(crate) fn block(&self) -> &'static PerCpu {
        self.block
    }

    #[inline(always)]
    pub(crate) fn shared(&self) -> &'static Shared {
        self.block.shared()
    }
}

// SAFETY: the words' operations are atomic, and total store order gives each at least the requested ordering
// (`holdfast_words`). `cpu` is the number with which the executing CPU has entered its block.
unsafe impl Platform for KvmCpu {
    type Word = KvmWord;
    type Address = KvmAddress;

    #[inline(always)]
    fn cpu(&self) -> CpuId {
        CpuId(self.block.number.get())
    }
    holdfast_locks::operations_of_words!(KvmWord, KvmAddress);

    #[inline(always)]
    fn fence(&self, order: Ordering) {
        // The words' operations are opaque to the compiler, so its own fence is needed as well.
        compiler_fence(order);
        fence(order);
    }
    #[inline(always)]
    fn relax(&self) {
        core::hint::spin_loop();
    }
    #[inline(always)]
    fn count(&self, event: Event) {
        // Counting every acquisition would add a locked instruction to it. Kernel and workload count acquisitions
        // themselves.
        if event != Event::TasAcquired {
            self.block.lock_stats.add(event, 1);
        }
    }

    #[inline]
    fn contention_begin(&self, _: &KvmWord) {
        // ORDERING: Relaxed, here and in the other counters, which are statistics. It is one instruction, so an
        // interrupt cannot lose a count.
        self.block.contentions.fetch_add(1, Relaxed);
    }
}

// SAFETY: with the interrupt flag clear the CPU takes no interrupt. NMIs and exceptions end the guest.
unsafe impl Interrupts for KvmCpu {
    #[inline(always)]
    fn irq_save(&self) -> bool {
        let enabled = interrupts_enabled();
        cli();
        enabled
    }
    #[inline(always)]
    fn irq_restore(&self, enabled: bool) {
        if enabled {
            sti();
        }
    }
    #[inline(always)]
    fn in_nmi(&self) -> bool {
        false
    }
}

// SAFETY: there is one table, with an entry for each CPU that the VMM has started.
unsafe impl Nodes for KvmCpu {
    #[inline]
    fn nodes(&self) -> &NodeTable<KvmWord> {
        &self.shared().nodes
    }
}

impl Numa for KvmCpu {
    fn numa_node(&self, cpu: CpuId) -> u32 {
        percpu::of(cpu.0).node.load(Relaxed)
    }
    fn monotonic_ns(&self) -> u64 {
        self.now_ns()
    }
}

// SAFETY: KVM keeps a kick until the target halts (`pv_unhalted`, docs/spec/guest-host-interface.md, "Kick"). Both halt
// and kick are exits, which order memory as locked instructions do. If the host does not offer kicks, no lock that
// needs them is chosen. There is one waiting table.
unsafe impl Paravirt for KvmCpu {
    type Recorder = LockStats;

    fn halt_masked(&self) {
        self.block.halts.fetch_add(1, Relaxed);
        instructions::hlt();
    }
    fn halt_unmasked(&self) {
        self.block.halts.fetch_add(1, Relaxed);
        instructions::sti_hlt_cli();
    }
    fn kick(&self, cpu: CpuId) {
        self.block.kicks.fetch_add(1, Relaxed);
        // APIC IDs are CPU numbers. A negative result means that kicks never work, although CPUID offers them.
        let result = self.hypercall(hypercall::KICK_CPU as u32, [0, u64::from(cpu.0), 0, 0]);
        assert_eq!(
            result, 0,
            "the host offers the kick hypercall and refused a kick of cpu {}",
            cpu.0
        );
    }
    #[inline]
    fn is_preempted(&self, cpu: CpuId) -> bool {
        self.steal_time(cpu).preempted.load(Relaxed) & StealTime::PREEMPTED != 0
    }
    #[inline]
    fn halts_behind_preempted(&self) -> bool {
        self.shared().halts_behind_preempted
    }
    #[inline]
    fn waiting(&self) -> &WaitTable<KvmWord, KvmAddress> {
        &self.shared().waiting
    }
    #[inline]
    fn spin_threshold(&self) -> Budget {
        Budget(self.shared().spin_threshold)
    }
    #[inline]
    fn now_ns(&self) -> u64 {
        self.shared().time.now(&self.block.clock)
    }
    #[inline]
    fn recorder(&self) -> &LockStats {
        &self.block.lock_stats
    }
}

// SAFETY: as for `Platform` and `Interrupts`.
unsafe impl Cpu for KvmCpu {
    #[inline]
    fn compute(&self, ns: u64) {
        self.block.pace.run(ns, || self.now_ns());
    }
    /// The vCPU's number: where it runs is not known.
    #[inline(always)]
    fn caches(&self) -> Caches {
        Caches(self.block.number.get())
    }
    /// Reads lines that `from` changed when it fetched lines itself, and changes as many of its own.
    fn fetch_lines(&self, from: Caches, milli: u32, chained: bool) {
        let due = self.block.lines_due.get() + milli;
        self.block.lines_due.set(due % 1_000);
        let theirs = &percpu::of(from.0).lines;
        let pairs = theirs.iter().zip(&self.block.lines).cycle();
        for (theirs, mine) in pairs.take(due as usize / 1_000) {
            // ORDERING: Relaxed: no value is used, only the lines move.
            mine.0.store(theirs.0.load(Relaxed) + 1, Relaxed);
            if chained {
                instructions::wait_for_loads();
            }
        }
    }
    #[inline(always)]
    fn irq_enable(&self) {
        sti();
    }
    #[inline(always)]
    fn irq_disable(&self) {
        cli();
    }
    #[inline(always)]
    fn irqs_enabled(&self) -> bool {
        interrupts_enabled()
    }

    fn cpuid(&self, leaf: u32) -> [u32; 4] {
        instructions::cpuid(leaf)
    }
    fn wrmsr(&self, msr: u32, value: u64) {
        // SAFETY: the guest kernel writes registers of the LAPIC and of KVM only. The memory that it registers with
        // them is the record at `steal_time_address` or the word at `pv_eoi_address`, both static and accessed as
        // atomics.
        unsafe { instructions::wrmsr(msr, value) };
    }
    fn rdmsr(&self, msr: u32) -> u64 {
        instructions::rdmsr(msr)
    }
    fn apic_write(&self, offset: u32, value: u32) {
        // SAFETY: the LAPIC's page is mapped, and `offset` is that of one of its registers.
        unsafe { apic_register(offset).write_volatile(value) };
    }
    fn apic_read(&self, offset: u32) -> u32 {
        // SAFETY: as above.
        unsafe { apic_register(offset).read_volatile() }
    }
    fn hypercall(&self, number: u32, arguments: [u64; 4]) -> i64 {
        self.shared().hypervisor.call(number, arguments)
    }

    #[inline]
    fn steal_time(&self, cpu: CpuId) -> &StealTime {
        &percpu::of(cpu.0).steal_time
    }
    fn steal_time_address(&self, cpu: CpuId) -> u64 {
        // Memory is mapped one to one.
        core::ptr::from_ref(self.steal_time(cpu)).addr() as u64
    }

    fn pv_eoi_address(&self) -> Option<u64> {
        Some(core::ptr::from_ref(&self.block.pv_eoi).addr() as u64)
    }
    fn take_pv_eoi(&self) -> bool {
        instructions::test_and_clear_bit0(&self.block.pv_eoi)
    }

    fn monitor_wait(&self, word: &KvmWord, value: u32) {
        self.block.halts.fetch_add(1, Relaxed);
        while self.load(word, Ordering::Acquire) == value {
            instructions::monitor(word);
            // A write after MONITOR ends the wait at once. One before it is found here.
            if self.load(word, Ordering::Acquire) == value {
                instructions::mwait();
            }
        }
    }

    fn join_node(&self, node: u32) {
        self.block.node.store(node, Relaxed);
    }

    #[inline(always)]
    fn lock_acquired(&self, _: &KvmWord) {}
    #[inline(always)]
    fn lock_class(&self, _: &KvmWord, _: LockClass) {}
    #[inline(always)]
    fn lock_released(&self, _: &KvmWord) {}
    #[inline]
    fn contentions(&self) -> u64 {
        self.block.contentions.load(Relaxed)
    }
    #[inline(always)]
    fn ipi_wait_begin(&self, _: CpuId) {}
    #[inline(always)]
    fn ipi_wait_end(&self, _: CpuId) {}
    #[inline(always)]
    fn executing(&self, _: Mode) {}
}

fn apic_register(offset: u32) -> *mut u32 {
    debug_assert!((offset as usize) < lapic::PAGE_BYTES);
    core::ptr::with_exposed_provenance_mut(msr::APIC_BASE_ADDRESS as usize + offset as usize)
}
