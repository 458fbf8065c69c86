//! Pipes, local sockets, streams with epoll, futexes, SysV semaphores. Each is a table of its own.

mod epoll;
mod futex;
mod inbox;
mod pipe;
mod semaphore;
mod socket;
mod stream;

pub use epoll::Events;
pub(crate) use futex::Futexes;
pub(crate) use pipe::Pipe;
pub(crate) use semaphore::SemaphoreArrays;
pub(crate) use socket::Sockets;
pub(crate) use stream::Streams;
