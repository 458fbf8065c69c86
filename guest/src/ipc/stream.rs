//! Stream connections between local processes (AF_UNIX streams). Reads and writes do not sleep: epoll reports when they
//! are possible.
//!
//! A stream carries items of the program's, each of a given number of bytes. **Conserved**: an item is in one buffer
//! from its write until its read, and items leave in the order in which they came.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::epoll::{Epolls, Events};
use super::inbox::Inbox;
use crate::class::LockClass;
use crate::costs;
use crate::limits::Limits;
use crate::machine::Machine;
use crate::mutex::Mutex;
use crate::sched::{OnCpu, Scheduler};
use crate::sync::SpinLock;

/// Bytes that a connection holds in one direction (`net.core.wmem_default` on x86-64).
const BUFFER_BYTES: u32 = 124_928;
/// Bytes of one socket buffer: the most that `unix_stream_sendmsg` allocates (`SKB_MAX_ALLOC`, 4 pages less a header).
const SEGMENT_BYTES: u32 = 16_000;

/// All streams, with the epoll instances that watch them.
pub(crate) struct Streams<M: Machine> {
    /// The ends of all connections. Each is connected with the one whose number differs in bit 0.
    ends: Box<[Stream<M>]>,
    epolls: Epolls<M>,
}

/// One end of a connection.
struct Stream<M: Machine> {
    inbox: Inbox<Arrived, M>,
    /// `sk_wq`: epoll's callback is called under its lock.
    wait: SpinLock<(), M>,
    /// Linux's `u->readlock`.
    reader: Mutex<M>,
}

/// The items that wait to be read.
#[derive(Default)]
struct Arrived {
    items: VecDeque<u32>,
    /// Items and bytes of each socket buffer.
    segments: VecDeque<(u32, u32)>,
    bytes: u32,
}

impl Arrived {
    fn push(&mut self, items: &[u32], bytes: u32) {
        self.items.extend(items);
        self.segments.push_back((items.len() as u32, bytes));
        self.bytes += bytes;
    }

    /// Takes one socket buffer out, and returns its bytes.
    fn pop(&mut self, into: &mut Vec<u32>) -> Option<u32> {
        let (items, bytes) = self.segments.pop_front()?;
        into.extend(self.items.drain(..items as usize));
        self.bytes -= bytes;
        Some(bytes)
    }
}

impl<M: Machine> Streams<M> {
    pub(crate) fn new(limits: &Limits) -> Self {
        let stream = |_| Stream {
            inbox: Inbox::new(Arrived::default()),
            wait: SpinLock::new(LockClass::WaitQueue, ()),
            reader: Mutex::new(),
        };
        let ends = limits.streams.next_multiple_of(2);
        Streams {
            ends: (0..ends).map(stream).collect(),
            epolls: Epolls::new(limits.epolls, ends),
        }
    }

    fn get(&self, id: u32) -> &Stream<M> {
        &self.ends[id as usize]
    }

    /// `unix_poll`: a stream is writable while at most a quarter of the buffer is in use.
    fn ready(&self, on: &OnCpu<'_, M>, id: u32) -> Events {
        on.work(costs::EPOLL_LOOK);
        let bytes = |id: u32| self.get(id).inbox.arrived(on).bytes;
        let readable = bytes(id) > 0;
        let writable = bytes(id ^ 1) <= BUFFER_BYTES / 4;
        Events(u32::from(readable) | u32::from(writable) << 1)
    }
    /// Makes instance `epoll` report `events` of stream `id`, once.
    pub(crate) fn watch(&self, sched: &Scheduler<M>, epoll: u32, id: u32, events: Events) {
        self.epolls
            .watch(sched, epoll, id, events, &|on, id| self.ready(on, id));
    }

    /// Sleeps until a stream that instance `epoll` watches is ready. Returns the stream and its events.
    pub(crate) fn wait(&self, sched: &Scheduler<M>, epoll: u32) -> (u32, Events) {
        self.epolls.wait(sched, epoll, &|on, id| self.ready(on, id))
    }

    /// Calls back the epoll instance that watches stream `id` (`sock_def_readable`, `unix_write_space`).
    fn notify(&self, on: &OnCpu<'_, M>, id: u32, events: Events) {
        let _entries = self.get(id).wait.lock_irq(on);
        on.work(costs::WAIT_QUEUE_ENTRY);
        self.epolls.call_back(on, id, events);
    }

    /// Writes as many of `items` to the peer of `from` as fit, and returns how many.
    pub(crate) fn write(&self, sched: &Scheduler<M>, from: u32, items: &[u32], item_bytes: u32) -> usize {
        let item_bytes = item_bytes.clamp(1, SEGMENT_BYTES);
        let to = from ^ 1;
        let peer = self.get(to);
        let mut left = items;
        while !left.is_empty() {
            let on = sched.on_cpu();
            let room = BUFFER_BYTES - peer.inbox.arrived(&on).bytes;
            let fit = room.min(SEGMENT_BYTES) / item_bytes;
            let (part, rest) = left.split_at(left.len().min(fit as usize));
            if part.is_empty() {
                break;
            }
            let bytes = part.len() as u32 * item_bytes;
            on.work(costs::SOCKET_SEND + u64::from(bytes) * costs::COPY_BYTE_PS / 1000);
            on.sched.memory.slab_refill(&on, 2);
            peer.inbox.change(&on, |arrived| arrived.push(part, bytes));
            self.notify(&on, to, Events::READ);
            left = rest;
        }
        items.len() - left.len()
    }

    /// Reads whole socket buffers of stream `id` until `limit` bytes are reached, and returns the number of items.
    pub(crate) fn read(&self, sched: &Scheduler<M>, id: u32, limit: u32, into: &mut Vec<u32>) -> usize {
        let stream = self.get(id);
        let (before, mut bytes) = (into.len(), 0);
        stream.reader.lock(sched);
        while bytes < limit {
            let on = sched.on_cpu();
            let taken = stream.inbox.change(&on, |arrived| arrived.pop(into));
            let Some(taken) = taken else { break };
            on.work(costs::SOCKET_RECEIVE + u64::from(taken) * costs::COPY_BYTE_PS / 1000);
            on.sched.memory.slab_refill(&on, 2);
            bytes += taken;
            // Freeing the buffer gives the writer its space back (`sock_wfree`).
            if stream.inbox.arrived(&on).bytes <= BUFFER_BYTES / 4 {
                self.notify(&on, id ^ 1, Events::WRITE);
            }
        }
        stream.reader.unlock(&sched.on_cpu());
        into.len() - before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_leave_whole_and_in_order() {
        let mut arrived = Arrived::default();
        arrived.push(&[1, 2, 3], 30);
        arrived.push(&[4], 10);
        let mut out = Vec::new();
        assert_eq!(arrived.pop(&mut out), Some(30));
        assert_eq!((out.as_slice(), arrived.bytes), (&[1, 2, 3][..], 10));
        assert_eq!(arrived.pop(&mut out), Some(10));
        assert_eq!(arrived.pop(&mut out), None);
        assert_eq!((out.as_slice(), arrived.bytes), (&[1, 2, 3, 4][..], 0));
    }
}
