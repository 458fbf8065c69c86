//! Loads of groups and threads, and what a change of weight leaves unchanged.

use super::super::pelt::Tracked;
use super::rig::{Habit, Rig};
use super::*;

/// A pCPU of one group: its threads' load, and the weight of the group's entity there.
fn set(sched: &mut Scheduler, group: GroupId, pcpu: u32, load: u64, weight: u64) {
    let queue = sched.hierarchy.queue_of(group, pcpu);
    let at = &mut sched.hierarchy.queues[queue];
    (at.load, at.share.contribution) = (load, load);
    let entity = at.entity.expect("an entity of the group");
    sched.hierarchy.entities[entity].weight = weight;
    sched.hierarchy.groups[group].load += load;
}

#[test]
fn a_group_that_grows_on_one_pcpu_loses_on_the_others() {
    let mut bench = Bench::new(&HostConfig::linux_3_3(), 1, 3);
    let sched = &mut bench.sched;
    let outer = sched.add_group(None, 512).expect("a group");
    let inner = sched.add_group(Some(outer), 1024).expect("a group");
    let alone = sched.add_group(None, 1024).expect("a group");
    for pcpu in 0..2 {
        set(sched, inner, pcpu, 1024, 512);
        set(sched, outer, pcpu, 512, 256);
        set(sched, alone, pcpu, 1024, 512);
    }
    // Of shares 1024: 2048 of 3072 in place of 512, 1024 of 3072 in place of 512, and in place of none. All of it.
    let cases = [
        (0, 1024, 1024, 682 - 512),
        (1, 0, 1024, 341 - 512),
        (2, 1024, 1024, 341 - 2),
        (0, -1024, -1024, 2 - 512),
        (1, 0, -1024, 1024 - 512),
    ];
    for (pcpu, local, whole, change) in cases {
        assert_eq!(sched.hierarchy.effective_load(alone, pcpu, local, whole), change);
    }
    // One level up the group's entity has grown from 512 to 682, and nothing else has changed: shares 512 * 682 / 1024.
    assert_eq!(sched.hierarchy.effective_load(inner, 0, 1024, 1024), 341 - 256);
    assert_eq!(sched.hierarchy.effective_load(ROOT, 0, 77, 1024), 77);
}

#[test]
fn a_sleeping_thread_counts_with_its_past_where_loads_are_tracked() {
    for (kind, asleep, awake) in [
        (SchedulerKind::Cfs33, 3_000, 3_000),
        (SchedulerKind::Cfs412, 512, 2_012),
    ] {
        let mut bench = Bench::of(kind, 1);
        let task = bench.sched.add_thread(3_000, ROOT, None);
        let entity = bench.sched.threads[task].entity;
        bench.sched.hierarchy.entities[entity].tracked = Tracked::steady(1_024);
        // A half-life.
        bench.sched.begin(1 << 25);
        for (on_rq, load) in [(false, asleep), (true, awake)] {
            bench.sched.hierarchy.entities[entity].on_rq = on_rq;
            assert_eq!(
                bench.sched.hierarchy.entity_load(entity),
                load,
                "{kind:?}, queued {on_rq}"
            );
        }
    }
}

#[test]
fn a_new_weight_leaves_lag_and_the_rest_of_the_slice() {
    let mut bench = Bench::of(SchedulerKind::Eevdf612, 1);
    let task = bench.sched.add_thread(1, ROOT, None);
    let id = bench.sched.threads[task].entity;
    let average = u64::MAX - 1_000;
    for (old, new) in [(1024, 512), (512, 3_072), (15, 88_761)] {
        for (behind, left, protected) in [(6_144, 12_288, true), (-9_216, 3_072, false)] {
            let hierarchy = &mut bench.sched.hierarchy;
            let entity = &mut hierarchy.entities[id];
            entity.weight = old;
            entity.vruntime = average.wrapping_sub(behind as u64);
            entity.deadline = entity.vruntime.wrapping_add(left);
            entity.protected = Some(if protected { entity.deadline } else { 7 });
            let policy = hierarchy.policy;
            policy.reweigh(hierarchy, average, id, new);
            let entity = &hierarchy.entities[id];
            let lag = average.wrapping_sub(entity.vruntime) as i64;
            let rest = entity.deadline.wrapping_sub(entity.vruntime);
            // Times weight they stay, as far as whole virtual nanoseconds can tell.
            assert_eq!(lag, behind * old as i64 / new as i64, "{old} to {new}");
            assert_eq!(rest, left * old / new, "{old} to {new}");
            assert_eq!(entity.protected == Some(entity.deadline), protected);
        }
    }
}

#[test]
fn a_new_thread_has_half_a_slice_until_its_first_deadline_and_a_woken_one_a_whole() {
    for nice in [0, -5, 5] {
        let mut bench = Bench::of(SchedulerKind::Eevdf66, 1);
        let Rules::Eevdf(eevdf) = bench.sched.hierarchy.policy else {
            panic!("not eevdf")
        };
        let task = bench.sched.add_thread(weight::of_nice(nice), ROOT, None);
        let rest = |bench: &Bench| {
            let entity = &bench.sched.hierarchy.entities[bench.sched.threads[task].entity];
            entity.deadline.wrapping_sub(entity.vruntime)
        };
        bench.on(0, |sched, step| sched.start_thread(task, step));
        let slice = weight::scaled(eevdf.slice, weight::of_nice(nice));
        assert_eq!(rest(&bench), slice / 2, "nice {nice}");
        bench.schedule(0);
        bench.on(0, |sched, _| sched.sleep(0));
        bench.schedule(0);
        bench.on(0, |sched, step| sched.wake(task, step));
        assert_eq!(rest(&bench), slice, "nice {nice}");
    }
}

#[test]
fn a_thread_that_arrives_has_the_lag_with_which_it_left() {
    for (keeps, lag) in [(true, 6_000), (true, -4_500), (false, 6_000)] {
        let mut config = HostConfig {
            sched: SchedConfig::of(SchedulerKind::Eevdf66),
            ..HostConfig::default()
        };
        config.sched.features.place_lag = keeps;
        let mut bench = Bench::new(&config, 1, 1);
        bench.threads(ROOT, 2);
        let task = bench.sched.add_thread(3 * weight::NICE_0, ROOT, None);
        let id = bench.sched.threads[task].entity;
        bench.sched.hierarchy.entities[id].vlag = lag;
        bench.sched.hierarchy.enqueue(id, Arrival::Woken);
        let root = bench.sched.hierarchy.root(0);
        let average = bench.sched.hierarchy.average(root);
        let found = average.wrapping_sub(bench.sched.hierarchy.entities[id].vruntime) as i64;
        let expected = if keeps { lag } else { 0 };
        assert!(found.abs_diff(expected) <= 1, "{found}, keeps {keeps}");
    }
}

#[test]
fn a_picked_thread_keeps_the_pcpu_until_its_deadline_under_run_to_parity() {
    for (parity, postponed, kept) in [(true, false, true), (true, true, false), (false, false, false)] {
        let mut config = HostConfig {
            sched: SchedConfig::of(SchedulerKind::Eevdf66),
            ..HostConfig::default()
        };
        config.sched.features.run_to_parity = parity;
        let mut bench = Bench::new(&config, 1, 1);
        let (curr, other) = bench.pair();
        let hierarchy = &mut bench.sched.hierarchy;
        // Both are eligible, and the other's deadline comes first.
        hierarchy.entities[other].deadline = hierarchy.entities[curr].deadline - 1;
        if postponed {
            hierarchy.entities[curr].deadline += 1;
        }
        let policy = hierarchy.policy;
        let preempts = policy.preempts(hierarchy, curr, other);
        assert_eq!(preempts, !kept, "parity {parity}, postponed {postponed}");
    }
}

#[test]
fn until_2_6_38_a_yield_ends_in_the_queue_of_its_group() {
    for (rule, mates, behind) in [
        (YieldRule::OwnGroupCompat, 0, false),
        (YieldRule::OwnGroupCompat, 1, true),
        (YieldRule::OwnGroup, 1, false),
    ] {
        let mut config = HostConfig {
            sched: SchedConfig::of(SchedulerKind::Cfs2637),
            ..HostConfig::default()
        };
        config.sched.yields = rule;
        let mut bench = Bench::new(&config, 1, 1);
        let group = bench.sched.add_group(None, 1024).expect("a group");
        let own = bench.threads(group, 1 + mates)[0];
        bench.threads(ROOT, 2);
        while bench.sched.current(0) != Some(own) {
            bench.now += MS;
            bench.on(0, |sched, step| sched.tick(0, step));
            bench.schedule(0);
        }
        let before = bench.vruntime(own);
        bench.on(0, |sched, _| sched.yield_current(0));
        let entity = bench.sched.threads[own].entity;
        let queue = bench.sched.hierarchy.entities[entity].queue;
        let greatest = bench.sched.hierarchy.queues[queue].timeline.greatest();
        let last = greatest.is_some_and(|greatest| bench.vruntime(own) == greatest.wrapping_add(1));
        assert_eq!(last, behind, "{rule:?} with {mates}");
        assert_eq!(bench.vruntime(own) != before, behind, "{rule:?} with {mates}");
    }
}

#[test]
fn a_sleeping_thread_counts_where_it_slept_until_its_load_has_decayed_or_it_wakes_elsewhere() {
    let counted = |kind, away| {
        let mut bench = Bench::of(kind, 2);
        let tasks = bench.threads(ROOT, 1);
        bench.schedule(0);
        bench.on(0, |sched, _| sched.sleep(0));
        bench.schedule(0);
        let asleep = bench.sched.load(0);
        if away {
            bench.sched.rehome(tasks[0], 1);
        }
        let after = bench.sched.load(0);
        bench.now += 1_000 * MS;
        bench.on(0, |_, _| ());
        (asleep, after, bench.sched.load(0))
    };
    assert_eq!(counted(SchedulerKind::Cfs412, false), (0, 0, 0));
    assert_eq!(counted(SchedulerKind::Cfs61, false), (1_024, 1_024, 0));
    let (asleep, after, _) = counted(SchedulerKind::Cfs61, true);
    assert_eq!((asleep, after), (1_024, 0));
}

#[test]
fn loads_of_sleepers_add_up_while_they_sleep_wake_and_move() {
    let mut rig = Rig::new(SchedulerKind::Eevdf618, 3, 250);
    for _ in 0..7 {
        rig.add(
            0,
            GroupId(0),
            None,
            Habit {
                busy: 2 * MS,
                sleep: 3 * MS,
            },
        );
    }
    for round in 1..400 {
        rig.run_until(round * 5 * MS / 2);
        for pcpu in 0..3 {
            let root = rig.sched.hierarchy.root(pcpu);
            let parts: u64 = (0..7)
                .map(|task| rig.sched.threads[TaskId(task)].entity)
                .filter(|&id| {
                    let entity = &rig.sched.hierarchy.entities[id];
                    entity.queue == root && (entity.on_rq || entity.counts_asleep)
                })
                .map(|id| rig.sched.hierarchy.entity_load(id))
                .sum();
            let load = rig.sched.load(pcpu);
            // Each part is rounded down.
            assert!(load.abs_diff(parts) <= 16, "pcpu {pcpu}: {load}, its parts {parts}");
        }
    }
}
