//! Keys of the effect of directed yields on virtual times, as proposed in 2025 and 2026.

use holdfast_host::YieldFavor;

use super::{key, number};
use crate::keys::{Key, Target};
use crate::slot::{Slot, choices};

choices!(YieldFavor {
    "none" => YieldFavor::None,
    "debooster-v1" => YieldFavor::DeboosterV1,
    "debooster-v2" => YieldFavor::DeboosterV2,
    "lag-credit" => YieldFavor::LagCredit,
});

/// How a directed yield changes virtual times.
pub(super) static FAVOR: &[Key] = &[
    key(
        "host.yield.favor",
        "EEVDF: how a directed yield on one pCPU changes virtual times, so that its preference lasts. \
         \"debooster-v1\" and \"debooster-v2\" push the yielder back (proposed November and December 2025). \
         \"lag-credit\" gives the target lag (proposed June 2026); with it two vCPUs that yield to each other starve \
         other threads of their pCPU. In no kernel.",
        host!(Choice, sched.favor.rule),
    ),
    number(
        "host.yield.lag_credit",
        "% of a slice",
        (1.0, 1_000.0),
        "Lag credited for each queued entity, up to EEVDF's own limit. Uncertain: the proposal only says that it \
         grows with the queue.",
        host!(U64, sched.favor.credit_pct),
    ),
];
