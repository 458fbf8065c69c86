//! Reading what a guest reports. See `holdfast_protocol`: nothing that the guest writes is believed.

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
    /// Appends all messages that are there.
    ///
    /// # Errors
    /// [`Corrupt`]: the guest is out of order. What came before is in `messages`.
    pub(crate) fn drain(&mut self, memory: &GuestMemoryMmap, messages: &mut Vec<Message>) -> Result<(), Corrupt> {
        // Once: what the guest claims later is for the next time. ORDERING: Acquire; pairs with the guest's Release.
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
            // At most the ring's size, by `step`. Copied before it is decoded: the guest may change it meanwhile.
            let mut payload = vec![0; length as usize];
            read(memory, self.position.read + 4, &mut payload)?;
            messages.push(decode(&payload).ok_or(Corrupt::Payload)?);
            self.position = next;
        }
        // ORDERING: Release; pairs with the guest's Acquire: it may overwrite what was read.
        let stored = memory.store(self.position.read, READ, Release);
        stored.map_err(|_| Corrupt::Written(written))
    }
}

/// Copies from the ring, around its end.
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

    /// A guest's side, in order.
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
    fn messages_come_in_their_order_around_the_ring() {
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
            // What was an error stays one.
            prop_assert_eq!(reader.drain(&memory, &mut received).is_err(), first.is_err());
        }

        #[test]
        fn damage_behind_whole_messages_leaves_these(good in 1..20u64, bytes in proptest::collection::vec(any::<u8>(), 8..64)) {
            let (memory, mut reader) = (memory(), Reader::default());
            (0..good).for_each(|now_ns| push(&memory, &Message::Begin { now_ns }));
            let written: u64 = memory.load(WRITTEN, Acquire).expect("mapped");
            memory.write_slice(&bytes, GuestAddress(RING + RING_HEADER_BYTES + written)).expect("mapped");
            memory.store(written + bytes.len() as u64, WRITTEN, Release).expect("mapped");
            let mut received = Vec::new();
            let _ = reader.drain(&memory, &mut received);
            let whole: Vec<Message> = (0..good).map(|now_ns| Message::Begin { now_ns }).collect();
            // A length that cannot be is found before any record is read; else those before it are there.
            prop_assert!(received.is_empty() || received.starts_with(&whole));
        }
    }
}
