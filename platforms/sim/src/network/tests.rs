//! What a guest writes in its queues does no harm, and packets are conserved.

use std::sync::atomic::Ordering::Relaxed;

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
    assert_eq!((connection.served, connection.tap.len()), (10, 10));
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

#[test]
fn a_packet_costs_the_worker_what_it_costs_or_the_device_next_to_nothing() {
    for (assigned, from_guest, serve, to_guest) in [
        (false, costs::FROM_GUEST, costs::SERVE, costs::TO_GUEST),
        (true, costs::HARDWARE, costs::SERVE_AT_PORT, costs::HARDWARE),
    ] {
        let mut connection = if assigned {
            Connection::assigned()
        } else {
            Connection::default()
        };
        let network = Network::default();
        network.transmit.available.store(1, Relaxed);
        network.receive.available.store(1, Relaxed);
        let sends = [Action::Work(from_guest), Action::WakeOther, Action::Sleep];
        assert_eq!(sends.map(|_| connection.worker(&network)), sends);
        let answers = [Action::Work(serve), Action::WakeOther, Action::Sleep];
        assert_eq!(answers.map(|_| connection.server()), answers);
        let receives = [Action::Work(to_guest), Action::Signal, Action::Sleep];
        assert_eq!(receives.map(|_| connection.worker(&network)), receives);
        assert_eq!(connection.served, 1);
    }
}

#[test]
fn a_device_that_asks_for_the_doorbell_sees_an_offer_that_came_before() {
    let most = holdfast_abi::virtio::QUEUE_SIZE as u16;
    for (start, offered, there) in [
        (0, 0, false),
        (0, 1, true),
        (7, most, true),
        (7, most + 1, false),
        (u16::MAX, 2, true),
    ] {
        let network = Network::default();
        let queue = &network.transmit;
        let mut device = DeviceQueue::default();
        // It has taken all that was offered until now, one by one.
        for number in 0..start {
            queue.available.store(number.wrapping_add(1), Relaxed);
            assert!(device.pop(queue).is_some());
        }
        queue.available.store(start.wrapping_add(offered), Relaxed);
        assert_eq!(device.enable(queue), there, "{offered} offers");
        assert_eq!(queue.available_event.load(Relaxed), start, "the next entry");
        assert_eq!(device.pop(queue).is_some(), there, "{offered} offers");
    }
}
