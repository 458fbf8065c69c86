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

/// Each pCPU has a kworker and a watchdog, a node its kcompactd, and the host one kworker.
#[test]
fn threads_of_the_kernel_wake_as_often_as_measured() {
    const OFTEN: f64 = 20.0;
    let per_second = f64::from(PCPUS) * (1.0 / 0.94 + 1.0 / 4.0) + 1.0 / 0.512 + 1.0 / 1.86;
    let expected = per_second * OFTEN * SPAN_MS as f64 / 1e3;
    for seed in 1..4 {
        let timeline = played(&Config {
            noise: OFTEN,
            ..busy(seed)
        });
        let names: Vec<&str> = timeline.tasks.iter().map(|(_, name)| name.as_str()).collect();
        let all = ["kworker", "kworker", "migration", "migration", "kcompactd", "kworker/u"];
        assert_eq!(names, all);
        let runs = runs(&timeline, 4_000);
        let count: usize = runs.values().map(Vec::len).sum();
        let share = count as f64 / expected;
        assert!(
            (0.85..1.15).contains(&share),
            "seed {seed}: {count} runs, {expected} expected"
        );
        for (number, (task, _)) in timeline.tasks.iter().enumerate().take(4) {
            let own = runs[task].iter().all(|(pcpu, _)| *pcpu == number % 2);
            assert!(own, "seed {seed}: {} {number} leaves its pcpu", names[number]);
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
    config.vms[0].vmm_period_ns = Some(PERIOD);
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
