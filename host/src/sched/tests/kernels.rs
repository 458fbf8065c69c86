//! What the schedulers of each kernel have.

use super::super::config::{DomainConfig, SchedConfig, SchedulerKind, ShareRule, YieldRule};
use super::super::features::Features;

/// The schedulers, oldest first.
const KINDS: [SchedulerKind; 8] = [
    SchedulerKind::Cfs2637,
    SchedulerKind::Cfs33,
    SchedulerKind::Cfs412,
    SchedulerKind::Cfs61,
    SchedulerKind::Eevdf66,
    SchedulerKind::Eevdf612,
    SchedulerKind::Eevdf618,
    SchedulerKind::Eevdf73,
];

#[test]
fn each_feature_comes_with_a_kernel_and_goes_with_a_kernel() {
    /// A feature, the first kind that has it, and the first that has it no more.
    type Life = (&'static str, fn(&Features) -> bool, usize, usize);
    let lives: [Life; 26] = [
        ("gentle_fair_sleepers", |has| has.gentle_fair_sleepers, 0, 8),
        ("start_debit", |has| has.start_debit, 0, 8),
        ("wakeup_preemption", |has| has.wakeup_preemption, 0, 8),
        // Off by default.
        ("next_buddy", |has| has.next_buddy, 8, 8),
        ("last_buddy", |has| has.last_buddy, 0, 4),
        ("ttwu_queue", |has| has.ttwu_queue, 1, 8),
        ("lb_bias", |has| has.lb_bias, 0, 3),
        ("yield_to", |has| has.yield_to, 1, 8),
        ("slice_continues", |has| has.slice_continues, 2, 8),
        ("load_tracking", |has| has.load_tracking, 2, 8),
        ("sleepers_count", |has| has.sleepers_count, 3, 8),
        ("wake_wide", |has| has.wake_wide, 2, 8),
        ("wake_idle", |has| has.wake_idle, 3, 8),
        ("bounded_scan", |has| has.bounded_scan, 2, 8),
        ("recently_used", |has| has.recently_used, 3, 8),
        ("scan_by_utilization", |has| has.scan_by_utilization, 3, 8),
        ("overload_gate", |has| has.overload_gate, 2, 8),
        ("bandwidth_expires", |has| has.bandwidth_expires, 0, 3),
        ("place_lag", |has| has.place_lag, 4, 8),
        ("run_to_parity", |has| has.run_to_parity, 4, 8),
        ("protection_ends", |has| has.protection_ends, 6, 8),
        ("pick_buddy", |has| has.pick_buddy, 5, 8),
        ("delay_dequeue", |has| has.delay_dequeue, 5, 8),
        ("delay_zero", |has| has.delay_zero, 5, 8),
        ("relative_deadline", |has| has.relative_deadline, 5, 8),
        ("slice_timer", |has| has.slice_timer, 7, 8),
    ];
    for (name, has, from, until) in lives {
        for (index, kind) in KINDS.into_iter().enumerate() {
            let expected = (from..until).contains(&index);
            assert_eq!(has(&SchedConfig::of(kind).features), expected, "{name} of {kind:?}");
        }
    }
}

#[test]
fn parameters_change_with_the_kernels_that_changed_them() {
    // docs/spec/host.md, "EEVDF" and "Weights and groups".
    let all = KINDS.map(SchedConfig::of);
    assert_eq!(
        all.map(|of| of.base_slice_ns / 10_000),
        [75, 75, 75, 75, 75, 75, 70, 70]
    );
    let shares = all.map(|of| of.shares);
    assert_eq!(shares[..3], [ShareRule::Walk, ShareRule::Window, ShareRule::Geometric]);
    assert!(shares[3..7].iter().all(|&rule| rule == ShareRule::Geometric));
    assert_eq!(shares[7], ShareRule::Concurrent);
    let yields = all.map(|of| of.yields);
    assert_eq!(yields[0], YieldRule::OwnGroup);
    assert!(yields[1..5].iter().all(|&rule| rule == YieldRule::Whole));
    assert!(yields[5..].iter().all(|&rule| rule == YieldRule::Forfeit));
}

#[test]
fn levels_are_balanced_as_in_each_kernel() {
    // docs/spec/host.md, "Load balancing": for threads of a core, cores of a cache, and nodes the busy factor
    // and the imbalance in per cent. Whether intervals follow the span, and pulls halve the difference.
    for (kinds, busy, pct, by_span, halves) in [
        (0..2, [64, 64, 32], [110, 125, 125], false, false),
        (2..3, [32; 3], [110, 117, 125], true, false),
        (3..8, [16; 3], [110, 117, 117], true, true),
    ] {
        for kind in &KINDS[kinds] {
            let of = SchedConfig::of(*kind).balance;
            let levels = [of.smt, of.cache, of.numa];
            assert_eq!(levels.map(|at| at.busy_factor), busy, "{kind:?}");
            assert_eq!(levels.map(|at| at.imbalance_pct), pct, "{kind:?}");
            assert_eq!(levels.map(|at| at.cache_nice_tries), [0, 1, 2], "{kind:?}");
            assert_eq!(
                (of.intervals_by_span, of.halves_differences),
                (by_span, halves),
                "{kind:?}"
            );
            assert_eq!((of.nr_migrate, of.migration_cost_ns), (32, 500_000));
            let history = |at: DomainConfig| at.busy_index + at.idle_index > 0;
            assert_eq!(
                levels.map(history),
                if halves { [false; 3] } else { [false, true, true] }
            );
        }
    }
    let first = SchedConfig::of(SchedulerKind::Cfs33).balance;
    let intervals = [first.smt, first.cache, first.numa].map(|at| [at.min_interval_ms, at.max_interval_ms]);
    assert_eq!(intervals, [[1, 2], [1, 4], [8, 32]]);
}
