//! Bandwidth control: a group gets its quota, never more than a slice per pCPU beyond it, and gets it in every period.

use super::super::config::SchedulerKind;
use super::super::fault::Fault;
use super::super::quota::Bandwidth;
use super::rig::{ALL, Habit, Rig};
use super::*;
use crate::quota::Quota;
use crate::timers::Timer;

const PERIOD: u64 = 100 * MS;

fn quota_kinds() -> impl Iterator<Item = SchedulerKind> {
    ALL.into_iter().filter(|&kind| kind != SchedulerKind::Cfs2637)
}

/// Returns the CPU time of `tasks` in each of the first `periods` periods.
fn by_period(rig: &mut Rig, tasks: &[TaskId], periods: u64) -> Vec<u64> {
    let mut before = 0;
    (1..=periods)
        .map(|period| {
            rig.run_until(period * PERIOD);
            let whole = tasks.iter().map(|&task| rig.ran(task)).sum::<u64>();
            whole - core::mem::replace(&mut before, whole)
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(16) })]

    #[test]
    fn a_quota_is_kept_and_had(
        pcpus in 1u32..5, threads in 1u32..7, quota in 2u64..200, hz in prop_oneof![Just(250u32), Just(1000)],
        nested in any::<bool>(), others in 0u32..4,
    ) {
        for kind in quota_kinds() {
            let mut rig = Rig::new(kind, pcpus, hz);
            rig.watch = Some(Scheduler::check);
            let quota = (quota * MS).min(PERIOD * u64::from(pcpus));
            let limited = rig.sched.add_group(None, 1024).expect("a group");
            rig.sched.set_quota(limited, quota_of(quota, PERIOD));
            let group = if nested { rig.sched.add_group(Some(limited), 1024).expect("a group") } else { limited };
            let tasks: Vec<TaskId> = (0..threads).map(|_| rig.add(0, group, None, Habit::HOG)).collect();
            (0..others).for_each(|_| { rig.add(0, ROOT, None, Habit::HOG); });
            let got = by_period(&mut rig, &tasks, 30);
            // A slice, and what passes until the next tick, on each pCPU.
            let slack = u64::from(pcpus) * (5 * MS + rig.tick);
            for (period, &got) in got.iter().enumerate() {
                prop_assert!(got <= quota + slack, "{:?}: {} of {} ns in period {}", kind, got, quota, period);
            }
            // Over many periods debt is paid.
            let whole: u64 = got.iter().sum();
            prop_assert!(whole <= 30 * quota + slack, "{:?}: {} ns in 30 periods of {}", kind, whole, quota);
            // What it could use it had: alone, it uses as much as its threads can.
            if others == 0 {
                let can = quota.min(u64::from(threads.min(pcpus)) * PERIOD);
                let least = (30 * can).saturating_sub(30 * slack.min(can / 2) + PERIOD * u64::from(pcpus));
                prop_assert!(whole >= least, "{:?}: {} ns of {}, at least {}", kind, whole, 30 * can, least);
            }
            prop_assert_eq!(rig.whole(), rig.now * u64::from(pcpus));
            // Who was throttled runs again in the next period, or when what it ran until a tick found it is paid.
            let paid = 1 + (u64::from(pcpus) * rig.tick).div_ceil(quota) as usize;
            prop_assert!(got[5..].windows(paid).all(|got| got.iter().any(|&got| got > 0)), "{:?}: {:?}", kind, got);
        }
    }
}

#[test]
fn a_parents_quota_binds_its_children() {
    for kind in quota_kinds() {
        let mut rig = Rig::new(kind, 2, 1000);
        rig.watch = Some(Scheduler::check);
        let parent = rig.sched.add_group(None, 1024).expect("a group");
        let child = rig.sched.add_group(Some(parent), 1024).expect("a group");
        rig.sched.set_quota(parent, quota_of(20 * MS, PERIOD));
        rig.sched.set_quota(child, quota_of(150 * MS, PERIOD));
        let tasks: Vec<TaskId> = (0..4).map(|_| rig.add(0, child, None, Habit::HOG)).collect();
        let got: u64 = by_period(&mut rig, &tasks, 20).iter().sum();
        assert!(
            (18 * 20 * MS..=20 * 20 * MS + 12 * MS).contains(&got),
            "{kind:?}: {got}"
        );
    }
}

/// Asserts that each pCPU counts the threads that could run on it, and no throttled thread. Asserts that the scheduler
/// knows how many pCPUs have two such threads or more.
fn check_counts(sched: &Scheduler) {
    let pcpus = 0..sched.queues.len() as u32;
    let crowded = pcpus.filter(|&pcpu| sched.nr_running(pcpu) >= 2).count();
    assert_eq!(sched.hierarchy.crowded_pcpus as usize, crowded, "crowded pcpus");
    for pcpu in 0..sched.queues.len() as u32 {
        let counted = (0..sched.threads.len() as u32)
            .map(TaskId)
            .filter(|&task| sched.threads[task].pcpu == pcpu && sched.is_runnable(task) && !sched.is_throttled(task));
        assert_eq!(sched.nr_running(pcpu) as usize, counted.count(), "pcpu {pcpu}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(16) })]

    /// Groups at any depth, with and without quotas, whose periods end at different times.
    #[test]
    fn a_throttled_thread_counts_at_no_level(
        levels in proptest::collection::vec(proptest::option::of((1u64..40, 1u64..4)), 1..5), pcpus in 1u32..3,
        threads in proptest::collection::vec((0usize..4, any::<bool>()), 1..6),
    ) {
        for kind in quota_kinds() {
            let mut rig = Rig::new(kind, pcpus, 1000);
            rig.watch = Some(check_counts);
            let mut groups = Vec::new();
            for quota in &levels {
                let group = rig.sched.add_group(groups.last().copied(), 1024).expect("a group");
                if let &Some((quota, periods)) = quota {
                    rig.sched.set_quota(group, quota_of(quota * MS, periods * 40 * MS));
                }
                groups.push(group);
            }
            for &(level, naps) in &threads {
                let nap = Habit { busy: 3 * MS, sleep: 7 * MS };
                rig.add(0, groups[level % groups.len()], None, if naps { nap } else { Habit::HOG });
            }
            rig.run_until(1_000 * MS);
        }
    }
}

#[test]
fn a_throttled_thread_is_no_target() {
    let mut rig = Rig::new(SchedulerKind::Cfs33, 1, 1000);
    let group = rig.sched.add_group(None, 1024).expect("a group");
    rig.sched.set_quota(group, quota_of(10 * MS, PERIOD));
    let limited = rig.add(0, group, None, Habit::HOG);
    rig.add(0, ROOT, None, Habit::HOG);
    rig.run_until(90 * MS);
    assert!(rig.sched.is_throttled(limited));
    assert_eq!(rig.sched.nr_running(0), 1, "who is throttled does not count");
    assert!(!rig.on(0, |sched, step| sched.yield_to(0, limited, step)));
    let counts = rig.sched.throttling(group, rig.now).expect("a quota");
    assert!(counts.throttled_ns > 50 * MS, "{counts:?}");
}

#[test]
fn each_period_ends_once() {
    for kind in quota_kinds() {
        let mut rig = Rig::new(kind, 1, 1000);
        let group = rig.sched.add_group(None, 1024).expect("a group");
        rig.sched.set_quota(group, quota_of(10 * MS, PERIOD));
        rig.add(0, group, None, Habit::HOG);
        for ended in 1..10 {
            rig.run_until(ended * PERIOD + PERIOD / 2);
            let counts = rig.sched.throttling(group, rig.now).expect("a quota");
            assert_eq!((counts.periods, counts.throttled_periods), (ended, ended), "{kind:?}");
        }
    }
}

#[test]
fn what_one_pcpu_does_not_need_another_gets() {
    // pCPU 0 draws a slice for a moment's work in every period; pCPU 1 could use all of the quota.
    let got = |fault| {
        let mut rig = Rig::new(SchedulerKind::Cfs33, 2, 1000).plant(fault);
        let group = rig.sched.add_group(None, 1024).expect("a group");
        rig.sched.set_quota(group, quota_of(12 * MS, PERIOD));
        let hog = rig.add(0, group, Some(1), Habit::HOG);
        let nap = Habit {
            busy: 10_000,
            sleep: 17 * MS,
        };
        rig.add(0, group, Some(0), nap);
        rig.run_until(50 * PERIOD);
        rig.ran(hog)
    };
    let (sound, faulty) = (got(None), got(Some(Fault::SliceKept)));
    assert!(sound > 50 * 105 * MS / 10, "{sound}");
    assert!(
        faulty < 50 * 95 * MS / 10,
        "a slice that was kept: {faulty}, against {sound}"
    );
}

#[test]
fn a_period_that_fills_nothing_shows() {
    let mut rig = Rig::new(SchedulerKind::Cfs33, 1, 1000).plant(Some(Fault::QuotaNotRefilled));
    let group = rig.sched.add_group(None, 1024).expect("a group");
    rig.sched.set_quota(group, quota_of(10 * MS, PERIOD));
    let task = rig.add(0, group, None, Habit::HOG);
    let got = by_period(&mut rig, &[task], 5);
    assert!(got[0] >= 10 * MS, "the first period has its quota: {got:?}");
    assert!(got[2..].iter().all(|&got| got == 0), "{got:?}");
}

/// A child runs out of its quota and gets it back while its parent has none: it returns to its parent's queue, and the
/// levels above count nothing until the parent runs again.
#[test]
fn a_child_may_be_filled_while_its_parent_is_throttled() {
    for kind in quota_kinds() {
        let mut rig = Rig::new(kind, 2, 1000);
        rig.watch = Some(Scheduler::check);
        let parent = rig.sched.add_group(None, 1024).expect("a group");
        let child = rig.sched.add_group(Some(parent), 1024).expect("a group");
        rig.sched.set_quota(parent, quota_of(30 * MS, PERIOD));
        rig.sched.set_quota(child, quota_of(6 * MS, 20 * MS));
        let limited: Vec<TaskId> = (0..2).map(|_| rig.add(0, child, None, Habit::HOG)).collect();
        let sibling = rig.add(0, parent, Some(0), Habit::HOG);
        for round in 1..200 {
            rig.run_until(round * 5 * MS);
            let throttled = |task| rig.sched.is_throttled(task);
            let all = limited.iter().chain([&sibling]);
            let runnable = all.filter(|&&task| !throttled(task)).count() as u32;
            let counted: u32 = (0..2).map(|pcpu| rig.sched.nr_running(pcpu)).sum();
            assert_eq!(counted, runnable, "{kind:?} at {}", rig.now);
        }
    }
}

/// A group with a quota, and its queue on pCPU 0 with `left` of a slice, at 50 ms.
fn pool(slice_ns: u64, left: i64, change: impl FnOnce(&mut Bandwidth)) -> (Bench, GroupId, QueueId) {
    let mut config = HostConfig::linux_3_3();
    config.sched.bandwidth_slice_ns = slice_ns;
    let mut bench = Bench::new(&config, 1, 2);
    let group = bench.sched.add_group(None, 1024).expect("a group");
    bench.sched.set_quota(group, quota_of(40 * MS, PERIOD));
    let queues = [0, 1].map(|pcpu| bench.sched.hierarchy.queue_of(group, pcpu));
    bench.now = 50 * MS;
    bench.sched.begin(bench.now);
    let hierarchy = &mut bench.sched.hierarchy;
    hierarchy.queues[queues[0]].quota.left = left;
    let bandwidth = hierarchy.groups[group].bandwidth.as_mut().expect("a quota");
    (bandwidth.active, bandwidth.ends, bandwidth.throttled) = (true, PERIOD, vec![queues[1]]);
    change(bandwidth);
    (bench, group, queues[0])
}

#[test]
fn a_queue_without_threads_returns_all_but_a_millisecond() {
    for left in [-3 * MS as i64, 0, MS as i64, MS as i64 + 1, 5 * MS as i64] {
        let (mut bench, group, queue) = pool(5 * MS, left, |bandwidth| bandwidth.pool = 7);
        bench.sched.hierarchy.return_quota(queue);
        let kept = bench.sched.hierarchy.queues[queue].quota.left;
        let pool = bench.sched.hierarchy.groups[group]
            .bandwidth
            .as_ref()
            .expect("a quota")
            .pool;
        assert_eq!(kept, left.min(MS as i64));
        assert_eq!(pool as i64 + kept, 7 + left, "quota was lost or made");
    }
}

#[test]
fn returned_quota_is_distributed_if_it_is_worth_a_timer() {
    // After 4 ms more the pool has more than a slice. Distribution is 5 ms away, and must be 2 ms before the period's
    // end at 100 ms.
    let now = 50 * MS;
    type Change = fn(&mut Bandwidth);
    let cases: [(&str, Change, bool); 7] = [
        ("more than a slice", |at| at.pool = MS + 1, true),
        ("a slice", |at| at.pool = MS, false),
        (
            "no queue waits",
            |at| (at.pool, at.throttled) = (2 * MS, Vec::new()),
            false,
        ),
        ("the timer runs", |at| (at.pool, at.slack) = (2 * MS, true), false),
        ("just in time", |at| (at.pool, at.ends) = (2 * MS, 57 * MS), true),
        ("too late", |at| (at.pool, at.ends) = (2 * MS, 57 * MS - 1), false),
        ("long ago", |at| (at.pool, at.ends) = (2 * MS, 3 * MS), false),
    ];
    for (name, change, timer) in cases {
        let (mut bench, group, queue) = pool(5 * MS, 5 * MS as i64, change);
        bench.sched.hierarchy.return_quota(queue);
        let expected = timer.then_some((Timer::Slack(group), now + 5 * MS));
        assert_eq!(bench.sched.next_timer(), expected, "{name}");
    }
}

#[test]
fn a_throttled_queue_and_one_without_quota_return_nothing() {
    for (enabled, throttled, returns) in [(true, false, true), (true, true, false), (false, false, false)] {
        let (mut bench, group, queue) = pool(5 * MS, 5 * MS as i64, |at| at.pool = 0);
        let quota = &mut bench.sched.hierarchy.queues[queue].quota;
        (quota.enabled, quota.throttled) = (enabled, throttled);
        bench.sched.hierarchy.return_quota(queue);
        let bandwidth = bench.sched.hierarchy.groups[group].bandwidth.as_ref();
        let pool = bandwidth.expect("a quota").pool;
        assert_eq!(
            pool,
            if returns { 4 * MS } else { 0 },
            "enabled {enabled}, throttled {throttled}"
        );
    }
}

#[test]
fn periods_follow_each_other_while_quota_is_drawn() {
    for draws in [true, false] {
        let (mut bench, group, queue) = pool(5 * MS, 0, |at| {
            (at.idle, at.pool, at.throttled) = (true, MS, Vec::new())
        });
        if draws {
            bench.sched.hierarchy.charge_quota(queue, 1);
        }
        bench.now = PERIOD;
        bench.on(0, |sched, step| sched.bandwidth_timer(Timer::Period(group), step));
        let next = draws.then_some((Timer::Period(group), 2 * PERIOD));
        assert_eq!(bench.sched.next_timer(), next, "draws {draws}");
    }
}

#[test]
fn returned_quota_waits_for_a_period_that_is_less_than_two_milliseconds_away() {
    for (pool_ns, ends, resumes) in [
        (MS + 1, 52 * MS, true),
        (MS + 1, 52 * MS - 1, false),
        (MS, PERIOD, false),
    ] {
        let (mut bench, group, _) = pool(MS, 0, |at| (at.slack, at.pool, at.ends) = (true, pool_ns, ends));
        let at = &bench.sched.hierarchy.groups[group];
        let waits = at.queues[1].expect("a queue");
        let quota = &mut bench.sched.hierarchy.queues[waits].quota;
        (quota.throttled, quota.throttles) = (true, 1);
        bench.on(0, |sched, step| sched.bandwidth_timer(Timer::Slack(group), step));
        let throttled = bench.sched.hierarchy.queues[waits].quota.throttled;
        assert_eq!(!throttled, resumes, "{pool_ns} ns until {ends}");
    }
}

#[test]
fn quota_of_an_earlier_period_is_not_returned_where_it_expires() {
    for (expires, generation, returns) in [(true, 3, true), (true, 2, false), (false, 2, true)] {
        let (mut bench, group, queue) = pool(5 * MS, 5 * MS as i64, |at| at.generation = 3);
        bench.sched.hierarchy.quota_expires = expires;
        bench.sched.hierarchy.queues[queue].quota.generation = generation;
        bench.sched.hierarchy.return_quota(queue);
        let pool = bench.sched.hierarchy.groups[group]
            .bandwidth
            .as_ref()
            .expect("a quota")
            .pool;
        assert_eq!(pool, if returns { 4 * MS } else { 0 });
        assert_eq!(bench.sched.hierarchy.queues[queue].quota.left, MS as i64);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    /// A queue is charged, and draws a slice once it has used its last one. It pays its debt out of the new one.
    #[test]
    fn a_queue_draws_a_slice_when_its_last_one_is_used_up(
        left in -3i64..4, ran in 0u64..8, slice in 0u64..6, in_pool in 0u64..12,
        age in 0u64..3, expires in any::<bool>(), active in any::<bool>(), now in 0u64..5,
    ) {
        let (mut bench, group, queue) = pool(slice, left, |at| (at.pool, at.generation, at.active) = (in_pool, 5, active));
        let now = 50 * MS + now * PERIOD / 2;
        bench.sched.begin(now);
        let hierarchy = &mut bench.sched.hierarchy;
        hierarchy.quota_expires = expires;
        hierarchy.queues[queue].quota.generation = 5 - age;
        // It runs.
        hierarchy.queues[queue].curr = hierarchy.queues[queue].entity;
        hierarchy.charge_quota(queue, ran);
        let mut expected = if expires && age > 0 { left.min(0) } else { left } - ran as i64;
        let draws = expected <= 0;
        let (mut rest, mut ends) = (in_pool, PERIOD);
        if draws && !active {
            // A new period in the old phase.
            rest = 40 * MS;
            ends += PERIOD;
            while ends <= now {
                ends += PERIOD;
            }
        }
        let drawn = if draws { rest.min((slice as i64 - expected) as u64) } else { 0 };
        expected += drawn as i64;
        let bandwidth = hierarchy.groups[group].bandwidth.as_ref().expect("a quota");
        prop_assert_eq!(hierarchy.queues[queue].quota.left, expected);
        prop_assert_eq!(bandwidth.pool, rest - drawn);
        prop_assert_eq!((bandwidth.ends, bandwidth.active), (ends, active || draws));
        prop_assert_eq!(bandwidth.idle, drawn == 0);
        prop_assert_eq!(!hierarchy.overdue.is_empty(), expected <= 0, "it is to be stopped");
        let timer = (draws && !active).then_some((Timer::Period(group), ends));
        prop_assert_eq!(bench.sched.next_timer(), timer);
    }

    /// Queues that were throttled pay their debts out of the pool, the first throttled first. Each of them runs again
    /// as soon as it has any quota, and no quota is made.
    #[test]
    fn quota_goes_to_throttled_queues_in_their_order(
        debts in proptest::collection::vec(0u64..30, 1..5), quota in 1u64..60, slack in any::<bool>(),
    ) {
        let pcpus = debts.len() as u32;
        let mut bench = Bench::new(&HostConfig::linux_3_3(), 1, pcpus);
        let group = bench.sched.add_group(None, 1024).expect("a group");
        bench.sched.set_quota(group, quota_of(quota, PERIOD));
        let queues: Vec<QueueId> = (0..pcpus).map(|pcpu| bench.sched.hierarchy.queue_of(group, pcpu)).collect();
        bench.sched.begin(PERIOD);
        let hierarchy = &mut bench.sched.hierarchy;
        for (&queue, &debt) in queues.iter().zip(&debts) {
            let quota = &mut hierarchy.queues[queue].quota;
            (quota.left, quota.throttled, quota.throttles) = (-(debt as i64), true, 1);
        }
        hierarchy.quota_slice_ns = 0;
        let bandwidth = hierarchy.groups[group].bandwidth.as_mut().expect("a quota");
        (bandwidth.active, bandwidth.ends, bandwidth.throttled) = (true, PERIOD, queues.clone());
        if slack {
            (bandwidth.pool, bandwidth.ends, bandwidth.slack) = (quota, 2 * PERIOD, true);
        }
        let timer = if slack { Timer::Slack(group) } else { Timer::Period(group) };
        bench.now = PERIOD;
        bench.on(0, |sched, step| sched.bandwidth_timer(timer, step));
        let mut rest = quota;
        for (&queue, &debt) in queues.iter().zip(&debts) {
            let given = rest.min(debt + 1);
            rest -= given;
            let at = bench.sched.hierarchy.queues[queue].quota;
            prop_assert_eq!(at.left, given as i64 - debt as i64);
            prop_assert_eq!(at.throttled, at.left <= 0, "{} left", at.left);
        }
        let bandwidth = bench.sched.hierarchy.groups[group].bandwidth.as_ref().expect("a quota");
        prop_assert_eq!(bandwidth.pool, rest);
        prop_assert!(!bandwidth.slack);
    }
}

#[test]
fn a_burst_uses_what_earlier_periods_left() {
    for kind in [SchedulerKind::Cfs61, SchedulerKind::Eevdf612] {
        let used = |burst_ns: u64| {
            let mut rig = Rig::new(kind, 1, 1000);
            let group = rig.sched.add_group(None, 1024).expect("a group");
            let quota = quota_of(20 * MS, PERIOD);
            rig.sched.set_quota(group, Quota { burst_ns, ..quota });
            // It sleeps for three periods, and then wants half of one.
            let habit = Habit {
                busy: 50 * MS,
                sleep: 300 * MS,
            };
            let task = rig.add(0, group, None, habit);
            let by_period = by_period(&mut rig, &[task], 30);
            let counts = rig.sched.throttling(group, rig.now).expect("a quota");
            (by_period.into_iter().max().unwrap_or(0), counts)
        };
        let ((most, without), (most_with, with)) = (used(0), used(20 * MS));
        assert!(most <= 22 * MS, "{kind:?}: {most} ns without a burst");
        assert!(
            (35 * MS..=42 * MS).contains(&most_with),
            "{kind:?}: {most_with} ns with a burst of 20 ms"
        );
        assert_eq!((without.bursts, without.burst_ns), (0, 0));
        assert!(
            with.bursts > 0 && with.burst_ns <= with.bursts * 20 * MS,
            "{kind:?}: {with:?}"
        );
        assert!(
            with.throttled_ns < without.throttled_ns,
            "{kind:?}: {with:?} {without:?}"
        );
    }
}
