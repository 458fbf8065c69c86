//! Guests that repeat recorded threads.

use holdfast_sim::timeline::{PcpuTimeline, Thread as TimelineThread, Window};
use holdfast_sim::{CallOff, Config, Outcome, record, run};
use holdfast_workloads::{Recorded, Step, Thread, Tick, Workload, recorded_fault};

use crate::image::{Random, config};

/// Returns a guest that repeats `threads` on `pcpus` pCPUs next to `hogs` competing tasks.
fn of(threads: &[Thread], pcpus: u32, hogs: u32) -> Config {
    assert_eq!(recorded_fault(threads), None);
    let mut config: Config = config(pcpus, threads.len() as u32, hogs, 1);
    config.vms[0].boot.workload = Workload::Recorded(Recorded {
        threads: threads.into(),
        ..Recorded::default()
    });
    config
}

/// Runs a guest that repeats `threads` on `pcpus` pCPUs next to `hogs` competing tasks.
fn repeat(threads: &[Thread], pcpus: u32, hogs: u32) -> Outcome {
    let config = of(threads, pcpus, hogs);
    run(&config, &CallOff::new()).unwrap_or_else(|failure| panic!("{failure}: {threads:?}"))
}

fn elapsed(outcome: &Outcome) -> u64 {
    outcome.vms[0].elapsed_ns.expect("a measured guest")
}

fn useful(outcome: &Outcome) -> u64 {
    outcome.vms[0].lost_time_ps["useful"] / 1_000
}

fn thread(steps: Vec<Step>) -> Thread {
    Thread {
        steps,
        ..Thread::default()
    }
}

#[test]
fn a_thread_runs_as_long_as_it_was_recorded_and_waits_as_long() {
    let steps = vec![
        Step::Run(1_000_000),
        Step::After(5_000_000),
        Step::Run(2_000_000),
        Step::At(20_000_000),
    ];
    let outcome = repeat(&[thread(steps)], 1, 0);
    assert!(
        (20_000_000..20_100_000).contains(&elapsed(&outcome)),
        "{}",
        elapsed(&outcome)
    );
    assert!(
        (3_000_000..3_050_000).contains(&useful(&outcome)),
        "{}",
        useful(&outcome)
    );
}

#[test]
fn a_thread_starts_on_the_pcpu_that_it_was_recorded_on() {
    let started_on = |first_pcpu: Option<u32>, allowed: &[u32]| {
        let threads = [Thread {
            first_pcpu,
            steps: vec![Step::Run(500_000)],
            ..Thread::default()
        }];
        let mut config = of(&threads, 4, 0);
        config.vms[0].affinity = vec![allowed.to_vec()];
        let window = Window {
            from_ns: 0,
            to_ns: u64::MAX,
        };
        let (_, timeline) = record(&config, &CallOff::new(), window).unwrap_or_else(|failure| panic!("{failure}"));
        let first = |pcpu: &PcpuTimeline| {
            let vcpus = pcpu.threads.iter().filter(|span| span.what == TimelineThread::Vcpu(0));
            vcpus.map(|span| span.start).min()
        };
        let starts = timeline.pcpus.iter().map(first).zip(0..);
        let started = starts.filter_map(|(start, pcpu)| Some((start?, pcpu)));
        started.min().map(|(_, pcpu)| pcpu)
    };
    for pcpu in 0..4 {
        assert_eq!(started_on(Some(pcpu), &[]), Some(pcpu));
    }
    // A scheduler places a thread that had another host's pCPU, or that may not run there now.
    assert_eq!(started_on(Some(7), &[]), started_on(None, &[]));
    assert_eq!(started_on(Some(3), &[1, 2]), started_on(None, &[1, 2]));
}

#[test]
fn a_wait_ends_when_the_thread_that_ends_it_gets_there() {
    // Each thread computes 10 us and then lets the other one go on: never both.
    let rounds = 200;
    let turn = |me: u32, wait| [Step::Woken, Step::Run(10_000), Step::Wake { thread: 1 - me, wait }];
    let second: Vec<Step> = (0..rounds).flat_map(|round| turn(1, round)).collect();
    let mut first: Vec<Step> = vec![Step::Run(10_000), Step::Wake { thread: 1, wait: 0 }];
    first.extend((1..rounds).flat_map(|round| turn(0, round)));
    first.push(Step::Woken);
    let alone = elapsed(&repeat(&[thread(first.clone()), thread(second.clone())], 2, 0));
    let computing = 2 * u64::from(rounds) * 10_000;
    assert!((computing..2 * computing).contains(&alone), "{alone}");
    // With a competitor on each pCPU the wakers come later, and so do those who wait for them.
    let shared = elapsed(&repeat(&[thread(first), thread(second)], 2, 4));
    assert!(shared > alone + computing / 2, "{shared} after {alone}");
}

/// Returns threads that one run has had: what happens is drawn in one order, so that no two wait for each other.
fn drawn(random: &mut Random, count: u32) -> Vec<Thread> {
    let mut threads = vec![Thread::default(); count as usize];
    let mut waits = vec![0; count as usize];
    for _ in 0..60 {
        let one = random.next(count.into()) as usize;
        let step = match random.next(8) {
            0 => Step::After(random.next(300_000)),
            1 => Step::At(random.next(30_000_000)),
            2..=4 => {
                let other = random.next(count.into()) as usize;
                if one == other {
                    continue;
                }
                threads[other].steps.push(Step::Wake {
                    thread: one as u32,
                    wait: waits[one],
                });
                waits[one] += 1;
                Step::Woken
            }
            _ => Step::Run(random.next(400_000)),
        };
        threads[one].steps.push(step);
    }
    threads
}

#[test]
fn no_wake_is_lost_and_all_that_was_recorded_is_run() {
    for seed in 0..60 {
        let mut random = Random(seed);
        let threads = drawn(&mut random, 1 + seed as u32 % 5);
        let recorded: u64 = (threads.iter().flat_map(|thread| &thread.steps))
            .map(|step| if let Step::Run(ns) = step { *ns } else { 0 })
            .sum();
        let outcome = repeat(&threads, 1 + seed as u32 % 3, seed as u32 % 2);
        let useful = useful(&outcome);
        // Waking, looking and setting timers are useful work of the guest, too.
        assert!(
            (recorded..recorded + 2_000_000).contains(&useful),
            "seed {seed}: {useful} of {recorded}"
        );
    }
}

#[test]
fn threads_that_cannot_have_been_recorded_are_refused() {
    let wake = |thread, wait| Step::Wake { thread, wait };
    let faults = [
        (vec![vec![Step::Woken], vec![]], "no thread ends wait 0 of thread 0"),
        (vec![vec![Step::Woken], vec![wake(0, 0), wake(0, 0)]], "ended twice"),
        (vec![vec![wake(1, 0)], vec![]], "has none such"),
        (vec![vec![wake(7, 0)]], "has none such"),
    ];
    for (steps, expected) in faults {
        let threads: Vec<Thread> = steps.into_iter().map(thread).collect();
        let fault = recorded_fault(&threads).unwrap_or_default();
        assert!(fault.contains(expected), "{fault:?} for {threads:?}");
    }
}

/// A thread that spins for an answer takes as long as the other one takes to go on.
#[test]
fn a_spin_ends_when_the_other_thread_goes_on() {
    let took = |hogs: u32, busy: u64| {
        let caller = vec![
            Step::Run(1_000_000),
            Step::Wake { thread: 1, wait: 0 },
            Step::Spin { thread: 1, wait: 0 },
            Step::Run(1_000_000),
        ];
        let other = vec![Step::Run(busy), Step::Woken];
        elapsed(&repeat(&[thread(caller), thread(other)], 2, hogs))
    };
    let soon = took(0, 0);
    assert!((2_000_000..2_100_000).contains(&soon), "{soon}");
    let late = took(0, 7_000_000);
    assert!((8_000_000..8_200_000).contains(&late), "{late}");
    let never = [thread(vec![Step::Spin { thread: 0, wait: 0 }])];
    assert!(recorded_fault(&never).is_some());
}

/// A tick of a wait for another thread does not make that wait longer, and a sleep does.
#[test]
fn a_wait_with_a_tick_in_it_ends_with_its_wake() {
    let of = |wait: Step| {
        let waits = vec![
            Step::Run(10_000),
            wait,
            Step::Run(100_000),
            Step::Woken,
            Step::Run(10_000),
        ];
        let wakes = vec![Step::Run(1_000_000), Step::Wake { thread: 0, wait: 0 }];
        elapsed(&repeat(&[thread(waits), thread(wakes)], 2, 0))
    };
    let (tick, sleep, short) = (
        of(Step::Tick(4_000_000)),
        of(Step::After(4_000_000)),
        of(Step::Tick(400_000)),
    );
    assert!((1_100_000..1_200_000).contains(&tick), "{tick}");
    assert!((4_100_000..4_200_000).contains(&sleep), "{sleep}");
    assert!((1_000_000..1_100_000).contains(&short), "{short}");
}

/// The tick of a thread comes while it waits for another one, and what it then does takes time.
#[test]
fn ticks_come_while_a_thread_waits_for_another_one() {
    let of = |tick: Option<Tick>| {
        let waits = Thread {
            tick,
            ..thread(vec![Step::Woken])
        };
        let wakes = thread(vec![Step::Run(10_500_000), Step::Wake { thread: 0, wait: 0 }]);
        let outcome = repeat(&[waits, wakes], 2, 0);
        assert!(
            elapsed(&outcome).abs_diff(10_550_000) < 100_000,
            "{}",
            elapsed(&outcome)
        );
        useful(&outcome)
    };
    let every = |period_ns: u64| {
        Some(Tick {
            period_ns,
            takes_ns: 200_000,
        })
    };
    let (none, slow, fast) = (of(None), of(every(4_000_000)), of(every(2_000_000)));
    assert!((slow - none).abs_diff(2 * 200_000) < 50_000, "{none} {slow}");
    assert!((fast - none).abs_diff(5 * 200_000) < 50_000, "{none} {fast}");
    assert_eq!(of(every(0)), none, "no period is no tick");
}

/// A halt takes the host time, which is the thread's. A wait that is over before it begins is no halt.
#[test]
fn halts_take_time_and_waits_without_one_do_not() {
    let of = |halt_ns: u64, wakes_at: u64| {
        let waits = Thread {
            halt_ns,
            ..thread(vec![Step::Run(1_000_000), Step::Woken, Step::After(1_000_000)])
        };
        let wakes = thread(vec![Step::Run(wakes_at), Step::Wake { thread: 0, wait: 0 }]);
        useful(&repeat(&[waits, wakes], 2, 0))
    };
    let (late, early) = (2_000_000, 500_000);
    assert!((of(100_000, late) - of(0, late)).abs_diff(2 * 100_000) < 10_000);
    assert!((of(100_000, early) - of(0, early)).abs_diff(100_000) < 10_000);
}

/// A thread that is through before the recording has ended goes on as before: it waits for the same share of the time.
#[test]
fn a_thread_that_is_through_does_its_steps_again() {
    let of = |last: Step| {
        let mut steps = [Step::Run(600_000), Step::After(400_000)].repeat(10);
        steps.extend([Step::Woken, last]);
        let waits = Thread {
            lengths: vec![400_000],
            ..thread(steps)
        };
        let wakes = thread(vec![Step::Wake { thread: 0, wait: 0 }]);
        let outcome = repeat(&[waits, wakes], 2, 0);
        assert!(
            elapsed(&outcome).abs_diff(31_000_000) < 200_000,
            "{}",
            elapsed(&outcome)
        );
        useful(&outcome)
    };
    // 10 ms, 10.4 ms and 10.4 ms, of each 6 ms on a CPU; or after the first 10 ms all of it.
    assert!(
        of(Step::Again(31_000_000)).abs_diff(18_000_000) < 500_000,
        "{}",
        of(Step::Again(31_000_000))
    );
    assert!(
        of(Step::Until(31_000_000)).abs_diff(27_000_000) < 500_000,
        "{}",
        of(Step::Until(31_000_000))
    );
}

/// A vCPU that is woken on an idle pCPU has it soon; one that never sleeps is not woken.
#[test]
fn a_recorded_guest_counts_its_wakeups_and_how_long_they_waited() {
    let counter = |steps: Vec<Step>, name: &str| repeat(&[thread(steps)], 1, 0).vms[0].counters.get(name).copied();
    let sleeps = || vec![Step::After(1_000_000); 10];
    assert_eq!(counter(sleeps(), "wake_to_run_count"), Some(10));
    let soon = counter(sleeps(), "wake_to_run_max_ns").expect("it was woken");
    assert!(soon < 50_000, "{soon}");
    assert_eq!(counter(vec![Step::Run(1_000_000)], "wake_to_run_count"), None);
}
