//! For how long an idle CPU polls before it halts: cpuidle's governor haltpoll.
//!
//! Source: Linux 5.4, `drivers/cpuidle/governors/haltpoll.c`, with the defaults of its parameters.
//!
//! A wait that ends while the CPU polls lets the next one poll for as long. One that does not is continued by HLT. How
//! long that halt took sets the next time: longer than the polling, it grows; longer than the limit, it shrinks.

use holdfast_locks::Budget;

use crate::local::{Local, Local32};

/// The longest polling, in nanoseconds (`guest_halt_poll_ns`).
const LIMIT_NS: u64 = 200_000;
/// The first polling, in nanoseconds (`guest_halt_poll_grow_start`).
const START_NS: u64 = 50_000;
/// Factor by which it grows (`guest_halt_poll_grow`).
const GROW: u64 = 2;
/// Divisor by which it shrinks (`guest_halt_poll_shrink`).
const SHRINK: u64 = 2;
/// Iterations of the polling loop between two looks at the clock (`POLL_IDLE_RELAX_COUNT`).
pub(crate) const LOOK_AT_CLOCK: Budget = Budget(200);

/// The governor of one CPU.
#[derive(Debug, Default)]
pub(crate) struct HaltPoll {
    time_ns: Local,
    /// Not 0: the last polling ended without work.
    in_vain: Local32,
}

impl HaltPoll {
    /// Returns for how many nanoseconds to poll now. 0: halt.
    pub(crate) fn poll_ns(&self) -> u64 {
        if self.in_vain.is_set() { 0 } else { self.time_ns.get() }
    }

    /// The CPU has polled.
    pub(crate) fn polled(&self, in_vain: bool) {
        self.in_vain.set(in_vain.into());
    }

    /// The CPU has halted for `ns` nanoseconds.
    pub(crate) fn halted(&self, ns: u64) {
        self.in_vain.set(0);
        let time = self.time_ns.get();
        if ns > LIMIT_NS {
            self.time_ns.set(time / SHRINK);
        } else if ns > time {
            self.time_ns.set((time * GROW).clamp(START_NS, LIMIT_NS));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polling_grows_with_short_halts_shrinks_with_long_ones_and_pauses_after_one_in_vain() {
        let governor = HaltPoll::default();
        assert_eq!(governor.poll_ns(), 0, "the first wait halts");
        for (halted, next) in [
            (30_000, 50_000),
            (30_000, 50_000),
            (60_000, 100_000),
            (100_000, 100_000),
            (150_000, 200_000),
            (LIMIT_NS, 200_000),
            (LIMIT_NS + 1, 100_000),
            (u64::MAX, 50_000),
            (u64::MAX, 25_000),
            (26_000, 50_000),
        ] {
            governor.halted(halted);
            assert_eq!(governor.poll_ns(), next, "after {halted} ns");
        }
        governor.polled(false);
        assert_eq!(governor.poll_ns(), 50_000);
        governor.polled(true);
        assert_eq!(governor.poll_ns(), 0, "what polling did not end, a halt does");
    }
}
