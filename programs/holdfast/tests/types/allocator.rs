//! The allocator of this test binary is guarded by a lock of this crate, and ends the process if a call of one of the
//! types allocates. So every other test runs over a lock that the allocator needs, too.

#![expect(unsafe_code, reason = "an allocator, which is the system's with a lock")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Barrier;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use holdfast::{BiasedRwLock, Condvar, LazyLock, Mutex, Once, OnceLock, RwLock, poison};

struct Guarded(Mutex<()>);

#[global_allocator]
static ALLOCATOR: Guarded = Guarded(Mutex::new(()));

thread_local! {
    /// Whether the thread is inside a call of a type. It has no destructor, so that it also works in destructors.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Makes a call that must not allocate.
fn inside<R>(call: impl FnOnce() -> R) -> R {
    let before = INSIDE.replace(true);
    let result = call();
    INSIDE.set(before);
    result
}

impl Guarded {
    fn guarded<R>(&self, work: impl FnOnce() -> R) -> R {
        if INSIDE.get() {
            // A message would allocate.
            std::process::abort();
        }
        let guard = inside(|| self.0.lock());
        let result = work();
        inside(|| drop(guard));
        result
    }
}

// SAFETY: the system's allocator does the work, called with the arguments that the caller vouches for.
unsafe impl GlobalAlloc for Guarded {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises, here and below.
        self.guarded(|| unsafe { System.alloc(layout) })
    }
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as above.
        self.guarded(|| unsafe { System.dealloc(block, layout) });
    }
}

/// Takes each type again and again on several threads, with waits that halt, in calls that must not allocate.
#[test]
fn no_call_of_any_type_allocates() {
    const THREADS: usize = 6;
    const ROUNDS: u32 = if cfg!(miri) { 4 } else { 200 };
    static LAZY: LazyLock<u32> = LazyLock::new(|| {
        thread::yield_now();
        7
    });
    let (mutex, poisoned, changed) = (&Mutex::new(0), &poison::Mutex::new(0), &Condvar::new());
    let (queued, biased) = (&RwLock::new(0), &BiasedRwLock::new(0));
    let (once, cell, runs) = (&Once::new(), &OnceLock::new(), &AtomicU32::new(0));
    let together = &Barrier::new(THREADS);
    crate::on_threads(THREADS, |_| {
        together.wait();
        inside(|| {
            once.call_once(|| _ = runs.fetch_add(1, Relaxed));
            assert_eq!((*cell.get_or_init(|| 5), *LAZY), (5, 7));
        });
        for round in 0..ROUNDS {
            inside(|| {
                let mut held = match round % 3 {
                    0 => mutex
                        .try_lock_for(Duration::from_micros(50))
                        .unwrap_or_else(|| mutex.lock()),
                    1 => mutex.try_lock().unwrap_or_else(|| mutex.lock()),
                    _ => mutex.lock(),
                };
                *held += 1;
                // Longer than waiters spin, now and then.
                if round % 32 == 0 {
                    thread::sleep(Duration::from_micros(300));
                }
                let _ = changed.notify_one();
                if round % 8 == 0 {
                    changed.wait_for(&mut held, Duration::from_micros(100));
                    changed.notify_all();
                }
                drop(held);
                *poisoned.lock().expect("no thread panics") += 1;
                let seen = *queued.read();
                *queued.write() += u32::from(seen < u32::MAX);
                let seen = *biased.read();
                *biased.write() += u32::from(seen < u32::MAX);
            });
        }
    });
    let all = THREADS as u32 * ROUNDS;
    assert_eq!((*mutex.lock(), *queued.read(), *biased.read()), (all, all, all));
    assert_eq!(
        (*poisoned.lock().expect("no thread panics"), runs.load(Relaxed)),
        (all, 1)
    );
}
