//! Local stream sockets.
//!
//! A message that a socket has sent and its peer has not received counts against the sender's buffer. A sender whose
//! buffer is full sleeps until the peer has emptied three quarters of it (`unix_writable`). **No lost message**: a
//! message is in one receive queue from its sending until its receipt.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use super::inbox::Inbox;
use crate::costs;
use crate::local::Shared32;
use crate::machine::Machine;
use crate::mutex::Mutex;
use crate::sched::{self, OnCpu, Scheduler, WakeHint};
use crate::task::state;
use crate::wait::WaitQueue;

/// Messages that a socket may have in transit: `net.core.wmem_default`, 212 992 bytes, at 768 bytes for a small message
/// (`skb->truesize`: at least 512 bytes of data, and the buffer's head). Uncertain by a quarter.
const MESSAGES_MAX: u32 = 277;
/// With at most this many messages in transit, the sender is woken.
const MESSAGES_WRITABLE: u32 = MESSAGES_MAX / 4;

/// All sockets. Each is connected with the one whose number differs in bit 0.
pub(crate) struct Sockets<M: Machine> {
    sockets: Box<[Socket<M>]>,
}

/// One end of a connection.
struct Socket<M: Machine> {
    inbox: Inbox<VecDeque<u32>, M>,
    /// Messages in the inbox: what the peer has in transit. Written under the queue's lock.
    queued: Shared32,
    wait: WaitQueue<M>,
    /// Linux's `u->readlock`.
    reader: Mutex<M>,
}

impl<M: Machine> Sockets<M> {
    pub(crate) fn new(count: u32) -> Self {
        let socket = |_| Socket {
            inbox: Inbox::new(VecDeque::with_capacity(4)),
            queued: Shared32::new(0),
            wait: WaitQueue::new(),
            reader: Mutex::new(),
        };
        Sockets {
            sockets: (0..count.next_multiple_of(2)).map(socket).collect(),
        }
    }

    fn get(&self, id: u32) -> &Socket<M> {
        &self.sockets[id as usize]
    }

    fn peer(&self, id: u32) -> &Socket<M> {
        self.get(id ^ 1)
    }

    /// Sends `message` from socket `from` to its peer, and sleeps while too many messages are in transit.
    pub(crate) fn send(&self, sched: &Scheduler<M>, from: u32, message: u32) {
        let peer = self.peer(from);
        sched.on_cpu().work(costs::SOCKET_SEND);
        self.wait_for_room(sched, from);
        let on = sched.on_cpu();
        on.sched.memory.slab_refill(&on, 2);
        peer.inbox.change(&on, |messages| {
            messages.push_back(message);
            peer.queued.set(messages.len() as u32);
        });
        // `skwq_has_sleeper`: who sleeps joined the wait queue before it looked at the receive queue, under its lock.
        if !peer.wait.is_idle() {
            peer.wait.wake(&on, u32::MAX, WakeHint::Sync);
        }
    }

    /// Sleeps while the buffer of socket `from` is full (`sock_wait_for_wmem`). The count needs no lock: in Linux it is
    /// an atomic of the socket (`sk_wmem_alloc`), and several senders may overshoot together.
    fn wait_for_room(&self, sched: &Scheduler<M>, from: u32) {
        let queued = &self.peer(from).queued;
        let is_full = || queued.get() >= MESSAGES_MAX;
        let wait = &self.get(from).wait;
        while is_full() {
            wait.sleep_unless(sched, state::INTERRUPTIBLE, |_| !is_full());
        }
    }

    /// Wakes the sender of the message that socket `id` has received, if it has room again (`sock_wfree`,
    /// `unix_write_space`).
    fn give_room(&self, on: &OnCpu<'_, M>, id: u32) {
        let sender = &self.peer(id).wait;
        if self.get(id).queued.get() <= MESSAGES_WRITABLE && !sender.is_idle() {
            sender.wake_for_room(on, WakeHint::Sync);
        }
    }

    /// Receives a message at socket `id`, and sleeps until there is one.
    pub(crate) fn receive(&self, sched: &Scheduler<M>, id: u32) -> u32 {
        let socket = self.get(id);
        socket.reader.lock(sched);
        loop {
            let on = sched.on_cpu();
            let message = self.take(&on, id);
            socket.reader.unlock(&on);
            if let Some(message) = message {
                return message;
            }
            {
                let _state = socket.inbox.lock_state(&on);
                socket.wait.prepare(&on, state::INTERRUPTIBLE);
            }
            let nothing_yet = socket.inbox.arrived(&on).is_empty();
            if nothing_yet {
                sched::schedule(sched);
            }
            let on = sched.on_cpu();
            socket.wait.finish(&on);
            drop(socket.inbox.lock_state(&on));
            socket.reader.lock(sched);
        }
    }

    /// Receives a message at socket `id`, if there is one (`MSG_DONTWAIT`).
    pub(crate) fn receive_now(&self, sched: &Scheduler<M>, id: u32) -> Option<u32> {
        let reader = &self.get(id).reader;
        reader.lock(sched);
        let on = sched.on_cpu();
        let message = self.take(&on, id);
        reader.unlock(&on);
        message
    }

    /// Takes a message out of the receive queue of socket `id`.
    fn take(&self, on: &OnCpu<'_, M>, id: u32) -> Option<u32> {
        let socket = self.get(id);
        let message = socket.inbox.change(on, |messages| {
            let message = messages.pop_front();
            socket.queued.set(messages.len() as u32);
            message
        })?;
        on.work(costs::SOCKET_RECEIVE);
        on.sched.memory.slab_refill(on, 2);
        self.give_room(on, id);
        Some(message)
    }

    /// Sleeps until socket `id` has a message (poll, select).
    pub(crate) fn poll(&self, sched: &Scheduler<M>, id: u32) {
        let socket = self.get(id);
        sched.on_cpu().work(costs::POLL);
        loop {
            let on = sched.on_cpu();
            socket.wait.prepare_poll(&on, state::INTERRUPTIBLE);
            let nothing_yet = socket.inbox.arrived(&on).is_empty();
            if nothing_yet {
                sched::schedule(sched);
            }
            let on = sched.on_cpu();
            socket.wait.finish_poll(&on);
            if !nothing_yet {
                return;
            }
        }
    }
}
