//! The locks under torture.

use holdfast_locks::*;
use holdfast_sim::SimWord;

use super::cpu::{Order, Tortured};

/// A lock algorithm, as functions.
#[derive(Clone, Copy)]
pub struct Algorithm {
    pub name: &'static str,
    pub order: Order,
    pub lock: fn(&Tortured, &SimWord),
    pub try_lock: fn(&Tortured, &SimWord) -> bool,
    pub unlock: fn(&Tortured, &SimWord),
    pub is_locked: fn(&Tortured, &SimWord) -> bool,
}

impl Algorithm {
    pub const fn of<L: RawLock<Tortured>>(name: &'static str, order: Order) -> Algorithm {
        Algorithm {
            name,
            order,
            lock: L::lock,
            try_lock: L::try_lock,
            unlock: L::unlock,
            is_locked: L::is_locked,
        }
    }
}

/// Every lock, in both layouts where there are two.
pub const ALGORITHMS: &[Algorithm] = &[
    Algorithm::of::<Tas>("tas", Order::Any),
    Algorithm::of::<Ttas>("ttas", Order::Any),
    Algorithm::of::<Ticket>("ticket", Order::Arrival),
    Algorithm::of::<PvTicket>("pv-ticket", Order::Arrival),
    Algorithm::of::<Qspin>("qspin", Order::Arrival),
    Algorithm::of::<Qspin<Wide>>("qspin (wide)", Order::Arrival),
    Algorithm::of::<PvQspin>("pv-qspin", Order::Queue),
    Algorithm::of::<PvQspin<Wide>>("pv-qspin (wide)", Order::Queue),
    Algorithm::of::<UnfairQspin>("unfair-qspin", Order::Any),
    Algorithm::of::<UnfairPvQspin>("unfair-pv-qspin", Order::Queue),
    Algorithm::of::<HybridPvQspin>("hybrid-pv-qspin", Order::Any),
    Algorithm::of::<CnaQspin<20_000, 1>>("cna-qspin", Order::Any),
    Algorithm::of::<PreemptableTicket>("preemptable-ticket", Order::Any),
    Algorithm::of::<ExchangeQspin>("exchange-qspin", Order::Any),
    Algorithm::of::<NumerousQspin>("numerous-qspin", Order::Any),
];
