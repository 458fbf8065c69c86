//! PV ticket lock: waiters halt after one look.

use holdfast_locks::PvTicket;

use crate::loom::{ALL, few};

suite! { "pv-ticket", PvTicket:
    two_cpus = ALL,
    two_cpus_twice = few(3),
    three_cpus = few(2),
    try_lock = ALL,
    freed_at_once = ALL,
    interrupted_waiter = few(2),
    ticket_wrap = few(3),
}
