//! Parameters of the host scheduler, and their values in each kernel.
//!
//! A [`SchedulerKind`] determines all parameters, of which some may then be changed. "Bracketed" means that the value
//! was read on both sides of that version.

use super::features::Features;
use crate::error::{ConfigError, in_range};

/// The version of the host scheduler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SchedulerKind {
    /// The completely fair scheduler of Linux 2.6.37: no directed yield, and shares of groups recomputed at intervals.
    Cfs2637,
    /// CFS of Linux 3.3 (2.6.39 to 3.7 behave alike): skip and next buddies, directed yield, bandwidth control.
    #[default]
    Cfs33,
    /// CFS of Linux 4.12: load tracked per entity, bounded search for idle pCPUs.
    Cfs412,
    /// CFS of Linux 6.1: the last-level cache's utilization bounds that search.
    Cfs61,
    /// Earliest eligible virtual deadline first, as in Linux 6.6. Directed yield has no effect.
    Eevdf66,
    /// EEVDF of Linux 6.12 with its stable fixes: delayed dequeue, and directed yield has an effect again.
    Eevdf612,
    /// EEVDF of Linux 6.18: a base slice of 0.7 ms.
    Eevdf618,
    /// EEVDF of Linux 7.3: a timer ends slices between ticks, a group has its whole weight on each pCPU that it keeps
    /// busy, and a thread that yields forfeits the rest of its slice.
    Eevdf73,
}

impl SchedulerKind {
    /// Every scheduler, the oldest kernel first.
    pub const ALL: [SchedulerKind; 8] = [
        SchedulerKind::Cfs2637,
        SchedulerKind::Cfs33,
        SchedulerKind::Cfs412,
        SchedulerKind::Cfs61,
        SchedulerKind::Eevdf66,
        SchedulerKind::Eevdf612,
        SchedulerKind::Eevdf618,
        SchedulerKind::Eevdf73,
    ];

    /// Returns the scheduler's name in experiments.
    pub const fn name(self) -> &'static str {
        match self {
            SchedulerKind::Cfs2637 => "cfs-2.6.37",
            SchedulerKind::Cfs33 => "cfs-3.3",
            SchedulerKind::Cfs412 => "cfs-4.12",
            SchedulerKind::Cfs61 => "cfs-6.1",
            SchedulerKind::Eevdf66 => "eevdf-6.6",
            SchedulerKind::Eevdf612 => "eevdf-6.12",
            SchedulerKind::Eevdf618 => "eevdf-6.18",
            SchedulerKind::Eevdf73 => "eevdf-7.3",
        }
    }
}

/// The effect of a yield (docs/spec/host.md, "CFS" and "EEVDF").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum YieldRule {
    /// Until 2.6.38: no effect for a thread that is alone in its group's queue, and otherwise only accounting.
    OwnGroup,
    /// The same with `sched_compat_yield`: the thread goes behind all others in its group's queue.
    OwnGroupCompat,
    /// 2.6.39 and later: a thread that is not alone on its pCPU is passed over on every level (CFS), or its deadline is
    /// postponed by a slice (EEVDF).
    Whole,
    /// The same with EEVDF's forfeit of 6.19, which the stable kernels have, too: an eligible thread gives up the rest
    /// of its slice, as if it had run it (Linux commit 79104becf42b). Before, a thread that yielded again and again
    /// postponed its deadline by seconds. Under CFS equal to [`YieldRule::Whole`].
    Forfeit,
}

impl YieldRule {
    /// Returns whether it considers only the queue of the thread's own group.
    pub(crate) fn is_of_own_group(self) -> bool {
        matches!(self, YieldRule::OwnGroup | YieldRule::OwnGroupCompat)
    }
}

/// When the host's kernel takes the pCPU away from a running thread (boot option `preempt`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preempt {
    /// User code and guests are interrupted at once, kernel code never.
    None,
    /// As before. Kernel code is interrupted at certain places.
    #[default]
    Voluntary,
    /// As before. Kernel code is interrupted anywhere. Threads of vCPUs execute little of it, so these three models are
    /// the same here.
    Full,
    /// `lazy` (6.13; since 7.0 the only other model than `full`): threads of fair scheduling interrupt each other only
    /// at the tick or where the running one enters the kernel anyway. No IPI is sent for it. An idle pCPU, a directed
    /// yield, balancing and changed affinities do not wait.
    Lazy,
}

/// How a group's shares are divided among pCPUs (docs/spec/host.md, "Weights and groups").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShareRule {
    /// Until 2.6.37: recomputed only at intervals, from all queues of the group.
    Walk,
    /// 2.6.38 to 3.7: recomputed at every enqueue and dequeue, against a total of averages over a window.
    Window,
    /// 3.8 and later: the same with geometric averages.
    Geometric,
    /// 7.3: the same, and the group's shares are multiplied by the number of its threads, at most the number of pCPUs
    /// (`calc_concur_shares`).
    Concurrent,
}

/// Parameters of one level of scheduling domains (docs/spec/host.md, "Load balancing").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DomainConfig {
    /// Shortest interval between two balancing passes, in milliseconds.
    pub min_interval_ms: u64,
    /// Longest interval, in milliseconds.
    pub max_interval_ms: u64,
    /// Factor by which the interval is longer on a busy pCPU.
    pub busy_factor: u64,
    /// Load of the busiest group, in per cent of the local load, from which pulling is worthwhile.
    pub imbalance_pct: u64,
    /// Failed passes before cache-hot threads are moved, too.
    pub cache_nice_tries: u32,
    /// Index of the load history used on a busy pCPU. 0 is the present load, and each further index averages over twice
    /// as many ticks.
    pub busy_index: usize,
    /// The same for an idle pCPU.
    pub idle_index: usize,
}

/// Parameters of load balancing (docs/spec/host.md, "Load balancing").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BalanceConfig {
    /// The threads of one core.
    pub smt: DomainConfig,
    /// The cores that share a last-level cache: one socket.
    pub cache: DomainConfig,
    /// The memory nodes: each socket is one.
    pub numa: DomainConfig,
    /// The interval is as many milliseconds as the domain has pCPUs, up to twice that. `false`: the level's own
    /// parameters.
    pub intervals_by_span: bool,
    /// Linux 5.10 and later: what is pulled is at most half the difference of two loads, a thread of more load moves
    /// only after failed passes, and a busy pCPU's interval is one tick shorter. So the intervals are no multiples of
    /// each other.
    pub halves_differences: bool,
    /// Threads that one balancing pass looks at (`sched_nr_migrate`).
    pub nr_migrate: u32,
    /// A thread that ran less than this long ago counts as cache-hot (`sched_migration_cost_ns`).
    ///
    /// A pCPU whose average idle time is shorter does not pull when it falls idle.
    pub migration_cost_ns: u64,
}

/// Parameters of the host scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchedConfig {
    /// The version of the scheduler.
    pub kind: SchedulerKind,
    /// CFS: period in which each runnable thread runs once, before scaling by the number of pCPUs (`sched_latency_ns`).
    pub latency_ns: u64,
    /// CFS: shortest slice, before scaling by the number of pCPUs (`sched_min_granularity_ns`).
    pub min_granularity_ns: u64,
    /// CFS: how far behind a woken thread must be to preempt the running one, before scaling by the number of pCPUs
    /// (`sched_wakeup_granularity_ns`).
    pub wakeup_granularity_ns: u64,
    /// EEVDF: slice that a thread asks for, before scaling by the number of pCPUs (`base_slice_ns`).
    pub base_slice_ns: u64,
    /// The four values above are multiplied by `1 + log2(min(pCPUs, 8))`.
    pub scale_by_pcpus: bool,
    /// How a group's shares are divided among pCPUs.
    pub shares: ShareRule,
    /// CPU time that a pCPU draws from a group's quota at once (`sched_cfs_bandwidth_slice_us`).
    pub bandwidth_slice_ns: u64,
    /// What `sched_yield` does.
    pub yields: YieldRule,
    /// The preemption model of the kernel.
    pub preempt: Preempt,
    /// The scheduler features.
    pub features: Features,
    /// The parameters of load balancing.
    pub balance: BalanceConfig,
}

/// Returns the parameters of a level. Intervals, busy factor and percentage: docs/spec/host.md, "Load balancing". Tries
/// and history indexes: from memory of each kernel's topology.h, uncertain.
const fn level(interval: [u64; 2], busy: u64, pct: u64, tries: u32, index: [usize; 2]) -> DomainConfig {
    DomainConfig {
        min_interval_ms: interval[0],
        max_interval_ms: interval[1],
        busy_factor: busy,
        imbalance_pct: pct,
        cache_nice_tries: tries,
        busy_index: index[0],
        idle_index: index[1],
    }
}

impl SchedConfig {
    /// Returns the scheduler `kind` with the parameters of its kernel.
    pub fn of(kind: SchedulerKind) -> SchedConfig {
        match kind {
            SchedulerKind::Cfs2637 => SchedConfig::linux_2_6_37(),
            SchedulerKind::Cfs33 => SchedConfig::linux_3_3(),
            SchedulerKind::Cfs412 => SchedConfig::linux_4_12(),
            SchedulerKind::Cfs61 => SchedConfig::linux_6_1(),
            SchedulerKind::Eevdf66 => SchedConfig::linux_6_6(),
            SchedulerKind::Eevdf612 => SchedConfig::linux_6_12(),
            SchedulerKind::Eevdf618 => SchedConfig::linux_6_18(),
            SchedulerKind::Eevdf73 => SchedConfig::linux_7_3(),
        }
    }

    fn linux_2_6_37() -> SchedConfig {
        let later = SchedConfig::linux_3_3();
        SchedConfig {
            kind: SchedulerKind::Cfs2637,
            shares: ShareRule::Walk,
            yields: YieldRule::OwnGroup,
            features: Features {
                // From memory: queued wakeups came with 3.0.
                ttwu_queue: false,
                yield_to: false,
                ..later.features
            },
            ..later
        }
    }

    fn linux_3_3() -> SchedConfig {
        SchedConfig {
            kind: SchedulerKind::Cfs33,
            latency_ns: 6_000_000,
            min_granularity_ns: 750_000,
            wakeup_granularity_ns: 1_000_000,
            base_slice_ns: 750_000,
            scale_by_pcpus: true,
            shares: ShareRule::Window,
            bandwidth_slice_ns: 5_000_000,
            yields: YieldRule::Whole,
            preempt: Preempt::Voluntary,
            features: Features {
                gentle_fair_sleepers: true,
                start_debit: true,
                wakeup_preemption: true,
                last_buddy: true,
                ttwu_queue: true,
                lb_bias: true,
                yield_to: true,
                bandwidth_expires: true,
                // The other features came later, or are off by default.
                ..Features::default()
            },
            balance: BalanceConfig {
                smt: level([1, 2], 64, 110, 0, [0, 0]),
                cache: level([1, 4], 64, 125, 1, [2, 0]),
                numa: level([8, 32], 32, 125, 2, [3, 2]),
                intervals_by_span: false,
                halves_differences: false,
                nr_migrate: 32,
                migration_cost_ns: 500_000,
            },
        }
    }

    fn linux_4_12() -> SchedConfig {
        let before = SchedConfig::linux_3_3();
        SchedConfig {
            kind: SchedulerKind::Cfs412,
            shares: ShareRule::Geometric,
            features: Features {
                slice_continues: true,
                load_tracking: true,
                wake_wide: true,
                bounded_scan: true,
                overload_gate: true,
                ..before.features
            },
            balance: BalanceConfig {
                smt: level([2, 4], 32, 110, 0, [0, 0]),
                cache: level([8, 16], 32, 117, 1, [2, 0]),
                numa: level([8, 16], 32, 125, 2, [3, 2]),
                intervals_by_span: true,
                ..before.balance
            },
            ..before
        }
    }

    fn linux_6_1() -> SchedConfig {
        let before = SchedConfig::linux_4_12();
        SchedConfig {
            kind: SchedulerKind::Cfs61,
            features: Features {
                // The average itself replaces loads with history (5.x).
                lb_bias: false,
                sleepers_count: true,
                wake_idle: true,
                bandwidth_expires: false,
                recently_used: true,
                scan_by_utilization: true,
                ..before.features
            },
            balance: BalanceConfig {
                smt: level([2, 4], 16, 110, 0, [0, 0]),
                cache: level([8, 16], 16, 117, 1, [0, 0]),
                numa: level([8, 16], 16, 117, 2, [0, 0]),
                halves_differences: true,
                ..before.balance
            },
            ..before
        }
    }

    fn linux_6_6() -> SchedConfig {
        let before = SchedConfig::linux_6_1();
        SchedConfig {
            kind: SchedulerKind::Eevdf66,
            features: Features {
                // Last buddies ended with CFS.
                last_buddy: false,
                place_lag: true,
                run_to_parity: true,
                ..before.features
            },
            ..before
        }
    }

    fn linux_6_12() -> SchedConfig {
        let before = SchedConfig::linux_6_6();
        SchedConfig {
            kind: SchedulerKind::Eevdf612,
            yields: YieldRule::Forfeit,
            features: Features {
                pick_buddy: true,
                delay_dequeue: true,
                delay_zero: true,
                relative_deadline: true,
                ..before.features
            },
            ..before
        }
    }

    fn linux_6_18() -> SchedConfig {
        let before = SchedConfig::linux_6_12();
        SchedConfig {
            kind: SchedulerKind::Eevdf618,
            base_slice_ns: 700_000,
            features: Features {
                protection_ends: true,
                ..before.features
            },
            ..before
        }
    }

    fn linux_7_3() -> SchedConfig {
        let before = SchedConfig::linux_6_18();
        SchedConfig {
            kind: SchedulerKind::Eevdf73,
            shares: ShareRule::Concurrent,
            features: Features {
                slice_timer: true,
                ..before.features
            },
            ..before
        }
    }

    /// Returns the factor of times on a machine of `pcpus`.
    pub fn factor(&self, pcpus: u32) -> u64 {
        if self.scale_by_pcpus {
            1 + u64::from(pcpus.clamp(1, 8).ilog2())
        } else {
            1
        }
    }

    /// Checks all ranges.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        const SECOND: i64 = 1_000_000_000;
        in_range("latency_ns", self.latency_ns, 1, SECOND)?;
        in_range("min_granularity_ns", self.min_granularity_ns, 1, SECOND)?;
        in_range("wakeup_granularity_ns", self.wakeup_granularity_ns, 0, SECOND)?;
        in_range("base_slice_ns", self.base_slice_ns, 1, SECOND)?;
        in_range("bandwidth_slice_ns", self.bandwidth_slice_ns, 1, SECOND)?;
        let balance = &self.balance;
        in_range("balance.nr_migrate", balance.nr_migrate, 1, 1 << 20)?;
        in_range("balance.migration_cost_ns", balance.migration_cost_ns, 0, SECOND)?;
        for level in [balance.smt, balance.cache, balance.numa] {
            in_range("balance min_interval_ms", level.min_interval_ms, 1, 100_000)?;
            in_range("balance max_interval_ms", level.max_interval_ms, 1, 100_000)?;
            in_range("balance busy_factor", level.busy_factor, 1, 1024)?;
            in_range("balance imbalance_pct", level.imbalance_pct, 100, 1000)?;
            let index = level.busy_index.max(level.idle_index);
            in_range("balance load index", index, 0, 5)?;
        }
        Ok(())
    }

    /// Returns whether groups can have quotas, as since 3.2.
    pub fn has_bandwidth(&self) -> bool {
        self.kind != SchedulerKind::Cfs2637
    }

    /// Returns whether groups can keep unused quota for a later period, as since 5.14 (`cpu.max.burst`).
    pub fn has_bursts(&self) -> bool {
        let before = [SchedulerKind::Cfs2637, SchedulerKind::Cfs33, SchedulerKind::Cfs412];
        !before.contains(&self.kind)
    }

    /// Returns whether the scheduler is EEVDF.
    pub fn is_eevdf(&self) -> bool {
        match self.kind {
            SchedulerKind::Cfs2637 | SchedulerKind::Cfs33 | SchedulerKind::Cfs412 | SchedulerKind::Cfs61 => false,
            SchedulerKind::Eevdf66 | SchedulerKind::Eevdf612 | SchedulerKind::Eevdf618 | SchedulerKind::Eevdf73 => true,
        }
    }

    /// Returns the period in which every runnable thread gets its turn, if there are few. Nanoseconds.
    pub fn period_ns(&self, pcpus: u32) -> u64 {
        let base = if self.is_eevdf() {
            // As many slices as CFS has in a period.
            self.base_slice_ns.saturating_mul(8)
        } else {
            self.latency_ns
        };
        base.saturating_mul(self.factor(pcpus))
    }
}

impl Default for SchedConfig {
    fn default() -> SchedConfig {
        SchedConfig::of(SchedulerKind::default())
    }
}
