//! When messages were produced, for the time until they are consumed. Of very many messages some are measured.

use alloc::boxed::Box;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use holdfast_guest::{Machine, Os};

/// Most messages that are measured: enough for a 99th percentile, and 128 KiB.
const STAMPS_MAX: u64 = 1 << 14;

/// The moments at which messages were produced. Plain memory: the benchmark's own bookkeeping.
pub(super) struct Stamps {
    of: Box<[AtomicU64]>,
    /// Each message whose number is a multiple of this is measured.
    stride: u64,
    /// The most messages of one producer.
    of_producer: u64,
}

impl Stamps {
    /// Makes room for the messages of `producers` producers that make `messages` together.
    pub(super) fn new(messages: u64, producers: u32) -> Self {
        let of_producer = messages.div_ceil(u64::from(producers.max(1))).max(1);
        let all = of_producer * u64::from(producers);
        let stride = all.div_ceil(STAMPS_MAX).max(1);
        Stamps {
            of: (0..all.div_ceil(stride)).map(|_| AtomicU64::new(0)).collect(),
            stride,
            of_producer,
        }
    }

    /// Returns the number of message `message` of `producer` among all messages.
    pub(super) fn number(&self, producer: u32, message: u32) -> u32 {
        (u64::from(producer) * self.of_producer + u64::from(message)) as u32
    }

    fn stamp(&self, number: u32) -> Option<&AtomicU64> {
        let number = u64::from(number);
        let measured = number.is_multiple_of(self.stride);
        measured.then(|| self.of.get((number / self.stride) as usize)).flatten()
    }

    /// Records that message `number` is produced now.
    pub(super) fn produced<M: Machine>(&self, os: &Os<M>, number: u32) {
        if let Some(stamp) = self.stamp(number) {
            stamp.store(os.clock(), Relaxed);
        }
    }

    /// Records that message `number` is consumed now.
    pub(super) fn consumed<M: Machine>(&self, os: &Os<M>, number: u32) {
        if let Some(stamp) = self.stamp(number) {
            os.completed(stamp.load(Relaxed));
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_message_has_a_number_of_its_own_and_not_too_many_are_measured() {
        for (messages, producers) in [(1, 1), (10, 3), (1_000_000, 4), (16_384, 7)] {
            let stamps = Stamps::new(messages, producers);
            let mut numbers = BTreeSet::new();
            for producer in 0..producers {
                let own =
                    messages / u64::from(producers) + u64::from(u64::from(producer) < messages % u64::from(producers));
                for message in 0..own {
                    assert!(numbers.insert(stamps.number(producer, message as u32)));
                }
            }
            let measured = numbers.iter().filter(|number| stamps.stamp(**number).is_some());
            let measured = measured.count() as u64;
            assert!(
                measured <= STAMPS_MAX && measured >= messages.min(STAMPS_MAX) / 3,
                "{measured} of {messages}"
            );
        }
    }
}
