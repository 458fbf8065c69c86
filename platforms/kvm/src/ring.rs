//! The VMM's side of a guest's ring (`holdfast_protocol`). It checks everything that the guest writes.

use std::sync::atomic::Ordering::{Acquire, Release};

use holdfast_protocol::layout::{RING, RING_BYTES};
use holdfast_protocol::{Corrupt, Message, RING_HEADER_BYTES, RingPosition, decode};
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

const WRITTEN: GuestAddress = GuestAddress(RING);
const READ: GuestAddress = GuestAddress(RING + 8);

/// The reader of one guest's ring.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    position: RingPosition,
}

impl Reader {
    /// Moves all messages of the ring to the end of `messages`.
    ///
    /// # Errors
    /// Returns an error if the ring's content is invalid. `messages` then has the messages before it.
    pub(crate) fn drain(&mut self, memory: &GuestMemoryMmap, messages: &mut Vec<Message>) -> Result<(), Corrupt> {
        // Read once: records that the guest adds later are for the next call.
        // ORDERING: Acquire; pairs with the guest's Release, so that the records up to `written` are visible.
        let written: u64 = memory.load(WRITTEN, Acquire).map_err(|_| Corrupt::Written(0))?;
        loop {
            let pending = self.position.pending(written, RING_BYTES)?;
            if pending == 0 {
                break;
            }
            let mut length = [0; 4];
            read(memory, self.position.read, &mut length)?;
            let length = u32::from_le_bytes(length);
            let next = self.position.step(length, pending)?;
            // `step` limits the length to the ring's size. The payload is copied first, since the guest may change it.
            let mut payload = vec![0; length as usize];
            read(memory, self.position.read + 4, &mut payload)?;
            messages.push(decode(&payload).ok_or(Corrupt::Payload)?);
            self.position = next;
        }
        // ORDERING: Release; pairs with the guest's Acquire. If it were weaker, the guest could overwrite records
        // before this CPU has read them.
        let stored = memory.store(self.position.read, READ, Release);
        stored.map_err(|_| Corrupt::Written(written))
    }
}

/// Copies the bytes at position `at` of the ring, which may continue at its start.
fn read(memory: &GuestMemoryMmap, at: u64, into: &mut [u8]) -> Result<(), Corrupt> {
    let start = at % u64::from(RING_BYTES);
    let first = into.len().min((u64::from(RING_BYTES) - start) as usize);
    let (head, tail) = into.split_at_mut(first);
    let records = RING + RING_HEADER_BYTES;
    let copied = memory
        .read_slice(head, GuestAddress(records + start))
        .and_then(|()| memory.read_slice(tail, GuestAddress(records)));
    copied.map_err(|_| Corrupt::Payload)
}

#[cfg(test)]
mod tests {
    use holdfast_protocol::{encode, record_bytes};
    use proptest::prelude::*;

    use super::*;

    fn memory() -> GuestMemoryMmap {
        GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 1 << 20)]).expect("a megabyte")
    }

    /// Writes `message` as a correct guest does.
    fn push(memory: &GuestMemoryMmap, message: &Message) {
        let written: u64 = memory.load(WRITTEN, Acquire).expect("mapped");
        let payload = encode(message);
        let record = [&(payload.len() as u32).to_le_bytes()[..], &payload].concat();
        for (index, byte) in (written..).zip(record) {
            let place = RING + RING_HEADER_BYTES + index % u64::from(RING_BYTES);
            memory.write_obj(byte, GuestAddress(place)).expect("mapped");
        }
        let written = written + record_bytes(payload.len() as u64);
        memory.store(written, WRITTEN, Release).expect("mapped");
    }

    #[test]
    fn messages_arrive_in_order_when_the_ring_wraps() {
        let (memory, mut reader) = (memory(), Reader::default());
        for round in 0..3_000u64 {
            let sent = [
                Message::Counter("x".repeat((round % 90) as usize), round),
                Message::Begin { now_ns: round },
            ];
            sent.iter().for_each(|message| push(&memory, message));
            let mut received = Vec::new();
            assert_eq!(reader.drain(&memory, &mut received), Ok(()));
            assert_eq!(received, sent);
        }
    }

    proptest! {
        #[test]
        fn a_hostile_guest_makes_no_more_than_an_error(
            written in prop_oneof![any::<u64>(), 0..300u64],
            bytes in proptest::collection::vec(any::<u8>(), 0..600),
        ) {
            let (memory, mut reader) = (memory(), Reader::default());
            memory.write_slice(&bytes, GuestAddress(RING + RING_HEADER_BYTES)).expect("mapped");
            memory.store(written, WRITTEN, Release).expect("mapped");
            let mut received = Vec::new();
            let first = reader.drain(&memory, &mut received);
            prop_assert!(received.len() as u64 <= u64::from(RING_BYTES) / 8);
            // An invalid ring stays invalid.
            prop_assert_eq!(reader.drain(&memory, &mut received).is_err(), first.is_err());
        }

        #[test]
        fn messages_before_invalid_content_are_read(good in 1..20u64, bytes in proptest::collection::vec(any::<u8>(), 8..64)) {
            let (memory, mut reader) = (memory(), Reader::default());
            (0..good).for_each(|now_ns| push(&memory, &Message::Begin { now_ns }));
            let written: u64 = memory.load(WRITTEN, Acquire).expect("mapped");
            memory.write_slice(&bytes, GuestAddress(RING + RING_HEADER_BYTES + written)).expect("mapped");
            memory.store(written + bytes.len() as u64, WRITTEN, Release).expect("mapped");
            let mut received = Vec::new();
            let _ = reader.drain(&memory, &mut received);
            let whole: Vec<Message> = (0..good).map(|now_ns| Message::Begin { now_ns }).collect();
            // An invalid `written` is found before any record is read. Otherwise the messages before the damage are
            // read.
            prop_assert!(received.is_empty() || received.starts_with(&whole));
        }
    }
}
