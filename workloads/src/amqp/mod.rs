//! An AMQP broker with its performance test, in one guest: producers and consumers talk to the broker over local
//! connections.
//!
//! The broker has the structure of Qpid in 2010. Worker threads wait at one epoll instance, which gives each event to
//! one of them. Each queue has a mutex. A message for an empty queue makes the connection of a waiting consumer
//! writable, and some worker then serves that connection. Each client has one thread that talks to the broker, and one
//! that produces or consumes messages.
//!
//! **Conserved**: each message produced is consumed once. **FIFO**: messages of one producer leave a queue in the order
//! in which they were produced.

mod broker;
mod client;
mod connection;
mod heap;
mod mix;
mod queue;
mod stamps;

use alloc::boxed::Box;

use holdfast_guest::{Fork, Limits, Machine, Os, Program, Start, UserCondition, UserMutex};

use client::{Consuming, Producing};
use connection::Connection;
use heap::Arena;
use queue::Queue;
use serde::{Deserialize, Serialize};
use stamps::Stamps;

use crate::start::StartLine;
use crate::workload::{Load, share_of};

/// Parameters of the AMQP performance test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Amqp {
    /// Number of producing clients.
    ///
    /// Default 4, one for each vCPU: the published run does not say. Uncertain.
    pub producers: u32,
    /// Number of consuming clients.
    ///
    /// Default 4, as above.
    pub consumers: u32,
    /// Size of a message's content.
    ///
    /// Default 8 bytes.
    pub payload: u32,
    /// Messages over all producers, at scale 1.
    ///
    /// Default 1 000 000.
    pub messages: u64,
}

impl Default for Amqp {
    fn default() -> Self {
        Amqp {
            producers: 4,
            consumers: 4,
            payload: 8,
            messages: 1_000_000,
        }
    }
}

/// The roles of tasks.
mod role {
    pub(super) const FIRST: u32 = 0;
    pub(super) const BROKER: u32 = 1;
    pub(super) const WORKER: u32 = 2;
    pub(super) const PRODUCER: u32 = 3;
    pub(super) const PRODUCER_IO: u32 = 4;
    pub(super) const CONSUMER: u32 = 5;
    pub(super) const CONSUMER_IO: u32 = 6;
}

/// Broker and clients.
pub(crate) struct Messaging<M: Machine> {
    parameters: Amqp,
    workers: u32,
    queues: Box<[UserMutex<Queue, M>]>,
    /// The broker's side of each connection: producers first, then consumers.
    connections: Box<[UserMutex<Connection, M>]>,
    /// The memory from which each of the broker's workers allocates.
    arenas: Box<[UserMutex<Arena, M>]>,
    producing: Box<[Producing<M>]>,
    consuming: Box<[Consuming<M>]>,
    stamps: Stamps,
}

impl<M: Machine> Messaging<M> {
    /// The client's end of connection `number`.
    fn client_end(number: u32) -> u32 {
        2 * number
    }

    fn broker_end(number: u32) -> u32 {
        2 * number + 1
    }

    /// The connection whose data make the broker stop.
    fn stop_connection(&self) -> u32 {
        self.parameters.producers + self.parameters.consumers
    }

    fn first(&self, os: &Os<M>) {
        os.wait_for_cpus();
        let Amqp {
            producers, consumers, ..
        } = self.parameters;
        os.fork(Fork::Copy { vmas: 150 }, Start::new(role::BROKER, 0));
        for argument in 0..producers {
            os.fork(Fork::Copy { vmas: 80 }, Start::new(role::PRODUCER, argument));
        }
        for argument in 0..consumers {
            os.fork(Fork::Copy { vmas: 80 }, Start::new(role::CONSUMER, argument));
        }
        StartLine::FIRST.start(os, producers + consumers);
        for _ in 0..producers + consumers {
            os.wait();
        }
        let (mut entered, mut left, mut peak) = (0, 0, 0);
        for queue in &self.queues {
            let queue = queue.lock(os);
            (entered, left) = (entered + queue.entered, left + queue.left());
            peak = peak.max(queue.peak);
        }
        os.report("amqp.produced", entered);
        os.report("amqp.consumed", left);
        os.report("amqp.queue_peak", peak);
        os.done(Some(self.parameters.messages));
        os.write_stream(Self::client_end(self.stop_connection()), &[0], 1);
        while os.wait().is_some() {}
    }
}

impl Amqp {
    /// Number of queues: each producer has a queue and a consumer of its own, if there are as many of both. Uncertain.
    fn queues(&self) -> u32 {
        self.producers.min(self.consumers)
    }

    /// How many messages producer `number` makes: an equal share, apart from the remainder.
    fn share(&self, number: u32) -> u64 {
        part(self.messages, number, self.producers)
    }

    /// How many messages consumer `number` takes of those that enter its queue.
    fn quota(&self, number: u32) -> u64 {
        let queues = self.queues();
        let queue = number % queues;
        let of_queue = |client: &u32| client % queues == queue;
        let messages = (0..self.producers)
            .filter(of_queue)
            .map(|client| self.share(client))
            .sum();
        let consumers = (0..self.consumers).filter(of_queue).count() as u32;
        part(messages, number / queues, consumers)
    }
}

/// The share of client `index` if `count` clients divide `total`.
fn part(total: u64, index: u32, count: u32) -> u64 {
    let (index, count) = (u64::from(index), u64::from(count));
    total / count + u64::from(index < total % count)
}

impl Load for Amqp {
    const THROUGHPUT: Option<&'static str> = Some("messages/s");

    fn scale_work(&mut self, share: f64) {
        self.messages = share_of(self.messages, share, 10 * self.producers);
    }

    fn program<M: Machine>(&self, cpus: u32) -> Box<dyn Program<M>> {
        let mut parameters = self.clone();
        parameters.producers = parameters.producers.max(1);
        parameters.consumers = parameters.consumers.max(1);
        // As in Qpid.
        let workers = cpus + 1;
        let queues = parameters.queues();
        let (producers, consumers) = (parameters.producers, parameters.consumers);
        let quotas: Box<[u64]> = (0..consumers).map(|consumer| parameters.quota(consumer)).collect();
        let waiting = |queue: u32| {
            let of_queue = (0..consumers).filter(move |consumer| consumer % queues == queue);
            of_queue
                .filter(|consumer| quotas[*consumer as usize] > 0)
                .map(|consumer| producers + consumer)
        };
        let producing = |_| Producing {
            outgoing: UserMutex::default(),
            drained: UserCondition::default(),
        };
        let consuming = |quota: &u64| Consuming {
            quota: *quota,
            incoming: UserMutex::default(),
            arrived: UserCondition::default(),
        };
        Box::new(Messaging {
            workers,
            queues: (0..queues)
                .map(|queue| UserMutex::new(Queue::new(producers, waiting(queue))))
                .collect(),
            connections: (0..producers)
                .map(|_| 0)
                .chain(quotas.iter().copied())
                .map(|credit| UserMutex::new(Connection::new(credit)))
                .collect(),
            arenas: (0..workers).map(|_| UserMutex::new(Arena::default())).collect(),
            producing: (0..producers).map(producing).collect(),
            consuming: quotas.iter().map(consuming).collect(),
            stamps: Stamps::new(parameters.messages, producers),
            parameters,
        })
    }
}

impl<M: Machine> Program<M> for Messaging<M> {
    fn limits(&self) -> Limits {
        let clients = self.parameters.producers + self.parameters.consumers;
        Limits {
            tasks: 2 + 2 * clients + self.workers,
            streams: 2 * (clients + 1),
            epolls: 1 + clients,
            semaphore_arrays: 1,
            semaphores: 1,
            ..Limits::default()
        }
    }

    fn run(&self, os: &Os<M>, start: Start) {
        match start.role {
            role::FIRST => self.first(os),
            role::BROKER => self.broker(os),
            role::WORKER => self.worker(os, start.argument),
            role::PRODUCER => self.producer(os, start.argument),
            role::PRODUCER_IO => self.producer_io(os, start.argument),
            role::CONSUMER => self.consumer(os, start.argument),
            role::CONSUMER_IO => self.consumer_io(os, start.argument),
            other => unreachable!("a task of amqp has the unknown role {other}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_is_taken() {
        for (producers, consumers, messages) in [(4, 4, 1_000), (5, 3, 17), (1, 6, 4), (3, 3, 10)] {
            let test = Amqp {
                producers,
                consumers,
                messages,
                ..Amqp::default()
            };
            assert_eq!((0..producers).map(|client| test.share(client)).sum::<u64>(), messages);
            assert_eq!((0..consumers).map(|client| test.quota(client)).sum::<u64>(), messages);
        }
    }
}
