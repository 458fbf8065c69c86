//! Flows: how guest code waits for its turn, takes interrupts, leaves its guest, and spends its time.
//!
//! **One flow at a time**: all flows of a run execute on one thread, one after another, so the engine behind the raw
//! pointer is only ever touched by the flow that executes. No reference to it lives across a switch.

#![expect(
    unsafe_code,
    reason = "guest flows and engine share the engine through a pointer, one at a time"
)]
#![expect(
    clippy::mut_from_ref,
    reason = "the engine belongs to whichever flow executes, not to the handle"
)]

use std::panic::{AssertUnwindSafe, catch_unwind};

use holdfast_guest::{GuestImage, Mode};
use holdfast_host::Exit;
use holdfast_locks::{Budget, CpuId};
use holdfast_machine::{Access, Key, Picos};

use crate::books::cause::Cause;
use crate::core::engine::{CLASS_ACTIVITY, Engine};
use crate::core::failure::{CallOff, Failure};
use crate::flows::context::{Body, prepare, switch};
use crate::guests::native::{Call, PREEMPT};
use crate::memory::park::{Resumption, Woken};
use crate::memory::probe::Probe;
use crate::memory::word::{Shared, SimWord};

/// A handle on the engine, for the guest's code.
#[derive(Clone, Copy, Debug)]
pub struct Handle(*mut Engine);

impl Handle {
    /// The handle of `engine`, which must outlive all flows that use it and not move.
    pub fn new(engine: *mut Engine) -> Handle {
        Handle(engine)
    }

    /// The engine, for no longer than until the next switch.
    #[inline(always)]
    pub fn engine(&self) -> &mut Engine {
        // SAFETY: the engine outlives all flows of its run, which all execute on its thread, one at a time; callers drop
        // the reference before they switch.
        unsafe { &mut *self.0 }
    }

    /// Executes the flows whose turn it is, until it is the caller's turn.
    #[inline]
    pub fn switch_away(&self) {
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
    pub fn switch_to(&self, next: Option<u32>) {
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
    pub fn order(&self) {
        if !self.my_turn() {
            self.switch_away();
            self.continued();
        }
    }

    /// Enters the flow's next event, and says whether it is the next of all.
    #[inline]
    pub fn my_turn(&self) -> bool {
        let engine = self.engine();
        let vcpu = engine.current;
        let this = &engine.vcpus[vcpu as usize];
        let pcpu = this.pcpu.expect("a flow executes in its guest");
        let clock = this.clock;
        if engine
            .queue
            .set_and_check_first(pcpu, Key::new(clock, CLASS_ACTIVITY, pcpu))
        {
            engine.now = clock;
            engine.settle(vcpu);
            return true;
        }
        false
    }

    /// The flow continues: takes the vector that it was given, then waits for its turn.
    #[inline]
    pub fn continued(&self) {
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
    pub fn continued_slow(&self) {
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

    pub fn take_interrupt(&self, vector: u8) {
        let engine = self.engine();
        let vcpu = engine.current;
        let now = engine.now;
        // The scheduler's wish comes with an interrupt that has been paid for.
        let cost = if vector == PREEMPT {
            Picos::ZERO
        } else {
            engine.costs.guest_interrupt
        };
        let this = &mut engine.vcpus[vcpu as usize];
        let vm = this.vm.0 as usize;
        let aside = this.set_aside(now);
        self.spend(Cause::InterruptEntry, cost);
        let Some(image) = &self.engine().vms[vm].image else {
            unreachable!("a guest runs before it is built")
        };
        let image: *const dyn GuestImage = &**image;
        // SAFETY: the image is boxed, set before the run and dropped after it; nobody changes it.
        let image = unsafe { &*image };
        if vector == PREEMPT {
            image.preempt();
        } else {
            image.interrupt(vector);
        }
        self.order();
        let engine = self.engine();
        let vcpu = engine.current;
        engine.vcpus[vcpu as usize].take_up(aside);
        engine.mark(vcpu);
        self.end_interrupt();
    }

    /// IRET, by a flow whose turn it is. What waited for it comes now, before the rest of what was interrupted; the caller's
    /// loop takes it, not a frame on top of this one: a stack must not grow with interrupts that follow one another.
    fn end_interrupt(&self) {
        let engine = self.engine();
        let vcpu = engine.current;
        engine.vcpus[vcpu as usize].irqs_enabled = true;
        engine.audit_open(vcpu);
        if let Some(vector) = engine.evaluate(vcpu) {
            engine.vcpus[vcpu as usize].inject = Some(vector);
        } else if std::mem::take(&mut engine.vcpus[vcpu as usize].window) {
            engine.exit = Some(Exit::InterruptWindow);
            self.switch_to(None);
        }
    }

    pub fn set_irqs(&self, enabled: bool) {
        let engine = self.engine();
        if enabled {
            engine.audit_open(engine.current);
        }
        let this = &mut engine.vcpus[engine.current as usize];
        this.irqs_enabled = enabled;
        if enabled && this.window {
            this.window = false;
            self.exit(Exit::InterruptWindow);
        } else if enabled {
            self.interrupts_enabled();
        }
    }

    /// Announces `span` of the flow's time.
    #[inline]
    pub fn spend(&self, cause: Cause, span: Picos) {
        let engine = self.engine();
        let this = &mut engine.vcpus[engine.current as usize];
        if this.contending.is_some() || this.owe(cause, span) {
            this.clock += span;
        } else {
            self.order();
            let engine = self.engine();
            let this = &mut engine.vcpus[engine.current as usize];
            assert!(this.owe(cause, span), "all was lived through");
            this.clock += span;
        }
    }

    /// Spends `span` on whatever the flow is doing.
    #[inline]
    pub fn work(&self, span: Picos) {
        let engine = self.engine();
        let cause = engine.vcpus[engine.current as usize].work();
        self.spend(cause, span);
    }

    /// Leaves the guest for the host, until it enters it again.
    #[cold]
    pub fn exit(&self, exit: Exit) {
        self.order();
        self.leave(exit);
    }

    /// As [`Handle::exit`], by a flow whose turn it is.
    pub fn leave(&self, exit: Exit) {
        self.engine().exit = Some(exit);
        self.switch_to(None);
        self.continued();
    }

    /// Asks the scheduler beneath the kernel on the machine itself; maybe on another CPU when it is done.
    pub fn call(&self, call: Call) {
        self.order();
        self.engine().call = Some(call);
        self.switch_to(None);
        self.continued();
    }

    /// Leaves the guest for an instruction that it may not execute.
    pub fn fault(&self, what: impl FnOnce() -> String) {
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
    pub fn operate<T: Copy, R>(&self, word: &Shared<T>, access: Access, change: impl FnOnce(T) -> (Option<T>, R)) -> R {
        self.order();
        let engine = self.engine();
        engine.stats.operations += 1;
        let vcpu = engine.current;
        let line = word.line_in(engine);
        let pcpu = engine.vcpus[vcpu as usize].last_pcpu;
        let charge = engine.lines.access(line, pcpu, access, engine.now);
        let (new, result) = change(word.get());
        if let Some(value) = new {
            word.set(value);
        }
        engine
            .hash
            .add(engine.now.0 ^ u64::from(line.0) << 20 ^ u64::from(vcpu) << 52);
        if charge.changed {
            engine.invalidate(line, vcpu);
        }
        let this = &mut engine.vcpus[vcpu as usize];
        this.clock += charge.instruction + charge.transfer;
        if this.contending.is_none() {
            let own = this.work();
            let fits = this.owe(own, charge.instruction) && this.owe(Cause::CacheTransfer, charge.transfer);
            debug_assert!(fits, "nothing was owed after the order");
        }
        result
    }

    /// One ordered load.
    #[inline]
    pub fn load<T: Copy>(&self, word: &Shared<T>) -> T {
        self.order();
        let engine = self.engine();
        let vcpu = engine.current;
        let line = word.line_in(engine);
        let spent = engine.load(vcpu, line);
        let this = &mut engine.vcpus[vcpu as usize];
        this.clock += spent;
        if this.waiting {
            this.owe_wait(spent);
        } else if this.contending.is_none() {
            let hit = engine.costs.load_hit;
            let own = this.work();
            let fits = this.owe(own, hit) && this.owe(Cause::CacheTransfer, spent - hit);
            debug_assert!(fits, "nothing was owed after the order");
        }
        word.get()
    }

    /// Waits until `until` accepts the word, for at most `budget` PAUSEs.
    pub fn wait(&self, word: &SimWord, budget: Budget, until: impl Fn(u32) -> bool) -> Result<u32, u32> {
        self.set_waiting(true);
        let result = self.spin(word, budget, until);
        self.set_waiting(false);
        result
    }

    pub fn set_waiting(&self, waiting: bool) {
        let engine = self.engine();
        engine.vcpus[engine.current as usize].waiting = waiting;
    }

    pub fn spin(&self, word: &SimWord, budget: Budget, until: impl Fn(u32) -> bool) -> Result<u32, u32> {
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
    pub fn park(&self, word: &SimWord, loads: u64, until: &dyn Fn(u32) -> bool) -> Resumption {
        let engine = self.engine();
        let line = word.line_in(engine);
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

    /// One PAUSE, which may exit; then the host says whether it is executed again.
    pub fn pause(&self) {
        loop {
            let engine = self.engine();
            let this = &mut engine.vcpus[engine.current as usize];
            let time = this.clock;
            if !this.pauses.pause(this.mode != Mode::User, time) {
                break;
            }
            self.exit(Exit::Pause);
            let engine = self.engine();
            if std::mem::take(&mut engine.vcpus[engine.current as usize].skip_pause) {
                return;
            }
        }
        let engine = self.engine();
        let cause = engine.vcpus[engine.current as usize].wait();
        let pause = engine.costs.pause;
        self.spend(cause, pause);
    }
}
/// A flow's whole life; a panic in it ends the run.
pub fn run_flow(handle: Handle, body: Body) {
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
    let handle = Handle::new(engine);
    let number = CpuId(engine.vcpus[vcpu as usize].number);
    let vm = engine.vcpus[vcpu as usize].vm.0 as usize;
    let Some(image) = &engine.vms[vm].image else {
        unreachable!("a guest boots before it is built")
    };
    let image: *const dyn GuestImage = &**image;
    // SAFETY: the image is boxed, set before the run and dropped after it; nobody changes it.
    let body = move || unsafe { (*image).boot(number) };
    let stack = engine.stacks.take();
    engine.vcpus[vcpu as usize].stack_limit = stack.limit();
    engine.vcpus[vcpu as usize].flow = prepare(&stack, Box::new(move || run_flow(handle, Box::new(body))));
}

/// Plays events until the run is finished or has failed.
pub fn play(engine: &mut Engine, call_off: &CallOff) {
    let handle = Handle::new(engine);
    loop {
        let engine = handle.engine();
        if engine.failure.is_some() || engine.finished {
            return;
        }
        if let Some(exit) = engine.exit.take() {
            engine.leave_guest(engine.current, exit);
            continue;
        }
        if let Some(call) = engine.call.take() {
            engine.leave_native(engine.current, call);
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
