//! Spinlocks that experiments compare, and that no kernel has.
//!
//! They are locks like anybody's: written against the traits of `holdfast_locks`, and named in experiments by the same
//! means as a lock of yours (`holdfast_lab::extensions`).
#![no_std]

#[cfg(test)]
mod cpu;
mod preemptable_ticket;

pub use preemptable_ticket::PreemptableTicket;

/// Calls the macro `$callback` with the list of these locks, as `holdfast_locks::for_each_lock_kind!` does with that of
/// its own: for each an identifier, the name of its type, and its name in experiments.
#[macro_export]
macro_rules! for_each_historic_lock {
    ($callback:ident $($argument:tt)*) => {
        $callback! {
            [$($argument)*]
            preemptable_ticket: PreemptableTicket = "preemptable-ticket",
        }
    };
}
