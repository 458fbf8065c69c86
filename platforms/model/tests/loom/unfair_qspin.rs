//! Unfair queued spinlock: waiters steal from within the queue.

use holdfast_locks::UnfairQspin;

use crate::loom::{ALL, few};

suite! { "unfair-qspin", UnfairQspin:
    two_cpus = ALL,
    two_cpus_twice = few(3),
    three_cpus = few(2),
    four_cpus = few(0),
    try_lock = ALL,
    freed_at_once = ALL,
    interrupted_waiter = few(4),
}
