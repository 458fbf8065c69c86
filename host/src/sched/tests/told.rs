//! What a guest is told of the end of its slice.

use super::*;

/// Two threads on one pCPU since time 0, of which one runs.
fn pair(kind: SchedulerKind) -> Bench {
    let mut bench = Bench::of(kind, 1);
    bench.pair();
    bench
}

fn told(bench: &mut Bench) -> Option<u64> {
    bench.on(0, |sched, _| sched.slice_told(0))
}

#[test]
fn a_thread_that_is_alone_or_none_at_all_is_told_nothing() {
    for kind in SchedulerKind::ALL {
        let mut bench = Bench::of(kind, 1);
        assert_eq!(told(&mut bench), None, "{kind:?}: idle");
        bench.threads(ROOT, 1);
        bench.schedule(0);
        assert_eq!(told(&mut bench), None, "{kind:?}: alone");
        bench.threads(ROOT, 1);
        assert!(told(&mut bench).is_some(), "{kind:?}: another waits");
    }
}

#[test]
fn at_each_moment_of_a_slice_the_same_end_is_told_and_it_is_a_tick() {
    for kind in SchedulerKind::ALL {
        let mut bench = pair(kind);
        let tick = MS;
        let first = told(&mut bench).expect("another waits");
        assert!(first > 0, "{kind:?}");
        let mut ends_at = None;
        for at in 1..=20 * tick / 250_000 {
            bench.now = at * 250_000;
            let end = told(&mut bench).expect("another waits");
            if bench.now < first {
                assert!(
                    end.abs_diff(first) <= 1,
                    "{kind:?}, {} ns: {end}, before {first}",
                    bench.now
                );
            }
            if bench.now.is_multiple_of(tick) {
                bench.on(0, |sched, step| sched.tick(0, step));
                if bench.sched.need_resched(0) {
                    ends_at = Some(bench.now);
                    break;
                }
            }
        }
        let ends_at = ends_at.expect("it ends");
        if bench.sched.features.slice_timer {
            assert!(ends_at.abs_diff(first) <= tick, "{kind:?}: {ends_at}, told {first}");
        } else {
            assert_eq!(ends_at, first, "{kind:?}");
        }
    }
}

#[test]
fn a_slice_that_is_over_ends_at_the_next_tick_and_never_in_the_past() {
    for kind in SchedulerKind::ALL {
        let mut bench = pair(kind);
        for late in [50 * MS, 50 * MS + 1, 60 * MS] {
            bench.now = late;
            let end = told(&mut bench).expect("another waits");
            let limit = if bench.sched.features.slice_timer { 0 } else { MS };
            // No tick has come so far, so the first one is due since long.
            assert!(end >= late || limit > 0 && end == MS, "{kind:?}: {end} at {late}");
        }
        bench.on(0, |sched, step| sched.tick(0, step));
        let end = told(&mut bench).expect("another waits");
        assert!((60 * MS..=61 * MS).contains(&end), "{kind:?}: {end}");
    }
}

#[test]
fn accounts_that_are_ahead_of_the_clock_count_as_now() {
    for kind in SchedulerKind::ALL {
        let mut bench = pair(kind);
        let before = told(&mut bench).expect("another waits");
        let curr = bench.sched.current(0).expect("it runs");
        let entity = bench.sched.threads[curr].entity;
        bench.sched.hierarchy.entities[entity].exec_start = 7 * MS;
        bench.sched.rq_mut(0).ticked_at = 7 * MS;
        let after = told(&mut bench).expect("another waits");
        // The next tick is after the last one, wherever that is.
        let expected = if bench.sched.features.slice_timer {
            before
        } else {
            8 * MS
        };
        assert!(
            after == expected || after == before,
            "{kind:?}: {after}, before {before}"
        );
    }
}

#[test]
fn a_slice_of_a_policy_or_of_siblings_is_told_as_it_is() {
    for kind in SchedulerKind::ALL {
        let config = HostConfig {
            sched: SchedConfig::of(kind),
            slices_aligned_ns: Some(5 * MS),
            ..HostConfig::default()
        };
        let mut bench = Bench::new(&config, 1, 1);
        for vcpu in 0..2 {
            let task = bench.sched.add_thread(weight::NICE_0, ROOT, None);
            bench.sched.add_vcpu(VmId(0), VcpuId(vcpu), task);
            bench.on(0, |sched, step| sched.start_thread(task, step));
        }
        bench.schedule(0);
        assert_eq!(told(&mut bench), Some(5 * MS), "{kind:?}");
        bench.now = 3 * MS;
        assert_eq!(told(&mut bench), Some(5 * MS), "{kind:?}");
        bench.schedule(0);
        assert_eq!(
            told(&mut bench),
            Some(5 * MS),
            "{kind:?}: for each thread that may run now"
        );
        bench.now = 5 * MS - 1_000;
        bench.schedule(0);
        assert_eq!(
            told(&mut bench),
            Some(10 * MS),
            "{kind:?}: no slice is shorter than 10 us"
        );
    }
}
