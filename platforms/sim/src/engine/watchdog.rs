//! The watchdog: ends a run in which a guest makes no progress in virtual time.
//!
//! - **Progress** is work in user mode, or a lock that a task takes: a convoy in which locks are still taken goes on.
//! - **A chance**: a guest whose vCPUs wait for pCPUs is slow, not stuck. It is stuck only if each of its vCPUs sleeps
//!   or has had a pCPU for a while since the last progress.

use holdfast_host::{VcpuId, VcpuState, VmId};
use holdfast_machine::{Picos, Time};

use crate::core::failure::{CallOff, Failure};
use crate::engine::Engine;

/// Virtual time between two checks, in nanoseconds.
const INTERVAL_NS: u64 = 500_000_000;
/// Virtual time without progress after which a measured guest counts as stuck, in nanoseconds. Convoys advance every
/// few milliseconds.
const PATIENCE_NS: u64 = 20_000_000_000;
/// Time with a pCPU in which a vCPU that is not asleep would have made progress if it could: several time slices.
const CHANCE: Picos = Picos::from_nanos(1_000_000_000);

/// What the watchdog last saw of a guest.
#[derive(Clone, Debug, Default)]
pub struct Watched {
    /// The guest's last progress then.
    progress: Time,
    /// When the watchdog saw it first.
    seen_at: Time,
    /// Picoseconds that each vCPU had been without a pCPU until then; empty for power-on.
    off: Vec<u64>,
}

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
        if progress > self.watched[vm].progress {
            let off = |vcpu| self.books.accounts[vcpu].off_time_at(now);
            self.watched[vm] = Watched {
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
        let (now, watched, this) = (self.clock.now, &self.watched[vm], &self.vcpus[vcpu]);
        let off = self.books.accounts[vcpu].off_time_at(now);
        let before = watched.off.get(this.number as usize).copied().unwrap_or(0);
        let ran = now.since(watched.seen_at).0.saturating_sub(off - before);
        is_asleep(this.state) || ran >= CHANCE.0
    }
}

/// Whether a vCPU in `state` waits for an interrupt or a kick.
pub fn is_asleep(state: VcpuState) -> bool {
    matches!(state, VcpuState::Blocked | VcpuState::Polling | VcpuState::Dead)
}
