//! The locks' view of a guest's CPU: memory operations, interrupts, halts and kicks, in virtual time.

#![expect(unsafe_code, reason = "the platform's traits are unsafe to implement")]

use core::sync::atomic::Ordering;

use holdfast_abi::StealTime;
use holdfast_guest::Cpu;
use holdfast_host::{Exit, VmId};
use holdfast_locks::{Budget, CpuId, Interrupts, LockStats, NodeTable, Nodes, Numa, Paravirt, Platform, WaitTable};
use holdfast_machine::Access;

use crate::books::happened::Happened;
use crate::engine::Engine;
use crate::engine::handle::Handle;
use crate::memory::word::{SimAddress, SimWord};
use crate::parts::vm::FixedPart;

/// A vCPU, for the guest code that runs on it.
#[derive(Clone, Copy, Debug)]
pub struct SimCpu {
    pub(super) handle: Handle,
    pub(super) number: u32,
    pub(super) vm: VmId,
    fixed: *const FixedPart,
}

impl SimCpu {
    /// vCPU `number` of guest `vm`, which executes the caller. `fixed` is that guest's, and exists until the run is
    /// over.
    #[inline(always)]
    pub(crate) fn new(handle: Handle, vm: VmId, number: u32, fixed: *const FixedPart) -> SimCpu {
        SimCpu {
            handle,
            number,
            vm,
            fixed,
        }
    }

    #[inline(always)]
    pub(super) fn with<R>(&self, work: impl FnOnce(&mut Engine) -> R) -> R {
        self.handle.with(work)
    }

    /// What the guest's flows hold references to.
    #[inline(always)]
    pub(super) fn fixed(&self) -> &FixedPart {
        // SAFETY: the engine keeps it until the run is over, and only code that the run executes has this CPU. It is no
        // part of the engine's own memory (`Vm::fixed`), and nothing has it exclusively: all that changes is in cells.
        unsafe { &*self.fixed }
    }

    /// Ends the run if HLT does not exit here. The kernel finds MWAIT then, and no locks that halt.
    fn check_halt(&self) {
        if self.fixed().settings.cpu_pm {
            let what = format_args!("cpu {} halts, and HLT does not exit", self.number);
            self.with(|engine| engine.end.invalid(what));
        }
    }
}

fn exchange<T: Copy + PartialEq>(found: T, current: T, new: T) -> (Option<T>, Result<T, T>) {
    if found == current {
        (Some(new), Ok(found))
    } else {
        (None, Err(found))
    }
}

// SAFETY: operations take place one at a time in the order of virtual time, so all are sequentially consistent; a
// handle names the vCPU whose flow made it.
unsafe impl Platform for SimCpu {
    type Word = SimWord;
    type Address = SimAddress;

    #[inline]
    fn cpu(&self) -> CpuId {
        CpuId(self.number)
    }

    #[inline]
    fn key(&self, word: &SimWord) -> usize {
        self.with(|engine| word.line_in(&mut engine.memory)).0 as usize + 1
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
            let fence = self.with(|engine| engine.hardware.costs.fence);
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
        holdfast_locks::Recorder::add(&self.fixed().locks.stats, event, 1);
    }

    fn contention_begin(&self, lock: &SimWord) {
        self.with(|engine| {
            let line = lock.line_in(&mut engine.memory);
            engine.contention_begins(engine.flows.current, line);
        });
    }

    fn heads(&self, queue: &SimWord, is_head: bool) {
        self.with(|engine| {
            let line = queue.line_in(&mut engine.memory);
            if is_head {
                engine.lock_acquired(engine.flows.current, line);
            } else {
                engine.lock_released(engine.flows.current, line);
            }
        });
    }

    fn contention_end(&self, lock: &SimWord) {
        self.with(|engine| {
            let line = lock.line_in(&mut engine.memory);
            engine.contention_ends(engine.flows.current, line);
        });
    }
}

// SAFETY: a flow takes interrupts only inside its own operations, and only while its vCPU's flag enables them.
unsafe impl Interrupts for SimCpu {
    #[inline]
    fn irq_save(&self) -> bool {
        // SAFETY: only methods of the engine and of its parts are called.
        let engine = unsafe { self.handle.engine() };
        std::mem::replace(&mut engine.current().interrupts.enabled, false)
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
        &self.fixed().locks.nodes
    }
}

impl Numa for SimCpu {
    fn numa_node(&self, cpu: CpuId) -> u32 {
        self.fixed().numa_nodes[cpu.0 as usize].get()
    }

    fn monotonic_ns(&self) -> u64 {
        self.now_ns()
    }
}

// SAFETY: the host latches a kick for a vCPU that is not halted (its own tests prove it); one waiting table per VM.
unsafe impl Paravirt for SimCpu {
    type Recorder = LockStats;

    fn halt_masked(&self) {
        self.check_halt();
        self.handle.exit(Exit::Hlt);
    }

    fn halt_unmasked(&self) {
        self.check_halt();
        // STI's shadow reaches to the end of HLT: no interrupt comes between the two, not even while the flow waits
        // for its turn. Such an interrupt would use up the kick that ends the halt.
        self.handle.order();
        self.with(|engine| {
            let vcpu = engine.flows.current;
            engine.vcpus[vcpu].interrupts.enabled = true;
            engine.emit(&Happened::InterruptsEnabled { vcpu });
        });
        if !self.handle.takes_instead_of_halt() {
            self.handle.leave(Exit::Hlt);
        }
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
        let hit = self.with(|engine| engine.hardware.costs.load_hit);
        self.handle.work(hit);
        self.steal_time(cpu).preempted.load(Ordering::Relaxed) & StealTime::PREEMPTED != 0
    }

    fn slice_left_ns(&self) -> Option<u64> {
        let hit = self.with(|engine| engine.hardware.costs.load_hit);
        self.handle.work(hit);
        let ends = self.steal_time(self.cpu()).slice_ends.load(Ordering::Relaxed);
        ends.checked_sub(Paravirt::now_ns(self)).filter(|&left| left > 0)
    }

    fn halts_behind_preempted(&self) -> bool {
        self.fixed().settings.wait_early_preempted
    }

    fn waiting(&self) -> &WaitTable<SimWord, SimAddress> {
        &self.fixed().locks.waiting
    }

    fn spin_threshold(&self) -> Budget {
        Budget(self.fixed().settings.spin_threshold)
    }

    fn now_ns(&self) -> u64 {
        self.with(|engine| engine.current().flow.clock.nanos())
    }

    fn recorder(&self) -> &LockStats {
        &self.fixed().locks.stats
    }
}
