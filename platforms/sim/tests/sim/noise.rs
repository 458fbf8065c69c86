//! The host's own threads: those of its kernel, and the main threads of VMMs.

use std::collections::BTreeMap;

use holdfast_machine::Topology;
use holdfast_sim::timeline::{Span, Thread, Timeline, Window};
use holdfast_sim::{CallOff, Config, Stay, record};
use holdfast_workloads::{Contend, Workload};

use crate::image::config;

const MS: u64 = 1_000_000;
const SPAN_MS: u64 = 4_000;
const PCPUS: u32 = 2;

/// A guest that computes on all pCPUs and hardly needs a lock.
fn busy(seed: u64) -> Config {
    let mut config = config(PCPUS, PCPUS, 0, seed);
    config.machine.topology = Topology {
        sockets: 1,
        cores: PCPUS,
        threads: 1,
    };
    config.vms[0].boot.workload = Workload::Contend(Contend {
        held_ns: 1_000,
        think_ns: MS,
        span_ns: Some(SPAN_MS * MS),
        ..Contend::default()
    });
    config
}

fn played(config: &Config) -> Timeline {
    let window = Window {
        from_ns: 0,
        to_ns: SPAN_MS * MS,
    };
    let (outcome, timeline) = record(config, &CallOff::new(), window).expect("a machine that can be built");
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
    assert!(!timeline.truncated);
    timeline
}

/// The runs of each host task that last at least `least_ns`, with their pCPUs.
fn runs(timeline: &Timeline, least_ns: u64) -> BTreeMap<u32, Vec<(usize, Span<Thread>)>> {
    let mut found: BTreeMap<u32, Vec<_>> = BTreeMap::new();
    for (pcpu, track) in timeline.pcpus.iter().enumerate() {
        for span in &track.threads {
            let long = span.end.nanos() - span.start.nanos() >= least_ns;
            if let (Thread::Task(task), true) = (span.what, long) {
                found.entry(task).or_default().push((pcpu, *span));
            }
        }
    }
    found
}

/// Each pCPU has a kworker and a watchdog, a node its kcompactd, and the host one kworker. Each wakes as often and runs
/// as long as measured; the watchdog and kcompactd in step with themselves.
#[test]
fn threads_of_the_kernel_wake_as_often_as_measured() {
    const OFTEN: f64 = 20.0;
    // Name, time between two runs, length of a run, whether it has a period, the pCPU to which it is bound.
    let expected = [
        ("kworker", 940, 5_000, false, Some(0)),
        ("kworker", 940, 5_000, false, Some(1)),
        ("migration", 4_000, 4_000, true, Some(0)),
        ("migration", 4_000, 4_000, true, Some(1)),
        ("kcompactd", 512, 5_000, true, None),
        ("kworker/u", 1_860, 5_000, false, None),
    ];
    for seed in 1..4 {
        let timeline = played(&Config {
            noise: OFTEN,
            ..busy(seed)
        });
        assert_eq!(timeline.tasks.len(), expected.len());
        let runs = runs(&timeline, 3_000);
        for (task, (name, every_ms, busy_ns, periodic, bound)) in timeline.tasks.iter().zip(expected) {
            assert_eq!(task.name, name);
            let what = format!("seed {seed}: {name} of {bound:?}");
            let mut spans: Vec<&(usize, Span<Thread>)> = runs[&task.number].iter().collect();
            spans.sort_unstable_by_key(|(_, span)| span.start);
            assert!(
                bound.is_none_or(|own| spans.iter().all(|(pcpu, _)| *pcpu == own)),
                "{what} leaves its pcpu"
            );
            // What this machine's host takes to switch to the thread and back is in the span.
            const SWITCHES: u64 = 5_000;
            let mut lengths: Vec<u64> = spans
                .iter()
                .map(|(_, span)| span.end.nanos() - span.start.nanos())
                .collect();
            lengths.sort_unstable();
            assert_eq!(
                lengths[lengths.len() / 2],
                busy_ns + SWITCHES,
                "{what}: median of its runs"
            );

            let every_ns = (every_ms * MS) as f64 / OFTEN;
            let count = spans.len() as f64 * every_ns / (SPAN_MS * MS) as f64;
            let allowed = if periodic { 0.9..1.06 } else { 0.6..1.4 };
            assert!(
                allowed.contains(&count),
                "{what} wakes {count} times as often as measured"
            );
            let gaps = spans
                .windows(2)
                .map(|two| (two[1].1.start.nanos() - two[0].1.start.nanos()) as f64);
            let steady = gaps.filter(|gap| (0.95..1.1).contains(&(gap / every_ns))).count();
            assert_eq!(
                steady * 2 > spans.len(),
                periodic,
                "{what}: {steady} of {} gaps are a period",
                spans.len()
            );
        }
    }
}

#[test]
fn a_host_without_noise_has_no_such_threads() {
    let timeline = played(&busy(1));
    assert!(timeline.tasks.is_empty());
    assert!(runs(&timeline, 0).is_empty());
}

/// The main threads of two VMMs with one period, the second of which has its VM for a while only.
#[test]
fn the_main_thread_of_a_vmm_wakes_while_its_vm_is_there() {
    const PERIOD: u64 = 20 * MS;
    let stay = Stay {
        from_ns: 1_000 * MS,
        until_ns: Some(3_000 * MS),
    };
    let mut config = busy(1);
    config.vms[0].vmm.period_ns = Some(PERIOD);
    config.vms.push(config.vms[0].clone());
    config.vms[1].measured = false;
    config.vms[1].stay = stay;
    let runs: Vec<Vec<u64>> = runs(&played(&config), 12_000)
        .into_values()
        .map(|spans| {
            let mut starts: Vec<u64> = spans.iter().map(|(_, span)| span.start.nanos()).collect();
            starts.sort_unstable();
            starts
        })
        .collect();
    let [all, some] = &runs[..] else {
        panic!("{} tasks have run", runs.len());
    };
    // Each period is longer by the time that the thread waits and computes.
    assert!((170..=200).contains(&all.len()), "{} wakeups in 4 s", all.len());
    assert!((80..=100).contains(&some.len()), "{} wakeups in 2 s", some.len());
    // It needs a pCPU, so it is late by a slice at most.
    let (first, last) = (some[0], some[some.len() - 1]);
    assert!(first >= stay.from_ns, "wakes at {first} ns, before its vm is there");
    assert!(last < 3_000 * MS + PERIOD, "wakes at {last} ns, after its vm has gone");
    assert_ne!(
        all[0] % PERIOD / MS,
        (first - stay.from_ns) % PERIOD / MS,
        "both wake in step"
    );
}
