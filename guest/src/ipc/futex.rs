//! Futexes: sleeping until a word of user memory changes.
//!
//! **No lost wakeup**: a sleeper checks the word with its bucket locked, and queues before it unlocks. A waker changes
//! the word before it locks the bucket.

use alloc::boxed::Box;
use core::sync::atomic::Ordering::Relaxed;

use holdfast_locks::Platform;

use crate::class::LockClass;
use crate::costs;
use crate::ids::{TaskId, TaskTable};
use crate::local::Local;
use crate::machine::Machine;
use crate::sched::{self, OnCpu, Scheduler, WakeHint};
use crate::sync::{SpinLock, WordOf};
use crate::task::state;
use crate::wait::WaitList;

/// Hash buckets: `FUTEX_HASHBITS` is 8 for any number of CPUs (until 3.13).
const BUCKETS: usize = 256;

/// The sleepers, by the hash of their word.
pub(crate) struct Futexes<M: Machine> {
    buckets: Box<[SpinLock<WaitList, M>]>,
    /// The key of the word that each task sleeps on, under its bucket's lock.
    keys: TaskTable<Local>,
}

impl<M: Machine> Futexes<M> {
    pub(crate) fn new(tasks: u32) -> Self {
        Futexes {
            buckets: (0..BUCKETS)
                .map(|_| SpinLock::new(LockClass::Futex, WaitList::EMPTY))
                .collect(),
            keys: TaskTable::new(tasks, |_| Local::new(0)),
        }
    }

    fn bucket(&self, key: u64) -> &SpinLock<WaitList, M> {
        // Fibonacci hashing instead of Linux's jhash: keys are dense numbers here, and addresses there.
        let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56;
        &self.buckets[hash as usize % BUCKETS]
    }

    /// FUTEX_WAIT on a private futex: sleeps until woken. Returns at once if `word` does not contain `expected`.
    pub(crate) fn wait(&self, sched: &Scheduler<M>, word: &WordOf<M>, expected: u32) {
        let on = sched.on_cpu();
        on.work(costs::FUTEX);
        let key = on.cpu.key(word) as u64;
        let id = on.current();
        let task = on.task(id);
        {
            let mut bucket = self.bucket(key).lock(&on);
            // ORDERING: Relaxed: the bucket's lock orders the load against the waker's check of the queue.
            if on.cpu.load(word, Relaxed) != expected {
                return;
            }
            on.work(costs::FUTEX_ENTRY);
            self.keys[id].set(key);
            task.state.set(state::INTERRUPTIBLE);
            bucket.push(&sched.tasks, id);
        }
        // The waker takes the entry out of the queue before it wakes the task.
        while task.waiting.get() != 0 {
            sched::schedule(sched);
            task.state.set(state::INTERRUPTIBLE);
        }
        task.state.set(state::RUNNING);
    }

    /// FUTEX_WAKE of one task: wakes the one that has slept on `word` longest. The wakeup is under the bucket's lock
    /// (until 4.0).
    pub(crate) fn wake_one(&self, on: &OnCpu<'_, M>, word: &WordOf<M>) {
        on.work(costs::FUTEX);
        let key = on.cpu.key(word) as u64;
        let mut bucket = self.bucket(key).lock(on);
        let mut id = bucket.first;
        while id != TaskId::NONE {
            on.work(costs::FUTEX_ENTRY);
            if self.keys[id].get() == key {
                bucket.remove(&on.sched.tasks, id);
                sched::wake(on, id, state::ASLEEP, WakeHint::Plain);
                return;
            }
            id = on.task(id).wait_next.get();
        }
    }
}
