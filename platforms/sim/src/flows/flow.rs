//! How guest code waits for its turn, takes interrupts, leaves its guest, and spends its time.
//!
//! **One flow at a time**: all flows of a run execute on one thread, one after another. A flow uses the engine between
//! two switches, never across one (`engine/handle.rs`).

#![expect(
    unsafe_code,
    reason = "an image and a parked flow's predicate are read through pointers"
)]

use holdfast_guest::GuestImage;
use holdfast_host::Exit;
use holdfast_machine::{Picos, Time};

use crate::books::happened::Happened;
use crate::core::cause::Cause;
use crate::core::failure::Failure;
use crate::engine::handle::Handle;
use crate::memory::park::{Resumption, Woken};
use crate::memory::probe::Probe;
use crate::memory::word::SimWord;
use crate::tasks::native::{Call, PREEMPT};

/// What a flow that continues does next.
enum Next {
    /// It takes this vector.
    Interrupt(u8),
    /// It takes a non-maskable interrupt.
    Nmi,
    /// It waits for its turn.
    Turn,
}

impl Handle {
    /// Executes the flows whose turn it is, until it is the caller's turn.
    #[inline]
    pub fn switch_away(&self) {
        let next = self.with(|engine| match engine.next_turn() {
            Some((time, vcpu)) => {
                engine.clock.now = time;
                let is_other = vcpu != engine.flows.current || engine.end.failure.is_some();
                is_other.then_some(Some(vcpu))
            }
            None => Some(None),
        });
        if let Some(next) = next {
            self.switch_to(next);
        }
    }

    /// Waits until the flow's clock is the machine's. Takes the interrupts that come meanwhile.
    #[inline(always)]
    pub fn order(&self) {
        // SAFETY: only methods of the engine and of its parts are called.
        let engine = unsafe { self.engine() };
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
        // SAFETY: only methods of the engine and of its parts are called.
        let engine = unsafe { self.engine() };
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
        // SAFETY: only methods of the engine and of its parts are called.
        let engine = unsafe { self.engine() };
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
            let next = self.with(|engine| {
                let interrupts = &mut engine.current().interrupts;
                match interrupts.vector.take() {
                    Some(vector) => Next::Interrupt(vector),
                    // Its handler masks interrupts, so a vector that came with it is taken before.
                    None if std::mem::take(&mut interrupts.nmi) => Next::Nmi,
                    None => Next::Turn,
                }
            });
            match next {
                Next::Interrupt(vector) => self.take_interrupt(vector),
                Next::Nmi => self.take_nmi(),
                Next::Turn if self.my_turn() => return,
                Next::Turn => self.switch_away(),
            }
        }
    }

    fn take_interrupt(&self, vector: u8) {
        let (now, slept, cost) = self.with(|engine| {
            // The scheduler's request comes with an interrupt whose cost has been charged.
            let cost = if vector == PREEMPT {
                Picos::ZERO
            } else {
                engine.hardware.costs.guest_interrupt
            };
            (engine.clock.now, engine.current().spin.asleep.take(), cost)
        });
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
        let (vm, aside) = self.with(|engine| {
            let this = engine.current();
            (this.vm, this.set_aside(now))
        });
        if let Some(since) = slept {
            self.wake_up(since);
        }
        self.spend(Cause::InterruptEntry, cost);
        let image: *const dyn GuestImage = self.with(|engine| {
            let Some(image) = &engine.vms[vm].image else {
                unreachable!("vm {} runs and has no kernel", vm.0)
            };
            &raw const **image
        });
        // SAFETY: the image is boxed, set before the run, dropped after it, and not changed in between.
        handler(unsafe { &*image });
        self.order();
        self.with(|engine| {
            let vcpu = engine.flows.current;
            engine.vcpus[vcpu].take_up(aside);
            engine.emit(&Happened::Waits { vcpu });
        });
    }

    /// Takes a non-maskable interrupt, also with interrupts masked. Its IRET exits: the host holds back further ones
    /// until then. As after other handlers, the caller's loop goes on, not a frame on top of this one.
    fn take_nmi(&self) {
        let (enabled, now, slept, cost) = self.with(|engine| {
            // The flow may have gone on since it was entered: in the handler of a vector that came with it.
            let vcpu = engine.flows.current;
            engine.use_pending_time(vcpu);
            engine.emit(&Happened::Waited { vcpu });
            let (now, cost) = (engine.clock.now, engine.hardware.costs.guest_interrupt);
            let this = engine.current();
            (this.interrupts.enabled, now, this.spin.asleep.take(), cost)
        });
        self.handle(now, slept, cost, |image| image.nmi());
        self.with(|engine| {
            engine.current().interrupts.enabled = enabled;
            engine.flows.exit = Some(Exit::Iret);
        });
        self.switch_to(None);
    }

    /// The pCPU, which slept in MWAIT since `since`, wakes up.
    pub fn wake_up(&self, since: Time) {
        let span = self.with(|engine| {
            let slept = engine.current().flow.clock.since(since);
            engine.hardware.wake_up(slept)
        });
        self.spend(Cause::Idle, span);
    }

    /// IRET, by a flow whose turn it is. An interrupt that waited for it comes now, before the rest of what was
    /// interrupted. The caller's loop takes it, not a frame on top of this one: a stack must not grow with interrupts
    /// that follow one another.
    fn end_interrupt(&self) {
        let exits = self.with(|engine| {
            let vcpu = engine.flows.current;
            engine.vcpus[vcpu].interrupts.enabled = true;
            engine.emit(&Happened::InterruptsEnabled { vcpu });
            if let Some(vector) = engine.take_from_hardware(vcpu) {
                engine.vcpus[vcpu].interrupts.vector = Some(vector);
                return false;
            }
            let exits = std::mem::take(&mut engine.vcpus[vcpu].interrupts.window);
            if exits {
                engine.flows.exit = Some(Exit::InterruptWindow);
            }
            exits
        });
        if exits {
            self.switch_to(None);
        }
    }

    /// STI or CLI.
    pub fn set_irqs(&self, enabled: bool) {
        // SAFETY: only methods of the engine and of its parts are called.
        let engine = unsafe { self.engine() };
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
        // SAFETY: only methods of the engine and of its parts are called.
        let engine = unsafe { self.engine() };
        if !engine.current().spend(cause, span) {
            self.spend_when_drained(cause, span);
        }
    }

    #[cold]
    fn spend_when_drained(&self, cause: Cause, span: Picos) {
        self.order();
        let fits = self.with(|engine| engine.current().spend(cause, span));
        assert!(fits, "pending time was not drained");
    }

    /// Spends `span` on what the flow is doing.
    #[inline]
    pub fn work(&self, span: Picos) {
        // SAFETY: only methods of the engine and of its parts are called.
        let engine = unsafe { self.engine() };
        let cause = engine.current().announced.work_cause();
        if !engine.current().spend(cause, span) {
            self.spend_when_drained(cause, span);
        }
    }

    /// Leaves the guest for the host, until the host enters the guest again.
    #[cold]
    pub fn exit(&self, exit: Exit) {
        self.order();
        self.leave(exit);
    }

    /// As [`Handle::exit`], by a flow whose turn it is.
    pub fn leave(&self, exit: Exit) {
        self.with(|engine| engine.flows.exit = Some(exit));
        self.switch_to(None);
        self.continued();
    }

    /// Calls the host's scheduler from the bare-metal kernel. The flow may be on another CPU when the call returns.
    pub fn call(&self, call: Call) {
        self.order();
        self.with(|engine| engine.flows.call = Some(call));
        self.switch_to(None);
        self.continued();
    }

    /// Ends the run if the last exit was for an instruction that faults; `what` describes it.
    pub fn fault(&self, what: impl FnOnce() -> String) {
        let faults = self.with(|engine| {
            let this = engine.current();
            let faults = std::mem::take(&mut this.replies.fault);
            if faults {
                let number = this.number;
                let message = format!("general-protection fault on vcpu {number}: {}", what());
                engine.end.failure = Some(Failure::GuestPanic(message));
            }
            faults
        });
        if faults {
            self.switch_to(None);
        }
    }

    /// Waits in a skipped spin for at most `loads` loads.
    pub fn park(&self, word: &SimWord, loads: u64, until: &dyn Fn(u32) -> bool) -> Resumption {
        // SAFETY: both outlive this call, and the park ends before it returns.
        let probe = unsafe { Probe::new(word, until) };
        self.with(|engine| {
            let line = word.line_in(&mut engine.memory);
            engine.park(engine.flows.current, line, loads, probe);
        });
        self.switch_away();
        let resumption = self.with(|engine| engine.resume_parked(engine.flows.current));
        if resumption.woken == Woken::Due {
            self.continued();
        }
        resumption
    }
}
