//! What a local socket has received: the part that datagram sockets and streams share.

use crate::class::LockClass;
use crate::costs;
use crate::machine::Machine;
use crate::sched::OnCpu;
use crate::sync::{SpinGuard, SpinLock};

/// What has arrived at a socket.
pub(super) struct Inbox<T, M: Machine> {
    /// Linux's `unix_state_lock`.
    state: SpinLock<(), M>,
    /// Linux's `sk_receive_queue`.
    queue: SpinLock<T, M>,
}

impl<T, M: Machine> Inbox<T, M> {
    pub(super) fn new(arrived: T) -> Self {
        Inbox {
            state: SpinLock::new(LockClass::SocketState, ()),
            queue: SpinLock::new(LockClass::SocketQueue, arrived),
        }
    }

    /// Sends to the socket or receives from it: both hold its state while they change what has arrived.
    pub(super) fn change<R>(&self, on: &OnCpu<'_, M>, change: impl FnOnce(&mut T) -> R) -> R {
        let _state = self.lock_state(on);
        let mut arrived = self.arrived(on);
        on.work(costs::SOCKET_QUEUE);
        change(&mut arrived)
    }

    /// Holds the state of the socket for the time of its checks.
    pub(super) fn lock_state<'a>(&'a self, on: &'a OnCpu<'_, M>) -> SpinGuard<'a, (), M> {
        let state = self.state.lock(on);
        on.work(costs::SOCKET_STATE);
        state
    }

    /// What has arrived, by the lock of the queue alone.
    pub(super) fn arrived<'a>(&'a self, on: &'a OnCpu<'_, M>) -> SpinGuard<'a, T, M> {
        self.queue.lock_irq(on)
    }
}
