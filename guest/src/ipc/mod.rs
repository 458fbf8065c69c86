//! Pipes, local sockets, SysV semaphores.

mod pipe;
mod semaphore;
mod socket;

use alloc::boxed::Box;

pub(crate) use pipe::{close_pipe_writer, open_pipe, read_pipe, write_pipe};
pub(crate) use semaphore::{semaphore_down, semaphore_up};
pub(crate) use socket::{poll, receive, send};

use crate::class::LockClass;
use crate::machine::Machine;
use crate::program::Limits;
use crate::sync::SpinLock;
use pipe::Pipe;
use semaphore::Array;
use socket::Socket;

/// All of them.
pub(crate) struct Ipc<M: Machine> {
    pipes: Box<[Pipe<M>]>,
    sockets: Box<[Socket<M>]>,
    arrays: Box<[SpinLock<Array, M>]>,
}

impl<M: Machine> Ipc<M> {
    pub(crate) fn new(limits: &Limits) -> Self {
        let array = |_| SpinLock::new(LockClass::IpcSemaphore, Array::new(limits.semaphores));
        Ipc {
            pipes: (0..limits.pipes).map(|_| Pipe::new()).collect(),
            sockets: (0..limits.sockets.next_multiple_of(2)).map(|_| Socket::new()).collect(),
            arrays: (0..limits.semaphore_arrays).map(array).collect(),
        }
    }
}
