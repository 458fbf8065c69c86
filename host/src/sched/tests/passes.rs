//! Passes of the balancer: what they pull, when the next one is due, and how idle pCPUs are asked for one.

use super::rig::{Habit, Rig};
use super::*;

/// Adds a thread that waits on `pcpu`, or runs there if that is idle. `pinned`: it may run nowhere else.
fn add(bench: &mut Bench, pcpu: u32, pinned: bool) -> TaskId {
    let mut only = Mask::new(bench.sched.pcpus() as usize);
    only.set(pcpu, true);
    let task = bench.sched.add_thread(weight::NICE_0, ROOT, Some(only));
    bench.on(pcpu, |sched, step| sched.start_thread(task, step));
    if !pinned {
        bench.sched.threads[task].affinity = None;
    }
    task
}

/// Returns the pCPUs that got an IPI since the last call.
fn ipis(bench: &mut Bench) -> Vec<u32> {
    let sent = bench.out.drain(..).filter_map(|command| match command {
        Command::Ipi { to, .. } => Some(to.0),
        _ => None,
    });
    sent.collect()
}

fn kinds() -> impl Iterator<Item = HostConfig> {
    SchedulerKind::ALL.into_iter().map(|kind| HostConfig {
        sched: SchedConfig::of(kind),
        ..HostConfig::default()
    })
}

#[test]
fn a_pcpu_whose_threads_are_all_pinned_hides_no_other() {
    for config in kinds() {
        let mut bench = Bench::new(&config, 1, 3);
        (0..8).for_each(|_| {
            add(&mut bench, 0, true);
        });
        let free: Vec<TaskId> = (0..4).map(|_| add(&mut bench, 1, false)).collect();
        (0..2).for_each(|pcpu| {
            bench.schedule(pcpu);
        });
        // They have run at no time that matters.
        bench.now += 100 * MS;
        let pulled = bench.schedule(2);
        assert!(
            pulled.is_some_and(|task| free.contains(&task)),
            "{:?}",
            config.sched.kind
        );
        assert_ne!(pulled, bench.sched.current(1));
    }
}

#[test]
fn a_pcpu_with_nothing_to_pull_for_it_stays_idle() {
    for config in kinds() {
        let mut bench = Bench::new(&config, 1, 2);
        (0..4).for_each(|_| {
            add(&mut bench, 0, true);
        });
        bench.schedule(0);
        bench.now += 100 * MS;
        assert_eq!(bench.schedule(1), None, "{:?}", config.sched.kind);
        assert_eq!(bench.sched.nr_running(0), 4);
    }
}

#[test]
fn an_idle_pcpu_is_asked_to_balance_once_until_it_answers() {
    let mut bench = Bench::new(&HostConfig::linux_3_3(), 1, 3);
    (0..2).for_each(|_| {
        add(&mut bench, 0, true);
    });
    (0..3).for_each(|pcpu| {
        bench.schedule(pcpu);
    });
    ipis(&mut bench);
    for round in 0..5 {
        let mut asked = Vec::new();
        for _ in 0..200 {
            bench.now += 4 * MS;
            bench.on(0, |sched, step| sched.tick(0, step));
            asked.extend(ipis(&mut bench));
            bench.sched.rq_mut(0).need_resched = false;
        }
        assert_eq!(asked, [1], "in round {round}");
        assert!(bench.sched.rq(1).balance_idle);
        bench.on(1, |sched, step| sched.interrupt(1, step));
        assert!(!bench.sched.rq(1).balance_idle);
        // It has balanced for the third one, too.
        let tick = bench.sched.jiffies();
        assert!((1..3).all(|pcpu| bench.sched.rq(pcpu).next_balance > tick));
    }
}

#[test]
fn one_of_two_threads_of_a_core_is_pushed_to_an_idle_core_after_enough_failed_passes() {
    let places: Vec<PcpuPlace> = (0..2)
        .flat_map(|core| {
            (0..2).map(move |thread| PcpuPlace {
                socket: 0,
                core,
                thread,
            })
        })
        .collect();
    for config in kinds().filter(|config| !config.sched.balance.halves_differences) {
        let sched = Scheduler::new(&config, &places).expect("a valid scheduler");
        let (now, out) = (0, Vec::new());
        let mut bench = Bench { sched, now, out };
        (0..2).for_each(|pcpu| {
            add(&mut bench, pcpu, false);
            bench.schedule(pcpu);
        });
        let level = 1;
        let bounds = bench.sched.topology.span_of(2, level).config;
        let state = |bench: &Bench| bench.sched.topology.domains[2][level].clone();
        let mut passes = 0;
        while (0..2).all(|pcpu| bench.sched.rq(pcpu).push_to.is_none()) {
            let before = state(&bench).last_balance;
            bench.now += 4 * MS;
            bench.on(2, |sched, step| sched.tick(2, step));
            if state(&bench).last_balance != before {
                passes += 1;
                assert!(state(&bench).failed <= bounds.cache_nice_tries + 2, "pass {passes}");
            }
            assert!(passes < 100, "{:?}: no push", config.sched.kind);
        }
        assert_eq!(passes, bounds.cache_nice_tries + 3, "{:?}", config.sched.kind);
        // The push gets time before the next pass.
        assert_eq!(
            state(&bench).interval_ms,
            (2 * bounds.min_interval_ms).min(bounds.max_interval_ms.max(bounds.min_interval_ms))
        );
        let from = (0..2)
            .find(|&pcpu| bench.sched.rq(pcpu).push_to == Some(2))
            .expect("a push");
        let pushed = bench.sched.current(from);
        bench.on(from, |sched, step| sched.interrupt(from, step));
        assert!(bench.sched.need_resched(from));
        bench.schedule(from);
        assert_eq!(bench.schedule(2), pushed);
    }
}

#[test]
fn passes_that_find_balance_become_rarer_up_to_the_limit() {
    for config in kinds() {
        let mut bench = Bench::new(&config, 1, 2);
        (0..2).for_each(|pcpu| {
            add(&mut bench, pcpu, false);
            bench.schedule(pcpu);
        });
        let bounds = bench.sched.topology.span_of(0, 0).config;
        let mut intervals = Vec::new();
        for _ in 0..20_000 {
            bench.now += 4 * MS;
            bench.on(0, |sched, step| sched.tick(0, step));
            let domain = &bench.sched.topology.domains[0][0];
            intervals.push((domain.last_balance, domain.interval_ms));
        }
        intervals.dedup();
        for pair in intervals.windows(2) {
            let ((_, before), (_, after)) = (pair[0], pair[1]);
            let expected = if before < bounds.max_interval_ms {
                2 * before
            } else {
                before
            };
            assert_eq!(after, expected, "{:?}", config.sched.kind);
        }
        assert!(
            intervals
                .last()
                .is_some_and(|&(_, last)| last >= bounds.max_interval_ms)
        );
    }
}

#[test]
fn a_pcpu_without_domains_looks_once_a_minute() {
    let mut rig = Rig::new(SchedulerKind::Cfs33, 1, 250);
    rig.add(0, ROOT, None, Habit::HOG);
    rig.run_until(10 * MS);
    let looks = rig.sched.rq(0).next_balance;
    assert!((60 * 250..60 * 250 + 4).contains(&looks), "{looks}");
    rig.run_until(61_000 * MS);
    let next = rig.sched.rq(0).next_balance;
    assert!((looks + 60 * 250..looks + 60 * 250 + 2).contains(&next), "{next}");
}

#[test]
fn idle_pcpus_are_called_once_in_a_tick_and_not_for_a_lone_thread() {
    let mut bench = Bench::new(&HostConfig::linux_3_3(), 1, 4);
    for pcpu in [0, 3, 0, 3] {
        add(&mut bench, pcpu, true);
    }
    (0..4).for_each(|pcpu| {
        bench.schedule(pcpu);
    });
    ipis(&mut bench);
    bench.now = 1_000 * MS;
    // A pass is due in this tick.
    bench.sched.begin(bench.now);
    bench.sched.next_idle_balance = bench.sched.jiffies();
    bench.on(0, |sched, step| sched.tick(0, step));
    assert_eq!(ipis(&mut bench), [1]);
    // It has got work meanwhile, and does not balance.
    add(&mut bench, 1, true);
    bench.schedule(1);
    bench.on(1, |sched, step| sched.interrupt(1, step));
    ipis(&mut bench);
    bench.on(3, |sched, step| sched.tick(3, step));
    assert_eq!(ipis(&mut bench), [], "in the same tick");
    bench.now += 4 * MS;
    bench.on(1, |sched, step| sched.tick(1, step));
    assert_eq!(ipis(&mut bench), [], "of pCPU 1, whose thread is alone");
    bench.on(3, |sched, step| sched.tick(3, step));
    assert_eq!(ipis(&mut bench), [2]);
    // Work comes before it can balance.
    let tick = bench.sched.jiffies();
    bench.sched.rq_mut(2).need_resched = true;
    bench.on(2, |sched, step| sched.interrupt(2, step));
    assert_eq!(bench.sched.next_idle_balance, tick + 1);
}

#[test]
fn idle_pcpus_are_called_for_a_thread_that_shares_its_core() {
    let place = |core, thread| PcpuPlace {
        socket: 0,
        core,
        thread,
    };
    let places = [place(0, 0), place(0, 1), place(1, 0), place(1, 1)];
    for busy in [&[0][..], &[0, 2], &[0, 1]] {
        let sched = Scheduler::new(&HostConfig::linux_3_3(), &places).expect("a valid scheduler");
        let (now, out) = (0, Vec::new());
        let mut bench = Bench { sched, now, out };
        for &pcpu in busy {
            add(&mut bench, pcpu, true);
        }
        (0..4).for_each(|pcpu| {
            bench.schedule(pcpu);
        });
        ipis(&mut bench);
        bench.now = 1_000 * MS;
        bench.on(0, |sched, step| sched.tick(0, step));
        let called = !ipis(&mut bench).is_empty();
        // Two busy cores are no reason: each thread has one.
        assert_eq!(called, busy == [0, 1], "{busy:?}");
    }
}

#[test]
fn no_domain_waits_longer_than_a_tenth_of_a_second_for_each_pcpu() {
    for pcpus in [2, 3, 5] {
        let mut bench = Bench::new(&HostConfig::linux_3_3(), 1, pcpus);
        (0..pcpus).for_each(|pcpu| {
            add(&mut bench, pcpu, true);
            bench.schedule(pcpu);
        });
        let longest = bench.sched.hz * u64::from(pcpus) / 10;
        let mut passes = Vec::new();
        for _ in 0..20 * bench.sched.hz {
            bench.now += 1_000 * MS / bench.sched.hz;
            bench.on(0, |sched, step| sched.tick(0, step));
            passes.push(bench.sched.topology.domains[0][0].last_balance);
        }
        passes.dedup();
        let gaps: Vec<u64> = passes.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let bounds = bench.sched.topology.span_of(0, 0).config;
        let rare = bench.sched.hz * bounds.max_interval_ms * bounds.busy_factor / 1_000;
        let expected = rare.min(longest);
        assert!(
            gaps.len() > 10 && gaps.iter().all(|&gap| gap <= longest),
            "{gaps:?}, at most {longest}"
        );
        assert!(
            gaps.last().is_some_and(|gap| gap.abs_diff(expected) <= 1),
            "{gaps:?}, {expected} at the end"
        );
    }
}
