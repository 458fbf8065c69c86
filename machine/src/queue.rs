//! The event queue: an indexed 4-ary heap, one place per slot.
//!
//! A slot is something that has at most one next event: a pCPU's activity, its timer, an interrupt on its way. Moving a
//! slot's event is one sift from where it stands, so the running pCPU, which is the root, pays one sift per event.
//!
//! **Total order**: events are ordered by `(time, class, tie)`. A key is unique as long as no two slots of one class
//! have the same tie, so the order never depends on when an event was entered.

use crate::time::Time;

/// When a slot's event happens, relative to all others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key(u128);

impl Key {
    /// Not after any other.
    const FIRST: Key = Key(0);
    /// Not before any other.
    const LAST: Key = Key(u128::MAX);

    /// An event at `time`. Of equal times the lower `class` comes first, then the lower `tie`.
    #[inline(always)]
    pub const fn new(time: Time, class: u8, tie: u32) -> Key {
        Key((time.0 as u128) << 64 | (class as u128) << 32 | tie as u128)
    }

    /// When.
    #[inline(always)]
    pub const fn time(self) -> Time {
        Time((self.0 >> 64) as u64)
    }

    /// What decided between equal times and classes.
    #[inline(always)]
    pub const fn tie(self) -> u32 {
        self.0 as u32
    }

    /// The same place in the order of equal times, at another time.
    #[inline(always)]
    pub const fn at(self, time: Time) -> Key {
        Key((time.0 as u128) << 64 | self.0 & u64::MAX as u128)
    }
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    key: Key,
    slot: u32,
}

const ABSENT: u32 = u32::MAX;

/// The next event of each slot, and of these the first.
#[derive(Clone, Debug, Default)]
pub struct EventQueue {
    heap: Vec<Entry>,
    place: Vec<u32>,
    /// No event but the first comes before this: a first one that moves and stays before it needs no look at the heap.
    bound: Key,
}

impl EventQueue {
    /// An empty queue.
    pub fn new() -> EventQueue {
        EventQueue::default()
    }

    /// Number of slots that have an event.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Whether no slot has an event.
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    /// The first event's key and slot.
    #[inline(always)]
    pub fn first(&self) -> Option<(Key, u32)> {
        self.heap.first().map(|entry| (entry.key, entry.slot))
    }

    /// The key of the event after the first.
    #[inline]
    pub fn second(&self) -> Option<Key> {
        let children = self.heap.get(1..self.heap.len().min(5))?;
        children.iter().map(|entry| entry.key).min()
    }

    /// When `slot`'s event happens, if it has one.
    pub fn key(&self, slot: u32) -> Option<Key> {
        match self.place.get(slot as usize) {
            Some(&place) if place != ABSENT => Some(self.heap[place as usize].key),
            _ => None,
        }
    }

    /// Moves `slot`'s event, and says whether it is the first of all.
    #[inline(always)]
    pub fn set_is_first(&mut self, slot: u32, key: Key) -> bool {
        match self.heap.first_mut() {
            Some(first) if first.slot == slot && key < self.bound => {
                first.key = key;
                true
            }
            _ => {
                self.set(slot, key);
                self.heap[0].slot == slot
            }
        }
    }

    /// Sets `slot`'s event, replacing the one it had.
    pub fn set(&mut self, slot: u32, key: Key) {
        self.bound = Key::FIRST;
        if slot as usize >= self.place.len() {
            self.place.resize(slot as usize + 1, ABSENT);
        }
        let place = self.place[slot as usize];
        let entry = Entry { key, slot };
        if place == ABSENT {
            self.heap.push(entry);
            self.sift_up(self.heap.len() - 1, entry);
        } else if key > self.heap[place as usize].key {
            self.sift_down(place as usize, entry);
        } else {
            self.sift_up(place as usize, entry);
        }
    }

    /// Removes `slot`'s event, if it has one.
    pub fn clear(&mut self, slot: u32) {
        let Some(&place) = self.place.get(slot as usize) else {
            return;
        };
        if place == ABSENT {
            return;
        }
        self.bound = Key::FIRST;
        self.place[slot as usize] = ABSENT;
        let last = self.heap.pop().expect("a slot with a place is in the heap");
        if last.slot == slot {
            return;
        }
        let place = place as usize;
        if place > 0 && last.key < self.heap[(place - 1) / 4].key {
            self.sift_up(place, last);
        } else {
            self.sift_down(place, last);
        }
    }

    fn sift_up(&mut self, mut hole: usize, entry: Entry) {
        while hole > 0 {
            let parent = (hole - 1) / 4;
            if self.heap[parent].key <= entry.key {
                break;
            }
            self.put(hole, self.heap[parent]);
            hole = parent;
        }
        self.put(hole, entry);
    }

    #[inline]
    fn sift_down(&mut self, mut hole: usize, entry: Entry) {
        loop {
            let first = hole * 4 + 1;
            let children = match self.heap.get(first..) {
                Some(rest) if !rest.is_empty() => &rest[..rest.len().min(4)],
                _ => {
                    self.bound_first(hole, Key::LAST);
                    break;
                }
            };
            let mut least = 0;
            for child in 1..children.len() {
                if children[child].key < children[least].key {
                    least = child;
                }
            }
            let child = children[least];
            if entry.key <= child.key {
                self.bound_first(hole, child.key);
                break;
            }
            self.put(hole, child);
            hole = first + least;
        }
        self.put(hole, entry);
    }

    /// What stands at `hole` comes before `key`, and `key` before all beneath.
    #[inline(always)]
    fn bound_first(&mut self, hole: usize, key: Key) {
        if hole == 0 {
            self.bound = key;
        }
    }

    #[inline(always)]
    fn put(&mut self, place: usize, entry: Entry) {
        self.heap[place] = entry;
        self.place[entry.slot as usize] = place as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// Whatever is set, moved and cleared: the first event is the least, and none is lost.
        #[test]
        fn first_is_least(steps in proptest::collection::vec((0u32..40, 0u64..50, 0u8..4), 1..400)) {
            let mut queue = EventQueue::new();
            let mut model: BTreeMap<u32, Key> = BTreeMap::new();
            for (slot, time, action) in steps {
                // The first of all moves most often by far.
                let slot = queue.first().filter(|_| action == 3).map_or(slot, |(_, first)| first);
                if action == 0 {
                    queue.clear(slot);
                    model.remove(&slot);
                } else {
                    let key = Key::new(Time(time), action, slot);
                    model.insert(slot, key);
                    if action == 1 {
                        queue.set(slot, key);
                    } else {
                        let is_first = queue.set_is_first(slot, key);
                        prop_assert_eq!(is_first, model.values().min() == Some(&key));
                    }
                }
                let least = model.iter().map(|(&slot, &key)| (key, slot)).min();
                prop_assert_eq!(queue.first(), least);
                let mut keys: Vec<Key> = model.values().copied().collect();
                keys.sort();
                prop_assert_eq!(queue.second(), keys.get(1).copied());
                prop_assert_eq!(queue.len(), model.len());
                for slot in 0..40 {
                    prop_assert_eq!(queue.key(slot), model.get(&slot).copied());
                }
            }
        }
    }

    #[test]
    fn equal_times_are_ordered_by_class_then_tie() {
        let mut queue = EventQueue::new();
        queue.set(7, Key::new(Time(5), 1, 0));
        queue.set(3, Key::new(Time(5), 0, 9));
        queue.set(1, Key::new(Time(5), 0, 2));
        let mut order = Vec::new();
        while let Some((_, slot)) = queue.first() {
            order.push(slot);
            queue.clear(slot);
        }
        assert_eq!(order, [1, 3, 7]);
    }
}
