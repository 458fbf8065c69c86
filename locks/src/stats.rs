//! Statistics as Linux publishes them, off at zero cost.
//!
//! Counters are relaxed atomics of the host's own kind, not words of the platform: they order nothing, and cost no
//! virtual time.

use core::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

/// Defines [`Event`] with the names under which Linux shows the counters.
macro_rules! events {
    ($($(#[doc = $doc:literal])+ $event:ident = $name:literal,)+) => {
        /// What the locks count.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        #[repr(u8)]
        pub enum Event {
            $($(#[doc = $doc])+ $event,)+
        }

        impl Event {
            /// Every event, in the order of its declaration.
            pub const ALL: &[Event] = &[$(Event::$event),+];

            /// The counter's published name.
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
    /// PV ticket: of those, how many found the lock theirs after all.
    TakenSlowPickup = "taken_slow_pickup",
    /// PV ticket: unlocks that found the slow-path flag and looked for a waiter.
    ReleasedSlow = "released_slow",
    /// PV ticket: of those, how many found one and kicked it.
    ReleasedSlowKicked = "released_slow_kicked",

    /// PV queued: entries of the hash table looked at to list a waiter.
    PvHashHops = "pv_hash_hops",
    /// PV queued: kicks sent by unlock.
    PvKickUnlock = "pv_kick_unlock",
    /// PV queued: wake-ups whose latency is known.
    PvKickWake = "pv_kick_wake",
    /// PV queued: nanoseconds spent in the kick itself.
    PvLatencyKick = "pv_latency_kick",
    /// PV queued: nanoseconds from kick to awake.
    PvLatencyWake = "pv_latency_wake",
    /// PV queued: locks taken past the queue.
    PvLockStealing = "pv_lock_stealing",
    /// PV queued: a waiter behind the head woke, and it was not its turn.
    PvSpuriousWakeup = "pv_spurious_wakeup",
    /// PV queued: halts of a head after its first.
    PvWaitAgain = "pv_wait_again",
    /// PV queued: waiters that halted at once because their predecessor was not running.
    PvWaitEarly = "pv_wait_early",
    /// PV queued: halts at the head of the queue.
    PvWaitHead = "pv_wait_head",
    /// PV queued: halts behind the head.
    PvWaitNode = "pv_wait_node",
    /// Queued: acquisitions through the pending bit.
    LockPending = "lock_pending",
    /// Queued: acquisitions through the queue.
    LockSlowpath = "lock_slowpath",
    /// Queued: queued in an interrupt of a queued task.
    LockUseNode2 = "lock_use_node2",
    /// Queued: the third level of nesting.
    LockUseNode3 = "lock_use_node3",
    /// Queued: the fourth.
    LockUseNode4 = "lock_use_node4",
    /// Queued: all four nodes in use, so the waiter spun on the lock itself.
    LockNoNode = "lock_no_node",
}

/// Receives what the paravirtual locks count.
pub trait Recorder {
    /// Whether anybody listens. If not, the locks do not read the clock either.
    const ACTIVE: bool = true;

    /// Adds `amount` to the counter of `event`.
    fn add(&self, event: Event, amount: u64);
    /// A waiter was off its CPU for `ns` nanoseconds, from its decision to halt.
    fn blocked(&self, ns: u64);
}

/// No statistics.
impl Recorder for () {
    const ACTIVE: bool = false;

    #[inline(always)]
    fn add(&self, _event: Event, _amount: u64) {}
    #[inline(always)]
    fn blocked(&self, _ns: u64) {}
}

/// Buckets of [`LockStats::histogram`].
pub const BUCKETS: usize = 31;

/// The bucket of a wait of `ns` nanoseconds: its binary logarithm, rounded down; 0 ns counts as bucket 0; from 2^30 ns
/// on, the last.
pub const fn bucket(ns: u64) -> usize {
    let log = match ns.checked_ilog2() {
        Some(log) => log as usize,
        None => 0,
    };
    if log < BUCKETS { log } else { BUCKETS - 1 }
}

/// Counts everything: what Linux shows in debugfs under `kvm/spinlocks/` (PV ticket) and `lock_event_counts/` (queued).
#[derive(Debug)]
pub struct LockStats {
    counters: [AtomicU64; Event::ALL.len()],
    time_blocked: AtomicU64,
    histogram: [AtomicU64; BUCKETS],
    zero: AtomicU8,
}

/// The statistics of the PV ticket lock; the same type serves all locks.
pub type PvTicketStats = LockStats;

impl LockStats {
    /// All zero.
    pub const fn new() -> Self {
        LockStats {
            counters: [const { AtomicU64::new(0) }; Event::ALL.len()],
            time_blocked: AtomicU64::new(0),
            histogram: [const { AtomicU64::new(0) }; BUCKETS],
            zero: AtomicU8::new(0),
        }
    }

    /// The counter of `event`.
    pub fn count(&self, event: Event) -> u64 {
        // ORDERING: Relaxed, here and below: statistics order nothing.
        self.counters[event as usize].load(Relaxed)
    }

    /// Nanoseconds that waiters were off their CPUs, from the decision to halt.
    pub fn time_blocked_ns(&self) -> u64 {
        self.time_blocked.load(Relaxed)
    }

    /// How many of those waits lasted how long; see [`bucket`].
    pub fn histogram(&self) -> [u64; BUCKETS] {
        core::array::from_fn(|index| self.histogram[index].load(Relaxed))
    }

    /// Asks for all to be cleared. As in Linux (`zero_stats`), the next update does it, and then counts.
    pub fn zero_stats(&self) {
        self.zero.store(1, Relaxed);
    }

    /// Every counter under its published name. The three quotients of the queued locks are as Linux divides them, rounded
    /// down: `pv_hash_hops` in hundredths of an entry per kick, the latencies in nanoseconds per kick and per wake-up.
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

    fn zero_if_asked(&self) {
        if self.zero.load(Relaxed) != 0 && self.zero.compare_exchange(1, 0, Relaxed, Relaxed).is_ok() {
            let all = self.counters.iter().chain(&self.histogram).chain([&self.time_blocked]);
            for counter in all {
                counter.store(0, Relaxed);
            }
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
        self.zero_if_asked();
        self.counters[event as usize].fetch_add(amount, Relaxed);
    }

    fn blocked(&self, ns: u64) {
        self.zero_if_asked();
        self.time_blocked.fetch_add(ns, Relaxed);
        self.histogram[bucket(ns)].fetch_add(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
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
    fn zeroing_waits_for_the_next_update() {
        let stats = LockStats::new();
        stats.add(Event::TakenSlow, 3);
        stats.blocked(1000);
        stats.zero_stats();
        assert_eq!(stats.count(Event::TakenSlow), 3);
        stats.add(Event::ReleasedSlow, 1);
        assert_eq!(stats.count(Event::TakenSlow), 0);
        assert_eq!(stats.time_blocked_ns(), 0);
        assert_eq!(stats.histogram(), [0; BUCKETS]);
        assert_eq!(stats.count(Event::ReleasedSlow), 1);
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
}
