//! What the schedulers of each kernel have.

use super::super::config::{Features, SchedConfig, SchedulerKind};

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
    let lives: [Life; 22] = [
        ("gentle_fair_sleepers", |has| has.gentle_fair_sleepers, 0, 8),
        ("start_debit", |has| has.start_debit, 0, 8),
        ("wakeup_preemption", |has| has.wakeup_preemption, 0, 8),
        // Off by default.
        ("next_buddy", |has| has.next_buddy, 8, 8),
        ("last_buddy", |has| has.last_buddy, 0, 4),
        ("ttwu_queue", |has| has.ttwu_queue, 1, 8),
        ("lb_bias", |has| has.lb_bias, 0, 3),
        ("yield_to", |has| has.yield_to, 1, 8),
        ("load_tracking", |has| has.load_tracking, 2, 8),
        ("wake_wide", |has| has.wake_wide, 2, 8),
        ("wake_idle", |has| has.wake_idle, 3, 8),
        ("bounded_scan", |has| has.bounded_scan, 2, 8),
        ("scan_by_utilization", |has| has.scan_by_utilization, 3, 8),
        ("overload_gate", |has| has.overload_gate, 2, 8),
        ("bandwidth_expires", |has| has.bandwidth_expires, 0, 3),
        ("place_lag", |has| has.place_lag, 4, 8),
        ("run_to_parity", |has| has.run_to_parity, 4, 8),
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
