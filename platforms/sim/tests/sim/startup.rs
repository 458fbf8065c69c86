//! CPUs that their guest starts, by INIT and SIPI.

use holdfast_sim::{CallOff, Config, Outcome, run};
use holdfast_workloads::{Boot, Kernbench, Workload};

use crate::image::config;

/// A build in a guest of `vcpus` on half as many pCPUs, and a hog.
fn build(vcpus: u32, waits_for_sipi: bool) -> Config {
    let mut config = config(vcpus / 2, vcpus, 1, 7);
    config.vms[0].host.waits_for_sipi = waits_for_sipi;
    config.vms[0].boot = Boot {
        workload: Workload::Kernbench(Kernbench {
            jobs: 6,
            scale: 0.002,
            user_cpu_seconds: 50.0,
            ..Kernbench::default()
        }),
        ..Boot::default()
    };
    config
}

fn play(config: &Config) -> Outcome {
    run(config, &CallOff::new()).unwrap_or_else(|failure| panic!("{failure}"))
}

#[test]
fn a_guest_starts_its_cpus_and_works_on_all_of_them() {
    let [by_machine, by_guest] = [false, true].map(|waits| play(&build(8, waits)));
    let (machine, guest) = (&by_machine.vms[0], &by_guest.vms[0]);
    assert_eq!(machine.counters["guest.forks"], guest.counters["guest.forks"]);
    assert_eq!(machine.counters["init_received"], 0);
    assert_eq!(guest.counters["init_received"], 7);
    // 10 ms pass between INIT and SIPI of each CPU.
    let [elapsed, of_machine] = [guest, machine].map(|vm| vm.elapsed_ns.expect("measured"));
    assert!(by_guest.end_ns - elapsed >= 70_000_000);
    let ratio = elapsed as f64 / of_machine as f64;
    assert!((0.7..1.4).contains(&ratio), "the same work on as many CPUs: {ratio}");
}

#[test]
fn the_same_seed_is_the_same_history_however_cpus_start() {
    let config = build(4, true);
    let (one, other) = (play(&config), play(&config));
    assert_eq!(one.history_hash, other.history_hash);
    assert_ne!(one.history_hash, play(&build(4, false)).history_hash);
}
