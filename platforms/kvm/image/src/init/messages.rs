//! hackbench: processes that exchange messages, in the same groups and as many as in the simulator
//! (`holdfast_workloads::Hackbench`).
//!
//! A process of this kind reports nothing. What goes wrong in one shows as a run without an end.

use alloc::vec::Vec;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicU64};

use holdfast_workloads::{Channel, Hackbench};

use crate::system::{
    Ends, Errno, close, exit, fork, map_shared, now_ns, read, shared_futex_wait, shared_futex_wake, write,
};

const MESSAGE_BYTES: usize = Hackbench::MESSAGE_BYTES as usize;

/// The memory that all processes share. All bytes zero is its state before the start.
#[derive(Default)]
pub(crate) struct Shared {
    arrived: AtomicU32,
    go: AtomicU32,
    received_all: AtomicU32,
    done: AtomicU32,
    /// When the last message was received.
    done_ns: AtomicU64,
}

/// Processes that wait for their start.
pub(crate) struct Exchange {
    shared: &'static Shared,
    receivers: u32,
    messages: u64,
}

impl Exchange {
    /// Starts all processes.
    pub(crate) fn start(orders: &Hackbench) -> Result<Exchange, Errno> {
        let receivers = orders.groups * orders.pairs;
        let shared = map_shared()?;
        for _ in 0..orders.groups {
            group(shared, orders, receivers)?;
        }
        Ok(Exchange {
            shared,
            receivers,
            messages: u64::from(receivers) * per_receiver(orders),
        })
    }

    /// Returns whether all processes are ready.
    pub(crate) fn has_arrived(&self) -> bool {
        // ORDERING: Acquire; pairs with `ready`.
        self.shared.arrived.load(Acquire) == 2 * self.receivers
    }

    /// Lets all processes begin. Returns the number of messages, and when the last one was received.
    pub(crate) fn exchange(&self) -> (u64, u64) {
        // ORDERING: Release; pairs with the Acquire in `ready`.
        self.shared.go.store(1, Release);
        shared_futex_wake(&self.shared.go);
        // ORDERING: Acquire; pairs with the Release of the last receiver.
        while self.shared.done.load(Acquire) == 0 {
            shared_futex_wait(&self.shared.done, 0);
        }
        // ORDERING: Relaxed; written before `done`.
        (self.messages, self.shared.done_ns.load(Relaxed))
    }
}

/// Returns the number of messages that a receiver gets.
fn per_receiver(orders: &Hackbench) -> u64 {
    u64::from(orders.pairs) * u64::from(orders.loops)
}

/// Starts the processes of one group. Descriptors are closed as by hackbench, so that no process has those of others.
fn group(shared: &'static Shared, orders: &Hackbench, receivers: u32) -> Result<(), Errno> {
    let mut ends = Vec::new();
    for _ in 0..orders.pairs {
        let channel = Ends::open(orders.channel == Channel::Sockets)?;
        if fork()? == 0 {
            close(channel.write);
            receive(shared, channel.read, per_receiver(orders), receivers);
        }
        close(channel.read);
        ends.push(channel.write);
    }
    for _ in 0..orders.pairs {
        if fork()? == 0 {
            send(shared, &ends, orders.loops);
        }
    }
    ends.into_iter().for_each(close);
    Ok(())
}

/// Waits for the start of all processes.
fn ready(shared: &Shared) {
    // ORDERING: Release; pairs with the Acquire in `has_arrived`.
    shared.arrived.fetch_add(1, Release);
    // ORDERING: Acquire; pairs with the Release in `exchange`.
    while shared.go.load(Acquire) == 0 {
        shared_futex_wait(&shared.go, 0);
    }
}

fn send(shared: &Shared, ends: &[usize], loops: u32) -> ! {
    let message = [0; MESSAGE_BYTES];
    ready(shared);
    for _ in 0..loops {
        for &end in ends {
            write(end, &message);
        }
    }
    exit()
}

fn receive(shared: &Shared, end: usize, expected: u64, receivers: u32) -> ! {
    let mut message = [0; MESSAGE_BYTES];
    ready(shared);
    for _ in 0..expected {
        let mut got = 0;
        while got < message.len() {
            got += read(end, &mut message[got..]);
        }
    }
    // ORDERING: AcqRel; the last receiver comes after all others.
    if shared.received_all.fetch_add(1, AcqRel) + 1 == receivers {
        // ORDERING: Relaxed; `done` publishes it.
        shared.done_ns.store(now_ns(), Relaxed);
        // ORDERING: Release; pairs with the Acquire in `exchange`.
        shared.done.store(1, Release);
        shared_futex_wake(&shared.done);
    }
    exit()
}
