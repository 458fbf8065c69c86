//! A guest's network on the host: vhost's worker, the tap and the bridge, and a server behind it on the host itself.
//!
//! ```text
//! guest ── transmit queue ── worker: tap, bridge, TCP ── socket ── server
//!       ── receive queue ─── worker ── tap's queue ── server: TCP, bridge
//! ```
//!
//! Worker and server are threads that the host's scheduler runs. Tap and bridge have no threads: as in Linux, their
//! code runs on the sending thread, receipt of a packet included. Each thread is a state machine that says what it does
//! next ([`Connection::worker`], [`Connection::server`]). The driver of the host gives it time.
//!
//! A device that is hardware ([`Connection::assigned`]) has no worker: the same machine says what the device does, and
//! the server is woken by an interrupt of the host's own port.
//!
//! **Conserved**: a packet is in one of the queues, or in the hands of one thread.

mod costs;
mod queue;

use std::collections::VecDeque;

use holdfast_abi::virtio::Network;

pub use queue::DeviceQueue;

/// The next action of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Works for this many nanoseconds.
    Work(u64),
    /// Wakes the other thread.
    WakeOther,
    /// Signals the guest's interrupt for received packets (irqfd, or a message of the device).
    Signal,
    /// Sleeps until it is woken.
    Sleep,
}

/// The packet that the worker handles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Hands {
    #[default]
    Empty,
    /// A packet from the guest, on its way to the server's socket.
    FromGuest(u32),
    /// A packet for the guest, on its way to its buffer.
    ToGuest(u32),
}

/// One connection between a guest and a server on the host.
#[derive(Clone, Debug, Default)]
pub struct Connection {
    receive: DeviceQueue,
    transmit: DeviceQueue,
    hands: Hands,
    /// The packet that the server handles.
    serving: Option<u32>,
    /// The tap's queue: packets for the guest.
    tap: VecDeque<u32>,
    /// The packets that wait at the server's socket.
    socket: VecDeque<u32>,
    served: u64,
    /// The device is hardware, and the server is behind a port of the host.
    assigned: bool,
}

impl Connection {
    /// Returns a connection by a hardware device: what [`Connection::worker`] does takes no CPU time.
    pub fn assigned() -> Connection {
        Connection {
            assigned: true,
            ..Connection::default()
        }
    }

    /// Returns the next action of vhost's worker.
    pub fn worker(&mut self, network: &Network) -> Action {
        loop {
            match std::mem::take(&mut self.hands) {
                Hands::FromGuest(packet) => {
                    // The guest needs no interrupt for sent packets.
                    self.transmit.push(&network.transmit, packet);
                    self.socket.push_back(packet);
                    return Action::WakeOther;
                }
                Hands::ToGuest(packet) => {
                    if self.receive.push(&network.receive, packet) {
                        return Action::Signal;
                    }
                }
                Hands::Empty => {}
            }
            if let Some(packet) = self.transmit.pop(&network.transmit) {
                self.hands = Hands::FromGuest(packet);
                return Action::Work(self.cost(costs::FROM_GUEST));
            }
            if let Some(action) = self.next_for_guest(network) {
                return action;
            }
            if !self.transmit.enable(&network.transmit) {
                return Action::Sleep;
            }
        }
    }

    /// Takes a packet from the tap if there is one, and a buffer for it.
    fn next_for_guest(&mut self, network: &Network) -> Option<Action> {
        let packet = *self.tap.front()?;
        while self.receive.pop(&network.receive).is_none() {
            // Without a buffer the packet waits until the guest rings the doorbell.
            if !self.receive.enable(&network.receive) {
                return None;
            }
        }
        self.tap.pop_front();
        self.hands = Hands::ToGuest(packet);
        Some(Action::Work(self.cost(costs::TO_GUEST)))
    }

    /// Returns the next action of the server, which answers each packet with one of its own.
    pub fn server(&mut self) -> Action {
        if let Some(packet) = self.serving.take() {
            self.served += 1;
            self.tap.push_back(packet);
            return Action::WakeOther;
        }
        match self.socket.pop_front() {
            Some(packet) => {
                self.serving = Some(packet);
                Action::Work(if self.assigned {
                    costs::SERVE_AT_PORT
                } else {
                    costs::SERVE
                })
            }
            None => Action::Sleep,
        }
    }

    /// Returns the cost of a packet that costs a worker `worker`.
    fn cost(&self, worker: u64) -> u64 {
        if self.assigned { costs::HARDWARE } else { worker }
    }
}

#[cfg(test)]
mod tests;
