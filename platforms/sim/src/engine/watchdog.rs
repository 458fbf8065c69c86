//! The watchdog: ends a run in which a guest makes no progress in virtual time, and says what was lost: an interrupt, a
//! kick, or nothing, and then the guest's tasks wait for each other.
//!
//! - **Progress** is work in user mode, or a lock that a task takes: a convoy in which locks are still taken goes on.
//! - **A chance**: a guest whose vCPUs wait for pCPUs is slow, not stuck. It is stuck only if each of its vCPUs sleeps
//!   or has had a pCPU for a while since the last progress.

use std::fmt::Write;

use holdfast_abi::lapic;
use holdfast_host::{ApicRegisters, VcpuId, VcpuState, VmId};
use holdfast_machine::{Picos, Time};

use crate::core::failure::{CallOff, Failure};
use crate::engine::Engine;
use crate::parts::vcpu::Vcpu;
use crate::parts::vm::Watched;

/// Virtual time between two checks, in nanoseconds.
const INTERVAL_NS: u64 = 500_000_000;
/// Virtual time without progress after which a measured guest counts as stuck, in nanoseconds. Convoys advance every
/// few milliseconds.
const PATIENCE_NS: u64 = 20_000_000_000;
/// Time with a pCPU in which a vCPU that is not asleep would have made progress if it could: several time slices.
const CHANCE: Picos = Picos::from_nanos(1_000_000_000);

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

    /// Whether `vm` makes no progress. Notes its progress.
    fn is_stuck(&mut self, vm: VmId) -> bool {
        let (now, progress) = (self.clock.now, self.books.guests[vm].work.last_progress());
        if self.vms[vm].is_finished() {
            return false;
        }
        if progress > self.vms[vm].watched.progress {
            let off = |vcpu| self.books.accounts[vcpu].off_time_at(now);
            self.vms[vm].watched = Watched {
                progress,
                seen_at: now,
                off: self.vms[vm].vcpu_ids().map(off).collect(),
            };
        }
        let patience = Time::from_nanos(progress.nanos() + PATIENCE_NS);
        now > patience && self.vms[vm].vcpu_ids().all(|vcpu| self.had_its_chance(vm, vcpu))
    }

    /// Whether `vcpu` of `vm` sleeps, or has had a pCPU for a while since the guest's last progress.
    fn had_its_chance(&self, vm: VmId, vcpu: VcpuId) -> bool {
        let (now, watched, this) = (self.clock.now, &self.vms[vm].watched, &self.vcpus[vcpu]);
        let off = self.books.accounts[vcpu].off_time_at(now);
        let before = watched.off.get(this.number as usize).copied().unwrap_or(0);
        let ran = now.since(watched.seen_at).0.saturating_sub(off - before);
        is_asleep(this.state) || ran >= CHANCE.0
    }
}

impl Engine {
    /// Why `vm` is stuck.
    fn diagnose(&self, vm: VmId) -> Failure {
        let what = self.describe(vm);
        if let Some(lost) = self.loss(vm) {
            return lost;
        }
        let mut vcpus = self.vcpus.iter().filter(|vcpu| vcpu.vm == vm);
        if vcpus.clone().any(|vcpu| vcpu.announced.contending.is_some()) {
            Failure::Deadlock(what)
        } else if vcpus.all(|vcpu| is_asleep(vcpu.state)) {
            let why = "all tasks wait for each other: no interrupt is pending, and no kick is to come";
            Failure::Deadlock(format!("{why}; {what}"))
        } else {
            Failure::Livelock(what)
        }
    }

    /// Why no event is to come.
    pub fn diagnose_all(&self) -> Failure {
        let mut measured = self.vms.ids().filter(|&vm| !self.vms[vm].is_finished());
        let lost = measured.find_map(|vm| self.loss(vm));
        lost.unwrap_or_else(|| Failure::Deadlock(self.describe_all()))
    }

    /// The interrupt or the kick that `vm` has lost, if it has lost one.
    fn loss(&self, vm: VmId) -> Option<Failure> {
        let vcpus = || self.vms[vm].vcpu_ids();
        let found = |lost: String, failure: fn(String) -> Failure| failure(format!("{lost}; {}", self.describe(vm)));
        let interrupt = vcpus().find_map(|vcpu| self.lost_interrupt(vcpu));
        let interrupt = interrupt.or_else(|| vcpus().find_map(|vcpu| self.lost_acknowledgement(vcpu)));
        let kick = || vcpus().find_map(|vcpu| self.lost_kick(vcpu));
        interrupt
            .map(|lost| found(lost, Failure::LostInterrupt))
            .or_else(|| kick().map(|lost| found(lost, Failure::LostKick)))
    }

    /// The vector that `vcpu`, which sleeps, could take and does not wake for.
    fn pending_asleep(&self, vcpu: VcpuId) -> Option<u8> {
        let this = &self.vcpus[vcpu];
        if !is_asleep(this.state) || !this.interrupts.enabled || this.is_without_apic() {
            return None;
        }
        let page = self.host.apic_page(vcpu);
        let requested = page.highest(lapic::IRR);
        let takes = |vector: &u8| u32::from(*vector) & 0xf0 > page.processor_priority() & 0xf0;
        requested
            .filter(takes)
            .or_else(|| self.hardware.apic.pending(&self.host, vcpu))
    }

    /// The interrupt for which `vcpu` should have woken.
    fn lost_interrupt(&self, vcpu: VcpuId) -> Option<String> {
        let vector = self.pending_asleep(vcpu)?;
        let number = self.vcpus[vcpu].number;
        let mut text = format!("vcpu {number} sleeps, and vector {vector:#x} is pending for it");
        let Some((from, at)) = self.books.missed[vcpu] else {
            text.push_str(": its host has not woken it");
            return Some(text);
        };
        let (sender, ms) = (self.vcpus[from].number, at.nanos() as f64 / 1e6);
        let _ = write!(
            text,
            ": an IPI that vcpu {sender} sent at {ms:.3} ms. AVIC took vcpu {number} for running, rang its doorbell and \
             did not exit to the host: IsRunning in the physical APIC ID table was stale",
        );
        if self.hardware.apic.avic.is_some_and(|model| model.hardware.erratum_1235) {
            text.push_str(" (erratum 1235: the CPU reads IsRunning before it sets the vector in IRR)");
        }
        Some(text)
    }

    /// The IPI whose acknowledgement `vcpu` awaits from a vCPU that sleeps and has nothing pending.
    fn lost_acknowledgement(&self, vcpu: VcpuId) -> Option<String> {
        let target = self.vcpus[vcpu].announced.ipi_target?;
        let (from, to) = (self.vcpus[vcpu].number, &self.vcpus[target]);
        let number = to.number;
        is_asleep(to.state).then(|| {
            format!("vcpu {from} awaits the acknowledgement of an IPI, and vcpu {number} sleeps without one pending")
        })
    }

    /// The free lock for which `vcpu` is halted, since no vCPU will kick it.
    fn lost_kick(&self, vcpu: VcpuId) -> Option<String> {
        let this = &self.vcpus[vcpu];
        let line = this.announced.contending?;
        if !is_asleep(this.state) || self.books.locks.holder(line).is_some() {
            return None;
        }
        let mut text = format!("vcpu {} is halted for lock {}, which is free", this.number, line.0);
        if let Some(last) = self.books.locks.last_holder(line) {
            let _ = write!(text, " since vcpu {} released it", self.vcpus[last].number);
        }
        text.push_str(", and no vcpu will kick it");
        let lost = self.migrations.as_ref().map_or(0, |migrations| migrations.kicks_lost);
        if lost > 0 {
            let _ = write!(text, ": live migrations have dropped {lost} latched kicks");
        }
        Some(text)
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

/// Whether a vCPU in `state` waits for an interrupt or a kick.
fn is_asleep(state: VcpuState) -> bool {
    matches!(state, VcpuState::Blocked | VcpuState::Polling | VcpuState::Dead)
}
