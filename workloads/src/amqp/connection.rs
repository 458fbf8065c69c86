//! The broker's side of a connection: whether a worker serves it, and whether there are messages to write.

use alloc::vec::Vec;

use holdfast_guest::{Events, Machine, Os};

use super::Messaging;

/// The epoll instance at which the broker's workers wait.
pub(super) const EPOLL: u32 = 0;

/// A connection. Its mutex is `DispatchHandle::stateLock`.
#[derive(Default)]
pub(super) struct Connection {
    is_served: bool,
    wants_to_write: bool,
    work: Work,
}

/// The state that the serving worker has taken.
#[derive(Default)]
pub(super) struct Work {
    /// Messages that are encoded but not written.
    pub(super) output: Vec<u32>,
    /// Messages that the consumer still wants.
    pub(super) credit: u64,
}

impl Connection {
    /// Makes a connection whose consumer wants `credit` messages.
    pub(super) fn new(credit: u64) -> Self {
        let output = Vec::new();
        Connection {
            work: Work { output, credit },
            ..Connection::default()
        }
    }
}

impl<M: Machine> Messaging<M> {
    /// Lets the caller serve connection `number`, which has `events`. Returns `None` if another worker serves it.
    pub(super) fn begin_service(&self, os: &Os<M>, number: u32, events: Events) -> Option<Work> {
        let mut state = self.connections[number as usize].lock(os);
        if state.is_served {
            // The event is from before that worker began. When it is done it arms the connection again.
            return None;
        }
        state.is_served = true;
        state.wants_to_write &= !events.has(Events::WRITE);
        Some(core::mem::take(&mut state.work))
    }

    /// Ends the service of connection `number`. `has_more`: there is more to write.
    pub(super) fn end_service(&self, os: &Os<M>, number: u32, work: Work, has_more: bool) {
        let mut state = self.connections[number as usize].lock(os);
        state.work = work;
        state.is_served = false;
        state.wants_to_write |= has_more;
        let write = if state.wants_to_write {
            Events::WRITE
        } else {
            Events::default()
        };
        let events = Events::READ | write;
        os.watch(EPOLL, Self::broker_end(number), events);
    }

    /// Makes a worker serve connection `number`, to which there are messages to write (`notifyPendingWrite`).
    pub(super) fn notify(&self, os: &Os<M>, number: u32) {
        let mut state = self.connections[number as usize].lock(os);
        if state.wants_to_write {
            return;
        }
        state.wants_to_write = true;
        if !state.is_served {
            os.watch(EPOLL, Self::broker_end(number), Events::READ | Events::WRITE);
        }
    }
}
