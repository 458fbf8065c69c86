//! The locks under torture.

use std::sync::LazyLock;

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

/// In which order a lock serves its waiters.
fn order<L: Described>(name: &str) -> Order {
    match name {
        "pv-qspin" | "unfair-pv-qspin" | "simple-unfair-qspin" => Order::Queue,
        _ if L::FIFO => Order::Arrival,
        _ => Order::Any,
    }
}

/// All algorithms: every lock, and variants without a name of their own.
pub static ALGORITHMS: LazyLock<Vec<Algorithm>> = LazyLock::new(|| {
    let mut all = Vec::new();
    macro_rules! add {
        ([$from:ident] $($module:ident: $kind:ident = $name:literal,)+) => {
            $(all.push(Algorithm::of::<$from::$kind>($name, order::<$from::$kind>($name)));)+
        };
    }
    for_each_lock_kind!(add holdfast_locks);
    holdfast_history::for_each_historic_lock!(add holdfast_history);
    all.extend([
        Algorithm::of::<Qspin<Wide>>("qspin (wide)", Order::Arrival),
        Algorithm::of::<PvQspin<Wide>>("pv-qspin (wide)", Order::Queue),
        Algorithm::of::<holdfast_history::CnaQspin<20_000, 1>>("cna-qspin (20 us)", Order::Any),
    ]);
    all
});
