//! The scheduler's books against plain code: histories of load, contributions of groups, parts of a pCPU's load.

use super::super::config::ShareRule;
use super::super::runqueue::RunQueue;
use super::*;

/// A group's queue on pCPU 0.
fn with_queue(bench: &mut Bench) -> (GroupId, QueueId) {
    let group = bench.sched.add_group(None, 1024).expect("a group");
    (group, bench.sched.hierarchy.queue_of(group, 0))
}

/// The history of one queue's load: stretches of time, all halved as long as they last longer than the window.
struct Stretches {
    window: f64,
    /// Durations, and the load in each.
    all: Vec<(f64, f64)>,
    loaded: f64,
    updated: f64,
}

impl Stretches {
    fn lasted(&self) -> f64 {
        self.all.iter().map(|(ns, _)| ns).sum()
    }

    fn average(&self) -> f64 {
        self.all.iter().map(|(ns, load)| ns * load).sum::<f64>() / (self.lasted() + 1.0)
    }

    /// Adds the time until `now`, with `load`. Returns the average, and whether the stretches lasted for a window.
    fn update(&mut self, now: f64, load: f64) -> (f64, bool) {
        if self.updated > self.loaded && now - self.loaded > 4.0 * self.window {
            self.all = vec![(self.window - 1.0, load)];
        } else {
            self.all.push((now - self.updated, load));
        }
        self.updated = now;
        if load > 0.0 {
            self.loaded = now;
        }
        let result = (self.average(), self.lasted() > self.window);
        while self.lasted() > self.window {
            self.all.iter_mut().for_each(|(ns, _)| *ns /= 2.0);
        }
        result
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    /// Until 3.7 a queue contributes its average over about a window, and an idle one forgets what it was.
    #[test]
    fn a_queue_contributes_its_average_over_the_window(
        steps in proptest::collection::vec((1u64..30 * MS, prop_oneof![Just(0u64), 1u64..5_000], any::<bool>()), 1..60),
    ) {
        let mut bench = Bench::of(SchedulerKind::Cfs33, 2);
        let (group, queue) = with_queue(&mut bench);
        let window = bench.sched.hierarchy.shares_window_ns as f64;
        let mut plain = Stretches { window, all: Vec::new(), loaded: 0.0, updated: 0.0 };
        for (ns, load, publish) in steps {
            bench.now += ns;
            bench.sched.begin(bench.now);
            let hierarchy = &mut bench.sched.hierarchy;
            hierarchy.queues[queue].load = load;
            hierarchy.queues[queue].share.unaccounted = ns;
            hierarchy.update_share_history(queue, publish);
            let (average, lasted) = plain.update(bench.now as f64, load as f64);
            let share = &hierarchy.queues[queue].share;
            let found = share.contribution as f64;
            // The code counts in whole numbers, and halves them.
            let rounding = 2.0 + average / 1_000.0;
            if publish {
                prop_assert!((found - average).abs() <= rounding, "{found}, of {average}");
            } else if lasted {
                prop_assert!((found - average).abs() <= found / 8.0 + rounding, "{found}, of {average}");
            }
            prop_assert_eq!(share.unaccounted, 0);
            prop_assert!(share.period as f64 <= window);
            prop_assert_eq!(hierarchy.groups[group].load, share.contribution);
        }
    }

    /// Since 3.8 the average is geometric, and a contribution is made again when it is a 64th away.
    #[test]
    fn a_contribution_is_within_a_64th_of_the_average(
        steps in proptest::collection::vec((1u64..20 * MS, 0u64..20_000, 0u32..5), 1..60),
    ) {
        for kind in [SchedulerKind::Cfs412, SchedulerKind::Eevdf73] {
            let mut bench = Bench::of(kind, 2);
            let (group, queue) = with_queue(&mut bench);
            let concurrent = bench.sched.hierarchy.share_rule == ShareRule::Concurrent;
            for &(ns, load, runnable) in &steps {
                bench.now += ns;
                bench.sched.begin(bench.now);
                let hierarchy = &mut bench.sched.hierarchy;
                (hierarchy.queues[queue].load, hierarchy.queues[queue].runnable) = (load, runnable);
                let before = hierarchy.queues[queue].share;
                hierarchy.update_share_history(queue, false);
                let share = &hierarchy.queues[queue].share;
                let parts = [
                    (before.contribution, share.contribution, share.tracked.load()),
                    (before.runnable_contribution, share.runnable_contribution, share.runnable.load()),
                ];
                let far = parts.iter().any(|&(old, _, average)| average.abs_diff(old) > old / 64);
                for (old, new, average) in parts {
                    prop_assert_eq!(new, if far { average } else { old }, "{:?}", kind);
                }
                let of_group = &hierarchy.groups[group];
                prop_assert_eq!((of_group.load, of_group.runnable), (share.contribution, share.runnable_contribution));
                prop_assert!(concurrent || share.runnable_contribution == 0);
            }
            // In the end it is the number of threads that have been runnable for long.
            bench.now += 20_000 * MS;
            bench.sched.begin(bench.now);
            let hierarchy = &mut bench.sched.hierarchy;
            hierarchy.queues[queue].runnable = 3;
            hierarchy.update_share_history(queue, true);
            let due = if concurrent { 3 * weight::NICE_0 } else { 0 };
            prop_assert_eq!(hierarchy.queues[queue].share.runnable_contribution, due);
        }
    }

    /// A thread represents a part of its group, which represents a part of the group above, and so on, of the load of
    /// its pCPU.
    #[test]
    fn a_thread_represents_a_part_of_a_part(
        levels in proptest::collection::vec((50u64..100_000, 50u64..100_000), 0..4), own in 50u64..100_000,
        others in 50u64..100_000,
    ) {
        let mut bench = Bench::of(SchedulerKind::Cfs33, 2);
        let (mut group, mut expected) = (ROOT, None);
        // At each level the entity of the next group has `weight`, and all others have `rest`.
        for (weight, rest) in levels {
            let above = bench.sched.hierarchy.queue_of(group, 0);
            bench.sched.hierarchy.queues[above].load = weight + rest;
            group = bench.sched.add_group(Some(group), 1024).expect("a group");
            let queue = bench.sched.hierarchy.queue_of(group, 0);
            let entity = bench.sched.hierarchy.queues[queue].entity.expect("an entity of the group");
            bench.sched.hierarchy.entities[entity].weight = weight;
            let whole = expected.unwrap_or((weight + rest) as f64);
            expected = Some(whole * weight as f64 / (weight + rest) as f64);
        }
        let thread = bench.sched.add_thread(own, group, None);
        let entity = bench.sched.threads[thread].entity;
        let queue = bench.sched.hierarchy.entities[entity].queue;
        bench.sched.hierarchy.queues[queue].load = own + others;
        let expected = expected.unwrap_or((own + others) as f64);
        // Each level divides whole numbers, by one more than the load.
        let near = |found: u64, expected: f64| (found as f64 - expected).abs() <= 4.0 + expected / 10.0;
        let of_queue = bench.sched.hierarchy.hierarchical_load(queue);
        prop_assert!(near(of_queue, expected), "{of_queue} of the group, {expected} is due");
        let found = bench.sched.hierarchy.hierarchical_task_load(entity);
        let due = expected * own as f64 / (own + others) as f64;
        prop_assert!(near(found, due), "{found}, {due} is due");
    }

    /// The history of a pCPU's load: each entry moves towards the load by a half, a quarter, and so on, at each tick.
    /// At ticks that were left out the pCPU was idle.
    #[test]
    fn load_histories_move_by_their_part_at_each_tick(
        steps in proptest::collection::vec((1u64..40, 0u64..1_000_000), 1..40),
    ) {
        let mut queue = RunQueue::default();
        let mut plain = [0.0f64; 5];
        let mut tick = 0;
        for (ticks, load) in steps {
            tick += ticks;
            queue.update_load(tick, load);
            queue.update_load(tick, 77);
            for (index, (entry, &found)) in plain.iter_mut().zip(&queue.load).enumerate() {
                let part = 0.5f64.powi(index as i32);
                for left in (0..ticks).rev() {
                    let now = if left == 0 { load as f64 } else { 0.0 };
                    *entry += (now - *entry) * part;
                }
                prop_assert!((found as f64 - *entry).abs() < 40.0, "entry {index}: {found}, {entry} is due");
            }
        }
    }
}

#[test]
fn shares_are_renewed_once_in_a_window() {
    // Until 2.6.37 by time, until 3.7 by the load that was not accounted yet.
    let mut bench = Bench::of(SchedulerKind::Cfs2637, 2);
    let (_, queue) = with_queue(&mut bench);
    let window = bench.sched.hierarchy.shares_window_ns;
    let mut renewed = Vec::new();
    for _ in 0..100 {
        bench.now += window / 4;
        bench.sched.begin(bench.now);
        bench.sched.hierarchy.tick_shares(queue);
        renewed.push(bench.sched.hierarchy.queues[queue].share.stamp);
    }
    renewed.dedup();
    assert!(renewed.len() >= 25, "{renewed:?}");
    assert!(
        renewed.windows(2).all(|pair| pair[1] - pair[0] == window),
        "{renewed:?}"
    );
    let mut bench = Bench::of(SchedulerKind::Cfs33, 2);
    let (_, queue) = with_queue(&mut bench);
    let window = bench.sched.hierarchy.shares_window_ns;
    for (unaccounted, left) in [(window - 1, window - 1), (window, 0), (window + 1, 0)] {
        bench.now += MS;
        bench.sched.begin(bench.now);
        bench.sched.hierarchy.queues[queue].share.unaccounted = unaccounted;
        bench.sched.hierarchy.tick_shares(queue);
        assert_eq!(bench.sched.hierarchy.queues[queue].share.unaccounted, left);
    }
}

#[test]
fn sources_count_their_lower_and_targets_their_higher_load() {
    for (bias, index) in [(true, 0), (true, 1), (true, 3), (true, 5), (false, 3)] {
        let mut config = HostConfig::linux_3_3();
        config.sched.features.lb_bias = bias;
        let mut bench = Bench::new(&config, 1, 1);
        bench.threads(ROOT, 2);
        bench.sched.rq_mut(0).load = [1_000, 5_000, 2_048, 400, 9_000];
        let present = 2 * weight::NICE_0;
        let past = match (bias, index) {
            (true, 1) => 1_000,
            (true, 3) => 2_048,
            (true, 5) => 9_000,
            _ => present,
        };
        assert_eq!(bench.sched.source_load(0, index), past.min(present), "{bias}, {index}");
        assert_eq!(bench.sched.target_load(0, index), past.max(present), "{bias}, {index}");
    }
}

#[test]
fn idle_times_are_averaged_over_eight_and_long_ones_cut() {
    let mut bench = Bench::of(SchedulerKind::Cfs33, 2);
    let task = bench.threads(ROOT, 1)[0];
    bench.schedule(0);
    let cost = bench.sched.migration_cost_ns;
    for (before, idle, after) in [
        (400_000, 0, 350_000),
        (400_000, 80_000, 360_000),
        (400_000, 2 * cost, 350_000 + cost / 4),
        (400_000, 2 * cost + 1, 2 * cost),
        (0, 1_000 * cost, 2 * cost),
    ] {
        bench.now += MS;
        bench.on(0, |sched, _| sched.sleep(0));
        bench.schedule(0);
        bench.sched.rq_mut(0).avg_idle = before;
        bench.sched.rq_mut(0).idle_since = Some(bench.now);
        bench.now += idle;
        bench.on(0, |sched, step| assert!(sched.wake(task, step)));
        assert_eq!(bench.sched.rq(0).avg_idle, after, "{before} and {idle}");
        assert_eq!(bench.sched.rq(0).idle_since, None);
        bench.schedule(0);
    }
}

#[test]
fn a_preempted_thread_is_remembered_only_on_a_crowded_queue() {
    // `nr_latency` is 8: as many slices as fit into the period.
    for (waiting, remembered) in [(1, false), (6, false), (7, true), (9, true)] {
        let mut bench = Bench::new(&HostConfig::linux_3_3(), 1, 1);
        assert!(bench.sched.features.last_buddy);
        let sleeper = bench.threads(ROOT, 1)[0];
        bench.schedule(0);
        bench.on(0, |sched, _| sched.sleep(0));
        bench.threads(ROOT, waiting);
        let running = bench.schedule(0).expect("a thread");
        bench.now += 100 * MS;
        bench.on(0, |sched, step| {
            sched.rq_mut(0).need_resched = false;
            assert!(sched.wake(sleeper, step));
        });
        assert!(bench.sched.need_resched(0), "{waiting} threads");
        let root = bench.sched.hierarchy.root(0);
        let last = bench.sched.hierarchy.queues[root].last;
        let expected = remembered.then_some(bench.sched.threads[running].entity);
        assert_eq!(last, expected, "{waiting} threads");
    }
}
