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

/// In which order a kind serves its waiters.
const fn order(kind: LockKind) -> Order {
    match kind {
        LockKind::PvQspin | LockKind::UnfairPvQspin | LockKind::SimpleUnfairQspin => Order::Queue,
        _ if kind.is_fifo() => Order::Arrival,
        _ => Order::Any,
    }
}

/// Defines the list of all algorithms: every kind, and variants that have no kind.
macro_rules! algorithms {
    ([] $($module:ident: $kind:ident = $name:literal,)+) => {
        pub const ALGORITHMS: &[Algorithm] = &[
            $(Algorithm::of::<$kind>($name, order(LockKind::$kind)),)+
            Algorithm::of::<Qspin<Wide>>("qspin (wide)", Order::Arrival),
            Algorithm::of::<PvQspin<Wide>>("pv-qspin (wide)", Order::Queue),
            Algorithm::of::<CnaQspin<20_000, 1>>("cna-qspin (20 us)", Order::Any),
        ];
    };
}
for_each_lock_kind!(algorithms);
