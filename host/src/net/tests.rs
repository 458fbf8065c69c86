//! What a guest writes in its queues does no harm, and packets are conserved.

use core::sync::atomic::Ordering::Relaxed;
use std::vec::Vec;

use holdfast_abi::virtio::{Network, need_event};

use super::*;

/// Runs both threads until both sleep. Returns how many interrupts were signaled.
fn run_until_asleep(connection: &mut Connection, network: &Network) -> u32 {
    let mut signals = 0;
    for _ in 0..10_000 {
        match (connection.worker(network), connection.server()) {
            (Action::Sleep, Action::Sleep) => return signals,
            (Action::Signal, _) => signals += 1,
            _ => {}
        }
    }
    panic!("the threads never sleep");
}

#[test]
fn an_event_is_passed_once() {
    for (event, old, new, expected) in [
        (0, 0, 1, true),
        (0, 1, 2, false),
        (5, 3, 6, true),
        (6, 3, 6, false),
        (u16::MAX, u16::MAX, 0, true),
        (3, u16::MAX, 3, false),
    ] {
        assert_eq!(need_event(event, new, old), expected, "{event} between {old} and {new}");
    }
}

#[test]
fn whatever_a_guest_writes_in_its_queues_the_host_goes_on() {
    let mut state = 7u64;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u16
    };
    let (mut connection, network) = (Connection::default(), Network::default());
    for _ in 0..20_000 {
        let queue = if next() % 2 == 0 {
            &network.receive
        } else {
            &network.transmit
        };
        match next() % 4 {
            0 => queue.available.store(next(), Relaxed),
            1 => queue
                .available
                .store(queue.available.load(Relaxed).wrapping_add(next() % 4), Relaxed),
            2 => queue.used_event.store(next(), Relaxed),
            _ => queue.used.store(next(), Relaxed),
        }
        run_until_asleep(&mut connection, &network);
    }
}

#[test]
fn packets_wait_for_buffers_and_none_is_lost() {
    let (mut connection, network) = (Connection::default(), Network::default());
    for number in 0..10u32 {
        network.transmit.offered[number as usize].store(number, Relaxed);
    }
    network.transmit.available.store(10, Relaxed);
    assert_eq!(
        run_until_asleep(&mut connection, &network),
        0,
        "there is no buffer to receive in"
    );
    assert_eq!((connection.served(), connection.tap.len()), (10, 10));
    network.receive.available.store(4, Relaxed);
    assert_eq!(
        run_until_asleep(&mut connection, &network),
        1,
        "one interrupt: the driver has not asked again"
    );
    network.receive.available.store(10, Relaxed);
    run_until_asleep(&mut connection, &network);
    let returned: Vec<u32> = (0..10)
        .map(|entry| network.receive.returned[entry].load(Relaxed))
        .collect();
    assert_eq!(returned, (0..10).collect::<Vec<_>>());
}
