//! Guests that repeat a recording: the host gives them what it gave the recorded ones.

use holdfast_recordings::event::Tid;
use holdfast_recordings::repeat::Repeats;
use holdfast_sim::{CallOff, Config, Outcome};
use holdfast_workloads::{Recorded, Workload};

use crate::recorded::{cell, events, process, record};

/// Returns `config` with guests that repeat what its guests did.
fn repeating(config: &Config) -> (Outcome, Config) {
    let (outcome, timeline) = record(config);
    let guests: Vec<(String, Vec<Tid>)> = (0_u32..)
        .zip(&config.vms)
        .map(|(index, vm)| {
            (
                vm.name.clone(),
                (0..vm.vcpus).map(|vcpu| process(index) + 1 + vcpu).collect(),
            )
        })
        .collect();
    let mut repeats = Repeats::new(&guests, &[]);
    events(&timeline).iter().for_each(|event| repeats.take(event));
    let (host, _) = repeats.finish();
    let mut config = config.clone();
    for vm in &mut config.vms {
        vm.measured = true;
        vm.boot.workload = Workload::Recorded(Recorded {
            threads: host.guests[&vm.name].as_slice().into(),
            ..Recorded::default()
        });
    }
    (outcome, config)
}

/// Returns the share of its time for which the guest at `index` waited for pCPUs.
fn ready(outcome: &Outcome, config: &Config, index: usize) -> f64 {
    let vm = &outcome.vms[index];
    let whole_ns = f64::from(config.vms[index].vcpus) * outcome.end_ns as f64;
    vm.counters["ready_ns"] as f64 / whole_ns
}

#[test]
fn a_repeated_guest_waits_for_pcpus_as_the_recorded_one_did() {
    let cells: [(&str, &str, &str, f64, &[&str]); 4] = [
        ("kernbench-overcommit", "2x", "pv-ticket", 0.002, &[]),
        ("kernbench-overcommit", "3x", "pv-ticket", 0.002, &[]),
        ("kernbench-overcommit", "1x", "pv-ticket", 0.002, &[]),
        ("cgroup-imbalance", "groups", "sleep-100us", 0.01, &[]),
    ];
    for (name, case, variant, scale, set) in cells {
        let config = cell(name, case, variant, scale, set);
        let (recorded, repeating) = repeating(&config);
        let repeated =
            holdfast_sim::run(&repeating, &CallOff::new()).unwrap_or_else(|failure| panic!("{name}: {failure}"));
        for (index, vm) in config.vms.iter().enumerate() {
            let (before, now) = (ready(&recorded, &config, index), ready(&repeated, &config, index));
            println!(
                "{name} {case} {}: {before} {now}, {} {}",
                vm.name, recorded.end_ns, repeated.end_ns
            );
        }
    }
}
