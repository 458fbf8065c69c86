//! The kernel's view of its CPU: privileged instructions, the LAPIC, hypercalls, and what the kernel announces.

#![expect(unsafe_code, reason = "the kernel's CPU trait is unsafe to implement")]

use core::sync::atomic::Ordering;

use holdfast_abi::{StealTime, msr::PV_EOI_BIT, virtio};
use holdfast_guest::{Caches, Cpu, LockClass, Mode, Pcid, TakenPage};
use holdfast_host::{Exit, PcpuId};
use holdfast_locks::{Budget, CpuId, Interrupts};
use holdfast_machine::{Picos, overlapped};

use crate::books::happened::Happened;
use crate::core::cause::Cause;
use crate::engine::Engine;
use crate::engine::handle::Handle;
use crate::events::siblings::SLICE;
use crate::guests::cpu::SimCpu;
use crate::memory::dirty::{DirtyLog, LOG_ENTRIES};
use crate::memory::records::{PV_EOI_BASE, PV_EOI_STRIDE, STEAL_TIME_BASE};
use crate::memory::word::SimWord;

/// Time that a flow may be ahead of its last ordered operation before it lets others catch up, in picoseconds. An
/// interrupt is taken at most this much late.
const AHEAD_PS: u64 = 1_000_000;

/// Time that a store to an assigned device's notification register takes on its way out, in nanoseconds. An estimate.
const RING_NS: u64 = 100;

// SAFETY: as for `Platform` and `Interrupts`.
unsafe impl Cpu for SimCpu {
    #[inline]
    fn compute(&self, ns: u64) {
        // SAFETY: only methods of the engine and of its parts are called.
        let engine = unsafe { self.handle.engine() };
        let span = Picos::from_nanos(ns) + engine.hardware.costs.guest_code;
        let span = engine.with_walks(engine.flows.current, span);
        if engine.memory.dirty_log.is_some() || engine.hardware.has_siblings() {
            return self.compute_watched(span);
        }
        match spend(engine, span) {
            Some(false) => {}
            Some(true) => self.handle.order(),
            None => self.spend_computing(span),
        }
    }

    #[inline]
    fn caches(&self) -> Caches {
        self.with(|engine| Caches(engine.current().last_pcpu.0))
    }

    fn fetch_lines(&self, from: Caches, milli: u32, chained: bool) {
        let waits = if chained { milli } else { overlapped(milli) };
        let span = self.with(|engine| {
            let pcpu = engine.current().last_pcpu;
            let latency = engine.memory.latency(PcpuId(from.0), pcpu);
            Picos(latency.0 * u64::from(waits) / 1_000)
        });
        if span != Picos::ZERO {
            self.spend_computing(span);
        }
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
        self.with(|engine| engine.current().interrupts.enabled)
    }

    #[inline]
    fn contentions(&self) -> u64 {
        self.with(|engine| engine.current().announced.contentions)
    }

    #[inline]
    fn lock_clock_ns(&self) -> u64 {
        self.with(|engine| engine.current().flow.clock.nanos())
    }

    fn cpuid(&self, leaf: u32) -> [u32; 4] {
        if self.is_native() {
            // CPUID is not intercepted here, and no leaf names a hypervisor.
            return [0; 4];
        }
        self.handle.exit(Exit::Cpuid { leaf });
        self.with(|engine| engine.current().replies.cpuid)
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
        if self.is_native() {
            return;
        }
        let is_new = self.with(|engine| engine.vms[self.vm].pages.take(page.space, page.of_space, page.in_use));
        if page.is_first_touch {
            // The host records the page when it gives it.
            self.handle.exit(Exit::NestedFault);
        } else if is_new {
            self.log_page();
        }
    }

    fn pages_freed(&self, space: u32, pages: u32) {
        self.with(|engine| engine.vms[self.vm].pages.free(space, pages));
    }

    fn monitor_wait(&self, word: &SimWord, value: u32) {
        // The pCPU sleeps, so its clock is the machine's when it begins.
        self.handle.order();
        self.with(|engine| {
            let this = engine.current();
            this.spin.asleep = Some(this.flow.clock);
        });
        // No PAUSE of such a guest exits.
        let _ = self.handle.wait(word, Budget::UNBOUNDED, |found| found != value);
        if let Some(since) = self.with(|engine| engine.current().spin.asleep.take()) {
            self.handle.wake_up(since);
        }
    }

    fn port_write(&self, port: u16, value: u32) {
        if self.handle.ring_nic(port) {
            return;
        }
        // The host kernel has the doorbells of network and block devices. All other ports are the VMM's.
        let exit = match port {
            virtio::NOTIFY_PORT | virtio::DISK_NOTIFY_PORT => Exit::PortWrite { port, value },
            _ if self.is_native() => return,
            _ => Exit::Userspace,
        };
        self.handle.exit(exit);
    }

    fn steal_time(&self, cpu: CpuId) -> &StealTime {
        &self.fixed().memory.steal_time[cpu.0 as usize]
    }

    fn steal_time_address(&self, cpu: CpuId) -> u64 {
        STEAL_TIME_BASE + u64::from(cpu.0) * size_of::<StealTime>() as u64
    }

    fn preempted_state(&self, cpu: CpuId) -> u8 {
        let hit = self.with(|engine| engine.hardware.costs.load_hit);
        self.handle.work(hit);
        self.steal_time(cpu).preempted.load(Ordering::Relaxed)
    }

    fn ask_for_flush(&self, cpu: CpuId, state: u8) -> bool {
        // The line is with the host, which writes the record whenever it schedules the vCPU in or out. Uncertain.
        let transfer = self.with(|engine| engine.hardware.costs.transfer_socket);
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
        let cost = self.with(|engine| engine.hardware.costs.load_hit + engine.hardware.costs.store);
        self.handle.work(cost);
        self.handle.order();
        let word = &self.fixed().memory.pv_eoi[self.number as usize];
        let found = word.get();
        word.set(found & !PV_EOI_BIT);
        found & PV_EOI_BIT != 0
    }

    #[inline]
    fn load_tables(&self, space: u32, pcid: Pcid) {
        self.with(|engine| engine.load_tables(engine.flows.current, space, pcid));
    }

    #[inline]
    fn flush_tlb(&self) {
        self.with(|engine| engine.flush_tlb(engine.flows.current));
    }

    fn tables_changed(&self, space: u32) -> u64 {
        self.with(|engine| engine.vms[self.vm].spaces.change(space))
    }

    fn tables_flushed(&self, space: u32, change: u64) {
        self.with(|engine| engine.tables_flushed(self.vm, space, change));
    }

    fn join_node(&self, node: u32) {
        self.fixed().numa_nodes[self.number as usize].set(node);
    }

    #[inline(always)]
    fn lock_acquired(&self, lock: &SimWord) {
        // SAFETY: only methods of the engine and of its parts are called.
        let engine = unsafe { self.handle.engine() };
        let line = lock.line_in(&mut engine.memory);
        engine.lock_acquired(engine.flows.current, line);
    }

    #[inline]
    fn lock_class(&self, lock: &SimWord, class: LockClass) {
        self.with(|engine| {
            let vcpu = engine.flows.current;
            let line = lock.line_in(&mut engine.memory);
            engine.emit(&Happened::LockNamed { vcpu, line, class });
        });
    }

    #[inline]
    fn lock_released(&self, lock: &SimWord) {
        // The pending time of the critical section passes while the lock is held.
        self.handle.order();
        // SAFETY: only methods of the engine and of its parts are called.
        let engine = unsafe { self.handle.engine() };
        let line = lock.line_in(&mut engine.memory);
        engine.lock_released(engine.flows.current, line);
    }

    fn ipi_wait_begin(&self, target: CpuId) {
        // The wait begins at the flow's clock, and so does the time that the target is off.
        self.handle.order();
        self.with(|engine| {
            let vcpu = engine.flows.current;
            let target = engine.vm_of(vcpu).vcpu(target.0);
            engine.vcpus[vcpu].announced.ipi_target = Some(target);
            engine.emit(&Happened::Waits { vcpu });
        });
    }

    fn ipi_wait_end(&self, _: CpuId) {
        // A skipped spin ends in one step: it is divided by the target's time off before the target is forgotten.
        self.with(|engine| {
            engine.use_pending_time(engine.flows.current);
            engine.current().announced.ipi_target = None;
        });
    }

    #[inline]
    fn executing(&self, mode: Mode) {
        // SAFETY: only methods of the engine and of its parts are called.
        let engine = unsafe { self.handle.engine() };
        engine.current().announced.mode = mode;
        engine.check_translations(engine.flows.current);
    }
}

/// Whether the executing flow is to let others catch up.
#[inline(always)]
fn is_far_ahead(engine: &Engine) -> bool {
    let this = &engine.vcpus[engine.flows.current];
    this.flow.clock.0 - engine.clock.now.0 > AHEAD_PS
}

/// Spends `span` on what the executing flow is doing. Returns whether it is to let others catch up, or `None` if its
/// pending time has no room.
#[inline(always)]
fn spend(engine: &mut Engine, span: Picos) -> Option<bool> {
    let this = engine.current();
    let cause = this.announced.work_cause();
    this.spend(cause, span).then(|| is_far_ahead(engine))
}

impl SimCpu {
    /// Whether it is a CPU of the bare-metal kernel.
    fn is_native(&self) -> bool {
        self.with(|engine| engine.current().native)
    }

    /// Computes for `span` while the hardware logs written pages, or next to the other threads of the core.
    fn compute_watched(&self, span: Picos) {
        let (is_logged, has_siblings) =
            self.with(|engine| (engine.memory.dirty_log.is_some(), engine.hardware.has_siblings()));
        if is_logged {
            self.log_user_pages(span);
        }
        if has_siblings {
            self.compute_beside(span);
        } else {
            self.spend_computing(span);
        }
    }

    /// Computes for `span`, which takes `span`.
    fn spend_computing(&self, span: Picos) {
        let is_far_ahead = self.with(|engine| spend(engine, span)).unwrap_or_else(|| {
            self.handle.work(span);
            self.with(|engine| is_far_ahead(engine))
        });
        if is_far_ahead {
            self.handle.order();
        }
    }

    /// Computes for `span` next to the other threads of the core.
    fn compute_beside(&self, mut span: Picos) {
        while span != Picos::ZERO {
            let slice = span.min(SLICE);
            let stretched = self.with(|engine| {
                let vcpu = engine.flows.current;
                let this = &engine.vcpus[vcpu];
                let (pcpu, within) = (this.last_pcpu, this.announced.work_cause());
                let is_work = this.announced.contending.is_none();
                let stretched = engine.stretched(pcpu, slice);
                let (span, cause) = (stretched - slice, Cause::SharedCore);
                if is_work && span != Picos::ZERO {
                    engine.emit(&Happened::Slowed {
                        vcpu,
                        within,
                        cause,
                        span,
                    });
                }
                stretched
            });
            self.spend_computing(stretched);
            span = span - slice;
        }
    }

    /// The hardware learns of the pages that user code writes to in `span`, if the CPU executes user code.
    #[cold]
    fn log_user_pages(&self, span: Picos) {
        let new = self.with(|engine| {
            let this = &mut engine.vcpus[engine.flows.current];
            let filled = this.memory.tlb.current().filled;
            let (Mode::User, false, Some(filled)) = (this.announced.mode, this.native, filled) else {
                return 0;
            };
            let cycles = engine.hardware.cycles(span);
            let vm = &mut engine.vms[self.vm];
            let own = vm.pages.compute(filled.space, cycles);
            let migrations = engine.migrations.as_ref();
            let migrated = migrations.and_then(|all| all.migrated.get(self.vm.0 as usize));
            let Some((migrated, rate)) =
                migrated.and_then(|migrated| Some((migrated, migrated.dirty_pages_per_second?)))
            else {
                return own;
            };
            let all = migrated.first_round(vm.pages.touched());
            own + vm.pages.write_at(rate, vm.vcpus, span, all)
        });
        for _ in 0..new {
            self.log_page();
        }
    }

    /// The hardware learns of the first write to a page since the host asked.
    fn log_page(&self) {
        let exit = self.with(|engine| match engine.memory.dirty_log? {
            DirtyLog::WriteProtection => Some(Exit::WriteFault),
            DirtyLog::Hardware => {
                let logged = &mut engine.current().memory.logged;
                *logged += 1;
                let is_full = *logged == LOG_ENTRIES;
                *logged %= LOG_ENTRIES;
                is_full.then_some(Exit::PageLogFull { entries: LOG_ENTRIES })
            }
        });
        if let Some(exit) = exit {
            self.handle.exit(exit);
        }
    }

    fn reply(&self) -> u64 {
        self.with(|engine| engine.current().replies.value)
    }
}

impl Handle {
    /// The guest writes to `port`, and does not wait for the effect. Returns `false` if `port` is not a register of an
    /// assigned device.
    pub fn ring_nic(&self, port: u16) -> bool {
        let found = self.with(|engine| {
            let vm = engine.current().vm;
            engine.tasks.assigned_nic(vm)
        });
        let Some(nic) = found.filter(|_| port == virtio::NOTIFY_PORT) else {
            return false;
        };
        self.work(Picos::from_nanos(RING_NS));
        self.order();
        self.with(|engine| engine.wake_nic(nic as u32));
        true
    }
}
