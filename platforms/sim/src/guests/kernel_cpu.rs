//! The kernel's view of its CPU: privileged instructions, the LAPIC, hypercalls, and what the kernel announces.

#![expect(unsafe_code, reason = "the kernel's CPU trait is unsafe to implement")]

use core::sync::atomic::Ordering;

use holdfast_abi::{StealTime, hotplug, msr::PV_EOI_BIT, virtio};
use holdfast_guest::{Cpu, LockClass, Mode, Pcid, TakenPage};
use holdfast_host::Exit;
use holdfast_locks::{Budget, CpuId, Interrupts};
use holdfast_machine::Picos;

use crate::books::happened::Happened;
use crate::cpus::siblings::SLICE;
use crate::guests::cpu::SimCpu;
use crate::memory::dirty::{DirtyLog, LOG_ENTRIES};
use crate::memory::records::{PV_EOI_BASE, PV_EOI_STRIDE, STEAL_TIME_BASE};
use crate::memory::word::SimWord;

/// Time that a flow may be ahead of its last ordered operation before it lets others catch up, in picoseconds. An
/// interrupt is taken at most this much late.
const AHEAD_PS: u64 = 1_000_000;

// SAFETY: as for `Platform` and `Interrupts`.
unsafe impl Cpu for SimCpu {
    #[inline]
    fn compute(&self, ns: u64) {
        let engine = self.engine();
        let span = Picos::from_nanos(ns) + engine.hardware.costs.guest_code;
        let span = engine.with_walks(engine.flows.current, span);
        if engine.memory.dirty_log.is_some() {
            self.log_user_pages(span);
        }
        let engine = self.engine();
        if engine.hardware.has_siblings() {
            return self.compute_beside(span);
        }
        self.spend_computing(span);
    }

    #[inline]
    fn irq_enable(&self) {
        self.handle.set_irqs(true);
    }

    #[inline]
    fn irq_disable(&self) {
        self.irq_save();
    }

    #[inline]
    fn irqs_enabled(&self) -> bool {
        self.engine().current().interrupts.enabled
    }

    #[inline]
    fn contentions(&self) -> u64 {
        self.engine().current().announced.contentions
    }

    #[inline]
    fn lock_clock_ns(&self) -> u64 {
        self.engine().current().flow.clock.nanos()
    }

    fn cpuid(&self, leaf: u32) -> [u32; 4] {
        let engine = self.engine();
        if engine.vcpus[engine.flows.current].native {
            // CPUID is not intercepted here, and no leaf names a hypervisor.
            return [0; 4];
        }
        self.handle.exit(Exit::Cpuid { leaf });
        self.engine().current().replies.cpuid
    }

    fn wrmsr(&self, msr: u32, value: u64) {
        if self.handle.apic_wrmsr(msr, value) {
            return;
        }
        self.handle.exit(Exit::WriteMsr { msr, value });
        self.handle.fault(|| format!("wrmsr {msr:#x}, {value:#x}"));
    }

    fn rdmsr(&self, msr: u32) -> u64 {
        if let Some(value) = self.handle.apic_rdmsr(msr) {
            return value;
        }
        self.handle.exit(Exit::ReadMsr { msr });
        self.handle.fault(|| format!("rdmsr {msr:#x}"));
        self.reply()
    }

    fn apic_write(&self, offset: u32, value: u32) {
        self.handle.apic_write(offset, value);
    }

    fn apic_read(&self, offset: u32) -> u32 {
        if let Some(value) = self.handle.apic_read(offset) {
            return value;
        }
        self.handle.exit(Exit::ApicRead { offset });
        self.reply() as u32
    }

    fn hypercall(&self, number: u32, arguments: [u64; 4]) -> i64 {
        self.handle.exit(Exit::Hypercall {
            number: u64::from(number),
            arguments,
        });
        self.reply() as i64
    }

    fn touch_page(&self, page: TakenPage) {
        let engine = self.engine();
        if engine.vcpus[engine.flows.current].native {
            return;
        }
        let is_new = engine.vms[self.vm].pages.take(page.space, page.of_space, page.in_use);
        if page.is_first_touch {
            // The host records the page when it gives it.
            self.handle.exit(Exit::NestedFault);
        } else if is_new {
            self.log_page();
        }
    }

    fn pages_freed(&self, space: u32, pages: u32) {
        self.engine().vms[self.vm].pages.free(space, pages);
    }

    fn monitor_wait(&self, word: &SimWord, value: u32) {
        // The pCPU sleeps, so its clock is the machine's when it begins.
        self.handle.order();
        let this = self.engine().current();
        this.spin.asleep = Some(this.flow.clock);
        // No PAUSE of such a guest exits.
        let _ = self.handle.wait(word, Budget::UNBOUNDED, |found| found != value);
        if let Some(since) = self.engine().current().spin.asleep.take() {
            self.handle.wake_up(since);
        }
    }

    fn port_write(&self, port: u16, value: u32) {
        if self.handle.ring_nic(port) {
            return;
        }
        let engine = self.engine();
        // The host kernel has the doorbell of a network device. All other ports are the VMM's.
        let exit = match port {
            virtio::NOTIFY_PORT => Exit::PortWrite { port, value },
            _ if engine.vcpus[engine.flows.current].native => return,
            _ => {
                self.hot_plug(port, value);
                Exit::Userspace
            }
        };
        self.handle.exit(exit);
    }

    fn steal_time(&self, cpu: CpuId) -> &StealTime {
        &self.vm().memory.steal_time[cpu.0 as usize]
    }

    fn steal_time_address(&self, cpu: CpuId) -> u64 {
        STEAL_TIME_BASE + u64::from(cpu.0) * size_of::<StealTime>() as u64
    }

    fn preempted_state(&self, cpu: CpuId) -> u8 {
        let hit = self.engine().hardware.costs.load_hit;
        self.handle.work(hit);
        self.steal_time(cpu).preempted.load(Ordering::Relaxed)
    }

    fn ask_for_flush(&self, cpu: CpuId, state: u8) -> bool {
        // The line is with the host, which writes the record whenever it schedules the vCPU in or out. Uncertain.
        let transfer = self.engine().hardware.costs.transfer_socket;
        self.handle.work(transfer);
        self.handle.order();
        let preempted = &self.steal_time(cpu).preempted;
        let asked = state | StealTime::FLUSH_TLB;
        preempted
            .compare_exchange(state, asked, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    }

    fn pv_eoi_address(&self) -> Option<u64> {
        Some(PV_EOI_BASE + u64::from(self.number) * PV_EOI_STRIDE)
    }

    fn take_pv_eoi(&self) -> bool {
        // No LOCK prefix is needed: only this CPU uses the word, and the host while the vCPU is out of its guest.
        let costs = &self.engine().hardware.costs;
        let cost = costs.load_hit + costs.store;
        self.handle.work(cost);
        self.handle.order();
        let word = &self.vm().memory.pv_eoi[self.number as usize];
        let found = word.get();
        word.set(found & !PV_EOI_BIT);
        found & PV_EOI_BIT != 0
    }

    #[inline]
    fn load_tables(&self, space: u32, pcid: Pcid) {
        let engine = self.engine();
        engine.load_tables(engine.flows.current, space, pcid);
    }

    #[inline]
    fn flush_tlb(&self) {
        let engine = self.engine();
        engine.flush_tlb(engine.flows.current);
    }

    fn tables_changed(&self, space: u32) -> u64 {
        self.engine().vms[self.vm].spaces.change(space)
    }

    fn tables_flushed(&self, space: u32, change: u64) {
        self.engine().tables_flushed(self.vm, space, change);
    }

    fn join_node(&self, node: u32) {
        self.vm().numa_nodes[self.number as usize].set(node);
    }

    #[inline]
    fn lock_acquired(&self, lock: &SimWord) {
        let engine = self.engine();
        let line = lock.line_in(&mut engine.memory);
        engine.lock_acquired(engine.flows.current, line);
    }

    #[inline]
    fn lock_class(&self, lock: &SimWord, class: LockClass) {
        let engine = self.engine();
        if engine.books.is_recording() {
            let line = lock.line_in(&mut engine.memory);
            engine.emit(&Happened::LockNamed { line, class });
        }
    }

    #[inline]
    fn lock_released(&self, lock: &SimWord) {
        // The pending time of the critical section passes while the lock is held.
        self.handle.order();
        let engine = self.engine();
        let line = lock.line_in(&mut engine.memory);
        engine.lock_released(engine.flows.current, line);
    }

    fn ipi_wait_begin(&self, target: CpuId) {
        // The wait begins at the flow's clock, and so does the time that the target is off.
        self.handle.order();
        let engine = self.engine();
        let vcpu = engine.flows.current;
        let target = engine.vm_of(vcpu).vcpu(target.0);
        engine.vcpus[vcpu].announced.ipi_target = Some(target);
        engine.emit(&Happened::Waits { vcpu });
    }

    fn ipi_wait_end(&self, _: CpuId) {
        let engine = self.engine();
        // A skipped spin ends in one step: it is divided by the target's time off before the target is forgotten.
        engine.use_pending_time(engine.flows.current);
        engine.vcpus[engine.flows.current].announced.ipi_target = None;
    }

    #[inline]
    fn executing(&self, mode: Mode) {
        let engine = self.engine();
        engine.vcpus[engine.flows.current].announced.mode = mode;
        engine.check_translations(engine.flows.current);
    }
}

impl SimCpu {
    /// Notes what a write to `port` means for the hot-plug of CPUs, if anything. A CPU that the guest does not have, or
    /// the one that writes, cannot be ejected.
    fn hot_plug(&self, port: u16, value: u32) {
        let engine = self.engine();
        if port == hotplug::SELECT {
            engine.tasks.selected.insert(self.vm, value);
        }
        let selected = engine.tasks.selected.get(&self.vm).copied();
        let vm = &engine.vms[self.vm];
        let target = selected.filter(|&cpu| cpu < vm.vcpus && cpu != self.number);
        if port == hotplug::FLAGS
            && value & hotplug::EJECT != 0
            && let Some(target) = target
        {
            let target = vm.vcpu(target);
            engine.tasks.ejects.insert(engine.flows.current, target);
        }
    }

    /// Computes for `span`, which takes `span`.
    #[inline(always)]
    fn spend_computing(&self, span: Picos) {
        self.handle.work(span);
        let engine = self.engine();
        if engine.current().flow.clock.0 - engine.clock.now.0 > AHEAD_PS {
            self.handle.order();
        }
    }

    /// Computes for `span` next to the other threads of the core.
    fn compute_beside(&self, mut span: Picos) {
        while span != Picos::ZERO {
            let slice = span.min(SLICE);
            let engine = self.engine();
            let pcpu = engine.vcpus[engine.flows.current].last_pcpu;
            self.spend_computing(engine.stretched(pcpu, slice));
            span = span - slice;
        }
    }

    /// The hardware learns of the pages that user code writes to in `span`, if the CPU executes user code.
    #[cold]
    fn log_user_pages(&self, span: Picos) {
        let engine = self.engine();
        let this = &mut engine.vcpus[engine.flows.current];
        let filled = this.memory.tlb.current().filled;
        let (Mode::User, false, Some(filled)) = (this.announced.mode, this.native, filled) else {
            return;
        };
        let cycles = engine.hardware.cycles(span);
        let new = engine.vms[self.vm].pages.compute(filled.space, cycles);
        for _ in 0..new {
            self.log_page();
        }
    }

    /// The hardware learns of the first write to a page since the host asked.
    fn log_page(&self) {
        let engine = self.engine();
        match engine.memory.dirty_log {
            None => {}
            Some(DirtyLog::WriteProtection) => self.handle.exit(Exit::WriteFault),
            Some(DirtyLog::Hardware) => {
                let logged = &mut engine.current().memory.logged;
                *logged += 1;
                if *logged == LOG_ENTRIES {
                    *logged = 0;
                    self.handle.exit(Exit::PageLogFull { entries: LOG_ENTRIES });
                }
            }
        }
    }

    fn reply(&self) -> u64 {
        self.engine().current().replies.value
    }
}
