//! Keys of what directed yields do to virtual times, which was proposed in 2025 and 2026.

use holdfast_host::YieldFavor;

use super::{key, number};
use crate::keys::slot::{Slot, choices};
use crate::keys::{Key, Target};

choices!(YieldFavor {
    "none" => YieldFavor::None,
    "debooster-v1" => YieldFavor::DeboosterV1,
    "debooster-v2" => YieldFavor::DeboosterV2,
    "lag-credit" => YieldFavor::LagCredit,
});

/// A place of these parameters.
macro_rules! favour {
    ($slot:ident, $field:ident) => {
        Target::Host(|host| Some(Slot::$slot(&mut host.sched.favor.$field)))
    };
}

/// Beside the switches of directed yield.
pub(super) static FAVOUR: &[Key] = &[
    key(
        "host.yield.favour",
        "EEVDF: what a directed yield to a thread of the same pCPU does to virtual times, so that its preference lasts: \
         pushes the yielder back (proposed November and December 2025) or credits the target with lag (June 2026); in no \
         kernel. A pair of vCPUs that yield to each other with \"lag-credit\" starve whoever shares their pCPU",
        favour!(Choice, rule),
    ),
    number(
        "host.yield.lag_credit",
        "% of a slice",
        (1.0, 1_000.0),
        "lag credited for each entity queued, within what EEVDF lets anyone have (uncertain: the posting only says that it \
         grows with the queue)",
        favour!(U64, credit_pct),
    ),
];
