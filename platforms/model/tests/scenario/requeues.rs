//! The programs over a condition variable that uses the kernel's queues.

use holdfast_locks::{Futexes, Platform, RawLock, RequeueCondvar, Steps};
use holdfast_model::{Cell, Checker, Cpu, ModelWord, Setup};

use super::condvars::{AT_ONCE, Condition, Counter, broadcast_by, impatience_of, turns_of};

/// The condition variable whose broadcast moves waiters to the queue of the mutex, of kind `L`.
struct Requeued<C: Checker, L, S> {
    changed: RequeueCondvar<ModelWord<C>, ModelWord<C>, S>,
    kind: std::marker::PhantomData<fn() -> L>,
}

impl<C: Checker, L: RawLock<Cpu<C>> + 'static, S: Steps + 'static> Condition<C> for Requeued<C, L, S> {
    fn new(_: u32) -> Self {
        Requeued {
            changed: RequeueCondvar::new(),
            kind: std::marker::PhantomData,
        }
    }

    /// An impatient waiter does not sleep, and does not learn whether it was notified.
    fn wait(&self, cpu: &Cpu<C>, mutex: &ModelWord<C>, patient: bool) -> bool {
        self.changed.wait(
            cpu,
            cpu.key(mutex),
            || L::unlock(cpu, mutex),
            |word, value| patient && cpu.sleep(word, value),
            || L::lock(cpu, mutex),
        );
        patient
    }

    fn notify_one(&self, cpu: &Cpu<C>) {
        self.changed.notify_one(cpu);
    }

    fn notify_all(&self, cpu: &Cpu<C>) {
        self.changed.notify_all(cpu, AT_ONCE);
    }
}

/// CPU 0 sets the counter and notifies all others, which wait for that, with the mutex held. If CPU 0 `destroys` the
/// condition variable, it frees the memory, too: **Last access**.
pub fn requeued_broadcast<C: Checker, L: RawLock<Cpu<C>> + 'static, S: Steps + 'static>(
    setup: &Setup,
    destroys: bool,
) -> impl Fn() + Send + Sync + use<C, L, S> {
    broadcast_by(setup, move |cpu, counter: &Counter<C, L, Requeued<C, L, S>>| {
        L::lock(cpu, &counter.mutex);
        counter.count.update(|_| 1);
        counter.changed.notify_all(cpu);
        if destroys {
            let changed = &counter.changed.changed;
            changed.destroy(cpu);
            let (sequence, waiters, mutex) = changed.words();
            [sequence, waiters, mutex].into_iter().for_each(ModelWord::free);
        }
        L::unlock(cpu, &counter.mutex);
    })
}

/// The CPUs increment the counter in turn, `rounds` times each.
pub fn requeued_turns<C: Checker, L: RawLock<Cpu<C>> + 'static, S: Steps + 'static>(
    setup: &Setup,
    rounds: u32,
) -> impl Fn() + Send + Sync + use<C, L, S> {
    turns_of::<C, L, Requeued<C, L, S>>(setup, rounds)
}

/// CPU 1 waits impatiently while CPU 2 waits for the one notification of CPU 0.
pub fn requeued_impatience<C: Checker, L: RawLock<Cpu<C>> + 'static, S: Steps + 'static>(
    setup: &Setup,
) -> impl Fn() + Send + Sync + use<C, L, S> {
    impatience_of::<C, L, Requeued<C, L, S>>(setup)
}
