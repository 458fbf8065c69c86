//! Locks that experiments compare, and that no kernel of today has.
//!
//! They are locks like anybody's: written against the traits of `holdfast_locks`, and named in experiments by the same
//! means as a lock of yours (`holdfast_lab::extensions`).
#![no_std]

mod cna_qspin;
#[cfg(test)]
mod cpu;
mod exchange_qspin;
mod numerous_qspin;
mod opportunistic_ticket;
mod preemptable_ticket;
mod pv_fair;
mod pv_fair_wait;
mod simple_unfair_qspin;
mod tail_pv_ticket;
mod watching_qspin;

pub use cna_qspin::CnaQspin;
pub use exchange_qspin::ExchangeQspin;
pub use numerous_qspin::{Numerous, NumerousQspin};
pub use opportunistic_ticket::OpportunisticTicket;
pub use preemptable_ticket::PreemptableTicket;
pub use pv_fair::{Ahead, AheadPvQspin, Early, EarlyPvQspin, PvFair, Waking};
pub use simple_unfair_qspin::SimpleUnfairQspin;
pub use tail_pv_ticket::TailPvTicket;
pub use watching_qspin::{UnfairWatchingQspin, Watching, WatchingQspin};

/// Calls the macro `$callback` with the list of these locks, as `holdfast_locks::for_each_lock_kind!` does with that of
/// its own: for each an identifier, the name of its type, and its name in experiments.
#[macro_export]
macro_rules! for_each_historic_lock {
    ($callback:ident $($argument:tt)*) => {
        $callback! {
            [$($argument)*]
            cna_qspin: CnaQspin = "cna-qspin",
            exchange_qspin: ExchangeQspin = "exchange-qspin",
            numerous_qspin: NumerousQspin = "numerous-qspin",
            simple_unfair_qspin: SimpleUnfairQspin = "simple-unfair-qspin",
            watching_qspin: WatchingQspin = "watching-qspin",
            unfair_watching_qspin: UnfairWatchingQspin = "unfair-watching-qspin",
            tail_pv_ticket: TailPvTicket = "tail-pv-ticket",
            early_pv_qspin: EarlyPvQspin = "early-pv-qspin",
            ahead_pv_qspin: AheadPvQspin = "ahead-pv-qspin",
            opportunistic_ticket: OpportunisticTicket = "opportunistic-ticket",
            preemptable_ticket: PreemptableTicket = "preemptable-ticket",
        }
    };
}
