//! The guest's view: `Machine` and `Cpu` in virtual time.
//!
//! **One flow at a time**: all flows of a run execute on one thread, one after another, so the engine behind the raw
//! pointer is only ever touched by the flow that executes. No reference to it lives across a switch.

#![expect(unsafe_code, reason = "guest flows and engine share the engine through a pointer, one at a time")]
#![expect(clippy::mut_from_ref, reason = "the engine belongs to whichever flow executes, not to the handle")]

use core::cell::Cell;
use core::sync::atomic::Ordering;
use std::panic::{AssertUnwindSafe, catch_unwind};

use holdfast_abi::StealTime;
use holdfast_guest::{Cpu, Machine, Mode, Report};
use holdfast_host::Exit;
use holdfast_locks::{Budget, CpuId, Interrupts, LockStats, NodeTable, Nodes, Numa, Paravirt, Platform, WaitTable};
use holdfast_machine::{Access, Key, Picos};

use crate::api::{CallOff, Failure};
use crate::cause::Cause;
use crate::context::{Body, Saved, prepare, switch};
use crate::engine::{CLASS_ACTIVITY, Engine};
use crate::exits::STEAL_TIME_BASE;
use crate::park::{Resumption, Woken};
use crate::probe::Probe;
use crate::stack::Stack;
use crate::word::{Shared, SimAddress, SimWord};

/// Guest time that a flow may run ahead of its last ordered operation before it lets others catch up, in picoseconds: an
/// interrupt is taken at most this much late.
const AHEAD_PS: u64 = 1_000_000;

/// A handle on the engine, for the guest's code.
#[derive(Clone, Copy, Debug)]
struct Handle(*mut Engine);

impl Handle {
    /// The engine, for no longer than until the next switch.
    #[inline(always)]
    fn engine(&self) -> &mut Engine {
        // SAFETY: the engine outlives all flows of its run, which all execute on its thread, one at a time; callers drop
        // the reference before they switch.
        unsafe { &mut *self.0 }
    }

    /// Executes the flows whose turn it is, until it is the caller's turn.
    #[inline]
    fn switch_away(&self) {
        let engine = self.engine();
        match engine.next_turn() {
            Some((time, vcpu)) => {
                engine.now = time;
                if vcpu != engine.current || engine.failure.is_some() {
                    self.switch_to(Some(vcpu));
                }
            }
            None => self.switch_to(None),
        }
    }

    /// Switches from the flow that executes to that of `next`, or to the engine's loop.
    #[inline]
    fn switch_to(&self, next: Option<u32>) {
        let engine = self.engine();
        let mine = engine.current as usize;
        let here = 0u8;
        if (&raw const here as usize) < engine.vcpus[mine].stack_limit {
            engine.failure.get_or_insert_with(|| {
                Failure::StackOverflow(format!("a flow of vcpu {} of vm {}", mine, engine.vcpus[mine].vm.0))
            });
        }
        engine.stats.switches += 1;
        let to = match next {
            Some(vcpu) if engine.failure.is_none() => {
                engine.current = vcpu;
                engine.vcpus[vcpu as usize].flow
            }
            _ => engine.main,
        };
        let from = &raw mut engine.vcpus[mine].flow;
        // SAFETY: `to` was saved when that flow last waited, here or in the loop, and each is continued once. `from` is in
        // the engine's table of vCPUs, which does not move during a run.
        unsafe { switch(from, to) };
    }

    /// Waits until the flow's clock is the machine's; takes the interrupts that come meanwhile.
    #[inline]
    fn order(&self) {
        if !self.my_turn() {
            self.switch_away();
            self.continued();
        }
    }

    /// Enters the flow's next event, and says whether it is the next of all.
    #[inline]
    fn my_turn(&self) -> bool {
        let engine = self.engine();
        let vcpu = engine.current;
        let this = &engine.vcpus[vcpu as usize];
        let pcpu = this.pcpu.expect("a flow executes in its guest");
        let clock = this.clock;
        engine.queue.set(pcpu, Key::new(clock, CLASS_ACTIVITY, pcpu));
        let first = engine.queue.first();
        if first.is_some_and(|(_, slot)| slot == pcpu) {
            engine.now = clock;
            engine.settle(vcpu);
            return true;
        }
        false
    }

    /// The flow continues: takes the vector that it was given, then waits for its turn.
    #[inline]
    fn continued(&self) {
        let engine = self.engine();
        let vcpu = engine.current;
        let this = &mut engine.vcpus[vcpu as usize];
        if this.inject.is_none() && this.clock == engine.now {
            engine.settle(vcpu);
            return;
        }
        self.continued_slow();
    }

    #[cold]
    fn continued_slow(&self) {
        loop {
            let engine = self.engine();
            let vcpu = engine.current;
            if let Some(vector) = engine.vcpus[vcpu as usize].inject.take() {
                self.take_interrupt(vector);
                continue;
            }
            if self.my_turn() {
                return;
            }
            self.switch_away();
        }
    }

    fn take_interrupt(&self, vector: u8) {
        let engine = self.engine();
        let vcpu = engine.current;
        let now = engine.now;
        let cost = engine.costs.guest_interrupt;
        let this = &mut engine.vcpus[vcpu as usize];
        let vm = this.vm.0 as usize;
        let aside = this.set_aside(now);
        self.spend(Cause::InterruptEntry, cost);
        let Some(image) = &self.engine().vms[vm].image else { unreachable!("a guest runs before it is built") };
        let image: *const dyn holdfast_guest::GuestImage = &**image;
        // SAFETY: the image is boxed, set before the run and dropped after it; nobody changes it.
        unsafe { (*image).interrupt(vector) };
        self.order();
        let engine = self.engine();
        let vcpu = engine.current;
        engine.vcpus[vcpu as usize].take_up(aside);
        engine.mark(vcpu);
        self.set_irqs(true);
    }

    fn set_irqs(&self, enabled: bool) {
        let engine = self.engine();
        let this = &mut engine.vcpus[engine.current as usize];
        this.irqs_enabled = enabled;
        if enabled && this.window {
            this.window = false;
            self.exit(Exit::InterruptWindow);
        }
    }

    /// Announces `span` of the flow's time.
    #[inline]
    fn spend(&self, cause: Cause, span: Picos) {
        let engine = self.engine();
        let this = &mut engine.vcpus[engine.current as usize];
        if this.contending.is_some() || this.owed.push(cause, span) {
            this.clock += span;
        } else {
            self.order();
            let engine = self.engine();
            let this = &mut engine.vcpus[engine.current as usize];
            assert!(this.owed.push(cause, span), "all was lived through");
            this.clock += span;
        }
    }

    /// Spends `span` on whatever the flow is doing.
    #[inline]
    fn work(&self, span: Picos) {
        let engine = self.engine();
        let cause = engine.vcpus[engine.current as usize].work();
        self.spend(cause, span);
    }

    /// Leaves the guest for the host, until it enters it again.
    #[cold]
    fn exit(&self, exit: Exit) {
        self.order();
        self.engine().exit = Some(exit);
        self.switch_to(None);
        self.continued();
    }

    /// Leaves the guest for an instruction that it may not execute.
    fn fault(&self, what: impl FnOnce() -> String) {
        let engine = self.engine();
        let this = &mut engine.vcpus[engine.current as usize];
        if std::mem::take(&mut this.fault) {
            let number = this.number;
            let message = format!("general-protection fault on vcpu {number}: {}", what());
            engine.failure = Some(Failure::GuestPanic(message));
            self.switch_to(None);
        }
    }

    /// One ordered operation on a word: `change` maps its value to the new one.
    #[inline]
    fn operate<T: Copy, R>(&self, word: &Shared<T>, access: Access, change: impl FnOnce(T) -> (Option<T>, R)) -> R {
        self.order();
        let engine = self.engine();
        engine.stats.operations += 1;
        let vcpu = engine.current;
        let line = word.line(engine);
        let pcpu = engine.vcpus[vcpu as usize].last_pcpu;
        let charge = engine.lines.access(line, pcpu, access, engine.now);
        let (new, result) = change(word.get());
        if let Some(value) = new {
            word.set(value);
        }
        engine.hash.add(engine.now.0 ^ u64::from(line.0) << 20 ^ u64::from(vcpu) << 52);
        if charge.moved {
            engine.invalidate(line, vcpu);
        }
        let this = &mut engine.vcpus[vcpu as usize];
        this.clock += charge.own + charge.transfer;
        if this.contending.is_none() {
            let own = this.work();
            let fits = this.owed.push(own, charge.own) && this.owed.push(Cause::CacheTransfer, charge.transfer);
            debug_assert!(fits, "nothing was owed after the order");
        }
        result
    }

    /// One ordered load.
    #[inline]
    fn load<T: Copy>(&self, word: &Shared<T>) -> T {
        self.order();
        let engine = self.engine();
        let vcpu = engine.current;
        let line = word.line(engine);
        let spent = engine.load(vcpu, line);
        let this = &mut engine.vcpus[vcpu as usize];
        this.clock += spent;
        if this.waiting {
            this.owe_wait(spent);
        } else if this.contending.is_none() {
            let hit = engine.costs.load_hit;
            let own = this.work();
            let fits = this.owed.push(own, hit) && this.owed.push(Cause::CacheTransfer, spent - hit);
            debug_assert!(fits, "nothing was owed after the order");
        }
        word.get()
    }

    /// Waits until `until` accepts the word, for at most `budget` PAUSEs.
    fn wait(&self, word: &SimWord, budget: Budget, until: impl Fn(u32) -> bool) -> Result<u32, u32> {
        self.set_waiting(true);
        let result = self.spin(word, budget, until);
        self.set_waiting(false);
        result
    }

    fn set_waiting(&self, waiting: bool) {
        let engine = self.engine();
        engine.vcpus[engine.current as usize].waiting = waiting;
    }

    fn spin(&self, word: &SimWord, budget: Budget, until: impl Fn(u32) -> bool) -> Result<u32, u32> {
        let endless = budget == Budget::UNBOUNDED;
        let mut left = u64::from(budget.0);
        let mut value = self.load(word);
        loop {
            if until(value) {
                return Ok(value);
            }
            if left == 0 {
                return Err(value);
            }
            let seen = self.engine().now;
            self.pause();
            left -= u64::from(!endless);
            let engine = self.engine();
            // Once time has passed, the word may have changed: look again before relying on being told.
            if engine.execute_spins || engine.now != seen {
                value = self.load(word);
                continue;
            }
            let loads = if endless { u64::MAX } else { left + 1 };
            let resumption = self.park(word, loads, &until);
            left -= if endless { 0 } else { resumption.passed };
            value = match resumption.woken {
                Woken::Read(value) => value,
                Woken::Due => self.load(word),
            };
        }
    }

    /// Waits in a skipped spin.
    fn park(&self, word: &SimWord, loads: u64, until: &dyn Fn(u32) -> bool) -> Resumption {
        let engine = self.engine();
        let line = word.line(engine);
        let vcpu = engine.current;
        // SAFETY: both outlive this call, and the park ends before it returns.
        let probe = unsafe { Probe::new(word, until) };
        engine.park(vcpu, line, loads, probe);
        self.switch_away();
        let engine = self.engine();
        let vcpu = engine.current;
        let resumption = engine.resume_parked(vcpu);
        if resumption.woken == Woken::Due {
            self.continued();
        }
        resumption
    }

    /// One PAUSE, which may exit.
    fn pause(&self) {
        let engine = self.engine();
        let this = &mut engine.vcpus[engine.current as usize];
        let time = this.clock;
        let exits = match &engine.ple {
            Some(ple) if this.mode != Mode::User => this.pauses.pause(ple, time),
            _ => false,
        };
        if exits {
            self.exit(Exit::Pause);
        }
        let engine = self.engine();
        let cause = engine.vcpus[engine.current as usize].wait();
        let pause = engine.costs.pause;
        self.spend(cause, pause);
    }
}

/// A vCPU, for the guest code that runs on it.
#[derive(Clone, Copy, Debug)]
pub struct SimCpu {
    handle: Handle,
    number: u32,
    vm: u32,
}

impl SimCpu {
    fn engine(&self) -> &mut Engine {
        self.handle.engine()
    }

    fn vm(&self) -> &crate::engine::Vm {
        &self.engine().vms[self.vm as usize]
    }
}

fn exchange<T: Copy + PartialEq>(found: T, current: T, new: T) -> (Option<T>, Result<T, T>) {
    if found == current { (Some(new), Ok(found)) } else { (None, Err(found)) }
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
        word.line(self.engine()).0 as usize + 1
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
        self.handle.operate(word, Access::Store, |old| (Some(old & !0xff | u32::from(value)), ()));
    }

    #[inline]
    fn store_low16(&self, word: &SimWord, value: u16, _: Ordering) {
        self.handle.operate(word, Access::Store, |old| (Some(old & !0xffff | u32::from(value)), ()));
    }

    #[inline]
    fn store_byte1(&self, word: &SimWord, value: u8, _: Ordering) {
        self.handle.operate(word, Access::Store, |old| (Some(old & !0xff00 | u32::from(value) << 8), ()));
    }

    #[inline]
    fn swap(&self, word: &SimWord, value: u32, _: Ordering) -> u32 {
        self.handle.operate(word, Access::Rmw, |old| (Some(value), old))
    }

    #[inline]
    fn swap_low8(&self, word: &SimWord, value: u8, _: Ordering) -> u8 {
        self.handle.operate(word, Access::Rmw, |old| (Some(old & !0xff | u32::from(value)), old as u8))
    }

    #[inline]
    fn swap_low16(&self, word: &SimWord, value: u16, _: Ordering) -> u16 {
        self.handle.operate(word, Access::Rmw, |old| (Some(old & !0xffff | u32::from(value)), old as u16))
    }

    #[inline]
    fn swap_high16(&self, word: &SimWord, value: u16, _: Ordering) -> u16 {
        let high = u32::from(value) << 16;
        self.handle.operate(word, Access::Rmw, |old| (Some(old & 0xffff | high), (old >> 16) as u16))
    }

    #[inline]
    fn compare_exchange(&self, word: &SimWord, current: u32, new: u32, _: Ordering, _: Ordering) -> Result<u32, u32> {
        self.handle.operate(word, Access::Rmw, |old| exchange(old, current, new))
    }

    #[inline]
    fn compare_exchange_low8(
        &self,
        word: &SimWord,
        current: u8,
        new: u8,
        _: Ordering,
        _: Ordering,
    ) -> Result<u8, u8> {
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
        self.handle.operate(word, Access::Rmw, |old| (Some(old.wrapping_add(value)), old))
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
        self.handle.operate(word, Access::Rmw, |old| exchange(old, current, new))
    }

    #[inline]
    fn fence(&self, order: Ordering) {
        // On x86 only a full fence is an instruction.
        if order == Ordering::SeqCst {
            let fence = self.engine().costs.fence;
            self.handle.work(fence);
        }
    }

    #[inline]
    fn relax(&self) {
        self.handle.pause();
    }

    fn wait_until(
        &self,
        word: &SimWord,
        budget: Budget,
        _: Ordering,
        until: impl Fn(u32) -> bool,
    ) -> Result<u32, u32> {
        self.handle.wait(word, budget, until)
    }

    #[inline]
    fn count(&self, event: holdfast_locks::Event) {
        holdfast_locks::Recorder::add(&self.vm().lock_stats, event, 1);
    }

    fn contention_begin(&self, lock: &SimWord) {
        let engine = self.engine();
        let line = lock.line(engine);
        engine.contention_begins(engine.current, line);
    }

    fn contention_end(&self, lock: &SimWord) {
        let engine = self.engine();
        let line = lock.line(engine);
        engine.contention_ends(engine.current, line);
    }
}

// SAFETY: a flow takes interrupts only while its vCPU's flag says so, and only inside its own operations.
unsafe impl Interrupts for SimCpu {
    #[inline]
    fn irq_save(&self) -> bool {
        let engine = self.engine();
        std::mem::replace(&mut engine.vcpus[engine.current as usize].irqs_enabled, false)
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
        &self.vm().nodes
    }
}

impl Numa for SimCpu {
    fn numa_node(&self, _: CpuId) -> u32 {
        0
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
        let engine = self.engine();
        engine.vcpus[engine.current as usize].irqs_enabled = true;
        self.handle.exit(Exit::Hlt);
        self.irq_save();
    }

    fn kick(&self, cpu: CpuId) {
        let number = holdfast_abi::hypercall::KICK_CPU;
        self.handle.exit(Exit::Hypercall { number, arguments: [0, u64::from(cpu.0), 0, 0] });
    }

    fn is_preempted(&self, cpu: CpuId) -> bool {
        let hit = self.engine().costs.load_hit;
        self.handle.work(hit);
        self.steal_time(cpu).preempted.load(Ordering::Relaxed) & StealTime::PREEMPTED != 0
    }

    fn waiting(&self) -> &WaitTable<SimWord, SimAddress> {
        &self.vm().waiting
    }

    fn spin_threshold(&self) -> Budget {
        Budget(self.vm().spin_threshold)
    }

    fn now_ns(&self) -> u64 {
        let engine = self.engine();
        engine.vcpus[engine.current as usize].clock.nanos()
    }

    fn recorder(&self) -> &LockStats {
        &self.vm().lock_stats
    }
}

// SAFETY: as for `Platform` and `Interrupts`.
unsafe impl Cpu for SimCpu {
    #[inline]
    fn compute(&self, ns: u64) {
        let span = Picos::from_nanos(ns);
        self.handle.work(span);
        let engine = self.engine();
        let this = &engine.vcpus[engine.current as usize];
        if this.clock.0 - engine.now.0 > AHEAD_PS {
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
        engine.vcpus[engine.current as usize].irqs_enabled
    }

    #[inline]
    fn contentions(&self) -> u64 {
        let engine = self.engine();
        engine.vcpus[engine.current as usize].contentions
    }

    fn cpuid(&self, leaf: u32) -> [u32; 4] {
        self.handle.exit(Exit::Cpuid { leaf });
        let engine = self.engine();
        engine.vcpus[engine.current as usize].reply_cpuid
    }

    fn wrmsr(&self, msr: u32, value: u64) {
        self.handle.exit(Exit::WriteMsr { msr, value });
        self.handle.fault(|| format!("wrmsr {msr:#x}, {value:#x}"));
    }

    fn rdmsr(&self, msr: u32) -> u64 {
        self.handle.exit(Exit::ReadMsr { msr });
        self.handle.fault(|| format!("rdmsr {msr:#x}"));
        self.reply()
    }

    fn apic_write(&self, offset: u32, value: u32) {
        self.handle.exit(Exit::ApicWrite { offset, value });
    }

    fn apic_read(&self, offset: u32) -> u32 {
        self.handle.exit(Exit::ApicRead { offset });
        self.reply() as u32
    }

    fn hypercall(&self, number: u32, arguments: [u64; 4]) -> i64 {
        self.handle.exit(Exit::Hypercall { number: u64::from(number), arguments });
        self.reply() as i64
    }

    fn steal_time(&self, cpu: CpuId) -> &StealTime {
        &self.vm().steal_time[cpu.0 as usize]
    }

    fn steal_time_address(&self, cpu: CpuId) -> u64 {
        STEAL_TIME_BASE + u64::from(cpu.0) * size_of::<StealTime>() as u64
    }

    #[inline]
    fn lock_acquired(&self, lock: &SimWord) {
        let engine = self.engine();
        let line = lock.line(engine);
        engine.lock_acquired(engine.current, line);
    }

    #[inline]
    fn lock_released(&self, lock: &SimWord) {
        // What the section still owes is lived through while the lock is held.
        self.handle.order();
        let engine = self.engine();
        let line = lock.line(engine);
        engine.lock_released(engine.current, line);
    }

    fn ipi_wait_begin(&self, target: CpuId) {
        let engine = self.engine();
        let vcpu = engine.current as usize;
        let target = engine.vcpu_of(engine.vcpus[vcpu].vm, target.0);
        let off = engine.vcpus[target as usize].off_time_at(engine.now);
        engine.vcpus[vcpu].ipi_target = Some((target, off));
    }

    fn ipi_wait_end(&self, _: CpuId) {
        let engine = self.engine();
        engine.vcpus[engine.current as usize].ipi_target = None;
    }

    #[inline]
    fn executing(&self, mode: Mode) {
        let engine = self.engine();
        engine.vcpus[engine.current as usize].mode = mode;
    }
}

impl SimCpu {
    fn reply(&self) -> u64 {
        let engine = self.engine();
        engine.vcpus[engine.current as usize].reply
    }
}

/// A guest's machine in virtual time.
#[derive(Clone, Copy, Debug)]
pub struct SimMachine {
    handle: Handle,
    vm: u32,
}

impl SimMachine {
    /// The machine of guest `vm`.
    ///
    /// The engine must outlive it and not move; only code that the engine runs may use it.
    pub(crate) fn new(engine: *mut Engine, vm: u32) -> SimMachine {
        SimMachine { handle: Handle(engine), vm }
    }
}

/// A saved flow of guest code, with the stack that it runs on unless that is a vCPU's own.
#[derive(Debug)]
pub struct SimContext {
    saved: Cell<Saved>,
    stack_limit: usize,
    stack: Option<Stack>,
}

// SAFETY: `cpu` reads which vCPU executes; `switch` keeps the callee-saved registers (`context.rs`).
unsafe impl Machine for SimMachine {
    type Cpu = SimCpu;
    type Context = SimContext;

    fn cpus(&self) -> u32 {
        self.handle.engine().vms[self.vm as usize].vcpus
    }

    #[inline]
    fn cpu(&self) -> SimCpu {
        let engine = self.handle.engine();
        let number = engine.current - engine.vms[self.vm as usize].first_vcpu;
        SimCpu { handle: self.handle, number, vm: self.vm }
    }

    fn new_context(&self, body: Body) -> SimContext {
        let stack = self.handle.engine().stacks.take();
        let handle = self.handle;
        let saved = prepare(&stack, Box::new(move || run_flow(handle, body)));
        SimContext { saved: Cell::new(saved), stack_limit: stack.limit(), stack: Some(stack) }
    }

    fn empty_context(&self) -> SimContext {
        let engine = self.handle.engine();
        let stack_limit = engine.vcpus[engine.current as usize].stack_limit;
        SimContext { saved: Cell::new(Saved::NONE), stack_limit, stack: None }
    }

    fn switch(&self, from: &SimContext, to: &SimContext) {
        let engine = self.handle.engine();
        engine.stats.switches += 1;
        engine.vcpus[engine.current as usize].stack_limit = to.stack_limit;
        let to = to.saved.replace(Saved::NONE);
        assert!(to != Saved::NONE, "a context is continued that was never saved");
        // SAFETY: `to` was prepared or saved by this function and was just taken out, so it is continued once; `from`
        // belongs to the kernel, which keeps a task's context at its place until it is released.
        unsafe { switch(from.saved.as_ptr(), to) };
    }

    fn release_context(&self, context: SimContext) {
        if let Some(stack) = context.stack {
            assert!(stack.canary_lives(), "a guest flow has overrun its stack");
            self.handle.engine().stacks.give_back(stack);
        }
    }

    fn seed(&self, purpose: &str) -> u64 {
        crate::hash::stream_seed(self.handle.engine().vms[self.vm as usize].seed, self.vm, purpose)
    }

    fn report(&self, report: Report) {
        self.handle.order();
        let engine = self.handle.engine();
        let now = engine.now;
        let vm = &mut engine.vms[self.vm as usize];
        match report {
            Report::Begin => {
                vm.begun = Some(now);
                vm.last_work = now;
                vm.longest_stall = Picos::ZERO;
            }
            Report::Done { operations } => {
                vm.done = Some(now);
                vm.operations = operations;
                engine.finished = engine.vms.iter().all(|vm| !vm.measured || vm.done.is_some());
                if engine.finished {
                    self.handle.switch_to(None);
                }
            }
            Report::Counter(name, value) => *vm.counters.entry(name).or_insert(0) += value,
            Report::Panic(message) => {
                engine.failure = Some(Failure::GuestPanic(message));
                self.handle.switch_to(None);
            }
        }
    }
}

/// A flow's whole life; a panic in it ends the run.
fn run_flow(handle: Handle, body: Body) {
    let Err(payload) = catch_unwind(AssertUnwindSafe(body)) else {
        unreachable!("a guest flow has returned");
    };
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
    let message = text.unwrap_or_else(|| "a panic without a message".to_owned());
    handle.engine().failure.get_or_insert(Failure::GuestPanic(message));
    handle.switch_to(None);
}

/// Makes the flow that boots vCPU `vcpu`.
pub fn boot_flow(engine: &mut Engine, vcpu: u32) {
    let handle = Handle(engine);
    let number = CpuId(engine.vcpus[vcpu as usize].number);
    let vm = engine.vcpus[vcpu as usize].vm.0 as usize;
    let Some(image) = &engine.vms[vm].image else { unreachable!("a guest boots before it is built") };
    let image: *const dyn holdfast_guest::GuestImage = &**image;
    // SAFETY: the image is boxed, set before the run and dropped after it; nobody changes it.
    let body = move || unsafe { (*image).boot(number) };
    let stack = engine.stacks.take();
    engine.vcpus[vcpu as usize].stack_limit = stack.limit();
    engine.vcpus[vcpu as usize].flow = prepare(&stack, Box::new(move || run_flow(handle, Box::new(body))));
}

/// Plays events until the run is finished or has failed.
pub fn play(engine: &mut Engine, call_off: &CallOff) {
    let handle = Handle(engine);
    loop {
        let engine = handle.engine();
        if engine.failure.is_some() || engine.finished {
            return;
        }
        if let Some(exit) = engine.exit.take() {
            engine.leave_guest(engine.current, exit);
            continue;
        }
        let Some((time, vcpu)) = engine.next_turn() else {
            engine.play(call_off);
            continue;
        };
        engine.now = time;
        engine.current = vcpu;
        engine.stats.switches += 1;
        let to = engine.vcpus[vcpu as usize].flow;
        let main = &raw mut engine.main;
        // SAFETY: the flow was prepared, or saved when it last waited; the engine, where `main` lives, does not move.
        unsafe { switch(main, to) };
    }
}
