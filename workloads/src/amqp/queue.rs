//! A queue of the broker: messages, and the connections that wait for one.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

/// A message in the broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Message {
    /// The producer that made it.
    pub(super) producer: u32,
    /// Its number among the messages of that producer.
    pub(super) number: u32,
    /// The worker whose arena it is in.
    pub(super) arena: u32,
    /// Its place in that arena.
    pub(super) place: u32,
}

/// A queue. Its mutex is `Queue::messageLock`.
pub(super) struct Queue {
    messages: VecDeque<Message>,
    /// Connections that found the queue empty, in the order of their arrival.
    waiting: VecDeque<u32>,
    /// For each producer, how many of its messages have left.
    left: Box<[u32]>,
    /// How many messages have entered.
    pub(super) entered: u64,
    /// The most messages that were in the queue.
    pub(super) peak: u64,
}

impl Queue {
    /// Makes an empty queue at which connections `waiting` wait.
    pub(super) fn new(producers: u32, waiting: impl Iterator<Item = u32>) -> Self {
        Queue {
            messages: VecDeque::new(),
            waiting: waiting.collect(),
            left: (0..producers).map(|_| 0).collect(),
            entered: 0,
            peak: 0,
        }
    }

    /// Adds a message. Returns a connection that waited for it, and no longer does.
    pub(super) fn push(&mut self, message: Message) -> Option<u32> {
        self.messages.push_back(message);
        self.entered += 1;
        self.peak = self.peak.max(self.messages.len() as u64);
        self.waiting.pop_front()
    }

    /// Takes the next message for `connection`. If there is none, `connection` waits for one.
    pub(super) fn pop(&mut self, connection: u32) -> Option<Message> {
        let Some(message) = self.messages.pop_front() else {
            self.waiting.push_back(connection);
            return None;
        };
        let left = &mut self.left[message.producer as usize];
        assert_eq!(
            message.number, *left,
            "messages of producer {} leave the queue out of order",
            message.producer
        );
        *left += 1;
        Some(message)
    }

    /// How many messages have left.
    pub(super) fn left(&self) -> u64 {
        self.left.iter().copied().map(u64::from).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::Stream;

    #[test]
    fn messages_are_conserved_and_no_connection_waits_while_there_is_one() {
        for seed in 0..200 {
            let mut random = Stream::new(seed, 0);
            let mut queue = Queue::new(3, [7].into_iter());
            let mut made = [0; 3];
            let (mut waits, mut notified) = (true, 0);
            for _ in 0..300 {
                if random.below(2) == 0 {
                    let producer = random.below(3);
                    let number = made[producer as usize];
                    made[producer as usize] += 1;
                    let message = Message {
                        producer,
                        number,
                        arena: 0,
                        place: 0,
                    };
                    if let Some(connection) = queue.push(message) {
                        assert!(waits && connection == 7);
                        waits = false;
                        notified += 1;
                    }
                } else if !waits {
                    waits = queue.pop(7).is_none();
                }
                assert_eq!(queue.entered, queue.left() + queue.messages.len() as u64);
                assert!(
                    !waits || queue.messages.is_empty(),
                    "a connection waits although there is a message"
                );
            }
            assert!(notified > 0);
        }
    }
}
