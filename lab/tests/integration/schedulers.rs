//! A shipped experiment under every host scheduler, and with a quota: it ends, its runs
//! are repeatable, and all time is accounted for.

use holdfast_lab::experiment::Experiment;
use holdfast_lab::options::Options;
use holdfast_lab::plan::Plan;
use holdfast_lab::shipped::EXPERIMENTS;
use holdfast_sim::{CallOff, Outcome};

fn play(set: &[&str]) -> Outcome {
    let shipped = EXPERIMENTS
        .iter()
        .find(|shipped| shipped.file.contains("kernbench-overcommit"));
    let shipped = shipped.expect("a shipped experiment");
    let experiment = Experiment::parse(shipped.file, shipped.text).expect("a valid experiment");
    let options = Options {
        seeds: Some(1),
        scale: Some(0.001),
        cases: vec!["2x".to_owned()],
        variants: vec!["ticket".to_owned()],
        set: set.iter().map(|&key| key.to_owned()).collect(),
        ..Options::default()
    };
    let plan = Plan::new(experiment, &options).expect("a valid plan");
    let mut config = plan.cells[0].config.clone();
    config.seed = 1;
    let outcome = holdfast_sim::run(&config, &CallOff::new());
    let outcome = outcome.unwrap_or_else(|failure| panic!("{set:?}: {failure}"));
    for vm in &outcome.vms {
        assert_eq!(
            vm.lost_time_ps.values().sum::<u64>(),
            vm.vcpu_time_ps,
            "{set:?}: {}",
            vm.name
        );
    }
    outcome
}

#[test]
fn every_scheduler_runs_the_same_way_twice() {
    let mut hashes = Vec::new();
    for name in ["cfs-2.6.37", "cfs-3.3", "cfs-4.12", "eevdf-6.6", "eevdf-6.12"] {
        let set = format!("host.scheduler={name}");
        let (once, twice) = (play(&[&set]), play(&[&set]));
        assert_eq!(once.history_hash, twice.history_hash, "{name}");
        hashes.push(once.history_hash);
    }
    hashes.sort_unstable();
    hashes.dedup();
    assert_eq!(hashes.len(), 5, "two schedulers made the same history");
}

#[test]
fn the_default_scheduler_is_cfs_3_3() {
    assert_eq!(play(&[]).history_hash, play(&["host.scheduler=cfs-3.3"]).history_hash);
}

#[test]
fn a_throttled_lock_holder_is_a_cause_of_its_own() {
    let mut behind_throttled = 0;
    for name in ["cfs-3.3", "eevdf-6.12"] {
        let scheduler = format!("host.scheduler={name}");
        let quota = ["vm.build.cgroup=own", "vm.build.quota=20 ms", scheduler.as_str()];
        let outcome = play(&quota);
        let vm = &outcome.vms[0];
        let cause = |name: &str| vm.lost_time_ps.get(name).copied().unwrap_or(0);
        assert!(cause("throttled") > 0, "{name}: {:?}", vm.lost_time_ps);
        behind_throttled += cause("spin_throttled_holder") + cause("spin_throttled_waiter");
        assert!(vm.counters["bandwidth_throttled_periods"] > 0, "{name}");
        // The quota is 20 ms in each 100 ms, a fortieth of eight vCPUs' time. Slices at the edges add to it.
        let waits = ["throttled", "runnable", "idle", "wake_latency", "halted_for_lock"];
        let ran = vm.vcpu_time_ps - waits.iter().map(|name| cause(name)).sum::<u64>();
        assert!(
            ran as f64 / vm.vcpu_time_ps as f64 <= 0.2 / 8.0 + 0.06,
            "{name}: {:?}",
            vm.lost_time_ps
        );
        // Whether a lock holder is throttled is chance, and likelier where the quota is small: several are tried.
        for quota in ["vm.build.quota=10 ms", "vm.build.quota=12 ms", "vm.build.quota=15 ms"] {
            let outcome = play(&["vm.build.cgroup=own", quota, scheduler.as_str()]);
            let lost = &outcome.vms[0].lost_time_ps;
            for cause in ["spin_throttled_holder", "spin_throttled_waiter"] {
                behind_throttled += lost.get(cause).copied().unwrap_or(0);
            }
        }
        let without = play(&[&scheduler]);
        assert_eq!(without.vms[0].lost_time_ps.get("throttled").copied().unwrap_or(0), 0);
    }
    assert!(behind_throttled > 0, "nobody waited for a throttled one");
}
