//! Behind whom a waiter waits: for each contended lock a clock per culprit.
//!
//! A lock's culprit changes when it changes hands, when its holder or its next waiter loses or regains a pCPU, and when
//! its holder starts or stops to wait itself. The lock keeps how long it has had each culprit; a waiter takes readings
//! when it starts and stops to spin, and the difference is how its spinning divides. So a change of culprit costs O(1),
//! however many wait.

use holdfast_host::VcpuId;
use holdfast_machine::Time;

/// Behind whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Culprit {
    /// The holder, which is running.
    RunningHolder,
    /// The holder, which is not running, or waits itself for someone who is not.
    PreemptedHolder,
    /// Nobody holds the lock, and the longest waiter is not running.
    PreemptedWaiter,
    /// Nobody holds the lock, and the longest waiter is about to take it.
    HandOver,
    /// The holder, whose group's quota is spent, or that waits itself for one of whom this is so.
    ThrottledHolder,
    /// Nobody holds the lock, and the quota of the longest waiter's group is spent.
    ThrottledWaiter,
}

/// Number of culprits.
pub const CULPRITS: usize = 6;

/// Picoseconds by culprit.
pub type Reading = [u64; CULPRITS];

/// How long a lock has had each culprit.
#[derive(Clone, Debug)]
pub struct BlameClock {
    passed: Reading,
    current: Culprit,
    since: Time,
}

impl BlameClock {
    /// Starts at `now` with `culprit`.
    pub fn new(culprit: Culprit, now: Time) -> BlameClock {
        BlameClock {
            passed: [0; CULPRITS],
            current: culprit,
            since: now,
        }
    }

    /// From `now` on it is `culprit`.
    pub fn set(&mut self, culprit: Culprit, now: Time) {
        if culprit != self.current {
            self.passed[self.current as usize] += now.since(self.since).0;
            self.current = culprit;
            self.since = now;
        }
    }

    /// Who it is now.
    pub fn current(&self) -> Culprit {
        self.current
    }

    /// The totals at `now`.
    pub fn read(&self, now: Time) -> Reading {
        let mut reading = self.passed;
        reading[self.current as usize] += now.since(self.since).0;
        reading
    }
}

/// A waiter's last reading of the clock of the lock that it waits for.
#[derive(Clone, Copy, Debug)]
pub struct Mark(Reading);

impl Mark {
    /// Reads `clock` at `now`.
    pub fn take(clock: &BlameClock, now: Time) -> Mark {
        Mark(clock.read(now))
    }

    /// How the time since the mark divides.
    pub fn since(&self, clock: &BlameClock, now: Time) -> Reading {
        let mut parts = clock.read(now);
        for (part, before) in parts.iter_mut().zip(self.0) {
            *part -= before;
        }
        parts
    }
}

/// No vCPU.
const NONE: VcpuId = VcpuId(u32::MAX);

/// Who holds a lock and who waits for it, as the tracepoints tell.
#[derive(Clone, Debug)]
pub struct LockRecord {
    holder: VcpuId,
    contention: Option<Box<Contention>>,
}

/// What is kept of a lock once somebody waited for it.
#[derive(Clone, Debug)]
pub struct Contention {
    /// vCPUs in the order in which they began to wait.
    pub waiters: Vec<VcpuId>,
    /// Behind whom they wait.
    pub clock: BlameClock,
}

impl Default for LockRecord {
    fn default() -> Self {
        LockRecord {
            holder: NONE,
            contention: None,
        }
    }
}

impl LockRecord {
    /// The vCPU that holds it.
    #[inline]
    pub fn holder(&self) -> Option<VcpuId> {
        (self.holder != NONE).then_some(self.holder)
    }

    /// Sets or clears the holder.
    #[inline]
    pub fn set_holder(&mut self, holder: Option<VcpuId>) {
        self.holder = holder.unwrap_or(NONE);
    }

    /// What is kept of it if anybody ever waited.
    #[inline]
    pub fn contention(&self) -> Option<&Contention> {
        self.contention.as_deref()
    }

    /// The same, to change it.
    #[inline]
    pub fn contention_mut(&mut self) -> Option<&mut Contention> {
        self.contention.as_deref_mut()
    }

    /// The same, made at `now` if nobody waited before.
    pub fn contended(&mut self, now: Time) -> &mut Contention {
        self.contention.get_or_insert_with(|| {
            Box::new(Contention {
                waiters: Vec::new(),
                clock: BlameClock::new(Culprit::HandOver, now),
            })
        })
    }

    /// Whether anybody waits.
    #[inline]
    pub fn has_waiters(&self) -> bool {
        self.contention
            .as_ref()
            .is_some_and(|contention| !contention.waiters.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_divides_by_culprit_and_loses_nothing() {
        let mut clock = BlameClock::new(Culprit::RunningHolder, Time(0));
        let mark = Mark::take(&clock, Time(10));
        clock.set(Culprit::PreemptedHolder, Time(30));
        clock.set(Culprit::HandOver, Time(100));
        assert_eq!(mark.since(&clock, Time(110)), [20, 70, 0, 10, 0, 0]);
    }
}
