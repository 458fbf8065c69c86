//! Local stream sockets.

use alloc::collections::VecDeque;

use crate::class::LockClass;
use crate::costs;
use crate::kernel::Kernel;
use crate::machine::Machine;
use crate::mutex::Mutex;
use crate::sched::{self, WakeHint};
use crate::sync::SpinLock;
use crate::task::state;
use crate::wait::WaitQueue;

/// One end of a connection.
pub(super) struct Socket<M: Machine> {
    state: SpinLock<(), M>,
    /// Messages that have arrived.
    queue: SpinLock<VecDeque<u32>, M>,
    wait: WaitQueue<M>,
    /// `u->readlock`.
    reader: Mutex<M>,
}

impl<M: Machine> Socket<M> {
    pub(super) fn new() -> Self {
        Socket {
            state: SpinLock::new(LockClass::SocketState, ()),
            queue: SpinLock::new(LockClass::SocketQueue, VecDeque::with_capacity(4)),
            wait: WaitQueue::new(),
            reader: Mutex::new(),
        }
    }
}

/// Sends `message` from socket `from` to its peer.
pub(crate) fn send<M: Machine>(kernel: &Kernel<M>, from: u32, message: u32) {
    let on = kernel.on_cpu();
    let peer = &kernel.ipc.sockets[(from ^ 1) as usize];
    on.work(costs::SOCKET_SEND);
    kernel.memory.slab(&on, 2);
    {
        let _state = peer.state.lock(&on);
        on.work(costs::SOCKET_STATE);
        let mut queue = peer.queue.lock_irq(&on);
        queue.push_back(message);
        on.work(costs::SOCKET_QUEUE);
    }
    peer.wait.wake(&on, u32::MAX, WakeHint::Sync);
}

fn take_message<M: Machine>(kernel: &Kernel<M>, socket: &Socket<M>) -> Option<u32> {
    let on = kernel.on_cpu();
    let mut queue = socket.queue.lock_irq(&on);
    on.work(costs::SOCKET_QUEUE);
    queue.pop_front()
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
