//! The event queue: a tournament tree with one leaf per slot.
//!
//! A slot has at most one next event: a pCPU's step, its timer, an interrupt in flight. Slots are the leaves of a
//! binary tree whose inner nodes are matches, each won by the earlier of two events. When a slot's event moves, its
//! matches are replayed, one on each level. Their opponents are known in advance, so unlike in a heap no branch depends
//! on the winner, and no load waits for one.
//!
//! **Total order**: events are ordered by time, and those of equal times by slot. So the order never depends on when an
//! event was entered.
//!
//! **Matches of the first**: the slot with the first event has won all of its matches. While its event moves and stays
//! the first, its matches keep the event with which it won them. They are updated before any other slot replays.

use core::hint::select_unpredictable;

use crate::time::Time;

/// Number of slots at most.
const SLOTS_MAX: u32 = 1 << 28;
/// The slot of an event that there is not.
const NO_SLOT: u32 = u32::MAX;
/// The time of an event that there is not. One picosecond can be added to it.
const NONE: Time = Time(u64::MAX - 1);

/// The next event of each slot, and the first of these events.
#[derive(Clone, Debug)]
pub struct EventQueue {
    /// Time of the first event.
    first: Time,
    first_slot: u32,
    /// Up to this time the first event can move and stays the first: no other event comes before it or at it, except at
    /// the time of the first itself.
    limit: Time,
    /// The times of the tree: the final match at 1, the match above nodes `2 * n` and `2 * n + 1` at `n`, the slots'
    /// events in the second half.
    times: Vec<Time>,
    /// The slots of the tree. A match without an event has any slot.
    slots: Vec<u32>,
}

impl Default for EventQueue {
    fn default() -> Self {
        EventQueue::new()
    }
}

impl EventQueue {
    /// Returns an empty queue.
    pub fn new() -> EventQueue {
        EventQueue {
            first: NONE,
            first_slot: NO_SLOT,
            limit: NONE,
            times: vec![NONE; 2],
            slots: vec![0; 2],
        }
    }

    /// Returns the time and the slot of the first event, or `None` if there is no event.
    #[inline(always)]
    pub fn first(&self) -> Option<(Time, u32)> {
        (self.first_slot != NO_SLOT).then_some((self.first, self.first_slot))
    }

    /// Returns the time of the first event, or a time after every event if there is none.
    #[inline(always)]
    pub fn first_time(&self) -> Time {
        self.first
    }

    /// Moves the event of `slot` to `time` if it is the first event and stays that without a match. Returns whether it
    /// has done so.
    #[inline(always)]
    pub fn move_first(&mut self, slot: u32, time: Time) -> bool {
        let stays = slot == self.first_slot && time <= self.limit;
        if stays {
            self.first = time;
        }
        stays
    }

    /// Sets the event of `slot` to `time`, or removes it if that is [`Time::NEVER`]. Returns whether it is now the
    /// first event.
    ///
    /// # Panics
    /// Panics if `slot` is 2^28 or more.
    #[inline(always)]
    pub fn set_and_check_first(&mut self, slot: u32, time: Time) -> bool {
        if self.move_first(slot, time) {
            return true;
        }
        self.replace(slot, time);
        slot == self.first_slot
    }

    /// As [`EventQueue::set_and_check_first`].
    #[inline(always)]
    pub fn set(&mut self, slot: u32, time: Time) {
        self.set_and_check_first(slot, time);
    }

    /// Removes the event of `slot`, if it has one.
    pub fn clear(&mut self, slot: u32) {
        if (slot as usize) < self.leaves() {
            self.replace(slot, NONE);
        }
    }

    fn leaves(&self) -> usize {
        self.times.len() / 2
    }

    #[inline]
    fn replace(&mut self, slot: u32, time: Time) {
        if slot as usize >= self.leaves() {
            self.grow(slot);
        }
        let time = time.min(NONE);
        if slot == self.first_slot {
            self.move_far(slot, time);
        } else {
            self.move_other(slot, time);
        }
    }

    /// Moves the event of `slot`, which is the first and has won all of its matches, to `time`, and replays them all.
    #[inline]
    fn move_far(&mut self, slot: u32, time: Time) {
        let mut place = slot as usize + self.leaves();
        let (mut first, mut first_slot, mut other) = (time, slot, NONE);
        self.times[place] = time;
        while place > 1 {
            let (opponent, its_slot) = (self.times[place ^ 1], self.slots[place ^ 1]);
            // Of equal times that of the left node, which has the lower slot, comes first. No branch depends on who
            // wins: that is not to be foretold.
            let is_left = place as u64 & 1 ^ 1;
            let loses = first.0 >= opponent.0 + is_left;
            first = select_unpredictable(loses, opponent, first);
            first_slot = select_unpredictable(loses, its_slot, first_slot);
            other = other.min(opponent);
            place /= 2;
            self.times[place] = first;
            self.slots[place] = first_slot;
        }
        // If another event is the first now, nothing is known of those after it.
        let limit = if first_slot == slot { before(other) } else { first };
        self.limit = limit.max(first);
        self.first = first;
        self.first_slot = if first == NONE { NO_SLOT } else { first_slot };
    }

    /// Moves the event of `slot`, which is not the first, to `time`.
    fn move_other(&mut self, slot: u32, time: Time) {
        if time != NONE && (time, slot) < (self.first, self.first_slot) {
            if self.first_slot != NO_SLOT {
                self.play(self.first_slot, self.first);
            }
            self.play(slot, time);
            self.limit = time.max(before(self.first));
            (self.first, self.first_slot) = (time, slot);
        } else {
            self.play(slot, time);
            self.limit = self.first.max(self.limit.min(before(time)));
        }
    }

    /// Sets the event of `slot` to `time` and replays its matches, up to the first whose winner does not change.
    fn play(&mut self, slot: u32, time: Time) {
        let mut place = slot as usize + self.leaves();
        self.times[place] = time;
        while place > 1 {
            place /= 2;
            let winner = self.winner(place);
            if (self.times[place], self.slots[place]) == winner {
                break;
            }
            (self.times[place], self.slots[place]) = winner;
        }
    }

    /// Returns the time and the slot of the winner of the match at `place`.
    fn winner(&self, place: usize) -> (Time, u32) {
        let of = |node: usize| (self.times[node], self.slots[node]);
        of(2 * place).min(of(2 * place + 1))
    }

    /// Doubles the tree until it has a leaf for `slot`.
    #[cold]
    fn grow(&mut self, slot: u32) {
        assert!(
            slot < SLOTS_MAX,
            "slot {slot} of the event queue is not below {SLOTS_MAX}"
        );
        let old = self.leaves();
        let leaves = (slot as usize + 1).next_power_of_two();
        let mut times = vec![NONE; 2 * leaves];
        times[leaves..leaves + old].copy_from_slice(&self.times[old..]);
        if self.first_slot != NO_SLOT {
            times[leaves + self.first_slot as usize] = self.first;
        }
        self.slots = vec![0; leaves];
        self.slots.extend(0..leaves as u32);
        self.times = times;
        for place in (1..leaves).rev() {
            (self.times[place], self.slots[place]) = self.winner(place);
        }
    }
}

/// Returns the last time before `time`.
fn before(time: Time) -> Time {
    Time(time.0.saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// After any sequence of sets, moves and clears the first event is the least, and no event is lost.
        #[test]
        fn first_is_least(steps in proptest::collection::vec((0u32..40, 0u64..50, 0u8..4), 1..400)) {
            let mut queue = EventQueue::new();
            let mut model: BTreeMap<u32, Time> = BTreeMap::new();
            for (slot, time, action) in steps {
                // As in a simulation, the first event moves most often.
                let slot = queue.first().filter(|_| action == 3).map_or(slot, |(_, first)| first);
                if action == 0 {
                    queue.clear(slot);
                    model.remove(&slot);
                } else {
                    let time = Time(time);
                    model.insert(slot, time);
                    let is_first = queue.set_and_check_first(slot, time);
                    let least = model.iter().map(|(&slot, &time)| (time, slot)).min();
                    prop_assert_eq!(is_first, least == Some((time, slot)));
                }
                let least = model.iter().map(|(&slot, &time)| (time, slot)).min();
                prop_assert_eq!(queue.first(), least);
                prop_assert_eq!(queue.first_time(), least.map_or(NONE, |(time, _)| time));
            }
            let mut left: Vec<(Time, u32)> = model.iter().map(|(&slot, &time)| (time, slot)).collect();
            left.sort();
            for event in left {
                prop_assert_eq!(queue.first(), Some(event));
                queue.clear(event.1);
            }
            prop_assert_eq!(queue.first(), None);
        }
    }

    #[test]
    fn an_event_that_never_comes_is_none() {
        let mut queue = EventQueue::new();
        for slot in [3, 0] {
            assert!(!queue.set_and_check_first(slot, Time::NEVER));
            assert_eq!((queue.first(), queue.first_time()), (None, NONE));
        }
        queue.set(2, Time(5));
        queue.set(2, Time::NEVER);
        assert_eq!(queue.first(), None);
    }

    #[test]
    fn clearing_a_slot_beyond_the_tree_changes_nothing() {
        let mut queue = EventQueue::new();
        queue.set(1, Time(5));
        for slot in [2, 3, 100] {
            queue.clear(slot);
        }
        assert_eq!(queue.first(), Some((Time(5), 1)));
    }

    #[test]
    #[should_panic(expected = "slot 268435456 of the event queue is not below 268435456")]
    fn a_slot_beyond_the_largest_tree_is_refused() {
        EventQueue::new().set(SLOTS_MAX, Time(5));
    }

    #[test]
    fn equal_times_are_ordered_by_slot() {
        let mut queue = EventQueue::new();
        for slot in [7, 3, 1] {
            queue.set(slot, Time(5));
        }
        let mut order = Vec::new();
        while let Some((_, slot)) = queue.first() {
            order.push(slot);
            queue.clear(slot);
        }
        assert_eq!(order, [1, 3, 7]);
    }
}
