//! epoll: waiting for many streams at once, each reported to one waiter (`EPOLLONESHOT`).
//!
//! **No lost event**: whoever arms a stream looks at it afterwards; whoever changes a stream calls back afterwards. **One
//! waiter per event**: a report disarms the stream, under the eventpoll's lock.

use alloc::collections::VecDeque;

use super::stream;
use crate::class::LockClass;
use crate::costs;
use crate::kernel::{Kernel, OnCpu};
use crate::local::Local32;
use crate::machine::Machine;
use crate::mutex::Mutex;
use crate::sched::{self, WakeHint};
use crate::sync::SpinLock;
use crate::task::state;
use crate::wait::{WaitList, wake_list};

/// What a stream can be ready for, or watched for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Events {
    /// Something has arrived.
    pub readable: bool,
    /// There is room to write.
    pub writable: bool,
}

impl Events {
    /// Arrivals only.
    pub const READ: Events = Events {
        readable: true,
        writable: false,
    };
    /// Room only.
    pub const WRITE: Events = Events {
        readable: false,
        writable: true,
    };

    fn and(self, other: Events) -> Events {
        Events {
            readable: self.readable && other.readable,
            writable: self.writable && other.writable,
        }
    }

    fn any(self) -> bool {
        self.readable || self.writable
    }

    fn bits(self) -> u32 {
        u32::from(self.readable) | u32::from(self.writable) << 1
    }

    fn from_bits(bits: u32) -> Events {
        Events {
            readable: bits & 1 != 0,
            writable: bits & 2 != 0,
        }
    }
}

/// A stream's entry in an epoll instance (`struct epitem`). Under that one's lock.
pub(super) struct Interest {
    /// Number + 1 of the instance; 0: none.
    epoll: Local32,
    events: Local32,
    /// Not 0: in the list of those that may be ready.
    linked: Local32,
}

impl Interest {
    pub(super) const fn new() -> Self {
        Interest {
            epoll: Local32::new(0),
            events: Local32::new(0),
            linked: Local32::new(0),
        }
    }
}

/// An instance.
pub(super) struct Epoll<M: Machine> {
    /// `ep->mtx`: one at a time changes interests, or collects events.
    mutex: Mutex<M>,
    /// `ep->lock`.
    state: SpinLock<State, M>,
}

struct State {
    /// Streams that may be ready (`ep->rdllist`).
    ready: VecDeque<u32>,
    /// Who waits (`ep->wq`), one of whom an event wakes.
    waiters: WaitList,
}

impl<M: Machine> Epoll<M> {
    pub(super) fn new() -> Self {
        let state = State {
            ready: VecDeque::with_capacity(8),
            waiters: WaitList::EMPTY,
        };
        Epoll {
            mutex: Mutex::new(),
            state: SpinLock::new(LockClass::Epoll, state),
        }
    }
}

impl State {
    /// Notes that stream `id` may be ready, and wakes one who waits.
    fn link<M: Machine>(&mut self, on: &OnCpu<'_, M>, id: u32, interest: &Interest) {
        if !interest.linked.is_set() {
            interest.linked.set(1);
            self.ready.push_back(id);
            on.work(costs::EPOLL_LINK);
        }
        wake_list(on, &mut self.waiters, 1, WakeHint::Plain);
    }
}

/// `ep_poll_callback`: `events` have come up at stream `id`. Called with the stream's wait queue locked.
pub(super) fn call_back<M: Machine>(on: &OnCpu<'_, M>, id: u32, interest: &Interest, events: Events) {
    let Some(epoll) = interest.epoll.get().checked_sub(1) else {
        return;
    };
    let mut state = on.kernel.ipc.epolls[epoll as usize].state.lock_irq(on);
    if Events::from_bits(interest.events.get()).and(events).any() {
        state.link(on, id, interest);
    }
}

/// EPOLL_CTL_ADD or MOD: from now on `events` of stream `id` are reported, once.
pub(crate) fn epoll_control<M: Machine>(kernel: &Kernel<M>, epoll: u32, id: u32, events: Events) {
    kernel.on_cpu().work(costs::EPOLL_CTL);
    let instance = &kernel.ipc.epolls[epoll as usize];
    let interest = &kernel.ipc.streams[id as usize].interest;
    instance.mutex.lock(kernel);
    let on = kernel.on_cpu();
    {
        let _state = instance.state.lock_irq(&on);
        interest.epoll.set(epoll + 1);
        interest.events.set(events.bits());
    }
    if stream::ready(&on, id).and(events).any() {
        instance.state.lock_irq(&on).link(&on, id, interest);
    }
    instance.mutex.unlock(&on);
}

/// epoll_wait for one event: the stream, and what it is ready for.
pub(crate) fn epoll_wait<M: Machine>(kernel: &Kernel<M>, epoll: u32) -> (u32, Events) {
    let instance = &kernel.ipc.epolls[epoll as usize];
    kernel.on_cpu().work(costs::EPOLL_WAIT);
    loop {
        sleep_until_linked(kernel, instance);
        instance.mutex.lock(kernel);
        let found = collect(&kernel.on_cpu(), instance);
        instance.mutex.unlock(&kernel.on_cpu());
        if let Some(event) = found {
            return event;
        }
    }
}

/// Sleeps until a stream may be ready.
fn sleep_until_linked<M: Machine>(kernel: &Kernel<M>, instance: &Epoll<M>) {
    loop {
        let on = kernel.on_cpu();
        let id = on.current();
        let task = kernel.tasks.get(id);
        {
            let mut state = instance.state.lock_irq(&on);
            on.work(costs::EPOLL_LINK);
            if !state.ready.is_empty() {
                task.state.set(state::RUNNING);
                if task.waiting.get() != 0 {
                    state.waiters.remove(kernel, id);
                }
                return;
            }
            if task.waiting.get() == 0 {
                state.waiters.push(kernel, id);
            }
            task.state.set(state::INTERRUPTIBLE);
        }
        sched::schedule(kernel);
    }
}

/// Takes the first stream that is ready for what it is watched for, and disarms it (`ep_send_events`). The caller holds the
/// mutex.
fn collect<M: Machine>(on: &OnCpu<'_, M>, instance: &Epoll<M>) -> Option<(u32, Events)> {
    let mut found = None;
    while found.is_none() {
        let Some(id) = instance.state.lock_irq(on).ready.pop_front() else {
            break;
        };
        let interest = &on.kernel.ipc.streams[id as usize].interest;
        interest.linked.set(0);
        let now = stream::ready(on, id);
        let _state = instance.state.lock_irq(on);
        let events = Events::from_bits(interest.events.get()).and(now);
        if events.any() {
            interest.events.set(0);
            found = Some((id, events));
        }
    }
    let mut state = instance.state.lock_irq(on);
    if !state.ready.is_empty() {
        wake_list(on, &mut state.waiters, 1, WakeHint::Plain);
    }
    found
}
