//! Time that vCPUs are halted for locks: the counterpart of convoys under paravirtual locks, whose waiters sleep.

use std::collections::BTreeMap;

use serde::Serialize;

/// Time that a guest's vCPUs are halted until a lock's holder kicks them, and what they lose around it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Halts {
    /// Share of the vCPUs' time in which they are halted for a lock.
    pub share: f64,
    /// That time per unit of time worked.
    pub per_work: f64,
    /// Share of the vCPUs' time from a kick or wakeup until they have a pCPU.
    pub woken_share: f64,
}

impl Halts {
    /// Returns the halts of a cell by its shares of lost time, or `None` if these are not known.
    pub(super) fn of(lost_time: &BTreeMap<String, f64>) -> Option<Halts> {
        if lost_time.is_empty() {
            return None;
        }
        let share = |cause: &str| lost_time.get(cause).copied().unwrap_or(0.0);
        let worked = share("useful") + share("critical_section");
        Some(Halts {
            share: share("halted_for_lock"),
            per_work: share("halted_for_lock") / worked.max(f64::MIN_POSITIVE),
            woken_share: share("wake_latency"),
        })
    }

    /// Returns the verdict in words.
    pub fn verdict(&self) -> &'static str {
        match self.per_work {
            ratio if ratio < 0.01 => "hardly halts for locks",
            ratio if ratio < 0.1 => "halts for locks",
            _ if self.woken_share > self.share => "loses time halted for locks, and more until it runs after a wakeup",
            ratio if ratio < 1.0 => "loses time halted for locks",
            _ => "is halted for locks longer than it works",
        }
    }
}
