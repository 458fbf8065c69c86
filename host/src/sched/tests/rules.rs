//! Rules of single steps, each alone: who waits, who is rescheduled, who is preferred.

use super::*;
use crate::timers::Timer;

/// Adds a thread of `group` that waits on `pcpu`, or runs there if that is idle.
fn add(bench: &mut Bench, group: GroupId, pcpu: u32) -> TaskId {
    let task = bench.sched.add_thread(weight::NICE_0, group, None);
    bench.sched.rehome(task, pcpu);
    bench.sched.threads[task].started = true;
    bench.on(pcpu, |sched, step| sched.activate(task, Arrival::Moved, step));
    if bench.sched.current(pcpu).is_none() {
        bench.schedule(pcpu);
    }
    task
}

#[test]
fn a_thread_waits_for_its_pcpu_if_it_is_runnable_and_does_not_run() {
    let mut bench = Bench::of(SchedulerKind::Cfs33, 2);
    let tasks = [add(&mut bench, ROOT, 0), add(&mut bench, ROOT, 0)];
    let sleeps = bench.sched.add_thread(weight::NICE_0, ROOT, None);
    let waits = |task| [0, 1].map(|pcpu| bench.sched.waits_for(task, pcpu));
    assert_eq!(waits(tasks[0]), [false, false], "it runs");
    assert_eq!(waits(tasks[1]), [true, false]);
    assert_eq!(waits(sleeps), [false, false], "it sleeps");
}

#[test]
fn a_pcpu_that_reschedules_settles_its_own_overdue_thread_and_no_other() {
    let mut bench = Bench::of(SchedulerKind::Eevdf66, 2);
    (0..4).for_each(|index| {
        add(&mut bench, ROOT, index % 2);
    });
    bench.sched.hierarchy.overdue = vec![0, 1];
    bench.schedule(0);
    assert!(!bench.sched.need_resched(0), "it has just picked");
    assert!(bench.sched.need_resched(1));
}

#[test]
fn a_polling_pcpu_hears_of_a_thread_that_comes() {
    for polling in [true, false] {
        let mut bench = Bench::of(SchedulerKind::Cfs33, 2);
        add(&mut bench, ROOT, 1);
        bench.sched.set_polling(1, polling);
        add(&mut bench, ROOT, 1);
        assert_eq!(bench.sched.poll_ends, if polling { vec![1] } else { vec![] });
        bench.sched.set_polling(1, false);
        bench.sched.poll_ends.clear();
        add(&mut bench, ROOT, 1);
        assert_eq!(bench.sched.poll_ends, []);
    }
}

#[test]
fn a_wakeup_by_ipi_goes_elsewhere_if_the_thread_may_not_run_there_any_more() {
    for (allowed, expected) in [(None, 0), (Some(0), 0), (Some(1), 1)] {
        let mut bench = Bench::of(SchedulerKind::Cfs33, 2);
        let task = bench.sched.add_thread(weight::NICE_0, ROOT, None);
        bench.sched.threads[task].state = ThreadState::Waking;
        bench.sched.rq_mut(0).wake_list.push(task);
        let mask = allowed.map(|pcpu| {
            let mut mask = Mask::new(2);
            mask.set(pcpu, true);
            mask
        });
        bench.sched.set_mask(task, mask);
        bench.on(0, |sched, step| sched.interrupt(0, step));
        assert_eq!(bench.sched.threads[task].pcpu, expected, "{allowed:?}");
        assert!(bench.sched.is_runnable(task));
        assert_eq!(bench.sched.nr_running(expected), 1);
    }
}

#[test]
fn a_refilled_group_reschedules_an_idle_pcpu_that_it_gives_work() {
    // The pCPU runs another thread or none, and the throttled queue has a thread or none.
    for (busy, has_work) in [(false, true), (true, true), (false, false)] {
        let mut bench = Bench::of(SchedulerKind::Cfs33, 2);
        let group = bench.sched.add_group(None, 1024).expect("a group");
        bench.sched.set_quota(group, quota_of(MS, 100 * MS));
        let task = add(&mut bench, group, 1);
        // It uses its quota up, and more.
        bench.now = 50 * MS;
        bench.on(1, |sched, step| sched.tick(1, step));
        assert_eq!(bench.schedule(1), None);
        assert!(bench.sched.is_throttled(task));
        if busy {
            add(&mut bench, ROOT, 1);
        }
        if !has_work {
            let entity = bench.sched.threads[task].entity;
            bench.sched.hierarchy.dequeue(entity, policy::Departure::Sleep);
        }
        bench.sched.rq_mut(1).need_resched = false;
        let mut resumed = false;
        for period in 1..100 {
            bench.now = period * 100 * MS;
            bench.on(0, |sched, step| sched.bandwidth_timer(Timer::Period(group), step));
            resumed = !bench.sched.is_throttled(task);
            if resumed {
                break;
            }
        }
        assert!(resumed);
        assert_eq!(
            bench.sched.need_resched(1),
            !busy && has_work,
            "busy {busy}, work {has_work}"
        );
    }
}

#[test]
fn a_group_whose_member_sleeps_is_preferred_for_the_rest_of_its_slice() {
    // The group has another thread or none, and the member sleeps or moves away.
    for (mates, departure, preferred) in [
        (1, policy::Departure::Sleep, true),
        (0, policy::Departure::Sleep, false),
        (1, policy::Departure::Move, false),
    ] {
        let mut bench = Bench::of(SchedulerKind::Cfs33, 1);
        let group = bench.sched.add_group(None, 1024).expect("a group");
        let member = add(&mut bench, group, 0);
        (0..mates).for_each(|_| {
            add(&mut bench, group, 0);
        });
        add(&mut bench, ROOT, 0);
        let entity = bench.sched.threads[member].entity;
        let (above, root) = (bench.sched.hierarchy.parent(entity), bench.sched.hierarchy.root(0));
        bench.sched.hierarchy.queues[root].next = None;
        bench.sched.hierarchy.dequeue(entity, departure);
        let next = bench.sched.hierarchy.queues[root].next;
        assert_eq!(next, above.filter(|_| preferred), "{mates} others, {departure:?}");
    }
}

#[test]
fn a_delayed_thread_that_leaves_at_last_makes_its_group_no_favorite() {
    let mut bench = Bench::of(SchedulerKind::Eevdf612, 1);
    let group = bench.sched.add_group(None, 1024).expect("a group");
    let (first, second) = (add(&mut bench, group, 0), add(&mut bench, group, 0));
    add(&mut bench, ROOT, 0);
    while bench.sched.current(0) != Some(first) {
        bench.now += MS;
        bench.on(0, |sched, step| sched.tick(0, step));
        bench.schedule(0);
    }
    // It has run for long, and stays delayed until the others have caught up.
    bench.now += 2 * MS;
    bench.on(0, |sched, _| sched.sleep(0));
    let entity = bench.sched.threads[first].entity;
    assert!(bench.sched.hierarchy.entities[entity].delayed);
    let root = bench.sched.hierarchy.root(0);
    bench.sched.hierarchy.queues[root].next = None;
    while bench.sched.hierarchy.entities[entity].delayed {
        bench.schedule(0);
        bench.now += MS;
        bench.on(0, |sched, step| sched.tick(0, step));
    }
    assert!(bench.sched.is_runnable(second));
    assert_eq!(bench.sched.hierarchy.queues[root].next, None);
}

#[test]
fn a_yield_of_a_thread_alone_changes_nothing_under_any_rule() {
    for kind in [SchedulerKind::Cfs33, SchedulerKind::Eevdf66, SchedulerKind::Eevdf73] {
        for alone in [true, false] {
            let mut bench = Bench::of(kind, 1);
            let task = add(&mut bench, ROOT, 0);
            if !alone {
                add(&mut bench, ROOT, 0);
            }
            let state = |bench: &Bench| {
                let entity = bench.sched.threads[task].entity;
                let at = &bench.sched.hierarchy.entities[entity];
                let queue = &bench.sched.hierarchy.queues[at.queue];
                (at.vruntime, at.deadline, queue.skip)
            };
            let before = state(&bench);
            bench.on(0, |sched, _| sched.yield_current(0));
            assert_eq!(state(&bench) == before, alone, "{kind:?}");
        }
    }
}

#[test]
fn under_the_old_rule_a_yield_alone_in_the_own_queue_changes_nothing() {
    for (rule, changes) in [(YieldRule::OwnGroup, false), (YieldRule::Whole, true)] {
        let mut config = HostConfig {
            sched: SchedConfig::of(SchedulerKind::Eevdf66),
            ..HostConfig::default()
        };
        config.sched.yields = rule;
        let mut bench = Bench::new(&config, 1, 1);
        let group = bench.sched.add_group(None, 1024).expect("a group");
        let task = add(&mut bench, group, 0);
        add(&mut bench, ROOT, 0);
        let entity = bench.sched.threads[task].entity;
        let before = bench.sched.hierarchy.entities[entity].deadline;
        bench.on(0, |sched, _| sched.yield_current(0));
        let after = bench.sched.hierarchy.entities[entity].deadline;
        assert_eq!(after != before, changes, "{rule:?}");
    }
}

#[test]
fn a_host_before_quotas_has_none() {
    for kind in SchedulerKind::ALL {
        let has = SchedConfig::of(kind).has_bandwidth();
        assert_eq!(has, kind != SchedulerKind::Cfs2637, "{kind:?}");
    }
}

#[test]
fn a_thread_that_ends_is_not_delayed() {
    for ends in [true, false] {
        let mut bench = Bench::of(SchedulerKind::Eevdf612, 1);
        let task = add(&mut bench, ROOT, 0);
        add(&mut bench, ROOT, 0);
        // It has run for longer than its part.
        bench.now += 2 * MS;
        bench.on(0, |sched, _| if ends { sched.exit(0) } else { sched.sleep(0) });
        let entity = &bench.sched.hierarchy.entities[bench.sched.threads[task].entity];
        assert_eq!((entity.on_rq, entity.delayed), (!ends, !ends));
    }
}

#[test]
fn a_member_that_sleeps_delayed_counted_as_runnable_until_then() {
    let mut bench = Bench::of(SchedulerKind::Eevdf73, 1);
    let group = bench.sched.add_group(None, 1024).expect("a group");
    let task = add(&mut bench, group, 0);
    add(&mut bench, group, 0);
    // Without a tick for many half-lives.
    bench.now += 1_000 * MS;
    bench.on(0, |sched, _| sched.sleep(0));
    let entity = &bench.sched.hierarchy.entities[bench.sched.threads[task].entity];
    assert!(entity.delayed);
    let runnable = bench.sched.hierarchy.queues[entity.queue].share.runnable.load();
    assert!(
        (2 * weight::NICE_0 - 8..=2 * weight::NICE_0).contains(&runnable),
        "{runnable}"
    );
}

#[test]
fn a_change_of_throttling_is_reported_once_however_many_levels_are_throttled() {
    let mut bench = Bench::of(SchedulerKind::Cfs33, 1);
    let outer = bench.sched.add_group(None, 1024).expect("a group");
    let inner = bench.sched.add_group(Some(outer), 1024).expect("a group");
    for group in [outer, inner] {
        bench.sched.set_quota(group, quota_of(MS, 100 * MS));
    }
    let task = add(&mut bench, inner, 0);
    let queues = [outer, inner].map(|group| bench.sched.hierarchy.groups[group].queues[0].expect("a queue"));
    let changes = |bench: &mut Bench| core::mem::take(&mut bench.sched.hierarchy.throttle_changes);
    bench.schedule(0);
    assert_eq!(changes(&mut bench), []);
    for (queue, reported) in queues.into_iter().zip([vec![task], vec![]]) {
        let group = bench.sched.hierarchy.queues[queue].group;
        bench.sched.hierarchy.queues[queue].quota.left = 0;
        let bandwidth = bench.sched.hierarchy.groups[group].bandwidth.as_mut().expect("a quota");
        bandwidth.pool = 0;
        bench.sched.hierarchy.check_quota(queue);
        assert_eq!(changes(&mut bench), reported);
    }
    bench.now = 100 * MS;
    for (group, reported) in [(outer, vec![]), (inner, vec![task])] {
        bench.on(0, |sched, step| sched.bandwidth_timer(Timer::Period(group), step));
        assert_eq!(changes(&mut bench), reported);
    }
}

#[test]
fn no_thread_moves_where_its_group_is_throttled() {
    for throttled in [true, false] {
        let mut bench = Bench::of(SchedulerKind::Cfs33, 2);
        let group = bench.sched.add_group(None, 1024).expect("a group");
        (0..4).for_each(|_| {
            add(&mut bench, group, 0);
        });
        let there = bench.sched.hierarchy.queue_of(group, 1);
        bench.sched.hierarchy.queues[there].quota.throttles = u32::from(throttled);
        bench.now = 100 * MS;
        bench.on(1, |sched, step| sched.balance_newly_idle(1, step));
        let moved = bench.sched.threads.iter().any(|thread| thread.pcpu == 1);
        assert_eq!(moved, !throttled);
    }
}
