//! What each scheduler promises, on random sets of threads: shares by weight, bounded lag, no starvation, no time lost.

use super::super::config::{SchedConfig, SchedulerKind, YieldRule};
use super::super::fault::Fault;
use super::super::policy::Departure;
use super::rig::{ALL, Habit, Rig};
use super::*;

/// Returns how far the virtual time of hogs on one pCPU may come apart, in virtual nanoseconds of the lightest weight
/// `least`.
///
/// CFS lets a thread run its slice and what is left of a tick; wakeups and buddies add a granularity; a new thread
/// starts a slice late. EEVDF bounds lag on either side by a slice and a tick.
fn spread_bound(config: &HostConfig, pcpus: u32, threads: u64, least: u64) -> u64 {
    let tick = 1_000_000_000 / u64::from(config.hz);
    let factor = config.sched.factor(pcpus);
    let slice = if config.sched.is_eevdf() {
        2 * config.sched.base_slice_ns * factor
    } else {
        let latency = config.sched.latency_ns * factor;
        let granularity = config.sched.min_granularity_ns * factor;
        latency.max(threads * granularity) + config.sched.wakeup_granularity_ns * factor
    };
    weight::scaled(slice + 2 * tick, least)
}

fn config(kind: SchedulerKind, hz: u32) -> HostConfig {
    HostConfig {
        hz,
        sched: SchedConfig::of(kind),
        ..HostConfig::default()
    }
}

/// Hogs of `levels` on one pCPU, for ten seconds: how far their virtual times came apart, and how far they may.
fn hogs(kind: SchedulerKind, hz: u32, levels: &[i8], fault: Option<Fault>, yields: bool) -> (u64, u64) {
    let config = config(kind, hz);
    let mut rig = Rig::with(&config, 1, 1).plant(fault);
    let tasks: Vec<TaskId> = levels
        .iter()
        .map(|&nice| rig.add(nice, ROOT, None, Habit::HOG))
        .collect();
    for round in 1..=1_000u64 {
        rig.run_until(round * 10 * MS);
        // A thread that forfeits its slice falls behind with each yield, without a bound.
        if yields && config.sched.yields != YieldRule::Forfeit {
            let target = tasks[round as usize % tasks.len()];
            rig.on(0, |sched, step| sched.yield_to(0, target, step));
        }
    }
    let spent = |&(task, nice): &(TaskId, i8)| weight::scaled(rig.ran(task), weight::of_nice(nice));
    let virtual_times: Vec<u64> = tasks
        .iter()
        .copied()
        .zip(levels.iter().copied())
        .map(|pair| spent(&pair))
        .collect();
    let spread = virtual_times.iter().max().expect("a hog") - virtual_times.iter().min().expect("a hog");
    let least = levels.iter().map(|&nice| weight::of_nice(nice)).min().expect("a hog");
    (spread, spread_bound(&config, 1, levels.len() as u64, least))
}

/// Returns the largest lag of any queued entity, as a fraction of the lag that it may have.
fn largest_lag(sched: &Scheduler) -> f64 {
    let hierarchy = &sched.hierarchy;
    let Rules::Eevdf(eevdf) = hierarchy.policy else {
        return 0.0;
    };
    let mut largest: f64 = 0.0;
    for entity in hierarchy.entities.iter().filter(|entity| entity.on_rq) {
        let queue = &hierarchy.queues[entity.queue];
        // What is written of the running one is as old as its last accounting.
        let lag = hierarchy.average(entity.queue).wrapping_sub(entity.vruntime) as i64;
        let stands_alone = queue.nr == 1;
        if !stands_alone {
            largest = largest.max(lag.unsigned_abs() as f64 / eevdf.lag_limit(entity.weight) as f64);
        }
    }
    largest
}

fn check_lag(sched: &Scheduler) {
    let largest = largest_lag(sched);
    // Two slices and ticks: one that it may be behind when it is picked, and one that passes while it is not yet heard.
    assert!(largest <= 2.0, "a lag of {largest} times a slice and a tick");
}

fn habit() -> impl Strategy<Value = Habit> {
    prop_oneof![
        1 => Just(Habit::HOG),
        2 => (10_000u64..20 * MS, 10_000u64..20 * MS).prop_map(|(busy, sleep)| Habit { busy, sleep }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(24) })]

    /// Hogs on one pCPU: virtual times stay together, within the algorithm's own bound.
    #[test]
    fn hogs_share_by_weight(
        levels in proptest::collection::vec(-5i8..6, 2..8),
        hz in prop_oneof![Just(100u32), Just(250), Just(1000)], yields in any::<bool>(),
    ) {
        for kind in ALL {
            let (spread, bound) = hogs(kind, hz, &levels, None, yields);
            prop_assert!(spread <= bound, "{:?}: {} µs apart, {} allowed", kind, spread / 1000, bound / 1000);
        }
    }

    /// Threads that sleep and wake, in groups, on several pCPUs: every invariant, no time is lost, no thread starves.
    #[test]
    fn time_is_conserved_and_nobody_starves(
        threads in proptest::collection::vec((-3i8..4, 0usize..4, habit()), 1..12), pcpus in 1u32..5,
    ) {
        for kind in ALL {
            let mut rig = Rig::new(kind, pcpus, 250);
            rig.watch = Some(|sched| { sched.check(); check_lag(sched); });
            let upper = rig.sched.add_group(None, 1024).expect("a group");
            let lower = rig.sched.add_group(Some(upper), 512).expect("a group");
            let other = rig.sched.add_group(None, 2048).expect("a group");
            let groups = [ROOT, upper, lower, other];
            let tasks: Vec<TaskId> =
                threads.iter().map(|&(nice, group, habit)| rig.add(nice, groups[group], None, habit)).collect();
            let mut before = vec![0; tasks.len()];
            // The least share that comes out of this is a few thousandths, and comes in slices of milliseconds.
            for round in 1..=2 {
                let next = rig.now + 500 * MS;
                rig.run_until(next);
                rig.watch = None;
                rig.run_until(round * 10_000 * MS);
                prop_assert_eq!(rig.whole(), rig.now * u64::from(pcpus), "{:?}", kind);
                for (&task, before) in tasks.iter().zip(&mut before) {
                    prop_assert!(rig.ran(task) > *before, "{:?}: thread {} starves", kind, task.0);
                    *before = rig.ran(task);
                }
            }
        }
    }

    /// Groups of hogs on one pCPU get their shares, however many threads are in each and however deep it stands.
    #[test]
    fn groups_share_by_shares(
        groups in proptest::collection::vec((1u64..9, 1u32..4, 0u32..3), 2..4), hz in prop_oneof![Just(250u32), Just(1000)],
    ) {
        for kind in ALL {
            let mut rig = Rig::new(kind, 1, hz);
            let mut tops = Vec::new();
            for &(shares, threads, depth) in &groups {
                let top = rig.sched.add_group(None, shares * 256).expect("a group");
                let mut bottom = top;
                for _ in 0..depth {
                    bottom = rig.sched.add_group(Some(bottom), 1024).expect("a group");
                }
                tops.push((0..threads).map(|_| rig.add(0, bottom, None, Habit::HOG)).collect::<Vec<_>>());
            }
            rig.run_until(20_000 * MS);
            let whole: u64 = groups.iter().map(|group| group.0).sum();
            for (tasks, &(shares, ..)) in tops.iter().zip(&groups) {
                let got = tasks.iter().map(|&task| rig.ran(task)).sum::<u64>() as f64 / rig.now as f64;
                let due = shares as f64 / whole as f64;
                prop_assert!((got - due).abs() < 0.01, "{:?}: {} instead of {}", kind, got, due);
            }
        }
    }
}

#[test]
fn planted_faults_show() {
    // Lag that is lost on waking: who sleeps before its due is over gains by it.
    let share = |kind, fault| {
        let mut rig = Rig::new(kind, 1, 1000).plant(fault);
        rig.add(0, ROOT, None, Habit::HOG);
        let cheat = Habit {
            busy: 2_900_000,
            sleep: 20_000,
        };
        let cheat = rig.add(0, ROOT, None, cheat);
        rig.run_until(5_000 * MS);
        rig.ran(cheat) as f64 / rig.now as f64
    };
    for kind in [SchedulerKind::Eevdf66, SchedulerKind::Eevdf612] {
        let (sound, faulty) = (share(kind, None), share(kind, Some(Fault::LagLost)));
        assert!(sound < 0.52, "{kind:?}: a napper gets {sound} beside a hog");
        assert!(
            kind == SchedulerKind::Eevdf612 || faulty > 0.55,
            "{kind:?}: {faulty} without lag"
        );
    }
}

/// Three vCPUs alone in their groups below one parent: whether a directed yield ever brings the one that would not have
/// been next.
fn meets(kind: SchedulerKind, fault: Option<Fault>, change: impl Fn(&mut SchedConfig)) -> bool {
    let mut config = config(kind, 1000);
    change(&mut config.sched);
    let mut rig = Rig::with(&config, 1, 1).plant(fault);
    let vm = rig.sched.add_group(None, 1024).expect("a group");
    let vcpus: Vec<TaskId> = (0..3)
        .map(|_| {
            let group = rig.sched.add_group(Some(vm), 1024).expect("a group");
            rig.add(0, group, None, Habit::HOG)
        })
        .collect();
    (1..400u64).any(|round| {
        rig.run_until(round * 1_730_000);
        let from = rig.sched.current(0).expect("a vcpu");
        // Who is next after an undirected yield.
        let mut out = Vec::new();
        let mut other = rig.sched.clone();
        other.yield_current(0);
        let next = other.schedule(0, &mut Step::new(Nanos(rig.now), PcpuId(0), &mut out));
        let target = vcpus.iter().find(|&&vcpu| vcpu != from && Some(vcpu) != next);
        let target = *target.expect("three vcpus");
        rig.on(0, |sched, step| {
            if sched.yield_to(0, target, step) {
                sched.schedule(0, step);
            }
        });
        rig.sched.current(0) == Some(target)
    })
}

#[test]
fn directed_yield_reaches_through_groups_where_its_kernel_does() {
    let same = |_: &mut SchedConfig| {};
    for (kind, expected) in [
        (SchedulerKind::Cfs2637, false),
        (SchedulerKind::Cfs33, true),
        (SchedulerKind::Cfs412, true),
        (SchedulerKind::Eevdf66, false),
        (SchedulerKind::Eevdf612, true),
    ] {
        assert_eq!(meets(kind, None, same), expected, "{kind:?}");
    }
    // The fix, back-ported; and the mark on one level only.
    let fixed = |sched: &mut SchedConfig| sched.features.pick_buddy = true;
    assert!(meets(SchedulerKind::Eevdf66, None, fixed));
    for kind in [SchedulerKind::Cfs33, SchedulerKind::Cfs412, SchedulerKind::Eevdf612] {
        assert!(
            !meets(kind, Some(Fault::LevelSkipped), same),
            "{kind:?} with a level skipped"
        );
    }
}

#[test]
fn a_buddy_that_stays_marked_shows() {
    // A mark that outlives its use breaks the queue's invariant, or the fairness of those without one.
    let breaks = |kind| {
        let broken = std::panic::catch_unwind(|| {
            let mut rig = Rig::new(kind, 1, 1000).plant(Some(Fault::BuddyKept));
            rig.watch = Some(Scheduler::check);
            let nap = Habit {
                busy: 300_000,
                sleep: 3 * MS,
            };
            let tasks = [Habit::HOG, nap, Habit::HOG, nap].map(|habit| rig.add(0, ROOT, None, habit));
            for round in 1..200u64 {
                rig.run_until(round * 2 * MS);
                rig.on(0, |sched, step| sched.yield_to(0, tasks[round as usize % 4], step));
            }
        });
        broken.is_err()
    };
    for kind in [SchedulerKind::Cfs33, SchedulerKind::Cfs412, SchedulerKind::Eevdf612] {
        assert!(breaks(kind), "{kind:?}");
    }
}

#[test]
fn a_yield_alone_in_its_group_is_void_until_2_6_38() {
    // Two groups of one thread each: the yielder's own queue has no other thread.
    for (yields, gives_way) in [
        (YieldRule::OwnGroup, false),
        (YieldRule::OwnGroupCompat, false),
        (YieldRule::Whole, true),
    ] {
        let mut config = config(SchedulerKind::Cfs33, 1000);
        config.sched.yields = yields;
        let mut rig = Rig::with(&config, 1, 1);
        for _ in 0..2 {
            let group = rig.sched.add_group(None, 1024).expect("a group");
            rig.add(0, group, None, Habit::HOG);
        }
        let given = (1..100u64).any(|round| {
            rig.run_until(round * 1_730_000);
            let (now, from) = (rig.now, rig.sched.current(0));
            let next = |yields: bool| {
                let mut sched = rig.sched.clone();
                sched.begin(now);
                if yields {
                    sched.yield_current(0);
                }
                sched.schedule(0, &mut Step::new(Nanos(now), PcpuId(0), &mut Vec::new()))
            };
            next(false) == from && next(true) != from
        });
        assert_eq!(given, gives_way, "{yields:?}");
    }
}

#[test]
fn who_sleeps_ahead_of_its_due_is_delayed() {
    let mut rig = Rig::new(SchedulerKind::Eevdf612, 1, 1000);
    rig.watch = Some(Scheduler::check);
    rig.add(0, ROOT, None, Habit::HOG);
    let nap = Habit {
        busy: 2 * MS,
        sleep: 400_000,
    };
    let napper = rig.add(0, ROOT, None, nap);
    let mut delays = 0;
    for step in 1..20_000u64 {
        rig.run_until(step * 50_000);
        let entity = &rig.sched.hierarchy.entities[rig.sched.threads[napper].entity];
        if entity.delayed {
            delays += 1;
            assert!(
                entity.on_rq && !rig.sched.is_runnable(napper),
                "it stands, and is not runnable"
            );
            assert_eq!(rig.sched.nr_running(0), 1);
        }
    }
    assert!(delays > 0, "nobody was ever delayed");
    assert!(
        rig.ran(napper) <= rig.now / 2 + 10 * MS,
        "a napper has no advantage over a hog"
    );
}

#[test]
fn lag_is_kept_within_its_limit_on_either_side() {
    let bench = &mut Bench::new(&config(SchedulerKind::Eevdf612, 1000), 1, 1);
    bench.threads(ROOT, 2);
    let task = bench.sched.add_thread(weight::NICE_0, ROOT, None);
    let hierarchy = &mut bench.sched.hierarchy;
    let Rules::Eevdf(eevdf) = hierarchy.policy else {
        panic!("not an eevdf")
    };
    let (queue, entity) = (hierarchy.root(0), bench.sched.threads[task].entity);
    let limit = eevdf.lag_limit(hierarchy.entities[entity].weight);
    let average = hierarchy.average(queue);
    for (behind, lag) in [
        (limit / 2, limit / 2),
        (3 * limit, limit),
        (-limit / 2, -limit / 2),
        (-3 * limit, -limit),
    ] {
        hierarchy.entities[entity].vruntime = average.wrapping_sub(behind as u64);
        assert_eq!(eevdf.lag(hierarchy, queue, entity), lag);
    }
}

#[test]
fn a_delayed_thread_leaves_with_its_debt_and_without_its_credit() {
    for (zero, behind, kept) in [
        (true, MS as i64, 0),
        (true, -(MS as i64), -(MS as i64)),
        (false, MS as i64, MS as i64),
    ] {
        let mut config = config(SchedulerKind::Eevdf612, 1000);
        config.sched.features.delay_zero = zero;
        let mut bench = Bench::new(&config, 1, 1);
        bench.threads(ROOT, 2);
        let task = bench.sched.add_thread(weight::NICE_0, ROOT, None);
        let hierarchy = &mut bench.sched.hierarchy;
        let Rules::Eevdf(eevdf) = hierarchy.policy else {
            panic!("not an eevdf")
        };
        let (queue, entity) = (hierarchy.root(0), bench.sched.threads[task].entity);
        hierarchy.entities[entity].vruntime = hierarchy.average(queue).wrapping_sub(behind as u64);
        hierarchy.entities[entity].delayed = true;
        assert!(eevdf.leave(hierarchy, queue, entity, Departure::Final));
        assert_eq!(hierarchy.entities[entity].vlag, kept, "{behind} ns behind");
        assert!(!hierarchy.entities[entity].delayed);
    }
}
