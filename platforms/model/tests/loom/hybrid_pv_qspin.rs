//! Hybrid PV queued spinlock.

use holdfast_locks::HybridPvQspin;

use crate::loom::{ALL, few};

suite! { "hybrid-pv-qspin", HybridPvQspin:
    two_cpus = ALL,
    two_cpus_twice = few(3),
    three_cpus = few(2),
    four_cpus = few(0),
    try_lock = ALL,
    freed_at_once = ALL,
    interrupted_waiter = few(2),
}
