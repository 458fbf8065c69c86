//! Where woken threads go: tables at the limits of each rule (docs/spec/host.md, "Wake placement").

use alloc::collections::BTreeSet;

use super::super::features::Features;
use super::*;

/// Socket 0 has a core of two threads with a capacity of 589 each, socket 1 a core of one thread with 1024.
const UNLIKE: [(u32, u32, u32); 3] = [(0, 0, 0), (0, 0, 1), (1, 0, 0)];

/// Three cores of two threads in one socket.
const SIBLINGS: [(u32, u32, u32); 6] = [(0, 0, 0), (0, 0, 1), (0, 1, 0), (0, 1, 1), (0, 2, 0), (0, 2, 1)];

fn bench(places: &[(u32, u32, u32)], with: impl FnOnce(&mut Features)) -> Bench {
    let mut config = HostConfig::linux_3_3();
    with(&mut config.sched.features);
    let place = |&(socket, core, thread)| PcpuPlace { socket, core, thread };
    let places: Vec<PcpuPlace> = places.iter().map(place).collect();
    Bench {
        sched: Scheduler::new(&config, &places).expect("a valid scheduler"),
        now: 0,
        out: Vec::new(),
    }
}

fn cores(count: u32) -> Vec<(u32, u32, u32)> {
    (0..count).map(|core| (0, core, 0)).collect()
}

fn mask(bench: &Bench, pcpus: &[u32]) -> Mask {
    let mut mask = Mask::new(bench.sched.pcpus() as usize);
    pcpus.iter().for_each(|&pcpu| mask.set(pcpu, true));
    mask
}

impl Bench {
    /// Runs a thread of `weight` on `pcpu`.
    fn busy(&mut self, pcpu: u32, weight: u64) -> TaskId {
        let only = mask(self, &[pcpu]);
        let task = self.sched.add_thread(weight, ROOT, Some(only));
        self.on(pcpu, |sched, step| sched.start_thread(task, step));
        self.schedule(pcpu);
        task
    }

    /// Adds a thread that sleeps and ran on `pcpu` last.
    fn sleeper(&mut self, pcpu: u32, affinity: Option<Mask>) -> TaskId {
        let task = self.sched.add_thread(weight::NICE_0, ROOT, affinity);
        self.sched.rehome(task, pcpu);
        task
    }
}

#[test]
fn a_woken_thread_comes_to_its_waker_only_if_it_is_less_crowded_there() {
    // The waker's side with the woken thread is 100 * 589 * (1024 + 1024). It must not exceed the other side, which is
    // (100 + 25 / 2) * 1024 * load. By idleness first, the thread is also taken out of the other side's load.
    for (wake_idle, least) in [(false, 1_052), (true, 1_052 + 1_024)] {
        for load in [least - 1, least] {
            let mut bench = bench(&UNLIKE, |features| features.wake_idle = wake_idle);
            bench.busy(0, load);
            bench.busy(1, weight::NICE_0);
            bench.busy(2, weight::NICE_0);
            let task = bench.sleeper(0, None);
            let expected = if load < least { 0 } else { 2 };
            assert_eq!(
                bench.sched.place_woken(task, 2, false),
                expected,
                "{load} by idleness {wake_idle}"
            );
        }
    }
}

#[test]
fn an_idle_waker_attracts_from_a_busy_pcpu_of_its_cache() {
    for (busy, expected) in [(true, 1), (false, 0)] {
        let mut bench = bench(&cores(2), |features| features.wake_idle = true);
        if busy {
            bench.busy(0, weight::NICE_0);
        }
        let task = bench.sleeper(0, None);
        assert_eq!(bench.sched.place_woken(task, 1, false), expected, "busy {busy}");
    }
}

#[test]
fn a_thread_that_wakes_many_keeps_them_away() {
    // Four pCPUs share the cache: the lesser number of partners must be 4, and the greater four times the lesser.
    for (waker, woken, wide, stays) in [
        (16, 4, true, true),
        (4, 16, true, true),
        (15, 4, true, false),
        (100, 3, true, false),
        (20, 5, true, true),
        (19, 5, true, false),
        (16, 4, false, false),
    ] {
        let mut bench = bench(&cores(4), |features| features.wake_wide = wide);
        let curr = bench.busy(0, weight::NICE_0);
        bench.busy(1, 8 * weight::NICE_0);
        bench.busy(2, weight::NICE_0);
        bench.busy(3, weight::NICE_0);
        let task = bench.sleeper(1, None);
        bench.sched.threads[curr].wakes.flips = waker;
        bench.sched.threads[task].wakes.flips = woken;
        let expected = u32::from(stays);
        assert_eq!(
            bench.sched.place_woken(task, 0, false),
            expected,
            "{waker} and {woken}, {wide}"
        );
    }
}

#[test]
fn a_search_examines_as_many_pcpus_as_idle_time_pays_for() {
    // Eight pCPUs and a mean idle time of 51.2 us: 800 ns. Four are examined whatever that costs.
    for (avg_scan, most) in [(0, 8), (100, 8), (160, 5), (199, 4), (200, 4), (5_000, 4)] {
        for distance in 1..8 {
            let mut bench = bench(&cores(8), |features| features.bounded_scan = true);
            let idle = (2 + distance) % 8;
            for pcpu in (0..8).filter(|&pcpu| pcpu != idle) {
                bench.busy(pcpu, weight::NICE_0);
            }
            let task = bench.sleeper(2, None);
            let queue = bench.sched.rq_mut(2);
            (queue.avg_idle, queue.avg_scan) = (51_200, avg_scan);
            let expected = if distance < most { idle } else { 2 };
            assert_eq!(
                bench.sched.place_woken(task, 2, false),
                expected,
                "{avg_scan} ns, {distance} away"
            );
            let cost = u64::from(most.min(distance + 1)) * 50;
            assert_eq!(bench.sched.rq(2).avg_scan, avg_scan - avg_scan / 8 + cost / 8);
        }
    }
}

#[test]
fn a_search_prefers_idle_pcpus_by_what_they_share() {
    // Which pCPUs are busy, whether there may be an idle core, where the thread may run, and where it goes.
    type Case<'a> = (&'a [u32], bool, Option<&'a [u32]>, u32);
    let cases: [Case<'_>; 7] = [
        (&[2], true, None, 0),
        (&[0, 2], true, None, 4),
        (&[0, 2], false, None, 1),
        (&[0, 2, 5], true, None, 1),
        (&[0, 2], true, Some(&[0, 5]), 5),
        (&[0, 2, 5], true, Some(&[0, 3]), 3),
        (&[0, 1, 2, 3, 4, 5], true, None, 0),
    ];
    for (busy, idle_core, allowed, expected) in cases {
        let mut bench = bench(&SIBLINGS, |features| features.bounded_scan = true);
        busy.iter().for_each(|&pcpu| {
            bench.busy(pcpu, weight::NICE_0);
        });
        bench.sched.idle_cores.set(0, idle_core);
        let affinity = allowed.map(|pcpus| mask(&bench, pcpus));
        let task = bench.sleeper(0, affinity);
        assert_eq!(bench.sched.place_woken(task, 0, false), expected, "{busy:?}");
        let searched = busy.contains(&0) && expected < 4;
        assert_eq!(bench.sched.idle_cores.has(0), idle_core && !searched, "{busy:?}");
    }
    let mut bench = bench(&SIBLINGS, |features| features.bounded_scan = true);
    bench.busy(2, weight::NICE_0);
    for (pcpu, noted) in [(3, false), (4, true)] {
        bench.sched.idle_cores.set(0, false);
        bench.sched.note_idle_core(pcpu);
        assert_eq!(bench.sched.idle_cores.has(0), noted, "pcpu {pcpu}");
    }
    // The pCPU where the thread ran last is as good as the target.
    let task = bench.sleeper(5, None);
    bench.busy(0, weight::NICE_0);
    assert_eq!(bench.sched.scan_for_idle(task, 0, 0), 5);
}

#[test]
fn until_4_11_idle_cores_come_before_idle_siblings() {
    for (busy, allowed, expected) in [
        (&[2][..], None, 0),
        (&[0, 2], None, 4),
        (&[0, 2, 5], None, 1),
        (&[0, 2], Some(&[0, 5][..]), 5),
        (&[0, 1, 2, 3, 4, 5], None, 0),
    ] {
        let mut bench = bench(&SIBLINGS, |_| ());
        busy.iter().for_each(|&pcpu| {
            bench.busy(pcpu, weight::NICE_0);
        });
        let affinity = allowed.map(|pcpus| mask(&bench, pcpus));
        let task = bench.sleeper(0, affinity);
        assert_eq!(bench.sched.place_woken(task, 0, false), expected, "{busy:?}");
    }
}

#[test]
fn a_new_thread_starts_where_load_is_clearly_least() {
    // Two sockets of two cores; above the socket a group must be more than (125 - 100) / 2 per cent less loaded.
    let sockets = [(0, 0, 0), (0, 1, 0), (1, 0, 0), (1, 1, 0)];
    for (loads, expected) in [
        ([100, 100, 100, 100], 0),
        ([112, 112, 100, 100], 0),
        ([113, 113, 100, 100], 2),
        ([113, 113, 101, 99], 3),
        ([120, 106, 101, 99], 3),
        ([130, 90, 100, 100], 1),
        ([100, 100, 113, 113], 0),
    ] {
        let mut bench = bench(&sockets, |_| ());
        for (pcpu, load) in (0..).zip(loads) {
            bench.busy(pcpu, 100 * load);
        }
        let task = bench.sleeper(0, None);
        assert_eq!(bench.sched.place_new(task, 0), expected, "{loads:?}");
    }
}

#[test]
fn a_thread_is_cache_hot_for_half_a_millisecond_and_while_it_is_preferred() {
    let (never, next, last) = (None, Some(Mark::Next), Some(Mark::Last));
    for (ago, mark, destination_busy, hot) in [
        (499_999, never, false, true),
        (500_000, never, true, false),
        (500_000, next, true, true),
        (500_000, last, true, true),
        (500_000, next, false, false),
    ] {
        let mut bench = bench(&cores(2), |_| ());
        bench.busy(0, weight::NICE_0);
        let waits = bench.busy(0, weight::NICE_0);
        if destination_busy {
            bench.busy(1, weight::NICE_0);
        }
        bench.now = 10 * MS;
        let entity = bench.sched.threads[waits].entity;
        bench.sched.hierarchy.entities[entity].exec_start = bench.now - ago;
        if let Some(mark) = mark {
            bench.sched.hierarchy.mark(entity, mark);
        }
        let found = bench.on(0, |sched, _| sched.is_cache_hot(waits, 1));
        assert_eq!(found, hot, "{ago} ns ago, {mark:?}, {destination_busy}");
    }
}

#[test]
fn a_pcpu_is_idle_if_nothing_runs_there_and_nothing_is_about_to() {
    let mut bench = bench(&cores(2), |_| {});
    assert!(bench.sched.is_idle(0) && bench.sched.is_idle(1));
    let only = mask(&bench, &[0]);
    let task = bench.sched.add_thread(weight::NICE_0, ROOT, Some(only));
    bench.on(1, |sched, step| sched.start_thread(task, step));
    assert!(!bench.sched.is_idle(0), "a thread waits");
    bench.schedule(0);
    assert!(!bench.sched.is_idle(0), "it runs");
    bench.on(0, |sched, _| sched.sleep(0));
    assert!(!bench.sched.is_idle(0), "it is still there");
    bench.schedule(0);
    assert!(bench.sched.is_idle(0), "it sleeps");
    bench.sched.rq_mut(0).wake_list.push(task);
    assert!(!bench.sched.is_idle(0), "it was woken");
}

#[test]
fn a_thread_created_on_an_idle_host_starts_where_it_was_created() {
    for kind in SchedulerKind::ALL {
        for creator in 0..4 {
            let config = HostConfig {
                sched: SchedConfig::of(kind),
                ..HostConfig::default()
            };
            let mut bench = Bench::new(&config, 2, 2);
            let task = bench.sched.add_thread(weight::NICE_0, ROOT, None);
            bench.on(creator, |sched, step| sched.start_thread(task, step));
            assert_eq!(bench.sched.threads[task].pcpu, creator, "{kind:?}");
        }
    }
}

#[test]
fn threads_that_sleep_until_all_exist_share_one_pcpu_if_none_is_idle() {
    for kind in SchedulerKind::ALL {
        for busy in [0, 4] {
            let mut bench = Bench::of(kind, 4);
            // What 6.1 computes at each pass of balancing: an idle cache is searched.
            bench.sched.idle_scans = vec![4];
            for pcpu in 0..busy {
                bench.busy(pcpu, weight::NICE_0);
            }
            let create = |bench: &mut Bench| {
                let task = bench.sched.add_thread(weight::NICE_0, ROOT, None);
                bench.on(0, |sched, step| sched.create_thread(task, step));
                task
            };
            let tasks: Vec<TaskId> = (0..4).map(|_| create(&mut bench)).collect();
            let places = |bench: &Bench| BTreeSet::from_iter(tasks.iter().map(|&task| bench.sched.threads[task].pcpu));
            assert_eq!(places(&bench).len(), 1, "{kind:?}: sleepers are no load, {busy} busy");
            for &task in &tasks {
                assert!(bench.on(0, |sched, step| sched.wake(task, step)));
            }
            let expected = if busy > 0 { 1 } else { 4 };
            assert_eq!(places(&bench).len(), expected, "{kind:?}: awake, {busy} busy");
        }
    }
}

#[test]
fn each_new_thread_finds_an_idle_pcpu_while_there_is_one() {
    for kind in SchedulerKind::ALL {
        for creator in [0, 5] {
            let config = HostConfig {
                sched: SchedConfig::of(kind),
                ..HostConfig::default()
            };
            let mut bench = Bench::new(&config, 2, 4);
            let mut taken = Vec::new();
            for _ in 0..8 {
                let task = bench.sched.add_thread(weight::NICE_0, ROOT, None);
                bench.on(creator, |sched, step| sched.start_thread(task, step));
                taken.push(bench.sched.threads[task].pcpu);
            }
            // They go to the sockets by turns.
            let sockets: Vec<u32> = taken.iter().map(|pcpu| pcpu / 4).collect();
            assert!(sockets.chunks(2).all(|pair| pair[0] != pair[1]), "{kind:?}: {taken:?}");
            taken.sort_unstable();
            assert_eq!(taken, Vec::from_iter(0..8), "{kind:?}");
        }
    }
}

#[test]
fn a_woken_thread_that_may_preempt_is_picked_before_one_that_deserves_it_a_little_more() {
    // Granularity 1 ms. The running thread is far ahead; of two others, the woken one is half a millisecond behind.
    let mut bench = Bench::new(&HostConfig::linux_3_3(), 1, 1);
    let tasks: Vec<TaskId> = (0..3)
        .map(|_| bench.sched.add_thread(weight::NICE_0, ROOT, None))
        .collect();
    let entities: Vec<EntityId> = tasks.iter().map(|&task| bench.sched.threads[task].entity).collect();
    let [running, waits, woken] = entities[..] else {
        panic!("three threads")
    };
    bench.sched.hierarchy.enqueue(running, Arrival::Moved);
    bench.sched.threads[tasks[0]].state = ThreadState::Runnable;
    bench.schedule(0);
    bench.sched.hierarchy.enqueue(waits, Arrival::Moved);
    let least = bench.vruntime(tasks[1]);
    bench.sched.hierarchy.entities[running].vruntime = least.wrapping_add(9 * MS);
    bench.sched.hierarchy.entities[woken].vruntime = least.wrapping_add(MS / 2);
    bench.on(0, |sched, step| assert!(sched.wake(tasks[2], step)));
    assert_eq!(bench.vruntime(tasks[2]).wrapping_sub(least), MS / 2);
    assert!(bench.sched.need_resched(0));
    assert_eq!(bench.schedule(0), Some(tasks[2]));
}

#[test]
fn a_woken_thread_finds_the_pcpu_that_it_used_before_its_last_one() {
    for (kind, found) in [(SchedulerKind::Cfs412, 1), (SchedulerKind::Cfs61, 2)] {
        let mut bench = Bench::of(kind, 4);
        let tasks = bench.threads(ROOT, 2);
        bench.sched.rehome(tasks[0], 0);
        (0..4).for_each(|pcpu| {
            bench.schedule(pcpu);
        });
        let sleeper = tasks[1];
        let at = bench.sched.threads[sleeper].pcpu;
        bench.on(at, |sched, _| sched.sleep(at));
        bench.schedule(at);
        // pCPU 0 is busy, and the thread used 2 before 0.
        bench.sched.rehome(sleeper, 0);
        bench.sched.threads[sleeper].recently_used = 2;
        bench.sched.idle_scans = vec![4];
        let place = bench.on(0, |sched, _| sched.scan_for_idle(sleeper, 0, 0));
        assert_eq!(place, found, "{kind:?}");
        assert_eq!(
            bench.sched.threads[sleeper].recently_used == 0,
            kind == SchedulerKind::Cfs61
        );
    }
}
