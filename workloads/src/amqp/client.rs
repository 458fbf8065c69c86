//! Clients: one thread produces or consumes messages, one talks to the broker.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use holdfast_guest::{Events, Fork, Machine, Os, Start, UserCondition, UserMutex};

use super::mix::{self, Step};
use super::{Messaging, role};
use crate::start::StartLine;
use crate::stream::Stream;

/// A producer's messages that are not written to its connection yet.
pub(super) struct Producing<M: Machine> {
    pub(super) outgoing: UserMutex<Outgoing, M>,
    /// Signaled when there is room for more.
    pub(super) drained: UserCondition<M>,
}

#[derive(Default)]
pub(super) struct Outgoing {
    messages: Vec<u32>,
    /// The thread that writes has been notified.
    is_notified: bool,
    /// No more messages will follow.
    is_closing: bool,
}

/// A consumer's messages that are read from its connection and not consumed yet.
pub(super) struct Consuming<M: Machine> {
    /// How many messages it takes in all.
    pub(super) quota: u64,
    pub(super) incoming: UserMutex<VecDeque<u32>, M>,
    pub(super) arrived: UserCondition<M>,
}

/// The epoll instance of the client that has connection `number`.
fn epoll_of(number: u32) -> u32 {
    1 + number
}

impl<M: Machine> Messaging<M> {
    /// Runs the thread of producer `number` that makes its messages.
    pub(super) fn producer(&self, os: &Os<M>, number: u32) {
        os.fork(Fork::Share, Start::new(role::PRODUCER_IO, number));
        let client = &self.producing[number as usize];
        let mut times = Stream::new(os.seed("amqp.producer"), number);
        let bound = (mix::BOUND_BYTES / mix::wire_bytes(self.parameters.payload)).max(1) as usize;
        StartLine::FIRST.wait(os);
        for message in 0..self.parameters.share(number) {
            os.user(self.time(&mut times, Step::Produce));
            self.stamps.produced(os, self.stamps.number(number, message as u32));
            let mut outgoing = client.outgoing.lock(os);
            while outgoing.messages.len() >= bound {
                outgoing = client.drained.wait(outgoing);
            }
            os.user(mix::CLIENT_HELD_NS);
            outgoing.messages.push(message as u32);
            self.notify_writer(os, number, &mut outgoing);
        }
        {
            let mut outgoing = client.outgoing.lock(os);
            outgoing.is_closing = true;
            self.notify_writer(os, number, &mut outgoing);
        }
        os.wait();
    }

    fn notify_writer(&self, os: &Os<M>, number: u32, outgoing: &mut Outgoing) {
        if !outgoing.is_notified {
            outgoing.is_notified = true;
            os.watch(epoll_of(number), Self::client_end(number), Events::WRITE);
        }
    }

    /// Runs the thread of producer `number` that writes its messages.
    pub(super) fn producer_io(&self, os: &Os<M>, number: u32) {
        let client = &self.producing[number as usize];
        let wire_bytes = mix::wire_bytes(self.parameters.payload);
        let mut writing = Vec::new();
        loop {
            os.wait_ready(epoll_of(number));
            os.user(mix::EVENT_NS);
            if writing.is_empty() {
                let mut outgoing = client.outgoing.lock(os);
                core::mem::swap(&mut writing, &mut outgoing.messages);
                client.drained.signal(&outgoing);
            }
            let written = os.write_stream(Self::client_end(number), &writing, wire_bytes);
            writing.drain(..written);
            let mut outgoing = client.outgoing.lock(os);
            if !writing.is_empty() || !outgoing.messages.is_empty() {
                os.watch(epoll_of(number), Self::client_end(number), Events::WRITE);
            } else if outgoing.is_closing {
                return;
            } else {
                outgoing.is_notified = false;
            }
        }
    }

    /// Runs the thread of consumer `number` that takes its messages.
    pub(super) fn consumer(&self, os: &Os<M>, number: u32) {
        os.fork(Fork::Share, Start::new(role::CONSUMER_IO, number));
        let client = &self.consuming[number as usize];
        let mut times = Stream::new(os.seed("amqp.consumer"), number);
        StartLine::FIRST.wait(os);
        for _ in 0..client.quota {
            let mut incoming = client.incoming.lock(os);
            while incoming.is_empty() {
                incoming = client.arrived.wait(incoming);
            }
            os.user(mix::CLIENT_HELD_NS);
            let message = incoming.pop_front();
            drop(incoming);
            os.user(self.time(&mut times, Step::Consume));
            if let Some(message) = message {
                self.stamps.consumed(os, message);
            }
        }
        os.wait();
    }

    /// Runs the thread of consumer `number` that reads its messages.
    pub(super) fn consumer_io(&self, os: &Os<M>, number: u32) {
        let client = &self.consuming[number as usize];
        let connection = self.parameters.producers + number;
        let mut times = Stream::new(os.seed("amqp.receiver"), number);
        let mut left = client.quota;
        let mut arrived = Vec::new();
        while left > 0 {
            os.watch(epoll_of(connection), Self::client_end(connection), Events::READ);
            os.wait_ready(epoll_of(connection));
            os.user(mix::EVENT_NS);
            os.read_stream(Self::client_end(connection), mix::BUFFER_BYTES, &mut arrived);
            left -= arrived.len() as u64;
            for message in arrived.drain(..) {
                os.user(self.time(&mut times, Step::Receive));
                let mut incoming = client.incoming.lock(os);
                os.user(mix::CLIENT_HELD_NS);
                incoming.push_back(message);
                client.arrived.signal(&incoming);
            }
        }
    }
}
