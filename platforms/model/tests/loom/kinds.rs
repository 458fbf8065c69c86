//! Every lock kind, under bounds that depend on how large its state space is.

use holdfast_locks::LockKind;
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

/// Returns the bounds for `kind`. What loom cannot explore in full within seconds is bounded by preemptions.
fn effort(kind: LockKind) -> Effort {
    let (twice, three_cpus, interrupted) = match kind {
        LockKind::Tas | LockKind::Ttas | LockKind::Ticket => (ALL, ALL, ALL),
        LockKind::Qspin | LockKind::CnaQspin | LockKind::ExchangeQspin => (few(4), few(3), ALL),
        LockKind::NumerousQspin | LockKind::WideQspin => (few(4), few(2), few(4)),
        LockKind::UnfairQspin | LockKind::PreemptableTicket => (few(3), few(2), few(4)),
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
    ([] $($module:ident: $kind:ident = $name:literal,)+) => {$(
        mod $module {
            use holdfast_locks::{$kind as Algorithm, LockKind};

            use super::effort;
            use crate::loom::{self, ALL, few};

            const KIND: LockKind = LockKind::$kind;

            #[test]
            fn two_cpus() {
                loom::two_cpus::<Algorithm>($name, ALL);
            }

            #[test]
            fn two_cpus_twice() {
                loom::two_cpus_twice::<Algorithm>($name, effort(KIND).twice);
                if KIND.draws_tickets() {
                    loom::ticket_wrap::<Algorithm>($name, effort(KIND).twice);
                }
            }

            #[test]
            fn three_cpus() {
                loom::three_cpus::<Algorithm>($name, effort(KIND).three_cpus);
            }

            #[test]
            fn four_cpus() {
                loom::four_cpus::<Algorithm>($name, few(0));
            }

            #[test]
            fn try_lock() {
                loom::try_lock::<Algorithm>($name, ALL);
            }

            #[test]
            fn freed_at_once() {
                if KIND.may_be_freed_at_once() {
                    loom::freed_at_once::<Algorithm>($name, ALL);
                } else {
                    loom::touched_after_release::<Algorithm>($name);
                }
            }

            #[test]
            fn interrupted_waiter() {
                loom::interrupted_waiter::<Algorithm>($name, effort(KIND).interrupted);
            }
        }
    )+};
}

holdfast_locks::for_each_lock_kind!(suites);
