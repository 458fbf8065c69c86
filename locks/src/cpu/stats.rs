//! Lock statistics as Linux publishes them. A platform that records none pays nothing for them.
//!
//! Counters are ordinary relaxed atomics, not words of the platform: they order nothing and cost no virtual time.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Defines [`Event`] with the names under which Linux shows the counters.
macro_rules! events {
    ($($(#[doc = $doc:literal])+ $event:ident = $name:literal,)+) => {
        /// An event that the locks count.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        #[repr(u8)]
        pub enum Event {
            $($(#[doc = $doc])+ $event,)+
        }

        impl Event {
            /// Every event, in the order of its declaration.
            pub const ALL: &[Event] = &[$(Event::$event),+];

            /// Returns the name under which Linux publishes the counter.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Event::$event => $name,)+
                }
            }
        }
    };
}

events! {
    /// Test-and-set: acquisitions.
    TasAcquired = "tas_acquired",
    /// Test-and-set: tries that found the lock taken.
    TasFailed = "tas_failed",

    /// PV ticket: a waiter gave up spinning and announced that it will halt.
    TakenSlow = "taken_slow",
    /// PV ticket: a waiter announced that it will halt, then found its ticket served.
    TakenSlowPickup = "taken_slow_pickup",
    /// PV ticket: unlocks that found the slow-path flag and looked for a waiter.
    ReleasedSlow = "released_slow",
    /// PV ticket: unlocks that found a waiter and kicked it.
    ReleasedSlowKicked = "released_slow_kicked",

    /// PV queued: hash table entries visited to list a waiter.
    PvHashHops = "pv_hash_hops",
    /// PV queued: kicks sent by unlock.
    PvKickUnlock = "pv_kick_unlock",
    /// PV queued: wakeups whose latency is known.
    PvKickWake = "pv_kick_wake",
    /// PV queued: nanoseconds spent in the kick itself.
    PvLatencyKick = "pv_latency_kick",
    /// PV queued: nanoseconds from a kick to the end of the halt.
    PvLatencyWake = "pv_latency_wake",
    /// PV queued: locks taken past the queue.
    PvLockStealing = "pv_lock_stealing",
    /// PV queued: a waiter behind the head woke before it had become the head.
    PvSpuriousWakeup = "pv_spurious_wakeup",
    /// PV queued: halts of a head after its first.
    PvWaitAgain = "pv_wait_again",
    /// PV queued: waiters that halted at once because their predecessor was not running.
    PvWaitEarly = "pv_wait_early",
    /// PV queued: halts at the head of the queue.
    PvWaitHead = "pv_wait_head",
    /// PV queued: halts behind the head.
    PvWaitNode = "pv_wait_node",
    /// PV queued, watching: kicks of the holder's CPU by the head of the queue. Not in Linux.
    PvKickHolder = "pv_kick_holder",
    /// PV queued, watching: kicks of the head's CPU by the waiter behind it. Not in Linux.
    PvKickHead = "pv_kick_head",
    /// PV queued, watching: kicks of the next waiter's CPU by the head. Not in Linux.
    PvKickNext = "pv_kick_next",
    /// Queued: acquisitions through the pending bit.
    LockPending = "lock_pending",
    /// Queued: acquisitions through the queue.
    LockSlowpath = "lock_slowpath",
    /// Queued: waits at the second level of nesting, in an interrupt of a CPU that already waited.
    LockUseNode2 = "lock_use_node2",
    /// Queued: waits at the third level of nesting.
    LockUseNode3 = "lock_use_node3",
    /// Queued: waits at the fourth level of nesting.
    LockUseNode4 = "lock_use_node4",
    /// Queued: waits without a node, on the lock word itself, because all four nodes were in use.
    LockNoNode = "lock_no_node",
}

/// The receiver of what the paravirtual locks count.
pub trait Recorder {
    /// Whether the recorder keeps anything. If `false`, the locks do not read the clock either.
    const ACTIVE: bool = true;

    /// Adds `amount` to the counter of `event`.
    fn add(&self, event: Event, amount: u64);
    /// Records that a waiter was off its CPU for `ns` nanoseconds after its decision to halt.
    fn blocked(&self, ns: u64);
}

/// Records nothing, at no cost.
impl Recorder for () {
    const ACTIVE: bool = false;

    #[inline(always)]
    fn add(&self, _event: Event, _amount: u64) {}
    #[inline(always)]
    fn blocked(&self, _ns: u64) {}
}

/// The number of buckets of [`LockStats::histogram`].
pub const BUCKETS: usize = 31;

/// Returns the bucket of a wait of `ns` nanoseconds: its binary logarithm, rounded down. A wait of 0 ns is in bucket 0,
/// waits of 2^30 ns and more are in the last bucket.
pub const fn bucket(ns: u64) -> usize {
    let log = match ns.checked_ilog2() {
        Some(log) => log as usize,
        None => 0,
    };
    if log < BUCKETS { log } else { BUCKETS - 1 }
}

/// A recorder of all events, as Linux shows them in debugfs under `kvm/spinlocks/` (PV ticket, `arch/x86/kernel/kvm.c`)
/// and `lock_event_counts/` (queued, `kernel/locking/lock_events_list.h`).
#[derive(Debug)]
pub struct LockStats {
    counters: [AtomicU64; Event::ALL.len()],
    time_blocked: AtomicU64,
    histogram: [AtomicU64; BUCKETS],
}

impl LockStats {
    /// Returns counters that are all zero.
    pub const fn new() -> Self {
        LockStats {
            counters: [const { AtomicU64::new(0) }; Event::ALL.len()],
            time_blocked: AtomicU64::new(0),
            histogram: [const { AtomicU64::new(0) }; BUCKETS],
        }
    }

    /// Returns the counter of `event`.
    pub fn count(&self, event: Event) -> u64 {
        // ORDERING: Relaxed, here and below: statistics order nothing.
        self.counters[event as usize].load(Relaxed)
    }

    /// Returns for how many nanoseconds waiters were off their CPUs, counted from the decision to halt.
    pub fn time_blocked_ns(&self) -> u64 {
        self.time_blocked.load(Relaxed)
    }

    /// Sets all counters to zero, as Linux does at a write to `zero_stats` or `.reset_counts`. A wait that lasts counts
    /// when it ends.
    pub fn zero(&self) {
        // ORDERING: Relaxed; statistics order nothing.
        let all = self.counters.iter().chain(&self.histogram).chain([&self.time_blocked]);
        all.for_each(|counter| counter.store(0, Relaxed));
    }

    /// Returns the number of those waits by length; see [`bucket`].
    pub fn histogram(&self) -> [u64; BUCKETS] {
        core::array::from_fn(|index| self.histogram[index].load(Relaxed))
    }

    /// Returns the number of those waits in each bucket that has any, by the bucket's number.
    pub fn blocked_by_bucket(&self) -> impl Iterator<Item = (usize, u64)> {
        self.histogram().into_iter().enumerate().filter(|(_, count)| *count > 0)
    }

    /// Returns every counter under its published name. Three counters of the queued locks are quotients, rounded down,
    /// as in Linux: `pv_hash_hops` in hundredths of an entry per kick, the latencies in nanoseconds per kick and per
    /// wakeup.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let counters = Event::ALL.iter().map(|&event| (event.name(), self.published(event)));
        counters.chain([("time_blocked", self.time_blocked_ns())])
    }

    fn published(&self, event: Event) -> u64 {
        let per = |total: u64, count: Event| total.checked_div(self.count(count)).unwrap_or(0);
        let total = self.count(event);
        match event {
            Event::PvHashHops => per(total.saturating_mul(100), Event::PvKickUnlock),
            Event::PvLatencyKick => per(total, Event::PvKickUnlock),
            Event::PvLatencyWake => per(total, Event::PvKickWake),
            _ => total,
        }
    }
}

impl Default for LockStats {
    fn default() -> Self {
        LockStats::new()
    }
}

impl Recorder for LockStats {
    fn add(&self, event: Event, amount: u64) {
        self.counters[event as usize].fetch_add(amount, Relaxed);
    }

    fn blocked(&self, ns: u64) {
        self.time_blocked.fetch_add(ns, Relaxed);
        self.histogram[bucket(ns)].fetch_add(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;

    #[test]
    fn buckets_are_binary_logarithms() {
        let cases = [
            (0, 0),
            (1, 0),
            (2, 1),
            (3, 1),
            (4, 2),
            (1 << 29, 29),
            ((1 << 30) - 1, 29),
        ];
        for (ns, expected) in cases {
            assert_eq!(bucket(ns), expected, "{ns} ns");
        }
        assert_eq!(bucket(1 << 30), 30);
        assert_eq!(bucket(u64::MAX), 30);
    }

    #[test]
    fn quotients_have_no_zero_divisor() {
        let stats = LockStats::new();
        stats.add(Event::PvHashHops, 7);
        let hops = |stats: &LockStats| stats.iter().find(|(name, _)| *name == "pv_hash_hops");
        assert_eq!(hops(&stats), Some(("pv_hash_hops", 0)));
        stats.add(Event::PvKickUnlock, 2);
        assert_eq!(hops(&stats), Some(("pv_hash_hops", 350)));
    }

    #[test]
    fn names_are_unique() {
        for (index, event) in Event::ALL.iter().enumerate() {
            assert!(Event::ALL[..index].iter().all(|other| other.name() != event.name()));
        }
    }

    #[test]
    fn blocked_times_add_up() {
        let stats = LockStats::new();
        for ns in [5, 700, 90_000] {
            Recorder::blocked(&stats, ns);
        }
        assert_eq!(stats.time_blocked_ns(), 90_705);
        assert_eq!(stats.histogram().iter().sum::<u64>(), 3);
        stats.blocked(600);
        let by_bucket: std::vec::Vec<_> = stats.blocked_by_bucket().collect();
        assert_eq!(by_bucket, [(2, 1), (9, 2), (16, 1)]);
        assert!(stats.iter().any(|published| published == ("time_blocked", 91_305)));
        stats.add(Event::TakenSlow, 3);
        stats.zero();
        assert!(stats.iter().all(|(_, count)| count == 0));
        assert_eq!(stats.blocked_by_bucket().count(), 0);
    }
}
