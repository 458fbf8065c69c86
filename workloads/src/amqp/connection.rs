//! The broker's side of a connection: which worker serves it, and whether there is something to write.

use alloc::vec::Vec;

use holdfast_guest::{Events, Machine, Os, UserMutex};

use super::Messaging;

/// The epoll instance at which the broker's workers wait.
pub(super) const EPOLL: u32 = 0;

/// A connection. Its mutex is `DispatchHandle::stateLock`.
pub(super) struct Connection<M: Machine> {
    state: UserMutex<State, M>,
}

struct State {
    is_served: bool,
    wants_to_write: bool,
    work: Work,
}

/// What belongs to whoever serves the connection.
#[derive(Default)]
pub(super) struct Work {
    /// Messages that are encoded and not written.
    pub(super) output: Vec<u32>,
    /// Messages that the consumer still wants.
    pub(super) credit: u64,
}

impl<M: Machine> Connection<M> {
    /// A connection whose consumer wants `credit` messages.
    pub(super) fn new(credit: u64) -> Self {
        Connection {
            state: UserMutex::new(State {
                is_served: false,
                wants_to_write: false,
                work: Work {
                    output: Vec::new(),
                    credit,
                },
            }),
        }
    }
}

impl<M: Machine> Messaging<M> {
    /// The caller serves connection `number`, which has `events`; `None` if another worker does.
    pub(super) fn begin_service(&self, os: &Os<M>, number: u32, events: Events) -> Option<Work> {
        let mut state = self.connections[number as usize].state.lock(os);
        if state.is_served {
            // An event from before that one began: when it is done it looks again.
            return None;
        }
        state.is_served = true;
        state.wants_to_write &= !events.writable;
        Some(core::mem::take(&mut state.work))
    }

    /// The caller has served connection `number`, and there is more to write or not.
    pub(super) fn end_service(&self, os: &Os<M>, number: u32, work: Work, has_more: bool) {
        let mut state = self.connections[number as usize].state.lock(os);
        state.work = work;
        state.is_served = false;
        state.wants_to_write |= has_more;
        let events = Events {
            readable: true,
            writable: state.wants_to_write,
        };
        os.watch(EPOLL, Self::broker_end(number), events);
    }

    /// There is something to write to connection `number`: some worker shall serve it (`notifyPendingWrite`).
    pub(super) fn notify(&self, os: &Os<M>, number: u32) {
        let mut state = self.connections[number as usize].state.lock(os);
        if state.wants_to_write {
            return;
        }
        state.wants_to_write = true;
        if !state.is_served {
            let events = Events {
                readable: true,
                writable: true,
            };
            os.watch(EPOLL, Self::broker_end(number), events);
        }
    }
}
