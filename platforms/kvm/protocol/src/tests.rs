use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;

#[test]
fn orders_survive_the_journey() {
    for workload in holdfast_workloads::Workload::all() {
        let orders = Orders {
            heap: Heap {
                begin: 0x40_0000,
                end: 1 << 30,
            },
            cpus: 3,
            clock: Clock::Tsc { khz: 2_500_000 },
            seed: 7,
            guest: 1,
            domains: vec![0, 0, 1],
            task: Task::Kernel(holdfast_workloads::Boot {
                kernel: holdfast_workloads::KernelConfig {
                    lock: holdfast_locks::LockKind::HybridPvQspin,
                    ..holdfast_workloads::KernelConfig::default()
                },
                workload,
                ..holdfast_workloads::Boot::default()
            }),
        };
        let bytes = encode(&orders);
        assert_eq!(heap_in(&bytes), Some(orders.heap));
        assert_eq!(decode(&bytes), Some(orders));
    }
}

#[test]
fn what_follows_a_message_makes_it_unreadable() {
    let mut bytes = encode(&Message::Log(String::from("hello")));
    assert!(decode::<Message>(&bytes).is_some());
    bytes.push(0);
    assert_eq!(decode::<Message>(&bytes), None);
}

proptest! {
    #[test]
    fn no_bytes_make_decoding_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = decode::<Message>(&bytes);
        let _ = decode::<Orders>(&bytes);
        let _ = decode::<Process>(&bytes);
        let _ = heap_in(&bytes);
    }

    #[test]
    fn a_reader_never_passes_what_is_written(written in any::<u64>(), read in any::<u64>(), length in any::<u32>()) {
        let position = RingPosition { read: read & !7 };
        if let Ok(pending) = position.pending(written, layout::RING_BYTES) {
            prop_assert!(pending <= layout::RING_BYTES.into());
            if let Ok(next) = position.step(length, pending) {
                prop_assert!(next.read.wrapping_sub(position.read) <= pending);
                prop_assert!(next.pending(written, layout::RING_BYTES).is_ok());
            }
        }
    }

    #[test]
    fn records_have_room_for_their_payload(length in any::<u32>()) {
        let bytes = record_bytes(length.into());
        prop_assert!(bytes >= u64::from(length) + size_of::<u32>() as u64);
        prop_assert_eq!(bytes % 8, 0);
    }
}

/// Alloc only where tests need it.
#[test]
fn an_empty_message_is_none() {
    assert_eq!(decode::<Message>(&Vec::new()), None);
}
