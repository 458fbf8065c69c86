//! Pipes, local sockets, SysV semaphores.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use crate::class::LockClass;
use crate::costs;
use crate::kernel::Kernel;
use crate::local::Local32;
use crate::machine::Machine;
use crate::process;
use crate::program::Limits;
use crate::sched::{self, WakeHint};
use crate::sync::SpinLock;
use crate::task::{TaskId, state};
use crate::wait::{Mutex, WaitQueue};

/// Bytes that a pipe holds: 16 pages.
const PIPE_BYTES: u32 = 65_536;
const PAGE_BYTES: u32 = 4_096;

/// A pipe.
struct Pipe<M: Machine> {
    /// The pipe's inode's `i_mutex`; protects the rest.
    mutex: Mutex<M>,
    /// Readers and writers alike.
    wait: WaitQueue<M>,
    bytes: Local32,
    writers: Local32,
}

/// One end of a connection.
struct Socket<M: Machine> {
    state: SpinLock<(), M>,
    /// Messages that have arrived.
    queue: SpinLock<VecDeque<u32>, M>,
    wait: WaitQueue<M>,
    /// `u->readlock`.
    reader: Mutex<M>,
}

/// A SysV semaphore array, with those who wait for it in their order.
struct Array {
    values: Box<[u32]>,
    waiters: VecDeque<(TaskId, u32)>,
}

/// All of them.
pub(crate) struct Ipc<M: Machine> {
    pipes: Box<[Pipe<M>]>,
    sockets: Box<[Socket<M>]>,
    arrays: Box<[SpinLock<Array, M>]>,
}

impl<M: Machine> Ipc<M> {
    pub(crate) fn new(limits: &Limits) -> Self {
        let pipe = |_| Pipe {
            mutex: Mutex::new(),
            wait: WaitQueue::new(),
            bytes: Local32::new(0),
            writers: Local32::new(0),
        };
        let socket = |_| Socket {
            state: SpinLock::new(LockClass::SocketState, ()),
            queue: SpinLock::new(LockClass::SocketQueue, VecDeque::with_capacity(4)),
            wait: WaitQueue::new(),
            reader: Mutex::new(),
        };
        let array = |_| {
            let values = (0..limits.semaphores).map(|_| 0).collect();
            SpinLock::new(
                LockClass::IpcSemaphore,
                Array {
                    values,
                    waiters: VecDeque::new(),
                },
            )
        };
        Ipc {
            pipes: (0..limits.pipes).map(pipe).collect(),
            sockets: (0..limits.sockets.next_multiple_of(2)).map(socket).collect(),
            arrays: (0..limits.semaphore_arrays).map(array).collect(),
        }
    }
}

/// Opens a pipe for `writers` writing processes; empties it.
pub(crate) fn open_pipe<M: Machine>(kernel: &Kernel<M>, id: u32, writers: u32) {
    let pipe = &kernel.ipc.pipes[id as usize];
    pipe.mutex.lock(kernel);
    pipe.bytes.set(0);
    pipe.writers.set(writers);
    pipe.mutex.unlock(&kernel.on_cpu());
}

/// A writer closes the pipe; the last one's readers see its end.
pub(crate) fn close_pipe_writer<M: Machine>(kernel: &Kernel<M>, id: u32) {
    let pipe = &kernel.ipc.pipes[id as usize];
    pipe.mutex.lock(kernel);
    pipe.writers.sub(1);
    let on = kernel.on_cpu();
    pipe.wait.wake(&on, u32::MAX, WakeHint::Sync);
    pipe.mutex.unlock(&on);
}

/// Reads up to `want` bytes; sleeps while there are none. 0: the end. `None`: a signal came instead.
pub(crate) fn read_pipe<M: Machine>(kernel: &Kernel<M>, id: u32, want: u32) -> Option<u32> {
    let pipe = &kernel.ipc.pipes[id as usize];
    pipe.mutex.lock(kernel);
    loop {
        let on = kernel.on_cpu();
        let there = pipe.bytes.get();
        if there > 0 || pipe.writers.get() == 0 {
            let got = there.min(want);
            pipe.bytes.sub(got);
            on.work(costs::PIPE + costs::PIPE_PAGE * u64::from(got) / u64::from(PAGE_BYTES));
            pipe.mutex.unlock(&on);
            if there == PIPE_BYTES {
                pipe.wait.wake(&on, u32::MAX, WakeHint::Sync);
            }
            return Some(got);
        }
        pipe.wait.prepare(&on, state::INTERRUPTIBLE);
        pipe.mutex.unlock(&on);
        sched::schedule(kernel);
        let on = kernel.on_cpu();
        pipe.wait.finish(&on);
        if process::take_signal(&on) {
            return None;
        }
        pipe.mutex.lock(kernel);
    }
}

/// Writes `bytes`; sleeps while the pipe is full.
pub(crate) fn write_pipe<M: Machine>(kernel: &Kernel<M>, id: u32, bytes: u32) {
    let pipe = &kernel.ipc.pipes[id as usize];
    let mut left = bytes;
    pipe.mutex.lock(kernel);
    loop {
        let on = kernel.on_cpu();
        let part = left.min(PIPE_BYTES - pipe.bytes.get()).min(PAGE_BYTES.max(left));
        if part > 0 {
            on.work(costs::PIPE + costs::PIPE_PAGE * u64::from(part) / u64::from(PAGE_BYTES));
            if part >= PAGE_BYTES {
                kernel.memory.take_page(&on);
            }
            pipe.bytes.add(part);
            left -= part;
        }
        if left == 0 {
            pipe.mutex.unlock(&on);
            pipe.wait.wake(&on, u32::MAX, WakeHint::Sync);
            return;
        }
        pipe.wait.wake(&on, u32::MAX, WakeHint::Sync);
        pipe.wait.prepare(&on, state::UNINTERRUPTIBLE);
        pipe.mutex.unlock(&on);
        sched::schedule(kernel);
        pipe.wait.finish(&kernel.on_cpu());
        pipe.mutex.lock(kernel);
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

/// Subtracts one from a semaphore; sleeps while it is 0. First come, first served.
pub(crate) fn semaphore_down<M: Machine>(kernel: &Kernel<M>, array: u32, index: u32) {
    let on = kernel.on_cpu();
    let id = on.current();
    let task = kernel.tasks.get(id);
    on.work(costs::SEMOP);
    {
        let mut array = kernel.ipc.arrays[array as usize].lock(&on);
        on.work(costs::SEMOP_HELD);
        let value = &mut array.values[index as usize];
        if *value > 0 {
            *value -= 1;
            return;
        }
        task.granted.set(0);
        task.state.set(state::INTERRUPTIBLE);
        array.waiters.push_back((id, index));
    }
    // The one who adds does this one's subtraction too, and says so before it wakes it.
    loop {
        sched::schedule(kernel);
        if task.granted.get() != 0 {
            return;
        }
        task.state.set(state::INTERRUPTIBLE);
        if task.granted.get() != 0 {
            task.state.set(state::RUNNING);
            return;
        }
    }
}

/// Adds one to a semaphore, or lets the first who waits for it go.
pub(crate) fn semaphore_up<M: Machine>(kernel: &Kernel<M>, array: u32, index: u32) {
    let on = kernel.on_cpu();
    on.work(costs::SEMOP);
    let woken = {
        let mut array = kernel.ipc.arrays[array as usize].lock(&on);
        on.work(costs::SEMOP_HELD);
        let waiter = array.waiters.iter().position(|&(_, waits_for)| waits_for == index);
        match waiter {
            Some(position) => array.waiters.remove(position).map(|(id, _)| id),
            None => {
                array.values[index as usize] += 1;
                None
            }
        }
    };
    if let Some(id) = woken {
        kernel.tasks.get(id).granted.set(1);
        sched::wake(&on, id, state::ASLEEP, WakeHint::Plain);
    }
}
