//! The gate at which the vCPU threads of a guest stop, each between two entries, and hand over their vCPUs.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The gate of a guest whose vCPUs are `T`.
#[derive(Debug)]
pub(crate) struct Gate<T> {
    closed: AtomicBool,
    stopped: Mutex<Vec<Option<T>>>,
    changed: Condvar,
}

impl<T> Gate<T> {
    /// Returns an open gate for `vcpus` threads.
    pub(crate) fn new(vcpus: u32) -> Gate<T> {
        Gate {
            closed: AtomicBool::new(false),
            stopped: Mutex::new((0..vcpus).map(|_| None).collect()),
            changed: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Option<T>>> {
        self.stopped.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether threads must stop at the gate.
    pub(crate) fn is_closed(&self) -> bool {
        // ORDERING: Acquire; pairs with the Release in `close` and `open`.
        self.closed.load(Acquire)
    }

    /// Closes the gate. The caller must interrupt the threads.
    pub(crate) fn close(&self) {
        self.closed.store(true, Release);
    }

    /// Opens the gate. Threads go on with the vCPUs that are there, and end if there is none for them.
    pub(crate) fn open(&self) {
        let stopped = self.lock();
        self.closed.store(false, Release);
        drop(stopped);
        self.changed.notify_all();
    }

    /// Stops the calling thread, of vCPU `number`, until the gate is open. Returns the vCPU with which it continues, or
    /// `None` if it must end.
    pub(crate) fn pass(&self, number: u32, vcpu: T) -> Option<T> {
        let mut stopped = self.lock();
        *stopped.get_mut(number as usize)? = Some(vcpu);
        self.changed.notify_all();
        while self.is_closed() {
            stopped = self.changed.wait(stopped).unwrap_or_else(PoisonError::into_inner);
        }
        stopped.get_mut(number as usize)?.take()
    }

    /// Waits until all threads have stopped, at most for `limit`. Returns whether they have.
    pub(crate) fn wait(&self, limit: Duration) -> bool {
        let missing = |stopped: &mut Vec<Option<T>>| stopped.iter().any(Option::is_none);
        let waited = self.changed.wait_timeout_while(self.lock(), limit, missing);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// Takes the vCPUs of the stopped threads.
    pub(crate) fn take(&self) -> Vec<T> {
        self.lock().iter_mut().filter_map(Option::take).collect()
    }

    /// Gives the stopped threads the vCPUs with which they continue.
    pub(crate) fn give(&self, vcpus: Vec<T>) {
        for (place, vcpu) in self.lock().iter_mut().zip(vcpus) {
            *place = Some(vcpu);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn each_thread_continues_with_the_vcpu_that_was_given_to_it() {
        let gate = Gate::new(2);
        gate.close();
        assert!(!gate.wait(Duration::ZERO));
        let continued = std::thread::scope(|scope| {
            let threads = [0, 1].map(|number| {
                let gate = &gate;
                scope.spawn(move || gate.pass(number, number))
            });
            assert!(gate.wait(LONG));
            assert_eq!(gate.take(), [0, 1]);
            gate.give(vec![10, 11]);
            gate.open();
            threads.map(|thread| thread.join().expect("no panic"))
        });
        assert_eq!(continued, [Some(10), Some(11)]);
        assert!(
            !gate.is_closed() && !gate.wait(Duration::ZERO),
            "the gate is as at first"
        );
    }

    #[test]
    fn a_thread_without_a_vcpu_ends() {
        let gate = Gate::new(1);
        gate.close();
        let continued = std::thread::scope(|scope| {
            let thread = scope.spawn(|| gate.pass(0, 7));
            assert!(gate.wait(LONG));
            drop(gate.take());
            gate.open();
            thread.join().expect("no panic")
        });
        assert_eq!(continued, None);
        // An open gate stops no thread.
        assert_eq!(gate.pass(0, 8), Some(8));
        assert_eq!(gate.pass(5, 8), None);
    }
}
