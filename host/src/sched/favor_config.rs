//! Parameters of favoring the target of a directed yield, and what a pCPU remembers of it.

use crate::boundary::TaskId;
use crate::error::{ConfigError, in_range};

/// What a directed yield does to virtual times beside its marks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum YieldFavor {
    /// Nothing: all kernels until now.
    #[default]
    None,
    /// November 2025: the yielder is pushed back where it meets the target in the tree of groups, by a slice and a
    /// tenth more than it is behind, at most six slices of two entities there and one of more than twelve. Each
    /// directed yield begins the interval again, so that a storm of them is pushed for once.
    DeboosterV1,
    /// December 2025: the same with an interval that passes, and with the threads below that place counted instead of
    /// the entities.
    DeboosterV2,
    /// June 2026: target and ancestors that are not eligible are, afterwards, with lag to spare; the yielder loses the
    /// protection of its slice, once in an interval.
    LagCredit,
}

/// Parameters of [`YieldFavor`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FavorConfig {
    /// What is done.
    pub rule: YieldFavor,
    /// Once in which time a pCPU pushes a yielder, or ends its protection. Nanoseconds.
    pub interval_ns: u64,
    /// Within which time a yield in the other direction pushes less. Nanoseconds.
    pub reverse_ns: u64,
    /// Lag credited for each entity queued, in per cent of a slice. How the posted margin grows is uncertain: only that
    /// it does with the queue, that it lasts for several picks, and where it ends.
    pub credit_pct: u64,
}

impl FavorConfig {
    /// Nothing; with the parameters of the proposals for whoever chooses one.
    pub const NONE: FavorConfig = FavorConfig {
        rule: YieldFavor::None,
        interval_ns: 6_000_000,
        reverse_ns: 600_000,
        credit_pct: 25,
    };

    /// Checks all ranges; `eevdf`: the scheduler is EEVDF.
    pub(crate) fn check(&self, eevdf: bool) -> Result<(), ConfigError> {
        const SECOND: i64 = 1_000_000_000;
        let ns = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        in_range("yield favor interval", ns(self.interval_ns), 0, SECOND)?;
        in_range("yield favor reverse", ns(self.reverse_ns), 0, SECOND)?;
        in_range("yield credit per cent", ns(self.credit_pct), 1, 1_000)?;
        if self.rule != YieldFavor::None && !eevdf {
            return Err(ConfigError::FavorWithoutEevdf);
        }
        Ok(())
    }
}

/// What the directed yields of a pCPU last did.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FavorRecord {
    /// When the interval began.
    pub(super) begun: Option<u64>,
    /// Who was pushed for whom, and when.
    pub(super) pair: Option<(TaskId, TaskId, u64)>,
}
