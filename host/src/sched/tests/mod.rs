//! The scheduler on its own: tables for each mechanism, and its invariants under random use.

mod books;
mod fair;
mod kernels;
mod lazy;
mod loads;
mod passes;
mod placement;
mod plain;
mod played;
mod quota;
mod random;
mod rig;
mod rules;
mod shares;
mod siblings;
mod told;

use proptest::prelude::*;

use super::balance::{Idleness, Verdict};
use super::cfs::Cfs;
use super::config::{SchedConfig, SchedulerKind, YieldRule};
use super::entity::Mark;
use super::ids::{EntityId, QueueId};
use super::policy::Arrival;
use super::weight::MIN_SHARES;
use super::*;
use crate::boundary::{Command, Nanos, PcpuId};
use crate::quota::Quota;
use crate::step::Step;

const MS: u64 = 1_000_000;

/// A scheduler with explicit time.
struct Bench {
    sched: Scheduler,
    now: u64,
    out: Vec<Command>,
}

impl Bench {
    fn new(config: &HostConfig, sockets: u32, cores: u32) -> Bench {
        let mut places = Vec::new();
        for socket in 0..sockets {
            places.extend((0..cores).map(|core| PcpuPlace {
                socket,
                core,
                thread: 0,
            }));
        }
        Bench {
            sched: Scheduler::new(config, &places).expect("a valid scheduler"),
            now: 0,
            out: Vec::new(),
        }
    }

    /// A scheduler of `kind` for the `cores` of one socket.
    fn of(kind: SchedulerKind, cores: u32) -> Bench {
        let config = HostConfig {
            sched: SchedConfig::of(kind),
            ..HostConfig::default()
        };
        Bench::new(&config, 1, cores)
    }

    /// Adds two threads and runs one of them. Returns their entities, that of the running one first.
    fn pair(&mut self) -> (EntityId, EntityId) {
        let tasks = self.threads(ROOT, 2);
        let curr = self.schedule(0).expect("a thread");
        let other = *tasks.iter().find(|&&task| task != curr).expect("the other thread");
        (self.sched.threads[curr].entity, self.sched.threads[other].entity)
    }

    /// Adds and starts `count` threads of nice 0 in `group`.
    fn threads(&mut self, group: GroupId, count: u32) -> Vec<TaskId> {
        (0..count)
            .map(|_| {
                let task = self.sched.add_thread(weight::NICE_0, group, None);
                self.on(0, |sched, step| sched.start_thread(task, step));
                task
            })
            .collect()
    }

    fn on<R>(&mut self, pcpu: u32, act: impl FnOnce(&mut Scheduler, &mut Step<'_>) -> R) -> R {
        self.sched.begin(self.now);
        act(
            &mut self.sched,
            &mut Step::new(Nanos(self.now), PcpuId(pcpu), &mut self.out),
        )
    }

    fn schedule(&mut self, pcpu: u32) -> Option<TaskId> {
        self.on(pcpu, |sched, step| sched.schedule(pcpu, step))
    }

    fn vruntime(&self, task: TaskId) -> u64 {
        self.sched.hierarchy.entities[self.sched.threads[task].entity].vruntime
    }

    fn min_vruntime(&self, pcpu: u32) -> u64 {
        self.sched.hierarchy.queues[self.sched.hierarchy.root(pcpu)].min_vruntime
    }
}

const ROOT: GroupId = GroupId(0);

fn cfs(hierarchy: &Hierarchy) -> Cfs {
    match hierarchy.policy {
        Rules::Cfs(cfs) => cfs,
        Rules::Eevdf(_) => panic!("not a cfs"),
    }
}

#[test]
fn parameters_scale_with_pcpus() {
    // docs/spec/host.md, "CFS": 1, 2, 4, 8 and more pCPUs.
    let cases = [
        (1, 6, 750, 1),
        (2, 12, 1500, 2),
        (3, 12, 1500, 2),
        (4, 18, 2250, 3),
        (8, 24, 3000, 4),
        (64, 24, 3000, 4),
    ];
    for (pcpus, latency_ms, granularity_us, wakeup_ms) in cases {
        let cfs = Cfs::new(&SchedConfig::of(SchedulerKind::Cfs33), pcpus);
        let scaled = (cfs.latency, cfs.min_granularity, cfs.wakeup_granularity, cfs.nr_latency);
        assert_eq!(
            scaled,
            (latency_ms * MS, granularity_us * 1_000, wakeup_ms * MS, 8),
            "{pcpus} pcpus"
        );
    }
}

#[test]
fn slices_divide_the_period_at_every_level() {
    // One pCPU: latency 6 ms, min granularity 0.75 ms. Threads in the root group, and in a group of equal weight.
    let cases = [
        (1, 0, 6_000_000),
        (2, 0, 3_000_000),
        (8, 0, 750_000),
        (12, 0, 750_000),
        (1, 1, 3_000_000),
        (1, 3, 3_000_000),
    ];
    for (root, grouped, expected) in cases {
        let mut bench = Bench::new(&HostConfig::linux_3_3(), 1, 1);
        let group = bench.sched.add_group(None, 1024).expect("a group");
        let first = bench.threads(ROOT, root)[0];
        bench.threads(group, grouped);
        let hierarchy = &bench.sched.hierarchy;
        let slice = cfs(hierarchy).slice(hierarchy, bench.sched.threads[first].entity);
        assert!(
            slice.abs_diff(expected) < 2_000,
            "{root} and {grouped}: {slice}, expected {expected}"
        );
    }
    // Three in the group, each a third of the group's half.
    let mut bench = Bench::new(&HostConfig::linux_3_3(), 1, 1);
    let group = bench.sched.add_group(None, 1024).expect("a group");
    bench.threads(ROOT, 1);
    let third = bench.threads(group, 3)[2];
    let hierarchy = &bench.sched.hierarchy;
    assert_eq!(cfs(hierarchy).slice(hierarchy, bench.sched.threads[third].entity), MS);
}

#[test]
fn a_sleeper_gets_half_a_period_of_credit_and_no_more() {
    for (gentle, slept_ms, credit_ms) in [(true, 100, 3), (false, 100, 6), (true, 0, 0)] {
        let mut config = HostConfig::linux_3_3();
        config.sched.features.gentle_fair_sleepers = gentle;
        let mut bench = Bench::new(&config, 1, 1);
        let tasks = bench.threads(ROOT, 2);
        let sleeper = bench.schedule(0).expect("a thread");
        bench.now += 6 * MS;
        bench.on(0, |sched, _| sched.sleep(0));
        let before = bench.vruntime(sleeper);
        assert_ne!(bench.schedule(0), Some(sleeper));
        bench.now += slept_ms * MS;
        bench.on(0, |sched, step| {
            sched.tick(0, step);
            assert!(sched.wake(sleeper, step));
        });
        let min = bench.min_vruntime(0);
        let credit = min.wrapping_sub(bench.vruntime(sleeper)) as i64;
        if slept_ms > 0 {
            assert_eq!(credit, credit_ms * MS as i64, "gentle {gentle}");
        } else {
            assert_eq!(bench.vruntime(sleeper), before, "who did not sleep gets nothing");
        }
        assert_eq!(tasks.len(), 2);
    }
}

#[test]
fn a_new_thread_starts_one_slice_late() {
    for (debit, late) in [(true, 3 * MS), (false, 0)] {
        let mut config = HostConfig::linux_3_3();
        config.sched.features.start_debit = debit;
        let mut bench = Bench::new(&config, 1, 1);
        bench.threads(ROOT, 1);
        bench.schedule(0);
        bench.now += MS;
        bench.on(0, |sched, step| sched.tick(0, step));
        let min = bench.min_vruntime(0);
        let new = bench.threads(ROOT, 1)[0];
        assert_eq!(bench.vruntime(new).wrapping_sub(min), late, "start debit {debit}");
    }
}

#[test]
fn a_waker_preempts_beyond_the_granularity_only() {
    // One pCPU: 1 ms. The sleeper's credit is 3 ms, so it is the hog's advance that decides.
    for (sleeper_ahead_ms, preempts) in [(0, true), (1, true), (3, false)] {
        let mut bench = Bench::new(&HostConfig::linux_3_3(), 1, 1);
        bench.threads(ROOT, 2);
        let sleeper = bench.schedule(0).expect("a thread");
        bench.on(0, |sched, _| sched.sleep(0));
        bench.schedule(0).expect("the other one");
        bench.now += 10 * MS;
        bench.on(0, |sched, step| {
            sched.tick(0, step);
            let curr = sched.threads[sched.current(0).expect("the hog")].entity;
            let entity = sched.threads[sleeper].entity;
            let at = sched.hierarchy.entities[curr].vruntime;
            // As if it had run: placed where it stands, without credit.
            sched.hierarchy.entities[entity].vruntime = at.wrapping_add(sleeper_ahead_ms * MS).wrapping_sub(3 * MS);
            sched.rq_mut(0).need_resched = false;
            sched.wake(sleeper, step);
        });
        assert_eq!(
            bench.sched.need_resched(0),
            preempts,
            "{sleeper_ahead_ms} ms ahead of its credit"
        );
    }
}

#[test]
fn buddies_are_picked_in_order_and_within_fairness() {
    // Four threads at 0, 0.5, 0.6 and 9 ms of virtual time; granularity 1 ms.
    let spread = [0, MS / 2, 6 * MS / 10, 9 * MS];
    let cases: [(&str, [Option<usize>; 3], usize); 7] = [
        ("leftmost", [None, None, None], 0),
        ("next", [Some(1), None, None], 1),
        ("next beyond fairness", [Some(3), None, None], 0),
        ("last", [None, Some(2), None], 2),
        ("next before last", [Some(1), Some(2), None], 1),
        ("skip", [None, None, Some(0)], 1),
        ("next although skip", [Some(0), None, Some(0)], 0),
    ];
    for (name, [next, last, skip], expected) in cases {
        let mut bench = Bench::new(&HostConfig::linux_3_3(), 1, 1);
        let tasks: Vec<TaskId> = (0..4)
            .map(|_| bench.sched.add_thread(weight::NICE_0, ROOT, None))
            .collect();
        let entities: Vec<EntityId> = tasks.iter().map(|&task| bench.sched.threads[task].entity).collect();
        for (&entity, vruntime) in entities.iter().zip(spread) {
            bench.sched.hierarchy.entities[entity].vruntime = vruntime;
            bench.sched.hierarchy.enqueue(entity, Arrival::Moved);
        }
        for (mark, of) in [(Mark::Next, next), (Mark::Last, last), (Mark::Skip, skip)] {
            if let Some(of) = of {
                bench.sched.hierarchy.mark(entities[of], mark);
            }
        }
        assert_eq!(bench.sched.hierarchy.pick(0, None), Some(tasks[expected]), "{name}");
    }
}

#[test]
fn a_skip_with_nobody_near_is_void() {
    let mut bench = Bench::new(&HostConfig::linux_3_3(), 1, 1);
    let tasks: Vec<TaskId> = (0..2)
        .map(|_| bench.sched.add_thread(weight::NICE_0, ROOT, None))
        .collect();
    for (&task, vruntime) in tasks.iter().zip([0, 5 * MS]) {
        let entity = bench.sched.threads[task].entity;
        bench.sched.hierarchy.entities[entity].vruntime = vruntime;
        bench.sched.hierarchy.enqueue(entity, Arrival::Moved);
    }
    bench
        .sched
        .hierarchy
        .mark(bench.sched.threads[tasks[0]].entity, Mark::Skip);
    assert_eq!(bench.sched.hierarchy.pick(0, None), Some(tasks[0]));
}

#[test]
fn yield_and_target_meet_where_their_groups_diverge() {
    // What v6 of the directed-yield series had to fix: each vCPU alone in its group, both groups below one parent,
    // which is then to be skipped and preferred at once.
    let mut bench = Bench::new(&HostConfig::linux_3_3(), 1, 1);
    let vm = bench.sched.add_group(None, 1024).expect("a group");
    let groups: Vec<GroupId> = (0..2)
        .map(|_| bench.sched.add_group(Some(vm), 1024).expect("a group"))
        .collect();
    bench.threads(ROOT, 1);
    let vcpus: Vec<TaskId> = groups.iter().map(|&group| bench.threads(group, 1)[0]).collect();
    // Let one of them run.
    let mut running = bench.schedule(0).expect("a thread");
    while !vcpus.contains(&running) {
        bench.now += MS / 10;
        bench.on(0, |sched, _| sched.yield_current(0));
        running = bench.schedule(0).expect("a thread");
    }
    let target = *vcpus.iter().find(|&&vcpu| vcpu != running).expect("the other vcpu");
    bench.now += 50_000;
    let done = bench.on(0, |sched, step| sched.yield_to(0, target, step));
    assert!(done);
    assert_eq!(bench.schedule(0), Some(target));
}

#[test]
fn a_yielder_gives_way_to_the_next_thread() {
    // The target waits on the other pCPU; here the yielder deserves the pCPU most, and is passed over all the same.
    let mut config = HostConfig::linux_3_3();
    config.sched.features.start_debit = false;
    let mut bench = Bench::new(&config, 1, 2);
    bench.threads(ROOT, 4);
    bench.schedule(1);
    let yielder = bench.schedule(0).expect("a thread");
    for ns in [500_000, 1_000_000] {
        bench.now += ns;
        bench.schedule(0);
    }
    assert_eq!(
        bench.sched.current(0),
        Some(yielder),
        "0.5 ms of virtual time against 1 ms"
    );
    bench.now += 10_000;
    let there = bench
        .sched
        .threads
        .iter()
        .position(|thread| thread.pcpu == 1 && !thread.on_cpu);
    let target = TaskId(there.expect("a thread that waits") as u32);
    assert!(bench.on(0, |sched, step| sched.yield_to(0, target, step)));
    let next = bench.schedule(0).expect("a thread");
    assert_ne!(next, yielder);
    assert_eq!(bench.sched.threads[next].pcpu, 0);
    assert_eq!(bench.schedule(1), Some(target));
}

#[test]
fn yield_to_refuses_who_cannot_use_it() {
    let mut bench = Bench::new(&HostConfig::linux_3_3(), 1, 2);
    let tasks = bench.threads(ROOT, 4);
    let running: Vec<TaskId> = (0..2).filter_map(|pcpu| bench.schedule(pcpu)).collect();
    assert!(
        !bench.on(0, |sched, step| sched.yield_to(0, running[1], step)),
        "it runs"
    );
    assert!(
        !bench.on(0, |sched, step| sched.yield_to(0, running[0], step)),
        "itself"
    );
    bench.on(1, |sched, _| sched.sleep(1));
    bench.schedule(1);
    assert!(
        !bench.on(0, |sched, step| sched.yield_to(0, running[1], step)),
        "it sleeps"
    );
    let waits = tasks
        .iter()
        .find(|&&task| !bench.sched.threads[task].on_cpu && bench.sched.is_runnable(task));
    let waits = *waits.expect("a thread that waits");
    assert!(bench.on(0, |sched, step| sched.yield_to(0, waits, step)));
}

#[test]
fn sockets_are_balanced_before_one_is_full() {
    // Of two sockets of four pCPUs each, one has two or three threads and the other is idle.
    for (threads, pulls) in [(1, false), (2, true), (3, true)] {
        let mut bench = Bench::new(&HostConfig::linux_3_3(), 2, 4);
        for pcpu in 0..threads {
            let mut only = Mask::new(8);
            only.set(pcpu, true);
            let task = bench.sched.add_thread(weight::NICE_0, ROOT, Some(only));
            bench.on(0, |sched, step| sched.start_thread(task, step));
            bench.schedule(pcpu);
        }
        let (this, sockets) = (4, 1);
        let verdict = bench.sched.find_busiest(this, sockets, Idleness::NewlyIdle);
        assert_eq!(
            matches!(verdict, Verdict::Pull { .. }),
            pulls,
            "{threads} threads: {verdict:?}"
        );
    }
}

/// Returns a quota without bursts.
fn quota_of(quota_ns: u64, period_ns: u64) -> Quota {
    Quota {
        quota_ns,
        period_ns,
        burst_ns: 0,
    }
}
