//! Unfair PV queued spinlock.

use holdfast_locks::UnfairPvQspin;

use crate::loom::{ALL, few};

suite! { "unfair-pv-qspin", UnfairPvQspin:
    two_cpus = ALL,
    two_cpus_twice = few(3),
    three_cpus = few(2),
    four_cpus = few(0),
    try_lock = ALL,
    freed_at_once = ALL,
    interrupted_waiter = few(2),
}
