//! Lightweight locks, shared or exclusive. Waiters queue, and sleep on their semaphores.

use alloc::collections::VecDeque;

use holdfast_guest::{Machine, Os, UserLine, UserLock};

use super::Database;

/// How a lightweight lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hold {
    /// Shared with other readers.
    Shared,
    /// Exclusive of all others.
    Exclusive,
}

/// A lightweight lock.
pub(super) struct LwLock<M: Machine> {
    state: UserLock<State, M>,
    /// Cache lines of the protected data: hash chains and entries, or the header of a buffer.
    pub(super) lines: [UserLine<M>; LINES],
}

/// Cache lines that a change under a lightweight lock of the lock manager writes: bucket, lock, holder, queue. [G], as
/// in `mix.rs`.
pub(super) const LINES: usize = 4;

#[derive(Debug, Default)]
struct State {
    exclusive: bool,
    shared: u32,
    /// The sleeping backends, in the order of their arrival.
    queue: VecDeque<(u32, Hold)>,
    /// A backend was woken and has not tried yet. No other backend is woken until then.
    is_wake_pending: bool,
}

impl State {
    fn try_take(&mut self, hold: Hold) -> bool {
        let free = !self.exclusive && (hold == Hold::Shared || self.shared == 0);
        if free {
            match hold {
                Hold::Shared => self.shared += 1,
                Hold::Exclusive => self.exclusive = true,
            }
        }
        free
    }

    /// Releases the lock. Returns how many backends at the head of the queue must be woken: one writer, or all readers
    /// before the next writer.
    fn release(&mut self) -> usize {
        if self.exclusive {
            self.exclusive = false;
        } else {
            self.shared -= 1;
        }
        if self.shared > 0 || self.is_wake_pending || self.queue.is_empty() {
            return 0;
        }
        self.is_wake_pending = true;
        let readers = self.queue.iter().take_while(|(_, hold)| *hold == Hold::Shared).count();
        readers.max(1)
    }
}

impl<M: Machine> LwLock<M> {
    pub(super) fn new() -> Self {
        LwLock {
            state: UserLock::default(),
            lines: core::array::from_fn(|_| UserLine::default()),
        }
    }
}

impl<M: Machine> Database<M> {
    /// Takes lightweight lock `index` for `backend`.
    pub(super) fn take(&self, os: &Os<M>, backend: u32, index: usize, hold: Hold) {
        let lock = &self.locks[index];
        let mut is_retry = false;
        loop {
            {
                let mut state = lock.state.lock(os);
                if is_retry {
                    state.is_wake_pending = false;
                }
                if state.try_take(hold) {
                    return;
                }
                // As in 9.1, a waiter that was woken and failed queues again, at the end.
                state.queue.push_back((backend, hold));
            }
            self.sleep(os, backend);
            is_retry = true;
        }
    }

    /// Releases lightweight lock `index`.
    pub(super) fn release(&self, os: &Os<M>, index: usize) {
        let lock = &self.locks[index];
        let mut wakes = lock.state.lock(os).release();
        while wakes > 0 {
            let next = lock.state.lock(os).queue.pop_front();
            if let Some((backend, _)) = next {
                self.wake(os, backend);
            }
            wakes -= 1;
        }
    }

    /// Works for `ns` with lightweight lock `index` held.
    pub(super) fn with(&self, os: &Os<M>, backend: u32, index: usize, hold: Hold, ns: u64) {
        self.take(os, backend, index, hold);
        os.user(ns);
        self.release(os, index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_share_and_writers_do_not() {
        let mut state = State::default();
        assert!(state.try_take(Hold::Shared));
        assert!(state.try_take(Hold::Shared));
        assert!(!state.try_take(Hold::Exclusive));
        assert_eq!(state.release(), 0);
        assert_eq!(state.release(), 0);
        assert!(state.try_take(Hold::Exclusive));
        assert!(!state.try_take(Hold::Shared));
    }

    #[test]
    fn wakes_one_writer_or_all_readers_before_it() {
        let waiting = |queue: &[(u32, Hold)]| {
            let mut state = State {
                queue: queue.iter().copied().collect(),
                ..State::default()
            };
            assert!(state.try_take(Hold::Exclusive));
            state.release()
        };
        assert_eq!(waiting(&[(1, Hold::Exclusive), (2, Hold::Shared)]), 1);
        assert_eq!(
            waiting(&[(1, Hold::Shared), (2, Hold::Shared), (3, Hold::Exclusive)]),
            2
        );
        assert_eq!(waiting(&[]), 0);
    }
}
