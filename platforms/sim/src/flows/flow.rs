//! Flows: how guest code waits for its turn, takes interrupts, leaves its guest, and spends its time.
//!
//! **One flow at a time**: all flows of a run execute on one thread, one after another. So the engine behind the raw
//! pointer is touched only by the flow that executes. No reference to the engine survives a switch.

#![expect(
    unsafe_code,
    reason = "guest flows share the engine through a pointer, one at a time"
)]
#![expect(
    clippy::mut_from_ref,
    reason = "the engine belongs to the flow that executes, not to the handle"
)]

use holdfast_guest::GuestImage;
use holdfast_host::{Exit, VcpuId};
use holdfast_machine::{Picos, Time};

use crate::books::cause::Cause;
use crate::books::happened::Happened;
use crate::core::engine::Engine;
use crate::core::failure::Failure;
use crate::flows::context::switch;
use crate::guests::native::{Call, PREEMPT};
use crate::memory::park::{Resumption, Woken};
use crate::memory::probe::Probe;
use crate::memory::word::SimWord;

/// A handle on the engine, for the guest's code.
#[derive(Clone, Copy, Debug)]
pub struct Handle(*mut Engine);

impl Handle {
    /// The handle of `engine`, which must outlive all flows that use it and must not move.
    pub fn new(engine: *mut Engine) -> Handle {
        Handle(engine)
    }

    /// The engine, to be used only until the next switch.
    #[inline(always)]
    pub fn engine(&self) -> &mut Engine {
        // SAFETY: the engine outlives all flows of its run, which all execute on its thread, one at a time; callers
        // drop the reference before they switch.
        unsafe { &mut *self.0 }
    }

    /// Executes the flows whose turn it is, until it is the caller's turn.
    #[inline]
    pub fn switch_away(&self) {
        let engine = self.engine();
        match engine.next_turn() {
            Some((time, vcpu)) => {
                engine.clock.now = time;
                if vcpu != engine.flows.current || engine.end.failure.is_some() {
                    self.switch_to(Some(vcpu));
                }
            }
            None => self.switch_to(None),
        }
    }

    /// Switches from the flow that executes to that of `next`, or to the engine's loop.
    #[inline(always)]
    pub fn switch_to(&self, next: Option<VcpuId>) {
        let engine = self.engine();
        let mine = engine.flows.current;
        let here = 0u8;
        if (&raw const here as usize) < engine.vcpus[mine].flow.stack_limit {
            let vm = engine.vcpus[mine].vm;
            engine
                .end
                .fail(|| Failure::StackOverflow(format!("a flow of vcpu {} of vm {}", mine.0, vm.0)));
        }
        engine.books.stats.switches += 1;
        let to = match next {
            Some(vcpu) if engine.end.failure.is_none() => {
                engine.flows.current = vcpu;
                engine.vcpus[vcpu].flow.saved
            }
            _ => engine.flows.main,
        };
        let from = &raw mut engine.vcpus[mine].flow.saved;
        // SAFETY: `to` was saved when that flow last waited, here or in the loop, and each is continued once. `from`
        // is in the engine's table of vCPUs, which does not move during a run.
        unsafe { switch(from, to) };
    }

    /// Waits until the flow's clock is the machine's. Takes the interrupts that come meanwhile.
    #[inline(always)]
    pub fn order(&self) {
        let engine = self.engine();
        let vcpu = engine.flows.current;
        let this = &engine.vcpus[vcpu];
        let clock = this.flow.clock;
        if let Some(pcpu) = this.pcpu
            && engine.clock.keeps_turn(pcpu, clock)
        {
            engine.clock.now = clock;
            engine.use_pending_time(vcpu);
        } else {
            self.wait_for_turn();
        }
    }

    #[inline(never)]
    fn wait_for_turn(&self) {
        if !self.my_turn() {
            self.switch_away();
            self.continued();
        }
    }

    /// Enters the flow's next event. Returns whether it is the first event of all.
    #[inline(always)]
    fn my_turn(&self) -> bool {
        let engine = self.engine();
        let vcpu = engine.flows.current;
        let this = &engine.vcpus[vcpu];
        let pcpu = this.pcpu.expect("a flow executes in its guest");
        let clock = this.flow.clock;
        if engine.clock.set_activity_and_check_first(pcpu, clock) {
            engine.clock.now = clock;
            engine.use_pending_time(vcpu);
            return true;
        }
        false
    }

    /// The flow continues: it takes the vector that it was given, then waits for its turn.
    #[inline]
    pub fn continued(&self) {
        let engine = self.engine();
        let vcpu = engine.flows.current;
        let this = &engine.vcpus[vcpu];
        if !this.interrupts.is_due() && this.flow.clock == engine.clock.now {
            engine.use_pending_time(vcpu);
            return;
        }
        self.continued_slow();
    }

    #[cold]
    fn continued_slow(&self) {
        loop {
            let engine = self.engine();
            let vcpu = engine.flows.current;
            if let Some(vector) = engine.vcpus[vcpu].interrupts.vector.take() {
                self.take_interrupt(vector);
                continue;
            }
            // Its handler masks interrupts, so a vector that came with it is taken before.
            if std::mem::take(&mut engine.vcpus[vcpu].interrupts.nmi) {
                self.take_nmi();
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
        let now = engine.clock.now;
        // The scheduler's request comes with an interrupt whose cost has been charged.
        let cost = if vector == PREEMPT {
            Picos::ZERO
        } else {
            engine.hardware.costs.guest_interrupt
        };
        let slept = engine.current().spin.asleep.take();
        self.handle(now, slept, cost, |image| {
            if vector == PREEMPT {
                image.preempt();
            } else {
                image.interrupt(vector);
            }
        });
        self.end_interrupt();
    }

    /// Runs a handler of the guest's kernel on top of what the flow did up to `now`. If the flow slept in MWAIT since
    /// `slept`, its pCPU wakes up first.
    fn handle(&self, now: Time, slept: Option<Time>, cost: Picos, handler: impl FnOnce(&dyn GuestImage)) {
        let this = self.engine().current();
        let vm = this.vm;
        let aside = this.set_aside(now);
        if let Some(since) = slept {
            self.wake_up(since);
        }
        self.spend(Cause::InterruptEntry, cost);
        let Some(image) = &self.engine().vms[vm].image else {
            unreachable!("vm {} runs and has no kernel", vm.0)
        };
        let image: *const dyn GuestImage = &**image;
        // SAFETY: the image is boxed, set before the run, dropped after it, and not changed in between.
        handler(unsafe { &*image });
        self.order();
        let engine = self.engine();
        let vcpu = engine.flows.current;
        engine.vcpus[vcpu].take_up(aside);
        engine.emit(&Happened::Waits { vcpu });
    }

    /// Takes a non-maskable interrupt, also with interrupts masked. Its IRET exits: the host holds back further ones
    /// until then. As after other handlers, the caller's loop goes on, not a frame on top of this one.
    fn take_nmi(&self) {
        let engine = self.engine();
        let (now, cost) = (engine.clock.now, engine.hardware.costs.guest_interrupt);
        // The flow may have gone on since it was entered: in the handler of a vector that came with it.
        let vcpu = engine.flows.current;
        engine.use_pending_time(vcpu);
        engine.emit(&Happened::Waited { vcpu });
        let this = engine.current();
        let (enabled, slept) = (this.interrupts.enabled, this.spin.asleep.take());
        self.handle(now, slept, cost, |image| image.nmi());
        let engine = self.engine();
        engine.current().interrupts.enabled = enabled;
        engine.flows.exit = Some(Exit::Iret);
        self.switch_to(None);
    }

    /// The pCPU, which slept in MWAIT since `since`, wakes up.
    pub fn wake_up(&self, since: Time) {
        let engine = self.engine();
        let slept = engine.current().flow.clock.since(since);
        self.spend(Cause::Idle, engine.hardware.wake_up(slept));
    }

    /// IRET, by a flow whose turn it is. An interrupt that waited for it comes now, before the rest of what was
    /// interrupted. The caller's loop takes it, not a frame on top of this one: a stack must not grow with interrupts
    /// that follow one another.
    fn end_interrupt(&self) {
        let engine = self.engine();
        let vcpu = engine.flows.current;
        engine.vcpus[vcpu].interrupts.enabled = true;
        engine.emit(&Happened::InterruptsEnabled { vcpu });
        if let Some(vector) = engine.take_from_hardware(vcpu) {
            engine.vcpus[vcpu].interrupts.vector = Some(vector);
        } else if std::mem::take(&mut engine.vcpus[vcpu].interrupts.window) {
            engine.flows.exit = Some(Exit::InterruptWindow);
            self.switch_to(None);
        }
    }

    /// STI or CLI.
    pub fn set_irqs(&self, enabled: bool) {
        let engine = self.engine();
        let vcpu = engine.flows.current;
        if enabled {
            engine.emit(&Happened::InterruptsEnabled { vcpu });
        }
        let interrupts = &mut engine.vcpus[vcpu].interrupts;
        interrupts.enabled = enabled;
        if enabled && interrupts.window {
            interrupts.window = false;
            self.exit(Exit::InterruptWindow);
        } else if enabled {
            self.interrupts_enabled();
        }
    }

    /// Announces `span` of the flow's time.
    #[inline]
    pub fn spend(&self, cause: Cause, span: Picos) {
        if !self.engine().current().spend(cause, span) {
            self.spend_when_drained(cause, span);
        }
    }

    #[cold]
    fn spend_when_drained(&self, cause: Cause, span: Picos) {
        self.order();
        let fits = self.engine().current().spend(cause, span);
        assert!(fits, "pending time was not drained");
    }

    /// Spends `span` on what the flow is doing.
    #[inline]
    pub fn work(&self, span: Picos) {
        let cause = self.engine().current().announced.work_cause();
        self.spend(cause, span);
    }

    /// Leaves the guest for the host, until the host enters the guest again.
    #[cold]
    pub fn exit(&self, exit: Exit) {
        self.order();
        self.leave(exit);
    }

    /// As [`Handle::exit`], by a flow whose turn it is.
    pub fn leave(&self, exit: Exit) {
        self.engine().flows.exit = Some(exit);
        self.switch_to(None);
        self.continued();
    }

    /// Calls the host's scheduler from the bare-metal kernel. The flow may be on another CPU when the call returns.
    pub fn call(&self, call: Call) {
        self.order();
        self.engine().flows.call = Some(call);
        self.switch_to(None);
        self.continued();
    }

    /// Ends the run if the last exit was for an instruction that faults; `what` describes it.
    pub fn fault(&self, what: impl FnOnce() -> String) {
        let this = self.engine().current();
        if std::mem::take(&mut this.replies.fault) {
            let number = this.number;
            let message = format!("general-protection fault on vcpu {number}: {}", what());
            self.engine().end.failure = Some(Failure::GuestPanic(message));
            self.switch_to(None);
        }
    }

    /// Waits in a skipped spin for at most `loads` loads.
    pub fn park(&self, word: &SimWord, loads: u64, until: &dyn Fn(u32) -> bool) -> Resumption {
        let engine = self.engine();
        let line = word.line_in(&mut engine.memory);
        let vcpu = engine.flows.current;
        // SAFETY: both outlive this call, and the park ends before it returns.
        let probe = unsafe { Probe::new(word, until) };
        engine.park(vcpu, line, loads, probe);
        self.switch_away();
        let engine = self.engine();
        let resumption = engine.resume_parked(engine.flows.current);
        if resumption.woken == Woken::Due {
            self.continued();
        }
        resumption
    }
}
