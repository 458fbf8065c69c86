//! Test-and-set.

use holdfast_locks::Tas;

use crate::loom::ALL;

suite! { "tas", Tas:
    two_cpus = ALL,
    two_cpus_twice = ALL,
    three_cpus = ALL,
    try_lock = ALL,
    freed_at_once = ALL,
    interrupted_waiter = ALL,
}
