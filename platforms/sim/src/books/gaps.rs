//! How long a vCPU waits for a pCPU, and how long its guest is without a timer tick.
//!
//! Operators know both from outside and inside: the longest wait as a peak of *CPU ready*, the longest time between two
//! ticks as the guest's report of a soft lockup (Linux `kernel/watchdog.c`, after 20 s by default).

use holdfast_machine::{Picos, Time};

use crate::core::cause::Cause;

/// The longest waits of one vCPU for a pCPU, and the longest times between two ticks of its timer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Gaps {
    /// Since when it wants a pCPU and has none.
    wants_since: Option<Time>,
    longest_wait: Picos,
    /// The last tick, or the end of the last idle time if that is later. `None` before the first tick and while idle.
    ticked_at: Option<Time>,
    has_ticked: bool,
    longest_gap: Picos,
    /// The end of its guest. What comes later does not count.
    end: Option<Time>,
}

impl Gaps {
    /// The vCPU's time out of its guest counts to `cause` from now on.
    #[inline]
    pub fn state_changed(&mut self, cause: Cause, now: Time) {
        match cause {
            Cause::Runnable | Cause::Throttled | Cause::WakeLatency => _ = self.wants_since.get_or_insert(now),
            _ => self.has_pcpu(now),
        }
        match cause {
            // An idle kernel stops its tick.
            Cause::Idle | Cause::Off => {
                self.close_gap(now);
                self.ticked_at = None;
            }
            _ if self.has_ticked => _ = self.ticked_at.get_or_insert(now),
            _ => {}
        }
    }

    /// The vCPU takes its timer's interrupt.
    pub fn ticked(&mut self, now: Time) {
        self.close_gap(now);
        self.ticked_at = Some(now);
        self.has_ticked = true;
    }

    /// The guest is done at `now`.
    pub fn end_at(&mut self, now: Time) {
        self.has_pcpu(now);
        self.close_gap(now);
        self.end.get_or_insert(now);
    }

    /// The longest time for which it wanted a pCPU and had none, up to `now`.
    pub fn longest_wait(&self, now: Time) -> Picos {
        self.with(self.wants_since, now).max(self.longest_wait)
    }

    /// The longest time between two ticks, without idle time, up to `now`.
    pub fn longest_gap(&self, now: Time) -> Picos {
        self.with(self.ticked_at, now).max(self.longest_gap)
    }

    /// The time from `since` to `now`, or to the guest's end if that was before.
    fn with(&self, since: Option<Time>, now: Time) -> Picos {
        let end = self.end.map_or(now, |end| end.min(now));
        since.map_or(Picos::ZERO, |since| end.max(since).since(since))
    }

    fn has_pcpu(&mut self, now: Time) {
        self.longest_wait = self.longest_wait(now);
        self.wants_since = None;
    }

    fn close_gap(&mut self, now: Time) {
        self.longest_gap = self.longest_gap(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_goes_on_from_a_wakeup_over_throttling_until_the_pcpu() {
        let mut gaps = Gaps::default();
        gaps.state_changed(Cause::WakeLatency, Time(10));
        gaps.state_changed(Cause::Throttled, Time(30));
        assert_eq!(gaps.longest_wait(Time(40)), Picos(30), "it still waits");
        gaps.state_changed(Cause::HostOverhead, Time(60));
        assert_eq!(gaps.longest_wait(Time(500)), Picos(50));
    }

    #[test]
    fn idle_time_is_no_gap_between_ticks() {
        let mut gaps = Gaps::default();
        gaps.state_changed(Cause::HostOverhead, Time(5));
        assert_eq!(gaps.longest_gap(Time(90)), Picos::ZERO, "the timer does not run yet");
        gaps.ticked(Time(100));
        gaps.ticked(Time(110));
        gaps.state_changed(Cause::Idle, Time(115));
        gaps.state_changed(Cause::WakeLatency, Time(1_000));
        gaps.ticked(Time(1_020));
        assert_eq!(gaps.longest_gap(Time(1_025)), Picos(20));
        gaps.end_at(Time(1_050));
        assert_eq!(gaps.longest_gap(Time(9_000)), Picos(30));
    }
}
