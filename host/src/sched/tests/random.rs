//! Random use: the invariants hold.

use super::super::config::ShareRule;
use super::*;

fn tasks_of(hierarchy: &Hierarchy, queue: &entity::Queue) -> usize {
    core::iter::successors(queue.tasks, |&at| hierarchy.entities[at].list_next).count()
}

impl Scheduler {
    /// Every invariant of the module's header, recomputed from scratch.
    pub(super) fn check(&self) {
        let hierarchy = &self.hierarchy;
        for (index, queue) in hierarchy.queues.iter().enumerate() {
            let id = QueueId(index as u32);
            let on: Vec<&Entity> = hierarchy
                .entities
                .iter()
                .filter(|entity| entity.queue == id && entity.on_rq)
                .collect();
            assert_eq!(
                queue.load,
                on.iter().map(|entity| entity.weight).sum::<u64>(),
                "load of queue {index}"
            );
            assert_eq!(queue.nr as usize, on.len(), "length of queue {index}");
            let tasks = on
                .iter()
                .filter(|entity| matches!(entity.kind, EntityKind::Task(_)) && !entity.delayed);
            assert_eq!(
                queue.task_weight,
                tasks.clone().map(|entity| entity.weight).sum::<u64>()
            );
            assert_eq!(
                tasks_of(hierarchy, queue),
                tasks.count(),
                "list of threads of queue {index}"
            );
            if let Some(entity) = queue.entity {
                let entity_at = &hierarchy.entities[entity];
                let stands = queue.nr > 0 && !queue.quota.throttled;
                assert_eq!(
                    entity_at.on_rq && !(entity_at.delayed && queue.nr == 0),
                    stands,
                    "entity of queue {index}"
                );
                let most = match hierarchy.share_rule {
                    ShareRule::Concurrent => hierarchy.leaves.len() as u64,
                    _ => 1,
                };
                let shares = hierarchy.groups[queue.group].shares * most;
                assert!(
                    (MIN_SHARES..=shares).contains(&hierarchy.entities[entity].weight),
                    "weight of queue {index}"
                );
            }
            let children = on.iter().filter_map(|entity| match entity.kind {
                EntityKind::Group(child) => Some(hierarchy.queues[child].runnable),
                EntityKind::Task(_) => None,
            });
            let count = tasks_of(hierarchy, queue) as u32 + children.sum::<u32>();
            assert_eq!(queue.runnable, count, "runnable threads of queue {index}");
            let stands = |entity: &&&Entity| {
                queue
                    .curr
                    .is_none_or(|curr| !core::ptr::eq(&hierarchy.entities[curr], **entity))
            };
            if hierarchy.policy.averages() {
                let mut sum = average::Average::new(0u64.wrapping_sub(1 << 20));
                on.iter()
                    .filter(stands)
                    .for_each(|entity| sum.add(entity.vruntime, entity.weight));
                assert_eq!(queue.average, sum, "average of queue {index}");
            }
            for buddy in [queue.next, queue.last, queue.skip].into_iter().flatten() {
                assert!(hierarchy.entities[buddy].on_rq, "a buddy that is not on queue {index}");
            }
        }
        for (index, group) in hierarchy.groups.iter().enumerate() {
            let queues = group.queues.iter().flatten();
            let sum: u64 = queues.map(|&queue| hierarchy.queues[queue].share.contribution).sum();
            assert_eq!(group.load, sum, "load of group {index}");
        }
        for pcpu in 0..self.pcpus() {
            let here = |thread: &&Thread| {
                let waits = thread.pcpu == pcpu && thread.state == ThreadState::Runnable;
                waits && !self.hierarchy.is_throttled(thread.entity)
            };
            let count = self.threads.iter().filter(here).count();
            assert_eq!(self.nr_running(pcpu) as usize, count, "threads on pcpu {pcpu}");
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Act {
    Pass(u64),
    Tick,
    Sleep,
    Wake(usize),
    Yield(usize),
    Interrupt,
    Schedule,
}

fn act() -> impl Strategy<Value = (u32, Act)> {
    let act = prop_oneof![
        (1u64..8_000_000).prop_map(Act::Pass),
        Just(Act::Tick),
        Just(Act::Sleep),
        (0usize..12).prop_map(Act::Wake),
        (0usize..12).prop_map(Act::Yield),
        Just(Act::Interrupt),
        Just(Act::Schedule),
    ];
    (0u32..6, act)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn invariants_hold_under_random_use(
        kind in proptest::sample::select(SchedulerKind::ALL.to_vec()), sockets in 1u32..4, cores in 1u32..3,
        levels in proptest::collection::vec(0u32..4, 12), acts in proptest::collection::vec(act(), 1..250),
    ) {
        let pcpus = sockets * cores;
        let config = HostConfig { sched: SchedConfig::of(kind), ..HostConfig::default() };
        let mut bench = Bench::new(&config, sockets, cores);
        let upper = bench.sched.add_group(None, 1024).expect("a group");
        let lower = bench.sched.add_group(Some(upper), 300).expect("a group");
        let other = bench.sched.add_group(None, 2048).expect("a group");
        let groups = [ROOT, upper, lower, other];
        let tasks: Vec<TaskId> = levels.iter().map(|&level| bench.threads(groups[level as usize], 1)[0]).collect();
        (0..pcpus).for_each(|pcpu| { bench.schedule(pcpu); });
        for (pcpu, act) in acts {
            let pcpu = pcpu % pcpus;
            let least: Vec<u64> = bench.sched.hierarchy.queues.iter().map(|queue| queue.min_vruntime).collect();
            match act {
                Act::Pass(ns) => bench.now += ns,
                Act::Tick => bench.on(pcpu, |sched, step| sched.tick(pcpu, step)),
                Act::Sleep => {
                    if bench.sched.current(pcpu).is_some() {
                        bench.on(pcpu, |sched, step| { sched.sleep(pcpu); sched.schedule(pcpu, step); });
                    }
                }
                Act::Wake(task) => { bench.on(pcpu, |sched, step| sched.wake(tasks[task], step)); }
                Act::Yield(task) => {
                    if bench.sched.current(pcpu).is_some() {
                        bench.on(pcpu, |sched, step| { sched.yield_to(pcpu, tasks[task], step); });
                    }
                }
                Act::Interrupt => bench.on(pcpu, |sched, step| sched.interrupt(pcpu, step)),
                Act::Schedule => { bench.schedule(pcpu); }
            }
            bench.sched.check();
            for (queue, before) in bench.sched.hierarchy.queues.iter().zip(least) {
                prop_assert!(queue.min_vruntime.wrapping_sub(before) as i64 >= 0, "min_vruntime went back");
            }
        }
    }
}
