//! The loop of a run: it plays the events that no flow plays, and switches to the flow whose turn it is.
//!
//! Guest flows run on stacks of their own. A flow that has to wait for its turn switches straight to the flow whose
//! turn it is; only what concerns the host comes back to the loop.
//!
//! **Strict order**: shared-memory operations, exits and interrupts happen in the order of their keys. Nothing else in
//! one flow is visible to another.
//! **Meeting at the boundary**: guest and host meet only in exits, entries and interrupts (`events/exits.rs`).

#![expect(unsafe_code, reason = "the loop switches to flows, which execute the guest's kernel")]

use holdfast_host::HostInterrupt;

use crate::books::happened::Happened;
use crate::core::clock::{Source, TimedEvent};
use crate::core::failure::{CallOff, Failure};
use crate::engine::Engine;
use crate::engine::handle::EngineCell;
use crate::stacks::context::{Saved, switch};

/// Plays events until the run is finished or has failed.
pub fn play(cell: &EngineCell, call_off: &CallOff) {
    while let Some((main, to)) = cell.with(|engine| engine.play_until_flow(call_off)) {
        // SAFETY: the flow was prepared, or saved when it last waited. `main` is in the engine, which does not move,
        // and nothing uses the engine before `switch` has written there, which is the first that it does.
        unsafe { switch(main, to) };
    }
}

impl Engine {
    /// Plays events until it is a flow's turn: where the loop saves itself, and where the flow continues. `None` if the
    /// run is finished or has failed.
    fn play_until_flow(&mut self, call_off: &CallOff) -> Option<(*mut Saved, Saved)> {
        loop {
            if self.end.finished || self.end.failure.is_some() || self.books.failure().is_some() {
                return None;
            }
            if let Some(exit) = self.flows.exit.take() {
                self.leave_guest(self.flows.current, exit);
                continue;
            }
            if let Some(call) = self.flows.call.take() {
                self.leave_native(self.flows.current, call);
                continue;
            }
            let Some((time, vcpu)) = self.next_turn() else {
                self.play_event(call_off);
                continue;
            };
            self.clock.now = time;
            self.flows.current = vcpu;
            self.books.stats.switches += 1;
            return Some((&raw mut self.flows.main, self.vcpus[vcpu].flow.saved));
        }
    }

    /// Plays one event that is not a flow's turn.
    fn play_event(&mut self, call_off: &CallOff) {
        let Some((source, time)) = self.clock.first() else {
            self.end.failure = Some(self.diagnose_all());
            return;
        };
        // Not only now and then: with hundreds of vCPUs that spin, a tick can take a minute.
        if call_off.is_called() {
            self.end.failure = Some(Failure::CalledOff);
            return;
        }
        self.books.stats.events += 1;
        self.clock.now = time;
        match source {
            Source::Activity(pcpu) => self.activity_ends(pcpu),
            Source::Timer(pcpu) => {
                self.clock.timer_expires(pcpu);
                self.interrupt(pcpu, HostInterrupt::Timer);
                self.clock.timer_has_expired();
            }
            Source::Watchdog => {
                self.clock.clear_watchdog();
                self.watch(call_off);
            }
            Source::Zero => {
                self.clock.clear_zero();
                self.zero_statistics();
            }
            Source::Timed { slot, event } => {
                self.clock.finish(slot);
                self.play_timed(event);
            }
        }
    }

    fn play_timed(&mut self, event: TimedEvent) {
        match event {
            TimedEvent::Interrupt(pcpu, interrupt) => {
                if interrupt == HostInterrupt::Reschedule {
                    self.emit(&Happened::HostIpiArrived { pcpu });
                }
                self.interrupt(pcpu, interrupt);
            }
            TimedEvent::Doorbell(pcpu) => self.doorbell(pcpu),
            TimedEvent::Notification(pcpu, vector) => self.notification(pcpu, vector),
            TimedEvent::Nic(nic) => self.step_nic(nic),
            TimedEvent::Move => self.move_vcpu(),
            TimedEvent::Migrate => self.begin_migration(),
            TimedEvent::Round => self.end_round(),
            TimedEvent::Resume => self.resume_guests(),
        }
    }
}
