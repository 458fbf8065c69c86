//! Queued spinlock with a two-contender exchange.

use holdfast_locks::ExchangeQspin;

use crate::loom::{ALL, few};

suite! { "exchange-qspin", ExchangeQspin:
    two_cpus = ALL,
    two_cpus_twice = few(4),
    three_cpus = few(3),
    four_cpus = few(0),
    try_lock = ALL,
    freed_at_once = ALL,
    interrupted_waiter = ALL,
}
