//! Which threads an idle pCPU pulls.

use super::*;

/// A thread that waits or runs: its weight, how long ago it ran, and whether it may leave.
#[derive(Clone, Copy, Debug)]
struct Waits {
    weight: u64,
    ran_ago: u64,
    pinned: bool,
}

fn waits() -> impl Strategy<Value = Waits> {
    let weight = prop_oneof![3 => Just(1_024u64), 1 => Just(512), 1 => 15u64..5_000];
    let ran_ago = prop_oneof![3 => Just(MS), 1 => Just(500_000), 1 => Just(499_999), 1 => Just(0)];
    (weight, ran_ago, prop::bool::weighted(0.2)).prop_map(|(weight, ran_ago, pinned)| Waits {
        weight,
        ran_ago,
        pinned,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1_024) })]

    /// `load_balance_fair` and `can_migrate_task`: the thread that came last is examined first. A thread stays if it
    /// runs, may not leave, is cache-hot, or moves more than is wanted.
    #[test]
    fn a_newly_idle_pcpu_pulls_the_threads_that_plain_code_names(
        threads in prop::collection::vec(waits(), 1..9), failed in 0u32..4, nr_migrate in 1u32..10,
        kind in prop::sample::select(&[SchedulerKind::Cfs2637, SchedulerKind::Cfs33, SchedulerKind::Cfs61][..]),
    ) {
        let place = |core| PcpuPlace { socket: 0, core, thread: 0 };
        let weights = threads.iter().map(|at| at.weight).collect();
        let shape = Shape {
            places: vec![place(0), place(1)],
            threads: vec![(weights, [0; 5], 9), (Vec::new(), [0; 5], 9)],
        };
        let (mut bench, pcpus) = host(kind, &shape);
        bench.now = 10 * MS;
        bench.sched.begin(bench.now);
        bench.sched.nr_migrate = nr_migrate;
        bench.sched.topology.domains[1][0].failed = failed;
        let mut here = Mask::new(2);
        here.set(0, true);
        for (task, at) in (0..).map(TaskId).zip(&threads) {
            let entity = bench.sched.threads[task].entity;
            bench.sched.hierarchy.entities[entity].exec_start = bench.now - at.ran_ago;
            bench.sched.threads[task].affinity = at.pinned.then(|| here.clone());
        }
        let root = bench.sched.hierarchy.root(0);
        let queue = &mut bench.sched.hierarchy.queues[root];
        (queue.next, queue.last) = (None, None);
        let running = bench.sched.current(0).expect("a thread runs");
        let loads: Vec<u64> = (0..).map(TaskId).zip(&threads)
            .map(|(task, _)| bench.sched.hierarchy.entity_load(bench.sched.threads[task].entity))
            .collect();
        let mut expected = Vec::new();
        let crowded = threads.len() > 1;
        if let Verdict::Pull { imbalance, .. } = busiest::busiest(&bench, &pcpus, 1, 0, Idleness::NewlyIdle)
            && crowded
        {
            let mut left = (imbalance * pcpus[0].load / (pcpus[0].load + 1)) as i64;
            let tries = bench.sched.topology.span_of(1, 0).config.cache_nice_tries;
            let shift = if bench.sched.halves_differences { failed } else { 1 };
            for index in (0..threads.len()).rev().take(nr_migrate as usize) {
                let (task, at) = (TaskId(index as u32), threads[index]);
                let hot = at.ran_ago < 500_000 && failed <= tries;
                let small = (loads[index] >> shift) as i64 <= left;
                if small && !at.pinned && task != running && !hot {
                    expected.push(task);
                    left -= loads[index] as i64;
                    if left <= 0 {
                        break;
                    }
                }
            }
        }
        bench.on(1, |sched, step| sched.balance_newly_idle(1, step));
        let moved = (0..).map(TaskId).zip(&threads).filter(|(task, _)| bench.sched.threads[*task].pcpu == 1);
        let mut moved: Vec<TaskId> = moved.map(|(task, _)| task).collect();
        moved.reverse();
        prop_assert_eq!(moved, expected, "{:?} runs, {:?} failed", running, failed);
    }
}
