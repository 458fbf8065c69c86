//! epoll: waiting for many streams at once. Each event is reported to one waiter (`EPOLLONESHOT`).
//!
//! **No lost event**: a task that arms a stream checks the stream afterwards. A task that changes a stream calls back
//! afterwards. **One waiter per event**: a report disarms the stream, under the eventpoll's lock.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::ops::BitOr;

use crate::class::LockClass;
use crate::costs;
use crate::local::Local32;
use crate::machine::Machine;
use crate::mutex::Mutex;
use crate::sched::{self, OnCpu, Scheduler, WakeHint};
use crate::sync::SpinLock;
use crate::task::state;
use crate::wait::{WaitList, wake_list};

/// The events that a stream can be ready for, or watched for: a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Events(pub(super) u32);

impl Events {
    /// Data have arrived.
    pub const READ: Events = Events(1);
    /// There is room to write.
    pub const WRITE: Events = Events(2);

    /// Returns `true` if the set has one of `others`.
    pub fn has(self, others: Events) -> bool {
        self.0 & others.0 != 0
    }
}

impl BitOr for Events {
    type Output = Events;

    fn bitor(self, other: Events) -> Events {
        Events(self.0 | other.0)
    }
}

/// A stream's entry in an epoll instance (`struct epitem`). Under that instance's lock.
#[derive(Default)]
struct Interest {
    /// Number + 1 of the instance. 0: none.
    epoll: Local32,
    events: Local32,
    /// Not 0: in the list of streams that may be ready.
    linked: Local32,
}

/// Returns the events that a stream is ready for.
pub(super) type Ready<'a, M> = &'a dyn Fn(&OnCpu<'_, M>, u32) -> Events;

/// All epoll instances.
pub(super) struct Epolls<M: Machine> {
    instances: Box<[Epoll<M>]>,
    /// The entry of each stream.
    interests: Box<[Interest]>,
}

/// One epoll instance.
struct Epoll<M: Machine> {
    /// `ep->mtx`: one task at a time changes interests, or collects events.
    mutex: Mutex<M>,
    /// Linux's `ep->lock`.
    state: SpinLock<State, M>,
}

struct State {
    /// Streams that may be ready (`ep->rdllist`).
    ready: VecDeque<u32>,
    /// The waiting tasks (`ep->wq`). An event wakes one of them.
    waiters: WaitList,
}

impl State {
    /// Notes that stream `id` may be ready, and wakes one waiting task.
    fn link<M: Machine>(&mut self, on: &OnCpu<'_, M>, id: u32, interest: &Interest) {
        if !interest.linked.is_set() {
            interest.linked.set(1);
            self.ready.push_back(id);
            on.work(costs::EPOLL_LINK);
        }
        wake_list(on, &mut self.waiters, 1, WakeHint::Plain);
    }
}

impl<M: Machine> Epolls<M> {
    pub(super) fn new(count: u32, streams: u32) -> Self {
        let state = || State {
            ready: VecDeque::with_capacity(8),
            waiters: WaitList::EMPTY,
        };
        let instance = |_| Epoll {
            mutex: Mutex::new(),
            state: SpinLock::new(LockClass::Epoll, state()),
        };
        Epolls {
            instances: (0..count).map(instance).collect(),
            interests: (0..streams).map(|_| Interest::default()).collect(),
        }
    }

    /// `ep_poll_callback`: notes new `events` of stream `id`. Called with the stream's wait queue locked.
    pub(super) fn call_back(&self, on: &OnCpu<'_, M>, id: u32, events: Events) {
        let interest = &self.interests[id as usize];
        let Some(epoll) = interest.epoll.get().checked_sub(1) else {
            return;
        };
        let mut state = self.instances[epoll as usize].state.lock_irq(on);
        if Events(interest.events.get()).has(events) {
            state.link(on, id, interest);
        }
    }

    /// EPOLL_CTL_ADD or MOD: from now on instance `epoll` reports `events` of stream `id`, once.
    pub(super) fn watch(&self, sched: &Scheduler<M>, epoll: u32, id: u32, events: Events, ready: Ready<'_, M>) {
        sched.on_cpu().work(costs::EPOLL_CTL);
        let instance = &self.instances[epoll as usize];
        let interest = &self.interests[id as usize];
        instance.mutex.lock(sched);
        let on = sched.on_cpu();
        {
            let _state = instance.state.lock_irq(&on);
            interest.epoll.set(epoll + 1);
            interest.events.set(events.0);
        }
        if ready(&on, id).has(events) {
            instance.state.lock_irq(&on).link(&on, id, interest);
        }
        instance.mutex.unlock(&on);
    }

    /// epoll_wait for one event: returns the stream, and the events that it is ready for.
    pub(super) fn wait(&self, sched: &Scheduler<M>, epoll: u32, ready: Ready<'_, M>) -> (u32, Events) {
        let instance = &self.instances[epoll as usize];
        sched.on_cpu().work(costs::EPOLL_WAIT);
        loop {
            instance.sleep_until_linked(sched);
            instance.mutex.lock(sched);
            let found = instance.collect(&sched.on_cpu(), &self.interests, ready);
            instance.mutex.unlock(&sched.on_cpu());
            if let Some(event) = found {
                return event;
            }
        }
    }
}

impl<M: Machine> Epoll<M> {
    /// Sleeps until a stream may be ready.
    fn sleep_until_linked(&self, sched: &Scheduler<M>) {
        loop {
            let on = sched.on_cpu();
            let id = on.current();
            let task = on.task(id);
            {
                let mut state = self.state.lock_irq(&on);
                on.work(costs::EPOLL_LINK);
                if !state.ready.is_empty() {
                    task.state.set(state::RUNNING);
                    if task.waiting.get() != 0 {
                        state.waiters.remove(&sched.tasks, id);
                    }
                    return;
                }
                if task.waiting.get() == 0 {
                    state.waiters.push(&sched.tasks, id);
                }
                task.state.set(state::INTERRUPTIBLE);
            }
            sched::schedule(sched);
        }
    }

    /// Takes the first stream that is ready for an event that it is watched for, and disarms it (`ep_send_events`). The
    /// caller holds the mutex.
    fn collect(&self, on: &OnCpu<'_, M>, interests: &[Interest], ready: Ready<'_, M>) -> Option<(u32, Events)> {
        let mut found = None;
        while found.is_none() {
            let Some(id) = self.state.lock_irq(on).ready.pop_front() else {
                break;
            };
            let interest = &interests[id as usize];
            interest.linked.set(0);
            let now = ready(on, id);
            let _state = self.state.lock_irq(on);
            let events = interest.events.get() & now.0;
            if events != 0 {
                interest.events.set(0);
                found = Some((id, Events(events)));
            }
        }
        let mut state = self.state.lock_irq(on);
        if !state.ready.is_empty() {
            wake_list(on, &mut state.waiters, 1, WakeHint::Plain);
        }
        found
    }
}
