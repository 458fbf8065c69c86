//! Test-and-test-and-set.

use holdfast_locks::Ttas;

use crate::loom::ALL;

suite! { "ttas", Ttas:
    two_cpus = ALL,
    two_cpus_twice = ALL,
    three_cpus = ALL,
    try_lock = ALL,
    freed_at_once = ALL,
    interrupted_waiter = ALL,
}
