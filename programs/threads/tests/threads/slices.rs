//! Locks whose holders ask for more time, on the kernel as it is. With the time slice extension the kernel grants, and
//! with its debug checks it ends a process that breaks the rules; without it the locks are those below.

use holdfast_threads::{Extended, RawHybrid, RawTicket, has_slice_extension};
use lock_api_04::Mutex;

use crate::{numbers, on_threads};

type Hybrid<T> = Mutex<Extended<RawHybrid>, T>;
type Ticket<T> = Mutex<Extended<RawTicket>, T>;

#[test]
fn sections_within_and_across_sections_exclude() {
    const ROUNDS: u32 = 20_000;
    // Its threads take the lowest numbers, which other tests may want.
    let _turn = numbers();
    println!("time slice extension: {}", has_slice_extension());
    let (outer, inner, calls) = (Hybrid::new(0), Ticket::new(0), Hybrid::new(0_u32));
    let work = |_| {
        || {
            for round in 0..ROUNDS {
                let mut outer = outer.lock();
                let mut inner = inner.lock();
                *outer += 1;
                // Released first although it was taken first.
                drop(outer);
                *inner += 1;
                if round % 256 == 0 {
                    // A system call within a section.
                    std::thread::yield_now();
                }
                drop(inner);
                if let Some(mut calls) = calls.try_lock() {
                    *calls += 1;
                }
            }
        }
    };
    on_threads((0..3).map(work));
    assert_eq!((*outer.lock(), *inner.lock()), (3 * ROUNDS, 3 * ROUNDS));
    assert!((1..=3 * ROUNDS).contains(&*calls.lock()));
}
