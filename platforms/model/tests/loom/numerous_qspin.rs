//! Queued spinlock for very many CPUs.

use holdfast_locks::NumerousQspin;

use crate::loom::{ALL, few};

suite! { "numerous-qspin", NumerousQspin:
    two_cpus = ALL,
    two_cpus_twice = few(4),
    three_cpus = few(2),
    four_cpus = few(0),
    try_lock = ALL,
    freed_at_once = ALL,
    interrupted_waiter = few(4),
}
