//! What real kernels did that played the same threads (docs/validation-scheduler.md).

use super::rig::{Habit, Rig};
use super::*;

/// Returns the least and the greatest share of a pCPU that one of `hogs` had from one second to `seconds`.
fn shares(kind: SchedulerKind, pcpus: u32, hogs: u32, seconds: u64) -> (f64, f64) {
    let mut rig = Rig::new(kind, pcpus, 250);
    let tasks: Vec<TaskId> = (0..hogs).map(|_| rig.add(0, GroupId(0), None, Habit::HOG)).collect();
    rig.run_until(1_000 * MS);
    let before: Vec<u64> = tasks.iter().map(|&task| rig.ran(task)).collect();
    rig.run_until(seconds * 1_000 * MS);
    let shares = tasks
        .iter()
        .zip(before)
        .map(|(&task, before)| (rig.ran(task) - before) as f64);
    let all: Vec<f64> = shares.map(|ran| ran / ((seconds - 1) * 1_000 * MS) as f64).collect();
    let least = all.iter().copied().fold(f64::INFINITY, f64::min);
    (least, all.iter().copied().fold(0.0, f64::max))
}

#[test]
fn balancing_passes_do_not_move_threads_round_in_a_circle() {
    // All pCPUs have aligned ticks. With intervals that are multiples of each other all of them balance at the same
    // tick, and each pulls the thread that another one has just pulled: one thread keeps a pCPU for itself.
    for (pcpus, hogs) in [(4, 6), (4, 7), (4, 5), (8, 12)] {
        let (least, most) = shares(SchedulerKind::Cfs61, pcpus, hogs, 11);
        let due = f64::from(pcpus) / f64::from(hogs);
        let fair = least > 0.8 * due && most < 1.22 * due;
        assert!(fair, "{hogs} hogs on {pcpus} pCPUs have from {least} to {most}");
    }
}

#[test]
fn of_equal_deadlines_that_of_the_waiting_thread_wins() {
    for kind in [SchedulerKind::Eevdf66, SchedulerKind::Eevdf612, SchedulerKind::Eevdf618] {
        let mut rig = Rig::new(kind, 1, 250);
        (0..2).for_each(|_| {
            rig.add(0, GroupId(0), None, Habit::HOG);
        });
        let mut last = None;
        let mut same = 0;
        // Each slice ends at the first tick after it is spent. The ticks are longer than the slices.
        for tick in 10..200u64 {
            rig.run_until(tick * 4 * MS + MS);
            let current = rig.sched.current(0);
            same += u32::from(current == last);
            last = current;
        }
        assert_eq!(same, 0, "{kind:?}: a thread kept its pCPU for a second tick");
    }
}

#[test]
fn a_search_for_an_idle_pcpu_stops_where_few_are_idle() {
    let limits = |kind, hogs| {
        let mut rig = Rig::new(kind, 4, 250);
        (0..hogs).for_each(|pcpu| {
            rig.add(0, GroupId(0), Some(pcpu), Habit::HOG);
        });
        rig.run_until(1_000 * MS);
        rig.sched.idle_scans[0]
    };
    // By `update_idle_cpu_scan`: 4 (1 - 1.17² u²) pCPUs at a utilization of u, rounded down.
    for (hogs, expected) in [(1, 3), (2, 2), (3, 0), (4, 0)] {
        assert_eq!(
            limits(SchedulerKind::Cfs61, hogs),
            expected,
            "{hogs} of 4 pCPUs are busy"
        );
    }
    assert_eq!(
        limits(SchedulerKind::Cfs412, 1),
        0,
        "4.12 does not look at the utilization"
    );
}

#[test]
fn a_thread_woken_by_one_that_is_about_to_sleep_gets_its_pcpu() {
    let place = |sync: bool| {
        let mut rig = Rig::new(SchedulerKind::Cfs61, 4, 250);
        let nap = Habit {
            busy: MS,
            sleep: 1_000 * MS,
        };
        // So heavy that loads alone keep others away.
        let waker = rig.add(-5, GroupId(0), Some(0), Habit::HOG);
        let sleeper = rig.add(0, GroupId(0), None, nap);
        rig.run_until(100 * MS);
        // Other threads keep all other pCPUs busy, the sleeper's last one too: no search finds an idle one.
        let last = rig.sched.threads[sleeper].pcpu;
        (1..4).for_each(|pcpu| {
            rig.add(0, GroupId(0), Some(pcpu), Habit::HOG);
        });
        rig.run_until(300 * MS);
        assert!(last != 0 && (0..4).all(|pcpu| !rig.sched.is_idle(pcpu)) && rig.sched.current(0) == Some(waker));
        rig.sched.place_woken(sleeper, 0, sync)
    };
    assert_eq!(place(true), 0);
    assert_ne!(place(false), 0);
}

/// Returns the lengths of the slices of two hogs on one pCPU, in tenths of a millisecond.
fn slices(kind: SchedulerKind) -> Vec<u64> {
    let mut rig = Rig::new(kind, 1, 250);
    (0..2).for_each(|_| {
        rig.add(0, GroupId(0), None, Habit::HOG);
    });
    let (mut last, mut since, mut slices) = (None, 0, Vec::new());
    for at in 1_000..2_000 {
        rig.run_until(at * MS / 10);
        if rig.sched.current(0) != last {
            slices.push(at - since);
            (last, since) = (rig.sched.current(0), at);
        }
    }
    slices.split_off(2)
}

#[test]
fn a_timer_ends_slices_between_ticks() {
    let by_timer = slices(SchedulerKind::Eevdf73);
    assert!(by_timer.iter().all(|slice| (7..=8).contains(slice)), "{by_timer:?}");
    assert_eq!(slices(SchedulerKind::Eevdf618).iter().min(), Some(&40));
}

#[test]
fn the_timer_leaves_a_thread_its_slice_where_its_group_s_has_begun_before() {
    let mut rig = Rig::new(SchedulerKind::Eevdf73, 1, 250);
    let [pair, other] = [(); 2].map(|()| rig.sched.add_group(None, weight::NICE_0).expect("a group"));
    let [first, second] = [(); 2].map(|()| rig.add(0, pair, None, Habit::HOG));
    // It wakes now and then, and so puts slices of groups out of step with those of threads.
    let nap = Habit {
        busy: 3 * MS / 10,
        sleep: 5 * MS / 2,
    };
    for habit in [Habit::HOG, nap] {
        rig.add(0, other, None, habit);
    }
    let mut looked = 0;
    for at in 1_000..3_000 {
        rig.run_until(at * MS / 10);
        let sched = &rig.sched;
        let Some(running) = sched.current(0).filter(|&task| task == first || task == second) else {
            continue;
        };
        let entity = sched.threads[running].entity;
        let on = &sched.hierarchy;
        let own = on.entities[entity].exec_start + on.policy.rest(on, entity).expect("a slice");
        let timer = sched.rq(0).slice_timer.expect("a timer");
        // Weights change a little meanwhile.
        assert!(timer + MS / 20 > own, "at {at}: {timer} instead of {own}");
        looked += 1;
    }
    assert!(looked > 500, "{looked}");
}

/// Returns the least share of a pCPU that a hog of a group has, next to as many hogs of the root group, each on a pCPU
/// of its own.
fn share_of_a_group(kind: SchedulerKind, hogs: u32) -> f64 {
    let mut rig = Rig::new(kind, 4, 250);
    let group = rig.sched.add_group(None, weight::NICE_0).expect("a group");
    let add = |rig: &mut Rig, group, pcpu| rig.add(0, group, Some(pcpu), Habit::HOG);
    let members: Vec<TaskId> = (0..hogs).map(|pcpu| add(&mut rig, group, pcpu)).collect();
    (0..4).for_each(|pcpu| {
        add(&mut rig, GroupId(0), pcpu);
    });
    rig.run_until(1_000 * MS);
    let before: Vec<u64> = members.iter().map(|&task| rig.ran(task)).collect();
    rig.run_until(3_000 * MS);
    let ran = members.iter().zip(before).map(|(&task, before)| rig.ran(task) - before);
    ran.min().expect("a member") as f64 / (2_000 * MS) as f64
}

#[test]
fn a_group_has_its_weight_on_each_pcpu_that_it_keeps_busy() {
    let (before, now) = (SchedulerKind::Eevdf618, SchedulerKind::Eevdf73);
    assert!((share_of_a_group(before, 1) - 0.5).abs() < 0.02);
    assert!((share_of_a_group(now, 1) - 0.5).abs() < 0.02);
    assert!((share_of_a_group(before, 4) - 0.2).abs() < 0.02);
    // Linux rounds the average number of threads down: three or four count.
    let of_four = share_of_a_group(now, 4);
    assert!((0.42..0.52).contains(&of_four), "{of_four}");
}

/// Returns the longest time that a hog waits, in milliseconds, whose pCPU it shares with a thread that yields every
/// 10 us for a second and then computes for another one.
fn longest_wait_next_to_a_yielder(kind: SchedulerKind) -> u64 {
    let mut rig = Rig::new(kind, 1, 250);
    let hog = rig.add(0, GroupId(0), None, Habit::HOG);
    let yielder = rig.add(0, GroupId(0), None, Habit::HOG);
    let (mut waits, mut longest) = (0, 0);
    for at in 1..200_000u64 {
        rig.run_until(at * 10_000);
        if at < 100_000 && rig.sched.current(0) == Some(yielder) {
            rig.on(0, |sched, step| {
                sched.yield_current(0);
                sched.schedule(0, step);
            });
        }
        waits = if rig.sched.current(0) == Some(hog) {
            0
        } else {
            waits + 1
        };
        longest = longest.max(waits);
    }
    longest / 100
}

#[test]
fn a_thread_that_yields_again_and_again_starves_no_other() {
    for kind in [
        SchedulerKind::Cfs412,
        SchedulerKind::Eevdf612,
        SchedulerKind::Eevdf618,
        SchedulerKind::Eevdf73,
    ] {
        let longest = longest_wait_next_to_a_yielder(kind);
        assert!(longest <= 12, "{kind:?}: {longest} ms");
    }
    // Its deadline runs away. Once it no longer yields, nothing takes its pCPU away.
    assert!(longest_wait_next_to_a_yielder(SchedulerKind::Eevdf66) > 900);
}

#[test]
fn a_thread_that_is_picked_again_goes_on_with_its_slice() {
    for (kind, goes_on) in [
        (SchedulerKind::Cfs2637, false),
        (SchedulerKind::Cfs33, false),
        (SchedulerKind::Cfs412, true),
        (SchedulerKind::Eevdf618, true),
    ] {
        let mut bench = Bench::of(kind, 1);
        let group = bench.sched.add_group(None, 1024).expect("a group");
        let only = bench.threads(group, 1)[0];
        bench.schedule(0);
        let path: Vec<EntityId> = bench.sched.hierarchy.path(bench.sched.threads[only].entity).collect();
        let marks = |bench: &Bench| {
            path.iter()
                .map(|&id| {
                    (
                        bench.sched.hierarchy.entities[id].prev_sum_exec,
                        bench.sched.hierarchy.entities[id].protected,
                    )
                })
                .collect::<Vec<_>>()
        };
        let begun = marks(&bench);
        bench.now += 10 * MS;
        bench.on(0, |sched, step| sched.tick(0, step));
        assert_eq!(bench.schedule(0), Some(only));
        assert_eq!(marks(&bench) == begun, goes_on, "{kind:?}");
        // The group's slice goes on with its next thread, which begins one of its own.
        let next = bench.threads(group, 1)[0];
        bench.now += 50 * MS;
        bench.on(0, |sched, step| sched.tick(0, step));
        assert_eq!(bench.schedule(0), Some(next), "{kind:?}");
        assert_eq!(marks(&bench)[1] == begun[1], goes_on, "{kind:?}: the group");
    }
}

#[test]
fn a_thread_without_protection_is_compared_with_the_others() {
    for (kind, postponed_protects, compares) in [
        (SchedulerKind::Eevdf66, false, false),
        (SchedulerKind::Eevdf612, false, false),
        (SchedulerKind::Eevdf618, true, true),
        (SchedulerKind::Eevdf73, true, true),
    ] {
        let mut bench = Bench::of(kind, 1);
        let (curr, other) = bench.pair();
        let hierarchy = &mut bench.sched.hierarchy;
        let queue = hierarchy.root(0);
        let policy = hierarchy.policy;
        hierarchy.entities[other].deadline = hierarchy.entities[curr].deadline.wrapping_sub(1);
        hierarchy.entities[curr].deadline = hierarchy.entities[curr].deadline.wrapping_add(MS);
        assert_eq!(!policy.preempts(hierarchy, curr, other), postponed_protects, "{kind:?}");
        assert!(!policy.charged(hierarchy, queue, curr), "{kind:?}: protected");
        // Behind the deadline of its pick, before its own.
        hierarchy.entities[curr].vruntime = hierarchy.entities[curr].deadline.wrapping_sub(1);
        assert_eq!(policy.charged(hierarchy, queue, curr), compares, "{kind:?}");
    }
}
