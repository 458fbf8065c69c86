//! Every lock kind, under bounds that depend on how large its state space is.

use holdfast_model::Bounds;

use crate::loom::{ALL, few};

/// How far loom searches the scenarios of a lock.
#[derive(Clone, Copy)]
struct Effort {
    /// Two CPUs take the lock twice.
    twice: Bounds,
    /// Three CPUs take the lock once.
    three_cpus: Bounds,
    /// A waiter is interrupted by a handler that takes another lock.
    interrupted: Bounds,
}

/// Returns the bounds for the lock called `name`, of the crate `from`. What loom cannot explore in full within seconds
/// is bounded by preemptions, and more so if only experiments compare the lock.
fn effort(from: &str, name: &str) -> Effort {
    let (twice, three_cpus, interrupted) = match name {
        _ if from == "holdfast_history" => (few(2), few(1), few(1)),
        "tas" | "ttas" | "ticket" => (ALL, ALL, ALL),
        "qspin" => (few(4), few(3), ALL),
        "wide-qspin" => (few(4), few(2), few(4)),
        "unfair-qspin" => (few(3), few(2), few(4)),
        _ => (few(3), few(2), few(2)),
    };
    Effort {
        twice,
        three_cpus,
        interrupted,
    }
}

/// Defines the tests of each kind.
macro_rules! suites {
    ([$from:ident] $($module:ident: $kind:ident = $name:literal,)+) => {$(
        mod $module {
            use $from::$kind as Algorithm;
            use holdfast_locks::Described as _;

            use super::effort;
            use crate::loom::{self, ALL, few};
            use crate::support::apart;

            #[test]
            fn two_cpus() {
                apart(|| loom::two_cpus::<Algorithm>($name, ALL));
            }

            #[test]
            fn two_cpus_twice() {
                apart(|| {
                    loom::two_cpus_twice::<Algorithm>($name, effort(stringify!($from), $name).twice);
                    if <Algorithm>::DRAWS_TICKETS {
                        loom::ticket_wrap::<Algorithm>($name, effort(stringify!($from), $name).twice);
                    }
                });
            }

            #[test]
            fn three_cpus() {
                apart(|| loom::three_cpus::<Algorithm>($name, effort(stringify!($from), $name).three_cpus));
            }

            #[test]
            fn four_cpus() {
                apart(|| loom::four_cpus::<Algorithm>($name, few(0)));
            }

            #[test]
            fn try_lock() {
                apart(|| loom::try_lock::<Algorithm>($name, ALL));
            }

            #[test]
            fn freed_at_once() {
                apart(|| {
                    if <Algorithm>::MAY_BE_FREED_AT_ONCE {
                        loom::freed_at_once::<Algorithm>($name, ALL);
                    } else {
                        loom::touched_after_release::<Algorithm>($name);
                    }
                });
            }

            #[test]
            fn interrupted_waiter() {
                apart(|| loom::interrupted_waiter::<Algorithm>($name, effort(stringify!($from), $name).interrupted));
            }
        }
    )+};
}

holdfast_locks::for_each_lock_kind!(suites holdfast_locks);
holdfast_history::for_each_historic_lock!(suites holdfast_history);
