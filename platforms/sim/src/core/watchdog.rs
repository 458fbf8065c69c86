//! The watchdog: a guest that makes no progress in virtual time is reported, with who waits for what.

use std::fmt::Write;

use holdfast_host::VcpuState;
use holdfast_machine::{Key, Time};

use crate::core::engine::{CLASS_INTERRUPT, Engine, Vm};
use crate::core::failure::Failure;

/// Virtual time between two looks, in nanoseconds.
const INTERVAL_NS: u64 = 500_000_000;
/// Virtual time without user work or progress after which a measured guest counts as stuck, in nanoseconds. Convoys
/// advance every few milliseconds.
const PATIENCE_NS: u64 = 20_000_000_000;

impl Engine {
    /// Sets the watchdog.
    pub fn set_watchdog(&mut self) {
        let slot = self.watchdog_slot();
        let at = Time::from_nanos(self.now.nanos() + INTERVAL_NS).min(self.limit);
        self.queue.set(slot, Key::new(at, CLASS_INTERRUPT, slot));
    }

    /// Looks whether the run still gets anywhere.
    pub fn watch(&mut self) {
        if self.failure.is_some() {
            return;
        }
        if self.now >= self.limit {
            self.failure = Some(Failure::Limit(self.describe_all()));
            return;
        }
        let patience = |vm: &Vm| Time::from_nanos(vm.last_user.nanos() + PATIENCE_NS);
        let stuck = self
            .vms
            .iter()
            .position(|vm| vm.measured && vm.done.is_none() && self.now > patience(vm));
        if let Some(vm) = stuck {
            self.failure = Some(self.diagnose(vm as u32));
        }
        self.set_watchdog();
    }

    fn diagnose(&self, vm: u32) -> Failure {
        let what = self.describe(vm);
        let mine = self.vcpus.iter().filter(|vcpu| vcpu.vm.0 == vm);
        let asleep = |state| matches!(state, VcpuState::Blocked | VcpuState::Polling);
        let mut halted = mine
            .clone()
            .filter(|vcpu| asleep(vcpu.state) && vcpu.contending.is_some());
        let free = |vcpu: &crate::cpus::vcpu::Vcpu| {
            vcpu.contending
                .is_some_and(|line| self.records[line.0 as usize].lock.holder().is_none())
        };
        if halted.any(free) {
            Failure::LostKick(what)
        } else if mine.clone().any(|vcpu| vcpu.contending.is_some()) {
            Failure::Deadlock(what)
        } else if mine.clone().all(|vcpu| asleep(vcpu.state)) {
            Failure::Deadlock(format!("all tasks wait for each other; {what}"))
        } else {
            Failure::Livelock(what)
        }
    }

    /// Who waits for what in all guests.
    pub fn describe_all(&self) -> String {
        let measured = self.vms.iter().enumerate().filter(|(_, vm)| vm.measured);
        measured
            .map(|(vm, _)| self.describe(vm as u32))
            .collect::<Vec<_>>()
            .join("; ")
    }

    /// Who waits for what in a guest.
    fn describe(&self, vm: u32) -> String {
        let mut text = format!(
            "vm {} at {} ms:",
            self.vms[vm as usize].name,
            self.now.nanos() / 1_000_000
        );
        for vcpu in self.vcpus.iter().filter(|vcpu| vcpu.vm.0 == vm) {
            let _ = write!(text, " vcpu {} {:?}", vcpu.number, vcpu.state);
            if let Some(line) = vcpu.contending {
                let _ = write!(text, " awaits lock {}", line.0);
                match self.records[line.0 as usize].lock.holder() {
                    Some(holder) => {
                        let _ = write!(text, " held by vcpu {}", self.vcpus[holder as usize].number);
                    }
                    None => text.push_str(" held by nobody"),
                }
            }
            for line in &vcpu.held {
                let _ = write!(text, " holds lock {}", line.0);
            }
            if let Some((target, _)) = vcpu.ipi_target {
                let _ = write!(
                    text,
                    " awaits the answer of vcpu {}",
                    self.vcpus[target as usize].number
                );
            }
            text.push(',');
        }
        text.pop();
        text
    }
}
