//! What directed yields do to virtual times: lag within its bound, pushes within theirs and rare, ping-pong damped.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::super::config::SchedConfig;
use super::super::eevdf::Eevdf;
use super::super::fault::Fault;
use super::super::favor_config::{FavorConfig, YieldFavor};
use super::super::ids::EntityId;
use super::rig::{Habit, Rig};
use super::*;

const US: u64 = 1_000;

fn config(rule: YieldFavor, change: impl FnOnce(&mut FavorConfig)) -> HostConfig {
    let mut sched = SchedConfig::of(SchedulerKind::Eevdf612);
    sched.favor.rule = rule;
    // The yield itself moves no virtual time, so what moved was moved by the favor.
    sched.yields = YieldRule::Whole;
    change(&mut sched.favor);
    HostConfig {
        hz: 1000,
        sched,
        ..HostConfig::default()
    }
}

fn eevdf(sched: &Scheduler) -> Eevdf {
    match sched.hierarchy.policy {
        Rules::Eevdf(eevdf) => eevdf,
        Rules::Cfs(_) => panic!("not an eevdf"),
    }
}

/// One directed yield that was done.
struct Yielded {
    /// Its target and the target's ancestors, each with its eligibility before the yield.
    path: Vec<(EntityId, bool)>,
    /// Virtual times were moved.
    favored: bool,
    /// The increase of the yielder's virtual time, at the level where its path meets the target's.
    push: u64,
    /// Its lag behind the target at that level.
    gap: u64,
    /// Its slice, in virtual time.
    slice: u64,
    /// It lost the protection of its slice.
    insisted: bool,
    /// The scheduler after the yield, before it picks a thread.
    after: Scheduler,
}

/// Yields from the running thread of pCPU 0 to `to`, and reschedules. Returns `None` if the yield is refused.
fn yield_to(rig: &mut Rig, to: TaskId) -> Option<Yielded> {
    let from = rig.sched.current(0).filter(|&from| from != to)?;
    rig.on(0, |sched, step| {
        let (yielder, target) = (sched.threads[from].entity, sched.threads[to].entity);
        let ids: Vec<EntityId> = sched.hierarchy.path(target).collect();
        ids.iter()
            .for_each(|&id| sched.hierarchy.account(sched.hierarchy.entities[id].queue));
        let policy = eevdf(sched);
        let eligible = |id: EntityId| policy.eligible(&sched.hierarchy, sched.hierarchy.entities[id].queue, id);
        let path = ids.iter().map(|&id| (id, eligible(id))).collect();
        let (at, meets) = sched.hierarchy.siblings(yielder, target);
        sched.hierarchy.account(sched.hierarchy.entities[at].queue);
        let before = sched.hierarchy.entities[at].vruntime;
        let gap = sched.hierarchy.entities[meets].vruntime.wrapping_sub(before) as i64;
        if !sched.yield_to(0, to, step) {
            return None;
        }
        let after = sched.clone();
        sched.resched(0, step);
        Some(Yielded {
            path,
            favored: after.favored,
            push: after.hierarchy.entities[at].vruntime.wrapping_sub(before),
            gap: gap.max(0) as u64,
            slice: weight::scaled(policy.slice, after.hierarchy.entities[at].weight),
            insisted: after.hierarchy.entities[yielder].protected.is_none(),
            after,
        })
    })
}

/// Hogs in a tree of groups on one pCPU: the nice level of each, and how deep it stands.
type Hogs = Vec<(i8, usize)>;

fn hogs() -> impl Strategy<Value = Hogs> {
    proptest::collection::vec((-4i8..5, 0usize..4), 2..14)
}

/// Returns a strategy for storms: a list of waiting times, each with the target of the yield that follows.
fn rounds() -> impl Strategy<Value = Vec<(u64, usize)>> {
    proptest::collection::vec((5 * US..2 * MS, 0usize..14), 20..100)
}

/// Returns every directed yield of such a storm, with its time.
fn storm(config: &HostConfig, fault: Option<Fault>, hogs: &Hogs, rounds: &[(u64, usize)]) -> Vec<(u64, Yielded)> {
    let mut rig = Rig::with(config, 1, 1).plant(fault);
    let mut groups = vec![ROOT];
    for depth in 0..3 {
        groups.push(rig.sched.add_group(Some(groups[depth]), 1024).expect("a group"));
    }
    let tasks: Vec<TaskId> = hogs
        .iter()
        .map(|&(nice, depth)| rig.add(nice, groups[depth], None, Habit::HOG))
        .collect();
    let mut done = Vec::new();
    for &(wait, to) in rounds {
        let next = rig.now + wait;
        rig.run_until(next);
        if let Some(yielded) = yield_to(&mut rig, tasks[to % tasks.len()]) {
            done.push((rig.now, yielded));
        }
        rig.sched.check();
    }
    done
}

/// A thread that was not eligible is eligible after a credit, with no more lag than any thread may have.
fn check_credits(storm: &[(u64, Yielded)]) {
    for (_, yielded) in storm {
        let hierarchy = &yielded.after.hierarchy;
        let policy = eevdf(&yielded.after);
        for &(id, was_eligible) in &yielded.path {
            let queue = hierarchy.entities[id].queue;
            assert!(policy.eligible(hierarchy, queue, id), "not eligible after a credit");
            let lag = hierarchy.average(queue).wrapping_sub(hierarchy.entities[id].vruntime) as i64;
            // The average is rounded.
            let limit = policy.lag_limit(hierarchy.entities[id].weight) + 1;
            assert!(was_eligible || lag <= limit, "a lag of {lag}, {limit} allowed");
        }
        let any = yielded.path.iter().any(|(_, was_eligible)| !was_eligible);
        assert_eq!(
            yielded.favored, any,
            "a credit where none was due, or the other way round"
        );
    }
}

/// A push is at least a slice, and at most six.
fn check_pushes(storm: &[(u64, Yielded)]) {
    for (_, yielded) in storm {
        let (push, slice) = (yielded.push, yielded.slice);
        let range = if yielded.favored { slice..=6 * slice } else { 0..=0 };
        assert!(range.contains(&push), "pushed by {push}, {range:?} allowed");
    }
}

/// At least `interval` between what is to be done once in it.
fn check_interval(storm: &[(u64, Yielded)], interval: u64, is_one: impl Fn(&Yielded) -> bool) {
    let times: Vec<u64> = storm
        .iter()
        .filter(|(_, yielded)| is_one(yielded))
        .map(|(at, _)| *at)
        .collect();
    for pair in times.windows(2) {
        assert!(pair[1] - pair[0] > interval, "again after {} ns", pair[1] - pair[0]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    #[test]
    fn credited_lag_is_within_its_legal_bound_on_every_level(
        hogs in hogs(), rounds in rounds(), credit_pct in 1u64..300,
    ) {
        let config = config(YieldFavor::LagCredit, |favor| favor.credit_pct = credit_pct);
        let storm = storm(&config, None, &hogs, &rounds);
        check_credits(&storm);
        check_interval(&storm, 6 * MS, |yielded| yielded.insisted);
        prop_assert!(storm.iter().all(|(_, yielded)| yielded.push == 0 || yielded.favored));
    }

    #[test]
    fn pushes_are_bounded_and_rare(
        hogs in hogs(), rounds in rounds(), interval in 0u64..8 * MS,
        rule in prop_oneof![Just(YieldFavor::DeboosterV1), Just(YieldFavor::DeboosterV2)],
    ) {
        let config = config(rule, |favor| favor.interval_ns = interval);
        let storm = storm(&config, None, &hogs, &rounds);
        check_pushes(&storm);
        check_interval(&storm, interval, |yielded| yielded.favored);
    }
}

/// Returns whether one of some fixed storms fails `check`.
fn breaks(config: &HostConfig, fault: Option<Fault>, check: fn(&[(u64, Yielded)])) -> bool {
    (2..10).any(|count| {
        let hogs: Hogs = (0..count).map(|hog| (0, hog % 2)).collect();
        let rounds: Vec<(u64, usize)> = (0..100)
            .map(|round| (US * (100 + 37 * round as u64 % 700), round))
            .collect();
        let storm = storm(config, fault, &hogs, &rounds);
        catch_unwind(AssertUnwindSafe(|| check(&storm))).is_err()
    })
}

#[test]
fn planted_faults_break_the_bounds() {
    let credit = config(YieldFavor::LagCredit, |favor| favor.credit_pct = 100);
    let push = config(YieldFavor::DeboosterV2, |_| {});
    let insists = |storm: &[(u64, Yielded)]| check_interval(storm, 6 * MS, |yielded| yielded.insisted);
    let pushes = |storm: &[(u64, Yielded)]| check_interval(storm, 6 * MS, |yielded| yielded.favored);
    for (config, fault, check) in [
        (&credit, Fault::CreditUnbounded, check_credits as fn(&[(u64, Yielded)])),
        (&credit, Fault::FavorUnlimited, insists),
        (&push, Fault::FavorUnlimited, pushes),
    ] {
        assert!(!breaks(config, None, check));
        assert!(breaks(config, Some(fault), check), "{fault:?}");
    }
}

/// Two threads that yield to each other after `wait`, without an interval: pushes in slices, from the second on.
fn ping_pong(wait: u64, fault: Option<Fault>) -> Vec<f64> {
    let config = config(YieldFavor::DeboosterV2, |favor| favor.interval_ns = 0);
    let rounds: Vec<(u64, usize)> = (0..40).map(|_| (wait, 0)).collect();
    let mut rig = Rig::with(&config, 1, 1).plant(fault);
    let tasks: Vec<TaskId> = (0..2).map(|_| rig.add(0, ROOT, None, Habit::HOG)).collect();
    let mut pushes = Vec::new();
    for (wait, _) in rounds {
        let next = rig.now + wait;
        rig.run_until(next);
        let from = rig.sched.current(0).expect("a hog");
        let to = if from == tasks[0] { tasks[1] } else { tasks[0] };
        let yielded = yield_to(&mut rig, to).expect("it waits");
        let undamped = yielded.slice + yielded.gap + yielded.gap / 10;
        pushes.push(yielded.push as f64 / undamped.min(6 * yielded.slice) as f64);
    }
    pushes.split_off(1)
}

#[test]
fn a_yield_back_within_the_window_pushes_less() {
    let damped = |pushes: Vec<f64>| pushes.iter().filter(|push| **push < 1.0).count();
    assert!(damped(ping_pong(300 * US, None)) > 10, "ping-pong is not damped");
    assert_eq!(damped(ping_pong(700 * US, None)), 0, "damped after the window");
    assert_eq!(
        damped(ping_pong(300 * US, Some(Fault::PairForgotten))),
        0,
        "the fault does not show"
    );
}

/// Three hogs on one pCPU, of which two yield to each other every 100 µs: the share of the third.
fn share_of_the_third(rule: YieldFavor, yields: YieldRule) -> f64 {
    let mut config = config(rule, |_| {});
    config.sched.yields = yields;
    let mut rig = Rig::with(&config, 1, 1);
    let tasks: Vec<TaskId> = (0..3).map(|_| rig.add(0, ROOT, None, Habit::HOG)).collect();
    for round in 1..=20_000u64 {
        rig.run_until(round * 100 * US);
        let pair = [(tasks[0], tasks[1]), (tasks[1], tasks[0])];
        if let Some((_, to)) = pair.iter().find(|(from, _)| rig.sched.current(0) == Some(*from)) {
            yield_to(&mut rig, *to);
        }
    }
    rig.ran(tasks[2]) as f64 / rig.now as f64
}

#[test]
fn whoever_shares_a_pcpu_with_a_pair_of_yielders_gets_its_part_unless_lag_is_credited() {
    for yields in [YieldRule::Whole, YieldRule::Forfeit] {
        for rule in [YieldFavor::None, YieldFavor::DeboosterV1, YieldFavor::DeboosterV2] {
            let share = share_of_the_third(rule, yields);
            assert!(share > 0.33, "{rule:?}, {yields:?}: {share}");
        }
        // Each yield makes the other of the two eligible again, and an eligible buddy comes before everyone.
        let share = share_of_the_third(YieldFavor::LagCredit, yields);
        assert!(share < 0.01, "the proposal starves nobody? {yields:?}: {share}");
    }
}

#[test]
fn a_storm_keeps_the_first_debooster_from_ever_pushing_again() {
    let hogs: Hogs = vec![(0, 0); 3];
    let rounds: Vec<(u64, usize)> = (0..1_000).map(|round| (500 * US, round)).collect();
    let pushes = |rule| {
        let storm = storm(&config(rule, |_| {}), None, &hogs, &rounds);
        storm.iter().filter(|(_, yielded)| yielded.favored).count()
    };
    assert_eq!(pushes(YieldFavor::DeboosterV1), 1);
    assert!(pushes(YieldFavor::DeboosterV2) > 50);
}

#[test]
fn a_scheduler_without_deadlines_has_no_such_options() {
    for kind in [SchedulerKind::Cfs2637, SchedulerKind::Cfs33, SchedulerKind::Cfs412] {
        let mut sched = SchedConfig::of(kind);
        sched.favor.rule = YieldFavor::LagCredit;
        assert_eq!(sched.check(), Err(ConfigError::FavorWithoutEevdf), "{kind:?}");
    }
}
