//! Preemptable ticket lock: a waiter gives up its patience after one look.

use holdfast_locks::PreemptableTicket;

use crate::loom::{ALL, few};

suite! { "preemptable-ticket", PreemptableTicket:
    two_cpus = ALL,
    two_cpus_twice = few(3),
    three_cpus = few(2),
    try_lock = ALL,
    freed_at_once = ALL,
    interrupted_waiter = few(4),
    ticket_wrap = few(3),
}
