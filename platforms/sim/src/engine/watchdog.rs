//! The watchdog: reports a guest that makes no progress in virtual time, and what its vCPUs wait for.

use std::fmt::Write;

use holdfast_host::{VcpuState, VmId};
use holdfast_machine::Time;

use crate::core::failure::{CallOff, Failure};
use crate::engine::Engine;
use crate::parts::vcpu::Vcpu;

/// Virtual time between two checks, in nanoseconds.
const INTERVAL_NS: u64 = 500_000_000;
/// Virtual time without user work after which a measured guest counts as stuck, in nanoseconds. Convoys advance every
/// few milliseconds.
const PATIENCE_NS: u64 = 20_000_000_000;

/// vCPUs of a guest that are described: more would hide the message. Those that hold or await a lock come first.
const DESCRIBED: usize = 64;

impl Engine {
    /// Sets the watchdog.
    pub fn set_watchdog(&mut self) {
        let at = Time::from_nanos(self.clock.now.nanos() + INTERVAL_NS).min(self.end.limit);
        self.clock.set_watchdog(at);
    }

    /// Checks that the run still makes progress, and tells others how far it is.
    pub fn watch(&mut self, call_off: &CallOff) {
        call_off.pass(INTERVAL_NS);
        if self.end.failure.is_some() {
            return;
        }
        if self.clock.now >= self.end.limit {
            self.end.failure = Some(Failure::Limit(self.describe_all()));
            return;
        }
        let stuck = self.vms.ids().find(|&vm| self.is_stuck(vm));
        if let Some(vm) = stuck {
            self.end.failure = Some(self.diagnose(vm));
        }
        self.set_watchdog();
    }

    fn is_stuck(&self, vm: VmId) -> bool {
        let last_user = self.books.guests[vm].work.last_user;
        let patience = Time::from_nanos(last_user.nanos() + PATIENCE_NS);
        !self.vms[vm].is_finished() && self.clock.now > patience
    }

    fn diagnose(&self, vm: VmId) -> Failure {
        let what = self.describe(vm);
        let asleep = |vcpu: &Vcpu| matches!(vcpu.state, VcpuState::Blocked | VcpuState::Polling);
        let awaits_free_lock = |vcpu: &Vcpu| {
            let awaited = vcpu.announced.contending;
            awaited.is_some_and(|line| self.books.locks.holder(line).is_none())
        };
        let mut vcpus = self.vcpus.iter().filter(|vcpu| vcpu.vm == vm);
        if vcpus.clone().any(|vcpu| asleep(vcpu) && awaits_free_lock(vcpu)) {
            Failure::LostKick(what)
        } else if vcpus.clone().any(|vcpu| vcpu.announced.contending.is_some()) {
            Failure::Deadlock(what)
        } else if vcpus.all(asleep) {
            Failure::Deadlock(format!("all tasks wait for each other; {what}"))
        } else {
            Failure::Livelock(what)
        }
    }

    /// What the vCPUs of all measured guests wait for.
    pub fn describe_all(&self) -> String {
        let measured = self.vms.ids().filter(|&vm| self.vms[vm].measured);
        measured.map(|vm| self.describe(vm)).collect::<Vec<_>>().join("; ")
    }

    /// What the vCPUs of `vm` wait for.
    fn describe(&self, vm: VmId) -> String {
        let ms = self.clock.now.nanos() / 1_000_000;
        let mut text = format!("vm {} at {ms} ms:", self.vms[vm].name);
        let mut vcpus: Vec<&Vcpu> = self.vcpus.iter().filter(|vcpu| vcpu.vm == vm).collect();
        let more = vcpus.len().saturating_sub(DESCRIBED);
        if more > 0 {
            vcpus.sort_by_key(|vcpu| (vcpu.announced.held.is_empty(), vcpu.announced.contending.is_none()));
        }
        for vcpu in &vcpus[..vcpus.len() - more] {
            let announced = &vcpu.announced;
            let _ = write!(text, " vcpu {} {:?}", vcpu.number, vcpu.state);
            if let Some(line) = announced.contending {
                let _ = write!(text, " awaits lock {}", line.0);
                match self.books.locks.holder(line) {
                    Some(holder) => {
                        let _ = write!(text, " held by vcpu {}", self.vcpus[holder].number);
                    }
                    None => text.push_str(" held by no vcpu"),
                }
            }
            for line in &announced.held {
                let _ = write!(text, " holds lock {}", line.0);
            }
            if let Some(target) = announced.ipi_target {
                let _ = write!(
                    text,
                    " awaits the acknowledgement of vcpu {}",
                    self.vcpus[target].number
                );
            }
            text.push(',');
        }
        text.pop();
        if more > 0 {
            let _ = write!(text, ", and {more} more");
        }
        text
    }
}
