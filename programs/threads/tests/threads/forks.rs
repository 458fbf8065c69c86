//! What a child of `fork` may do with a lock of its parent.

#![expect(unsafe_code, reason = "fork; locks without guards")]

use std::thread;
use std::time::Duration;

use holdfast_threads::*;
use lock_api::RawMutex;
use lock_api_04::RawRwLock;

/// The time after which a child that hangs is killed.
const PATIENCE_S: libc::c_uint = 20;

/// Runs `body` in a child process, which has no other threads. Returns the child's status.
fn status_of_child(body: impl FnOnce() -> bool) -> libc::c_int {
    // SAFETY: the child has one thread. It calls `body`, and ends without running exit handlers of its parent.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "cannot fork");
    if child == 0 {
        // SAFETY: no memory is passed. The signal ends the process.
        unsafe { libc::alarm(PATIENCE_S) };
        let kept = body();
        // SAFETY: as above.
        unsafe { libc::_exit(if kept { 0 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: `status` is a local variable.
    let waited = unsafe { libc::waitpid(child, &mut status, 0) };
    assert_eq!(waited, child, "the child is lost");
    status
}

fn lock_and_unlock<R: RawMutex>(lock: &R, times: u32) {
    for _ in 0..times {
        let guard = lock.lock();
        // SAFETY: just locked.
        unsafe { lock.unlock(guard) };
    }
}

/// Forks while this thread holds a lock for which others wait. The child unlocks it and uses it.
fn a_child_uses_a_lock<R: RawMutex<Guard = lock_api::GuardNoSend> + Sync>(name: &str) {
    let lock = &R::INIT;
    crate::on_threads([|| {
        let guard = lock.lock();
        thread::scope(|scope| {
            let waiters = [(); 2].map(|()| scope.spawn(|| lock_and_unlock(lock, 1)));
            // Long enough for both to wait.
            thread::sleep(Duration::from_millis(5));
            let status = status_of_child(|| {
                // SAFETY: locked above, by the thread that forked.
                unsafe { lock.unlock(lock_api::GuardNoSend::new()) };
                let free = !lock.is_locked()
                    && lock.try_lock().is_some_and(|guard| {
                        // SAFETY: just locked.
                        unsafe { lock.unlock(guard) };
                        true
                    });
                thread::scope(|scope| {
                    for _ in 0..2 {
                        scope.spawn(|| lock_and_unlock(lock, 500));
                    }
                });
                free
            });
            assert_eq!(status, 0, "{name}: the child fails (1), or hangs and is killed (14)");
            // SAFETY: locked above.
            unsafe { lock.unlock(guard) };
            for waiter in waiters {
                waiter.join().expect("the parent's waiters go on");
            }
        });
    }]);
}

macro_rules! each_is_used_by_a_child {
    ($($(#[$doc:meta])* $raw:ident = $algorithm:ty;)+) => {
        $(a_child_uses_a_lock::<$raw>(stringify!($raw));)+
    };
}

/// As above: of the two waiters one is the head of the queue, which has written its number into the lock. Or, if the
/// forking thread reads a lock with a bias, it is a writer that revokes the bias.
fn a_child_uses_a_rwlock<R: RawRwLock + Sync>(name: &str, writes: bool) {
    let lock = &R::INIT;
    let write = |times| {
        for _ in 0..times {
            lock.lock_exclusive();
            // SAFETY: just locked.
            unsafe { lock.unlock_exclusive() };
        }
    };
    let read = |times| {
        for _ in 0..times {
            lock.lock_shared();
            // SAFETY: just locked.
            unsafe { lock.unlock_shared() };
        }
    };
    let (take, release) = if writes {
        (R::lock_exclusive as fn(&R), R::unlock_exclusive as unsafe fn(&R))
    } else {
        (R::lock_shared as fn(&R), R::unlock_shared as unsafe fn(&R))
    };
    crate::on_threads([|| {
        // Enough to bias a lock.
        read(1024);
        take(lock);
        thread::scope(|scope| {
            let waiters = [
                scope.spawn(|| write(1)),
                scope.spawn(|| {
                    // Long enough for the writer to come first.
                    thread::sleep(Duration::from_millis(2));
                    read(1);
                }),
            ];
            // Long enough for both to wait.
            thread::sleep(Duration::from_millis(7));
            let status = status_of_child(|| {
                // SAFETY: taken above, by the thread that forked.
                unsafe { release(lock) };
                let free = !lock.is_locked() && lock.try_lock_exclusive();
                if free {
                    // SAFETY: just locked.
                    unsafe { lock.unlock_exclusive() };
                }
                thread::scope(|scope| {
                    scope.spawn(|| read(500));
                    scope.spawn(|| write(500));
                });
                free && !lock.is_locked() && lock.try_lock_exclusive()
            });
            // SAFETY: taken above.
            unsafe { release(lock) };
            for waiter in waiters {
                waiter.join().expect("the parent's waiters go on");
            }
            assert_eq!(status, 0, "{name}: the child fails (1), or hangs and is killed (14)");
        });
    }]);
}

#[test]
fn a_child_uses_a_reader_writer_lock_that_its_parent_held() {
    let _turn = crate::numbers();
    for writes in [false, true] {
        a_child_uses_a_rwlock::<RawQueuedRwLock>("queued", writes);
        a_child_uses_a_rwlock::<RawBiasedRwLock>("biased", writes);
    }
}

#[test]
fn a_child_uses_each_lock_that_its_parent_held() {
    let _turn = crate::numbers();
    for_each_raw_lock!(each_is_used_by_a_child);
}
