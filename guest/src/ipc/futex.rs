//! Futexes: sleeping until a word of user memory changes.
//!
//! **No lost wake-up**: a sleeper looks at the word with its bucket locked, and queues before it unlocks; a waker changes
//! the word before it locks the bucket.

use alloc::boxed::Box;
use core::sync::atomic::Ordering::Relaxed;

use holdfast_locks::Platform;

use crate::class::LockClass;
use crate::costs;
use crate::kernel::{Kernel, OnCpu};
use crate::machine::Machine;
use crate::sched::{self, WakeHint};
use crate::sync::{SpinLock, WordOf};
use crate::task::{TaskId, state};
use crate::wait::WaitList;

/// Hash buckets: `FUTEX_HASHBITS` is 8 whatever the number of CPUs (until 3.13).
const BUCKETS: usize = 256;

/// Who sleeps on which word, by hash.
pub(super) struct Futexes<M: Machine> {
    buckets: Box<[SpinLock<WaitList, M>]>,
}

impl<M: Machine> Futexes<M> {
    pub(super) fn new() -> Self {
        Futexes {
            buckets: (0..BUCKETS)
                .map(|_| SpinLock::new(LockClass::Futex, WaitList::EMPTY))
                .collect(),
        }
    }

    fn bucket(&self, key: u64) -> &SpinLock<WaitList, M> {
        // Fibonacci hashing for Linux's jhash: keys are dense here and addresses there.
        let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56;
        &self.buckets[hash as usize % BUCKETS]
    }
}

/// FUTEX_WAIT on a private futex: sleeps until woken, unless `word` is not `expected`.
pub(crate) fn futex_wait<M: Machine>(kernel: &Kernel<M>, word: &WordOf<M>, expected: u32) {
    let on = kernel.on_cpu();
    on.work(costs::FUTEX);
    let key = on.cpu.key(word) as u64;
    let task = kernel.tasks.get(on.current());
    {
        let mut bucket = kernel.ipc.futexes.bucket(key).lock(&on);
        // ORDERING: Relaxed: the bucket's lock orders it against the waker's look at the queue.
        if on.cpu.load(word, Relaxed) != expected {
            return;
        }
        on.work(costs::FUTEX_ENTRY);
        task.futex.set(key);
        task.state.set(state::INTERRUPTIBLE);
        bucket.push(kernel, on.current());
    }
    loop {
        if task.waiting.get() != 0 {
            sched::schedule(kernel);
        }
        // The waker takes the entry out of the queue before it wakes.
        if task.waiting.get() == 0 {
            task.state.set(state::RUNNING);
            return;
        }
        task.state.set(state::INTERRUPTIBLE);
    }
}

/// FUTEX_WAKE: wakes up to `count` who sleep on `word`, first come first. The wake-ups are under the bucket's lock (until
/// 4.0).
pub(crate) fn futex_wake<M: Machine>(on: &OnCpu<'_, M>, word: &WordOf<M>, count: u32) {
    on.work(costs::FUTEX);
    let key = on.cpu.key(word) as u64;
    let mut bucket = on.kernel.ipc.futexes.bucket(key).lock(on);
    let (mut id, mut left) = (bucket.first, count);
    while id != TaskId::NONE && left > 0 {
        let task = on.kernel.tasks.get(id);
        let next = TaskId(task.wait_next.get());
        on.work(costs::FUTEX_ENTRY);
        if task.futex.get() == key {
            bucket.remove(on.kernel, id);
            sched::wake(on, id, state::ASLEEP, WakeHint::Plain);
            left -= 1;
        }
        id = next;
    }
}
