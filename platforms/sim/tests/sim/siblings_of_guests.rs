//! Two guests of two vCPUs with native locks share two pCPUs. Where the host runs the vCPUs of a guest decides how many
//! calls the guest makes.

use holdfast_host::{HostConfig, SchedConfig, SchedulerKind};
use holdfast_locks::LockKind;
use holdfast_machine::Topology;
use holdfast_sim::timeline::{Place, Timeline, Window};
use holdfast_sim::{CallOff, Config, HostTask, Stay, record, run};
use holdfast_workloads::{Contend, Workload};

use crate::image::config;

const MS: u64 = 1_000_000;
const SPAN: u64 = 600 * MS;
/// A window in which both guests count calls.
const LATE: Window = Window {
    from_ns: 150 * MS,
    to_ns: 250 * MS,
};

/// Both guests call a path like dup and close of Linux 6.1, on a host of 6.1. Empty `affinities` let their vCPUs run
/// anywhere.
fn two_guests(affinities: &[[u32; 2]], seed: u64) -> Config {
    let mut config = config(2, 2, 0, seed);
    config.machine.topology = Topology {
        sockets: 1,
        cores: 2,
        threads: 1,
    };
    config.host = HostConfig {
        hz: 250,
        sched: SchedConfig::of(SchedulerKind::Cfs61),
        ..HostConfig::default()
    };
    let boot = &mut config.vms[0].boot;
    boot.kernel.lock = LockKind::HybridPvQspin;
    boot.kernel.nopvspin = true;
    boot.kernel.hz = 250;
    boot.workload = Workload::Contend(Contend {
        held_ns: 87,
        think_ns: 387,
        span_ns: Some(SPAN),
        ..Contend::default()
    });
    config.vms.push(config.vms[0].clone());
    for (vm, own) in config.vms.iter_mut().zip(affinities) {
        vm.affinity = own.iter().map(|&pcpu| vec![pcpu]).collect();
    }
    config
}

/// The calls of the guest that makes fewer.
fn calls(config: &Config) -> u64 {
    let outcome = run(config, &CallOff::new()).unwrap_or_else(|failure| panic!("{failure}"));
    let made = outcome.vms.iter().map(|vm| vm.operations.unwrap_or(0));
    made.min().expect("there are guests")
}

/// The pCPUs on which each vCPU ran.
fn places(timeline: &Timeline) -> Vec<Vec<u32>> {
    let of = |place: Place| match place {
        Place::Running { pcpu } => Some(pcpu),
        _ => None,
    };
    let each = timeline.vcpus.iter().map(|vcpu| {
        let mut pcpus: Vec<u32> = vcpu.places.iter().filter_map(|span| of(span.what)).collect();
        pcpus.sort_unstable();
        pcpus.dedup();
        pcpus
    });
    each.collect()
}

/// The same with a thread that wakes for 12 us in 20 ms, as the main thread of our VMM does.
fn disturbed(mut config: Config) -> Config {
    config.tasks.push(HostTask {
        name: "vmm".into(),
        nice: 0,
        affinity: Vec::new(),
        group: None,
        busy_ns: 12_000,
        sleep_ns: 20 * MS,
    });
    config
}

/// Slices end on ticks, so two pCPUs keep their phase. If it lets a vCPU run only while its sibling does not, each
/// waits for a whole slice. After a short thread CFS picks the vCPU that has run less, which is often the other one.
#[test]
fn a_thread_that_wakes_now_and_then_brings_siblings_into_phase() {
    for seed in 1..4 {
        let apart = two_guests(&[[0, 1], [0, 1]], seed);
        let (alone, freed) = (calls(&apart), calls(&disturbed(apart)));
        assert!(alone * 4 < freed, "seed {seed}: {alone} calls alone, {freed} beside it");
    }
}

#[test]
fn no_short_thread_helps_siblings_on_one_pcpu() {
    for seed in 1..4 {
        let together = calls(&disturbed(two_guests(&[[0, 0], [1, 1]], seed)));
        let apart = calls(&disturbed(two_guests(&[[0, 1], [0, 1]], seed)));
        assert!(
            together * 4 < apart,
            "seed {seed}: {together} calls on one pcpu, {apart} on two"
        );
    }
}

/// The trace of a stock Linux 6.1 shows the same (docs/findings/stock-linux.md).
#[test]
fn linux_6_1_runs_the_vcpus_of_a_guest_on_two_pcpus() {
    for from_ms in [0, 7, 21] {
        let mut config = two_guests(&[], 1);
        config.vms[1].stay = Stay {
            from_ns: from_ms * MS,
            until_ns: None,
        };
        let (outcome, timeline) = record(&config, &CallOff::new(), LATE).expect("a machine that can be built");
        outcome.unwrap_or_else(|failure| panic!("{failure}"));
        let places = places(&timeline);
        for guest in places.chunks(2) {
            assert_ne!(guest[0], guest[1], "second guest after {from_ms} ms: {places:?}");
        }
    }
}
