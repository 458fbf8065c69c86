//! PV queued spinlock: waiters halt after one look.

use holdfast_locks::PvQspin;

use crate::loom::{ALL, few};

suite! { "pv-qspin", PvQspin:
    two_cpus = ALL,
    two_cpus_twice = few(3),
    three_cpus = few(2),
    four_cpus = few(0),
    try_lock = ALL,
    freed_at_once = ALL,
    interrupted_waiter = few(2),
}
