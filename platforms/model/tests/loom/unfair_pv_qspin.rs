//! Unfair PV queued spinlock.

use holdfast_locks::UnfairPvQspin;

use crate::loom::{ALL, few};

suite! { "unfair-pv-qspin", UnfairPvQspin:
    two_cpus = ALL,
    two_cpus_twice = few(4),
    three_cpus = few(3),
    four_cpus = few(1),
    try_lock = ALL,
    freed_at_once = ALL,
    interrupted_waiter = few(2),
}
