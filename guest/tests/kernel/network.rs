//! The network: every message is answered once, in order, however many are on their way.

use std::cell::RefCell;
use std::rc::Rc;

use crate::machine::{Setup, counter, run};

/// Sends `messages`, with up to `window` of them unanswered, and works for `pause_ns` before each. Returns the answers
/// and the nanoseconds of all.
fn exchange(setup: &Setup, messages: u32, window: u32, pause_ns: u64) -> (Vec<u32>, u64) {
    let answers = Rc::new(RefCell::new(Vec::new()));
    let noted = answers.clone();
    let outcome = run(setup, move |os, _| {
        os.wait_for_cpus();
        os.open_network();
        os.begin();
        for message in 0..messages {
            os.user(pause_ns);
            os.send_network(message);
            if message + 1 >= window {
                noted.borrow_mut().push(os.receive_network());
            }
        }
        while noted.borrow().len() < messages as usize {
            noted.borrow_mut().push(os.receive_network());
        }
        os.done(None);
    });
    assert!(counter(&outcome, "lock.netif_tx.acquired") >= messages.into());
    let answers = answers.take();
    (answers, outcome.vms[0].elapsed_ns.expect("a measured guest ends"))
}

fn setup(vcpus: u32, hogs: u32) -> Setup {
    Setup {
        vcpus,
        hogs,
        network: true,
        ..Setup::default()
    }
}

#[test]
fn every_message_is_answered_in_order() {
    // The receive queue has room for 256 messages, so more of them are on their way than it can ever offer.
    for (vcpus, hogs, messages, window) in [(1, 0, 300, 1), (1, 0, 1_000, 100), (4, 4, 600, 40), (2, 0, 70_000, 64)] {
        for pause_ns in [0, 9_000] {
            let (answers, _) = exchange(&setup(vcpus, hogs), messages, window, pause_ns);
            assert!(
                answers.iter().copied().eq(0..messages),
                "{messages} messages, {window} at a time: {answers:?}"
            );
        }
    }
}

#[test]
fn a_message_costs_what_tcp_and_the_driver_cost() {
    // Sending 2.0 to 2.7 µs, receiving 2.0 to 3.2 µs, and two system calls. The host works on other CPUs meanwhile.
    let (_, few) = exchange(&setup(1, 0), 2_000, 64, 0);
    let (_, many) = exchange(&setup(1, 0), 4_000, 64, 0);
    let each = (many - few) / 2_000;
    assert!((4_500..9_000).contains(&each), "{each} ns for a message and its answer");
}
