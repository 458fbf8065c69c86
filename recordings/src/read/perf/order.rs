//! The order of events: perf writes the buffers of the CPUs one after the other.
//!
//! **Rounds**: what perf writes after two ends of rounds is not earlier than what it wrote before the first of them. So
//! an end of a round releases all events that are not later than the last one of the round before.
//!
//! **Bounded**: if there are too many events in a round, the earlier half is released. An event that comes too late is
//! marked like a time that goes back.

use std::collections::VecDeque;

use crate::event::Event;

/// So many events wait for their round, at most.
const PENDING_MAX: usize = 1 << 20;

#[derive(Default)]
pub(super) struct Order {
    /// Events that wait, with their place in the file.
    pending: Vec<(Event, u64)>,
    ready: VecDeque<(Event, u64)>,
    /// Latest time of the events so far, and that when the last round ended.
    latest: u64,
    released: u64,
    /// Time of the event that was made ready last.
    now: u64,
    without_rounds: bool,
}

impl Order {
    /// Adds an event. One without a time has that of the first event after it in order.
    pub(super) fn push(&mut self, event: Event, offset: u64) {
        self.latest = self.latest.max(event.at);
        self.pending.push((event, offset));
        if self.pending.len() >= PENDING_MAX {
            self.release(PENDING_MAX / 2);
        }
    }

    /// Whether an event has come.
    pub(super) fn has_begun(&self) -> bool {
        self.latest > 0 || !self.ready.is_empty()
    }

    /// Returns the latest time so far.
    pub(super) fn latest(&self) -> u64 {
        self.latest
    }

    /// From now on, the ends of rounds say nothing.
    pub(super) fn ignore_rounds(&mut self) {
        self.without_rounds = true;
    }

    /// A round ends.
    pub(super) fn round(&mut self) {
        if self.without_rounds {
            return;
        }
        let count = self
            .pending
            .iter()
            .filter(|(event, _)| event.at <= self.released)
            .count();
        if self.released > 0 {
            self.release(count);
        }
        self.released = self.latest;
    }

    /// No event follows.
    pub(super) fn finish(&mut self) {
        self.release(self.pending.len());
    }

    /// Returns the next event in order.
    pub(super) fn next(&mut self) -> Option<(Event, u64)> {
        self.ready.pop_front()
    }

    /// Makes the earliest events ready.
    fn release(&mut self, count: usize) {
        if count == 0 {
            return;
        }
        // Each CPU's events are in order already, and the sort finds such runs. Equal times keep their order.
        self.pending.sort_by_key(|(event, _)| event.at);
        let first = self.pending[..count].iter().find(|(event, _)| event.at > 0);
        let timeless = first.map_or(self.now, |(event, _)| event.at).max(self.now);
        for (mut event, offset) in self.pending.drain(..count) {
            if event.at == 0 {
                event.at = timeless;
            }
            self.now = self.now.max(event.at);
            self.ready.push_back((event, offset));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Order;
    use crate::event::{Event, What};

    fn push(order: &mut Order, times: &[u64]) {
        for &at in times {
            let what = What::Lost { events: None };
            order.push(
                Event {
                    at,
                    cpu: 0,
                    thread: 0,
                    what,
                },
                at,
            );
        }
    }

    fn ready(order: &mut Order) -> Vec<u64> {
        std::iter::from_fn(|| order.next()).map(|(event, _)| event.at).collect()
    }

    #[test]
    fn a_round_releases_what_is_not_later_than_the_round_before() {
        let mut order = Order::default();
        push(&mut order, &[10, 20, 15, 30]);
        order.round();
        assert_eq!(ready(&mut order), Vec::<u64>::new());
        // Another CPU has events that are as old as those of the first round.
        push(&mut order, &[25, 40, 18]);
        order.round();
        assert_eq!(ready(&mut order), [10, 15, 18, 20, 25, 30]);
        push(&mut order, &[35, 50]);
        order.finish();
        assert_eq!(ready(&mut order), [35, 40, 50]);
    }

    #[test]
    fn what_has_no_time_has_that_of_the_first_event_after_it() {
        let mut order = Order::default();
        push(&mut order, &[0, 0, 7, 5]);
        order.finish();
        assert_eq!(ready(&mut order), [5, 5, 5, 7]);
    }

    #[test]
    fn too_long_a_round_is_released_by_halves() {
        let mut order = Order::default();
        let times: Vec<u64> = (1..=super::PENDING_MAX as u64).rev().collect();
        push(&mut order, &times);
        let released = ready(&mut order);
        assert_eq!(released.len(), super::PENDING_MAX / 2);
        assert!(released.is_sorted());
    }
}
