//! Local stream sockets.
//!
//! What a socket has sent and its peer has not received counts against the sender's buffer; a sender whose buffer is full
//! sleeps until the peer has emptied three quarters of it (`unix_writable`). **No lost message**: a message is in one
//! receive queue from its sending until its receipt.

use alloc::collections::VecDeque;

use crate::class::LockClass;
use crate::costs;
use crate::kernel::{Kernel, OnCpu};
use crate::local::Shared32;
use crate::machine::Machine;
use crate::mutex::Mutex;
use crate::sched::{self, WakeHint};
use crate::sync::SpinLock;
use crate::task::state;
use crate::wait::WaitQueue;

/// Messages that a socket may have on their way: `net.core.wmem_default`, 212 992 bytes, at 768 bytes for a small message
/// (`skb->truesize`: 512 bytes of data at least, and the buffer's head). Uncertain by a quarter.
const MESSAGES_MAX: u32 = 277;
/// With at most so many, the sender is woken.
const MESSAGES_WRITABLE: u32 = MESSAGES_MAX / 4;

/// One end of a connection.
pub(super) struct Socket<M: Machine> {
    state: SpinLock<(), M>,
    /// Messages that have arrived.
    queue: SpinLock<VecDeque<u32>, M>,
    /// How many they are: what the peer has on its way. Written under the queue's lock.
    queued: Shared32,
    wait: WaitQueue<M>,
    /// `u->readlock`.
    reader: Mutex<M>,
}

impl<M: Machine> Socket<M> {
    pub(super) fn new() -> Self {
        Socket {
            state: SpinLock::new(LockClass::SocketState, ()),
            queue: SpinLock::new(LockClass::SocketQueue, VecDeque::with_capacity(4)),
            queued: Shared32::new(0),
            wait: WaitQueue::new(),
            reader: Mutex::new(),
        }
    }
}

/// Sends `message` from socket `from` to its peer; sleeps while too many are on their way.
pub(crate) fn send<M: Machine>(kernel: &Kernel<M>, from: u32, message: u32) {
    let peer = &kernel.ipc.sockets[(from ^ 1) as usize];
    kernel.on_cpu().work(costs::SOCKET_SEND);
    wait_for_room(kernel, from);
    let on = kernel.on_cpu();
    kernel.memory.slab(&on, 2);
    {
        let _state = peer.state.lock(&on);
        on.work(costs::SOCKET_STATE);
        let mut queue = peer.queue.lock_irq(&on);
        queue.push_back(message);
        peer.queued.set(queue.len() as u32);
        on.work(costs::SOCKET_QUEUE);
    }
    peer.wait.wake(&on, u32::MAX, WakeHint::Sync);
}

/// Sleeps while the buffer of socket `from` is full (`sock_wait_for_wmem`). The count needs no lock: it is an atomic of the
/// socket's (`sk_wmem_alloc`), and several senders may overshoot together.
fn wait_for_room<M: Machine>(kernel: &Kernel<M>, from: u32) {
    let queued = &kernel.ipc.sockets[(from ^ 1) as usize].queued;
    let is_full = || queued.get() >= MESSAGES_MAX;
    let wait = &kernel.ipc.sockets[from as usize].wait;
    while is_full() {
        wait.prepare(&kernel.on_cpu(), state::INTERRUPTIBLE);
        if is_full() {
            sched::schedule(kernel);
        }
        wait.finish(&kernel.on_cpu());
    }
}

fn take_message<M: Machine>(kernel: &Kernel<M>, socket: &Socket<M>) -> Option<u32> {
    let on = kernel.on_cpu();
    let mut queue = socket.queue.lock_irq(&on);
    on.work(costs::SOCKET_QUEUE);
    let message = queue.pop_front();
    socket.queued.set(queue.len() as u32);
    message
}

/// The message that was taken at socket `id` is freed: its sender may have room again (`sock_wfree`, `unix_write_space`).
fn give_room<M: Machine>(on: &OnCpu<'_, M>, id: u32) {
    let sender = &on.kernel.ipc.sockets[(id ^ 1) as usize].wait;
    if on.kernel.ipc.sockets[id as usize].queued.get() <= MESSAGES_WRITABLE && !sender.is_idle() {
        sender.wake(on, u32::MAX, WakeHint::Sync);
    }
}

/// Receives a message at socket `id`; sleeps until there is one.
pub(crate) fn receive<M: Machine>(kernel: &Kernel<M>, id: u32) -> u32 {
    let socket = &kernel.ipc.sockets[id as usize];
    socket.reader.lock(kernel);
    loop {
        if let Some(message) = take_message(kernel, socket) {
            let on = kernel.on_cpu();
            on.work(costs::SOCKET_RECEIVE);
            kernel.memory.slab(&on, 2);
            give_room(&on, id);
            socket.reader.unlock(&on);
            return message;
        }
        let on = kernel.on_cpu();
        socket.reader.unlock(&on);
        {
            let _state = socket.state.lock(&on);
            on.work(costs::SOCKET_STATE);
            socket.wait.prepare(&on, state::INTERRUPTIBLE);
        }
        let nothing_yet = socket.queue.lock_irq(&on).is_empty();
        if nothing_yet {
            sched::schedule(kernel);
        }
        let on = kernel.on_cpu();
        socket.wait.finish(&on);
        {
            let _state = socket.state.lock(&on);
            on.work(costs::SOCKET_STATE);
        }
        socket.reader.lock(kernel);
    }
}

/// Sleeps until socket `id` has a message (poll, select).
pub(crate) fn poll<M: Machine>(kernel: &Kernel<M>, id: u32) {
    let socket = &kernel.ipc.sockets[id as usize];
    kernel.on_cpu().work(costs::POLL);
    loop {
        let on = kernel.on_cpu();
        socket.wait.prepare(&on, state::INTERRUPTIBLE);
        let nothing_yet = socket.queue.lock_irq(&on).is_empty();
        if nothing_yet {
            sched::schedule(kernel);
        }
        let on = kernel.on_cpu();
        socket.wait.finish_poll(&on);
        if !nothing_yet {
            return;
        }
    }
}
