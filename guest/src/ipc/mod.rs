//! Pipes, local sockets, streams with epoll, futexes, SysV semaphores.

mod epoll;
mod futex;
mod pipe;
mod semaphore;
mod socket;
mod stream;

use alloc::boxed::Box;

pub use epoll::Events;
pub(crate) use epoll::{epoll_control, epoll_wait};
pub(crate) use futex::{futex_wait, futex_wake};
pub(crate) use pipe::{close_pipe_writer, open_pipe, read_pipe, write_pipe};
pub(crate) use semaphore::{semaphore_down, semaphore_up};
pub(crate) use socket::{poll, receive, send};
pub(crate) use stream::{read_stream, write_stream};

use crate::class::LockClass;
use crate::machine::Machine;
use crate::program::Limits;
use crate::sync::SpinLock;
use epoll::Epoll;
use futex::Futexes;
use pipe::Pipe;
use semaphore::Array;
use socket::Socket;
use stream::Stream;

/// All of them.
pub(crate) struct Ipc<M: Machine> {
    pipes: Box<[Pipe<M>]>,
    sockets: Box<[Socket<M>]>,
    streams: Box<[Stream<M>]>,
    epolls: Box<[Epoll<M>]>,
    futexes: Futexes<M>,
    arrays: Box<[SpinLock<Array, M>]>,
}

impl<M: Machine> Ipc<M> {
    pub(crate) fn new(limits: &Limits) -> Self {
        let array = |_| SpinLock::new(LockClass::IpcSemaphore, Array::new(limits.semaphores));
        Ipc {
            pipes: (0..limits.pipes).map(|_| Pipe::new()).collect(),
            sockets: (0..limits.sockets.next_multiple_of(2)).map(|_| Socket::new()).collect(),
            streams: (0..limits.streams.next_multiple_of(2)).map(|_| Stream::new()).collect(),
            epolls: (0..limits.epolls).map(|_| Epoll::new()).collect(),
            futexes: Futexes::new(),
            arrays: (0..limits.semaphore_arrays).map(array).collect(),
        }
    }
}
