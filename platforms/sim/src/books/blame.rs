//! Behind which vCPU a waiter waits: each contended lock has a clock per culprit.
//!
//! The culprit of a lock changes when the lock changes hands, when its holder or its next waiter loses or regains a
//! pCPU, and when its holder starts or stops waiting itself. The lock keeps how long it has had each culprit. A waiter
//! reads the clocks when it starts and stops spinning; the difference says how its spinning divides. So a change of
//! culprit costs O(1), however many vCPUs wait.

use holdfast_host::VcpuId;
use holdfast_machine::Time;

/// Why the waiters for a lock wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Culprit {
    /// The holder has the lock and is running.
    RunningHolder,
    /// The holder is not running, or waits itself for a vCPU that is not running.
    PreemptedHolder,
    /// The lock is free, and the longest waiter is not running.
    PreemptedWaiter,
    /// The lock is free, and the longest waiter is about to take it.
    HandOver,
    /// The holder is throttled, or waits itself for a vCPU that is throttled.
    ThrottledHolder,
    /// The lock is free, and the longest waiter is throttled.
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
    /// The present culprit.
    pub current: Culprit,
    since: Time,
}

impl BlameClock {
    /// A clock that starts at `now` with `culprit`.
    pub fn new(culprit: Culprit, now: Time) -> BlameClock {
        BlameClock {
            passed: [0; CULPRITS],
            current: culprit,
            since: now,
        }
    }

    /// The culprit is `culprit` from `now` on.
    pub fn set(&mut self, culprit: Culprit, now: Time) {
        if culprit != self.current {
            self.passed[self.current as usize] += now.since(self.since).0;
            self.current = culprit;
            self.since = now;
        }
    }

    /// The totals by culprit at `now`.
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

    /// Divides the time since the mark by culprit.
    pub fn since(&self, clock: &BlameClock, now: Time) -> Reading {
        let mut parts = clock.read(now);
        for (part, before) in parts.iter_mut().zip(self.0) {
            *part -= before;
        }
        parts
    }
}

/// The holder and the waiters of a lock, as the guest's tracepoints report them.
#[derive(Clone, Debug, Default)]
pub struct LockRecord {
    /// The vCPU that holds the lock.
    pub holder: Option<VcpuId>,
    /// The vCPU that released it last.
    pub last_holder: Option<VcpuId>,
    /// vCPUs that hold it together with this one, as readers.
    pub sharers: Vec<VcpuId>,
    /// The contention, if a vCPU has ever waited.
    pub contention: Option<Box<Contention>>,
}

/// Record of a lock for which a vCPU has waited.
#[derive(Clone, Debug)]
pub struct Contention {
    /// vCPUs in the order in which they began to wait.
    pub waiters: Vec<VcpuId>,
    /// The time that they wait, by culprit.
    pub clock: BlameClock,
}

impl LockRecord {
    /// `vcpu` holds the lock from now on, with those that hold it already.
    #[inline]
    pub fn acquired(&mut self, vcpu: VcpuId) {
        if self.holder.is_some_and(|other| other != vcpu) {
            self.sharers.push(vcpu);
        } else {
            self.holder = Some(vcpu);
        }
    }

    /// `vcpu` no longer holds the lock.
    #[inline]
    pub fn released(&mut self, vcpu: VcpuId) {
        self.last_holder = Some(vcpu);
        if self.holder == Some(vcpu) {
            self.holder = self.sharers.pop();
        } else {
            self.sharers.retain(|&other| other != vcpu);
        }
    }

    /// The contention; starts it at `now` if no vCPU has waited before.
    pub fn contended(&mut self, now: Time) -> &mut Contention {
        self.contention.get_or_insert_with(|| {
            Box::new(Contention {
                waiters: Vec::new(),
                clock: BlameClock::new(Culprit::HandOver, now),
            })
        })
    }

    /// Whether a vCPU waits for the lock.
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
    fn a_lock_has_a_holder_until_its_last_reader_leaves() {
        let mut lock = LockRecord::default();
        [3, 5, 7].map(VcpuId).into_iter().for_each(|vcpu| lock.acquired(vcpu));
        for (leaves, left) in [(5, Some(3)), (3, Some(7)), (7, None)] {
            lock.released(VcpuId(leaves));
            assert_eq!(lock.holder, left.map(VcpuId));
        }
        assert!(lock.sharers.is_empty());
    }

    #[test]
    fn a_wait_divides_by_culprit_and_loses_nothing() {
        let mut clock = BlameClock::new(Culprit::RunningHolder, Time(0));
        let mark = Mark::take(&clock, Time(10));
        clock.set(Culprit::PreemptedHolder, Time(30));
        clock.set(Culprit::HandOver, Time(100));
        assert_eq!(mark.since(&clock, Time(110)), [20, 70, 0, 10, 0, 0]);
    }
}
