//! Whose turn it is: the next flow, or an event that no flow plays.
//!
//! Guest flows run on stacks of their own. A flow that has to wait for its turn switches straight to the flow whose
//! turn it is; only what concerns the host comes back to the loop (`flows/play.rs`), which plays events here.
//!
//! **Strict order**: shared-memory operations, exits and interrupts happen in the order of their keys. Nothing else in
//! one flow is visible to another.
//! **Meeting at the boundary**: guest and host meet only in exits, entries and interrupts (`cpus/exits.rs`).

use std::sync::atomic::Ordering;

use holdfast_host::{HostInterrupt, VcpuId};
use holdfast_machine::Time;

use crate::books::happened::Happened;
use crate::core::clock::{Source, TimedEvent};
use crate::core::engine::Engine;
use crate::core::failure::{CallOff, Failure};
use crate::cpus::pcpu::Activity;

impl Engine {
    /// The vCPU whose flow executes next, and when. Returns `None` if the next event is not a flow's turn. Plays the
    /// misses of spinners on the way.
    #[inline]
    pub fn next_turn(&mut self) -> Option<(Time, VcpuId)> {
        loop {
            match self.clock.first()? {
                (Source::Activity(pcpu), time) => {
                    return match self.pcpus[pcpu].activity {
                        Activity::Guest(vcpu) => Some((time, vcpu)),
                        _ => None,
                    };
                }
                (
                    Source::Timed {
                        event: TimedEvent::Miss(line),
                        ..
                    },
                    _,
                ) => self.play_misses(line),
                _ => return None,
            }
        }
    }

    /// Plays one event that is not a flow's turn.
    pub fn play_event(&mut self, call_off: &CallOff) {
        let Some((source, time)) = self.clock.first() else {
            self.end.failure = Some(Failure::Deadlock(self.describe_all()));
            return;
        };
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
                if call_off.load(Ordering::Relaxed) {
                    self.end.failure = Some(Failure::CalledOff);
                }
                self.watch();
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
            TimedEvent::Stop => self.stop_guests(),
            TimedEvent::Resume => self.resume_guests(),
            TimedEvent::Miss(_) => unreachable!("a miss is played as part of a turn"),
        }
    }
}
