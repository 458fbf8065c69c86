//! Algorithms without a kind of their own: other layouts of the word, and other parameters.

/// Defines the tests of a variant: one for each scenario, with its bounds.
macro_rules! suite {
    ($module:ident: $name:literal, $lock:ty: $($scenario:ident = $bounds:expr,)+) => {
        mod $module {
            #[allow(unused_imports, reason = "a lock is in one of them")]
            use {holdfast_history::*, holdfast_locks::*};

            use crate::loom::{self, ALL, few};

            $(#[test]
            fn $scenario() {
                loom::$scenario::<$lock>($name, $bounds);
            })+
        }
    };
}

suite! { wide_qspin: "qspin (wide)", Qspin<Wide>:
    two_cpus = ALL,
    two_cpus_twice = few(4),
    three_cpus = few(3),
}

// Every head sorts its queue.
suite! { cna_qspin: "cna-qspin (sorts)", CnaQspin<1_000_000, 0>:
    two_cpus = ALL,
    two_cpus_twice = few(4),
    three_cpus = few(3),
    four_cpus = few(0),
    try_lock = ALL,
    freed_at_once = ALL,
    interrupted_waiter = ALL,
}

// The waiter next to the holder spins, the one behind it halts and is kicked early.
suite! { opportunistic_ticket: "opportunistic-ticket (1 near, 2 kicked)", OpportunisticTicket<AllSteps, 1, 2>:
    two_cpus = ALL,
    three_cpus = few(2),
    interrupted_waiter = few(2),
}
