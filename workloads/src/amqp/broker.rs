//! The broker: workers that read what producers send, and write what consumers wait for.

use alloc::vec::Vec;

use holdfast_guest::{Events, Fork, Machine, Os, Start};

use super::connection::{EPOLL, Work};
use super::mix::{self, Step};
use super::queue::Message;
use super::{Messaging, role};
use crate::stream::Stream;

impl<M: Machine> Messaging<M> {
    /// The broker's process: its first worker, which starts the others.
    pub(super) fn broker(&self, os: &Os<M>) {
        for connection in 0..=self.stop_connection() {
            os.watch(EPOLL, Self::broker_end(connection), Events::READ);
        }
        for worker in 1..self.workers {
            os.fork(Fork::Share, Start::new(role::WORKER, worker));
        }
        self.worker(os, 0);
        while os.wait().is_some() {}
    }

    /// Runs worker `number`.
    pub(super) fn worker(&self, os: &Os<M>, number: u32) {
        let mut times = Stream::new(os.seed("amqp.broker"), number);
        loop {
            let (stream, events) = os.wait_ready(EPOLL);
            let connection = stream / 2;
            if connection == self.stop_connection() {
                // The other workers must stop, too.
                os.watch(EPOLL, stream, Events::READ);
                return;
            }
            let Some(mut work) = self.begin_service(os, connection, events) else {
                continue;
            };
            os.user(mix::EVENT_NS);
            if events.has(Events::READ) {
                self.accept(os, connection, number, &mut times);
            }
            let has_more = events.has(Events::WRITE) && self.deliver(os, connection, &mut work, &mut times);
            self.end_service(os, connection, work, has_more);
        }
    }

    /// Draws the user time of one `step`.
    pub(super) fn time(&self, times: &mut Stream, step: Step) -> u64 {
        let mean = mix::step_ns(step, self.parameters.payload);
        times.time(mean, mix::TIME_SPREAD)
    }

    /// Reads what producer `connection` has sent, and puts it in its queue.
    fn accept(&self, os: &Os<M>, connection: u32, worker: u32, times: &mut Stream) {
        let mut arrived = Vec::new();
        os.read_stream(Self::broker_end(connection), mix::BUFFER_BYTES, &mut arrived);
        let queue = &self.queues[(connection % self.parameters.queues()) as usize];
        for number in arrived {
            os.user(self.time(times, Step::Accept));
            let place = self.allocate(os, worker);
            let message = Message {
                producer: connection,
                number,
                arena: worker,
                place,
            };
            let waiting = {
                let mut queue = queue.lock(os);
                os.user(mix::QUEUE_HELD_NS);
                queue.push(message)
            };
            if let Some(consumer) = waiting {
                self.notify(os, consumer);
            }
        }
    }

    /// Writes a buffer of messages to consumer `connection`. Returns `true` if there may be more.
    fn deliver(&self, os: &Os<M>, connection: u32, work: &mut Work, times: &mut Stream) -> bool {
        let consumer = connection - self.parameters.producers;
        let queue = &self.queues[(consumer % self.parameters.queues()) as usize];
        let wire_bytes = mix::wire_bytes(self.parameters.payload);
        let most = (mix::BUFFER_BYTES / wire_bytes).max(1) as usize;
        let mut is_empty = false;
        while !is_empty && work.output.len() < most && work.credit > 0 {
            let next = {
                let mut queue = queue.lock(os);
                os.user(mix::QUEUE_HELD_NS);
                queue.pop(connection)
            };
            is_empty = next.is_none();
            if let Some(message) = next {
                os.user(self.time(times, Step::Deliver));
                self.free(os, message.arena, message.place);
                work.credit -= 1;
                work.output.push(self.stamps.number(message.producer, message.number));
            }
        }
        let written = os.write_stream(Self::broker_end(connection), &work.output, wire_bytes);
        work.output.drain(..written);
        !work.output.is_empty() || (!is_empty && work.credit > 0)
    }
}
