//! More threads than a lock word has room for: the locks wait in another way, but exclude, and end.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::process::exit;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use holdfast_locks::{Platform, PvTicket, RawLock, Ticket, Word};
use holdfast_threads::{RawPvTicket, ThisThread, ThreadWord};

/// Small stacks, for many threads.
const STACK_BYTES: usize = 64 << 10;

/// Waits until `condition` holds. Ends the process if it does not hold for so long that it never will.
fn eventually(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        if start.elapsed() > Duration::from_secs(60) {
            // Threads that wait forever would keep a failing test from ending.
            eprintln!("waited in vain until {what}");
            exit(1);
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// Waits for the end of the threads, with their last destructors, for which a scope does not wait.
fn join(threads: Vec<thread::ScopedJoinHandle<'_, ()>>) {
    for thread in threads {
        thread.join().expect("no property is violated");
    }
}

/// A ticket is drawn before its thread needs a CPU number. So a thread that cannot have one must wait all the same.
#[test]
fn five_thousand_threads_wait_for_a_ticket() {
    const THREADS: u32 = 5_000;
    static LOCK: lock_api::Mutex<RawPvTicket, u32> = lock_api::Mutex::new(0);
    let _turn = crate::numbers();
    let held = LOCK.lock();
    let (begun, ended) = (&AtomicU32::new(0), &AtomicU32::new(0));
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for _ in 0..THREADS {
            let waiter = move || {
                begun.fetch_add(1, Relaxed);
                *LOCK.lock() += 1;
                ended.fetch_add(1, Relaxed);
            };
            let builder = thread::Builder::new().stack_size(STACK_BYTES);
            let thread = builder.spawn_scoped(scope, waiter);
            threads.push(thread.expect("the system allows so many threads"));
        }
        eventually("each thread has begun", || begun.load(Relaxed) == THREADS);
        drop(held);
        eventually("each thread has had the lock", || ended.load(Relaxed) == THREADS);
        join(threads);
    });
    assert_eq!(*LOCK.lock(), THREADS);
}

/// Lets threads lock while one ticket more is left than there are threads. Each gives the ticket back that it draws:
/// otherwise two more threads would draw the one that is being served, and hold the lock, too.
fn excludes_when_tickets_run_out<L: RawLock<ThisThread>>(step: u32) {
    const NEWCOMERS: u32 = 8;
    // The test stands for all threads that have drawn: the one that holds the lock, and those that wait.
    let drawn = 0x1_0000 / step - NEWCOMERS - 1;
    let word = &ThreadWord::new((drawn * step) << 16);
    let (barrier, inside) = (&Barrier::new(NEWCOMERS as usize + 1), &AtomicU32::new(0));
    thread::scope(|scope| {
        let newcomers = (0..NEWCOMERS).map(|_| {
            scope.spawn(move || {
                let cpu = ThisThread::new();
                barrier.wait();
                L::lock(&cpu, word);
                assert_eq!(inside.fetch_add(1, SeqCst), 0, "two threads hold the lock");
                inside.fetch_sub(1, SeqCst);
                L::unlock(&cpu, word);
            })
        });
        let newcomers: Vec<_> = newcomers.collect();
        let cpu = ThisThread::new();
        barrier.wait();
        for _ in 0..50 {
            thread::sleep(Duration::from_millis(1));
            if L::try_lock(&cpu, word) || inside.load(SeqCst) != 0 {
                eprintln!("a lock is taken that another thread holds");
                exit(1);
            }
        }
        eventually("no newcomer has a ticket", || {
            cpu.load(word, SeqCst) >> 16 == drawn * step
        });
        // On behalf of the owner of each ticket.
        (0..drawn).for_each(|_| L::unlock(&cpu, word));
        join(newcomers);
    });
    assert!(!L::is_locked(&ThisThread::new(), word), "tickets are left: {word:?}");
}

#[test]
fn a_ticket_lock_excludes_when_tickets_run_out() {
    let _turn = crate::numbers();
    excludes_when_tickets_run_out::<Ticket>(1);
    excludes_when_tickets_run_out::<PvTicket>(2);
}
