//! Parameters of favoring the target of a directed yield, and what a pCPU remembers of it.

use crate::boundary::TaskId;
use crate::error::{ConfigError, in_range};

/// The effect of a directed yield on virtual times, in addition to its marks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum YieldFavor {
    /// No effect: all kernels until now.
    #[default]
    None,
    /// November 2025: the yielder is pushed back where it meets the target in the tree of groups.
    ///
    /// The push is a slice, plus 1.1 times the distance to the target, up to six slices among two entities and one
    /// slice among more than twelve. Each directed yield restarts the interval, so that a storm of them pushes once.
    DeboosterV1,
    /// December 2025: the same, but the interval passes, and the threads below that place are counted instead of the
    /// entities.
    DeboosterV2,
    /// June 2026: the target and its ancestors become eligible, with lag to spare. The yielder loses the protection of
    /// its slice, once in an interval.
    LagCredit,
}

/// Parameters of [`YieldFavor`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FavorConfig {
    /// EEVDF: how a directed yield on one pCPU changes virtual times, so that its preference lasts.
    pub rule: YieldFavor,
    /// Interval in which a pCPU pushes a yielder, or ends its protection, at most once. Nanoseconds.
    pub interval_ns: u64,
    /// Time within which a yield in the other direction pushes less. Nanoseconds.
    pub reverse_ns: u64,
    /// Lag credited for each queued entity, up to EEVDF's own limit. Uncertain: the proposal only says that it grows
    /// with the queue.
    ///
    /// In per cent of a slice. The posted margin lasts for several picks, and is bounded.
    pub credit_pct: u64,
}

impl FavorConfig {
    /// No effect. The other parameters are those of the proposals.
    pub const NONE: FavorConfig = FavorConfig {
        rule: YieldFavor::None,
        interval_ns: 6_000_000,
        reverse_ns: 600_000,
        credit_pct: 25,
    };

    /// Checks all ranges. `eevdf`: the scheduler is EEVDF.
    pub(crate) fn check(&self, eevdf: bool) -> Result<(), ConfigError> {
        const SECOND: i64 = 1_000_000_000;
        in_range("yield favor interval", self.interval_ns, 0, SECOND)?;
        in_range("yield favor reverse", self.reverse_ns, 0, SECOND)?;
        in_range("yield credit per cent", self.credit_pct, 1, 1_000)?;
        if self.rule != YieldFavor::None && !eevdf {
            return Err(ConfigError::FavorWithoutEevdf);
        }
        Ok(())
    }
}

/// The record of the last directed yields of a pCPU.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FavorRecord {
    /// The start of the interval.
    pub(super) begun: Option<u64>,
    /// The yielder last pushed, its target, and the time.
    pub(super) pair: Option<(TaskId, TaskId, u64)>,
}
