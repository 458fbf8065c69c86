//! Ticket lock.

use holdfast_locks::Ticket;

use crate::loom::ALL;

suite! { "ticket", Ticket:
    two_cpus = ALL,
    two_cpus_twice = ALL,
    three_cpus = ALL,
    try_lock = ALL,
    freed_at_once = ALL,
    interrupted_waiter = ALL,
    ticket_wrap = ALL,
}
