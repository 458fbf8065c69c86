//! The guest's view of its CPU: memory operations, interrupts, halts and kicks, in virtual time.

#![expect(unsafe_code, reason = "the platform's traits are unsafe to implement")]

use core::sync::atomic::Ordering;

use holdfast_abi::{StealTime, msr::PV_EOI_BIT};
use holdfast_guest::{Cpu, LockClass, Mode};
use holdfast_host::{Exit, VmId};
use holdfast_locks::{Budget, CpuId, Interrupts, LockStats, NodeTable, Nodes, Numa, Paravirt, Platform, WaitTable};
use holdfast_machine::{Access, Picos};

use crate::books::happened::Happened;
use crate::core::engine::Engine;
use crate::flows::flow::Handle;
use crate::guests::vm::Vm;
use crate::memory::records::{PV_EOI_BASE, PV_EOI_STRIDE, STEAL_TIME_BASE};
use crate::memory::word::{SimAddress, SimWord};

/// Guest time that a flow may run ahead of its last ordered operation before it lets others catch up, in picoseconds: an
/// interrupt is taken at most this much late.
const AHEAD_PS: u64 = 1_000_000;

/// A vCPU, for the guest code that runs on it.
#[derive(Clone, Copy, Debug)]
pub struct SimCpu {
    handle: Handle,
    number: u32,
    vm: VmId,
}

impl SimCpu {
    /// vCPU `number` of guest `vm`, which executes the caller.
    pub(crate) fn new(handle: Handle, vm: VmId, number: u32) -> SimCpu {
        SimCpu { handle, number, vm }
    }

    fn engine(&self) -> &mut Engine {
        self.handle.engine()
    }

    /// What it executes with.
    pub(crate) fn handle(&self) -> Handle {
        self.handle
    }

    fn vm(&self) -> &Vm {
        &self.engine().vms[self.vm]
    }
}

fn exchange<T: Copy + PartialEq>(found: T, current: T, new: T) -> (Option<T>, Result<T, T>) {
    if found == current {
        (Some(new), Ok(found))
    } else {
        (None, Err(found))
    }
}

// SAFETY: operations take place one at a time in the order of virtual time, so all are sequentially consistent; a handle
// names the vCPU whose flow made it.
unsafe impl Platform for SimCpu {
    type Word = SimWord;
    type Address = SimAddress;

    #[inline]
    fn cpu(&self) -> CpuId {
        CpuId(self.number)
    }

    fn key(&self, word: &SimWord) -> usize {
        word.line_in(&mut self.engine().memory).0 as usize + 1
    }

    #[inline]
    fn load(&self, word: &SimWord, _: Ordering) -> u32 {
        self.handle.load(word)
    }

    #[inline]
    fn store(&self, word: &SimWord, value: u32, _: Ordering) {
        self.handle.operate(word, Access::Store, |_| (Some(value), ()));
    }

    #[inline]
    fn store_low8(&self, word: &SimWord, value: u8, _: Ordering) {
        self.handle
            .operate(word, Access::Store, |old| (Some(old & !0xff | u32::from(value)), ()));
    }

    #[inline]
    fn store_low16(&self, word: &SimWord, value: u16, _: Ordering) {
        self.handle
            .operate(word, Access::Store, |old| (Some(old & !0xffff | u32::from(value)), ()));
    }

    #[inline]
    fn store_byte1(&self, word: &SimWord, value: u8, _: Ordering) {
        self.handle.operate(word, Access::Store, |old| {
            (Some(old & !0xff00 | u32::from(value) << 8), ())
        });
    }

    #[inline]
    fn swap(&self, word: &SimWord, value: u32, _: Ordering) -> u32 {
        self.handle.operate(word, Access::Rmw, |old| (Some(value), old))
    }

    #[inline]
    fn swap_low8(&self, word: &SimWord, value: u8, _: Ordering) -> u8 {
        self.handle.operate(word, Access::Rmw, |old| {
            (Some(old & !0xff | u32::from(value)), old as u8)
        })
    }

    #[inline]
    fn swap_low16(&self, word: &SimWord, value: u16, _: Ordering) -> u16 {
        self.handle.operate(word, Access::Rmw, |old| {
            (Some(old & !0xffff | u32::from(value)), old as u16)
        })
    }

    #[inline]
    fn swap_high16(&self, word: &SimWord, value: u16, _: Ordering) -> u16 {
        let high = u32::from(value) << 16;
        self.handle
            .operate(word, Access::Rmw, |old| (Some(old & 0xffff | high), (old >> 16) as u16))
    }

    #[inline]
    fn compare_exchange(&self, word: &SimWord, current: u32, new: u32, _: Ordering, _: Ordering) -> Result<u32, u32> {
        self.handle
            .operate(word, Access::Rmw, |old| exchange(old, current, new))
    }

    #[inline]
    fn compare_exchange_low8(&self, word: &SimWord, current: u8, new: u8, _: Ordering, _: Ordering) -> Result<u8, u8> {
        self.handle.operate(word, Access::Rmw, |old| {
            let (changed, result) = exchange(old as u8, current, new);
            (changed.map(|new| old & !0xff | u32::from(new)), result)
        })
    }

    #[inline]
    fn compare_exchange_low16(
        &self,
        word: &SimWord,
        current: u16,
        new: u16,
        _: Ordering,
        _: Ordering,
    ) -> Result<u16, u16> {
        self.handle.operate(word, Access::Rmw, |old| {
            let (changed, result) = exchange(old as u16, current, new);
            (changed.map(|new| old & !0xffff | u32::from(new)), result)
        })
    }

    #[inline]
    fn fetch_add(&self, word: &SimWord, value: u32, _: Ordering) -> u32 {
        self.handle
            .operate(word, Access::Rmw, |old| (Some(old.wrapping_add(value)), old))
    }

    #[inline]
    fn fetch_or(&self, word: &SimWord, bits: u32, _: Ordering) -> u32 {
        self.handle.operate(word, Access::Rmw, |old| (Some(old | bits), old))
    }

    #[inline]
    fn fetch_and(&self, word: &SimWord, bits: u32, _: Ordering) -> u32 {
        self.handle.operate(word, Access::Rmw, |old| (Some(old & bits), old))
    }

    #[inline]
    fn load_address(&self, word: &SimAddress, _: Ordering) -> usize {
        self.handle.load(word)
    }

    #[inline]
    fn store_address(&self, word: &SimAddress, value: usize, _: Ordering) {
        self.handle.operate(word, Access::Store, |_| (Some(value), ()));
    }

    #[inline]
    fn compare_exchange_address(
        &self,
        word: &SimAddress,
        current: usize,
        new: usize,
        _: Ordering,
        _: Ordering,
    ) -> Result<usize, usize> {
        self.handle
            .operate(word, Access::Rmw, |old| exchange(old, current, new))
    }

    #[inline]
    fn fence(&self, order: Ordering) {
        // On x86 only a full fence is an instruction.
        if order == Ordering::SeqCst {
            let fence = self.engine().hardware.costs.fence;
            self.handle.work(fence);
        }
    }

    #[inline]
    fn relax(&self) {
        self.handle.pause();
    }

    fn wait_until(&self, word: &SimWord, budget: Budget, _: Ordering, until: impl Fn(u32) -> bool) -> Result<u32, u32> {
        self.handle.wait(word, budget, until)
    }

    #[inline]
    fn count(&self, event: holdfast_locks::Event) {
        holdfast_locks::Recorder::add(&self.vm().locks.stats, event, 1);
    }

    fn contention_begin(&self, lock: &SimWord) {
        let engine = self.engine();
        let line = lock.line_in(&mut engine.memory);
        engine.contention_begins(engine.flows.current, line);
    }

    fn contention_end(&self, lock: &SimWord) {
        let engine = self.engine();
        let line = lock.line_in(&mut engine.memory);
        engine.contention_ends(engine.flows.current, line);
    }
}

// SAFETY: a flow takes interrupts only while its vCPU's flag says so, and only inside its own operations.
unsafe impl Interrupts for SimCpu {
    #[inline]
    fn irq_save(&self) -> bool {
        let engine = self.engine();
        std::mem::replace(&mut engine.vcpus[engine.flows.current].interrupts.enabled, false)
    }

    #[inline]
    fn irq_restore(&self, enabled: bool) {
        if enabled {
            self.handle.set_irqs(true);
        }
    }

    fn in_nmi(&self) -> bool {
        false
    }
}

// SAFETY: one table per VM, with a place for each of its vCPUs.
unsafe impl Nodes for SimCpu {
    fn nodes(&self) -> &NodeTable<SimWord> {
        &self.vm().locks.nodes
    }
}

impl Numa for SimCpu {
    fn numa_node(&self, cpu: CpuId) -> u32 {
        self.vm().numa_nodes[cpu.0 as usize].get()
    }

    fn monotonic_ns(&self) -> u64 {
        self.now_ns()
    }
}

// SAFETY: the host latches a kick for a vCPU that is not halted (its own tests prove it); one waiting table per VM.
unsafe impl Paravirt for SimCpu {
    type Recorder = LockStats;

    fn halt_masked(&self) {
        self.handle.exit(Exit::Hlt);
    }

    fn halt_unmasked(&self) {
        // STI's shadow reaches to the end of HLT: no interrupt comes between the two, not even while the flow waits for its
        // turn. One would use up the kick that the halt is for.
        self.handle.order();
        let engine = self.engine();
        engine.vcpus[engine.flows.current].interrupts.enabled = true;
        let vcpu = engine.flows.current;
        engine.emit(&Happened::InterruptsEnabled { vcpu });
        self.handle.leave(Exit::Hlt);
        self.irq_save();
    }

    fn kick(&self, cpu: CpuId) {
        let number = holdfast_abi::hypercall::KICK_CPU;
        self.handle.exit(Exit::Hypercall {
            number,
            arguments: [0, u64::from(cpu.0), 0, 0],
        });
    }

    fn is_preempted(&self, cpu: CpuId) -> bool {
        let hit = self.engine().hardware.costs.load_hit;
        self.handle.work(hit);
        self.steal_time(cpu).preempted.load(Ordering::Relaxed) & StealTime::PREEMPTED != 0
    }

    fn halts_behind_preempted(&self) -> bool {
        self.vm().settings.wait_early_preempted
    }

    fn waiting(&self) -> &WaitTable<SimWord, SimAddress> {
        &self.vm().locks.waiting
    }

    fn spin_threshold(&self) -> Budget {
        Budget(self.vm().settings.spin_threshold)
    }

    fn now_ns(&self) -> u64 {
        let engine = self.engine();
        engine.vcpus[engine.flows.current].flow.clock.nanos()
    }

    fn recorder(&self) -> &LockStats {
        &self.vm().locks.stats
    }
}

// SAFETY: as for `Platform` and `Interrupts`.
unsafe impl Cpu for SimCpu {
    #[inline]
    fn compute(&self, ns: u64) {
        let engine = self.engine();
        self.handle
            .work(Picos::from_nanos(ns) + engine.hardware.costs.guest_code);
        let engine = self.engine();
        let this = &engine.vcpus[engine.flows.current];
        if this.flow.clock.0 - engine.clock.now.0 > AHEAD_PS {
            self.handle.order();
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
        let engine = self.engine();
        engine.vcpus[engine.flows.current].interrupts.enabled
    }

    #[inline]
    fn contentions(&self) -> u64 {
        let engine = self.engine();
        engine.vcpus[engine.flows.current].announced.contentions
    }

    fn cpuid(&self, leaf: u32) -> [u32; 4] {
        let engine = self.engine();
        if engine.vcpus[engine.flows.current].native {
            // Not intercepted; and nothing in it says hypervisor.
            return [0; 4];
        }
        self.handle.exit(Exit::Cpuid { leaf });
        let engine = self.engine();
        engine.vcpus[engine.flows.current].replies.cpuid
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

    fn port_write(&self, port: u16, value: u32) {
        if !self.handle.ring_nic(port) {
            self.handle.exit(Exit::PortWrite { port, value });
        }
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
        // The host writes the record whenever it takes the vCPU off or puts it on: the line is there. Uncertain.
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
        // No LOCK prefix: only this CPU and, while it is out of its guest, the host use the word.
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
    fn load_tables(&self, space: u32) {
        let engine = self.engine();
        engine.load_tables(engine.flows.current, space);
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
        // What the section still owes is lived through while the lock is held.
        self.handle.order();
        let engine = self.engine();
        let line = lock.line_in(&mut engine.memory);
        engine.lock_released(engine.flows.current, line);
    }

    fn ipi_wait_begin(&self, target: CpuId) {
        // The wait begins where the flow has come to, and so does the target's time off.
        self.handle.order();
        let engine = self.engine();
        let vcpu = engine.flows.current;
        let target = engine.vm_of(vcpu).vcpu(target.0);
        engine.vcpus[vcpu].announced.ipi_target = Some(target);
        engine.emit(&Happened::Waits { vcpu });
    }

    fn ipi_wait_end(&self, _: CpuId) {
        let engine = self.engine();
        // A skipped spin ends in one step: what its target was off for is to be told apart before the target is forgotten.
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
    fn reply(&self) -> u64 {
        let engine = self.engine();
        engine.vcpus[engine.flows.current].replies.value
    }
}
