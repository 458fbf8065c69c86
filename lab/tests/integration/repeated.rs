//! Replays against their recordings: guests run on a simulated host, which writes down what a real one would record.
//! Guests are made of that, run on the same host, and must give the recording back.

use std::collections::BTreeSet;

use holdfast_lab::experiment::Experiment;
use holdfast_lab::options::Options;
use holdfast_lab::plan::Plan;
use holdfast_lab::replay::{self, Check, Replay};
use holdfast_recordings::account::Account;
use holdfast_recordings::event::Tid;
use holdfast_recordings::hosts::{Groups, Level};
use holdfast_recordings::repeat::{Reading, Repeated, Repeats};
use holdfast_sim::timeline::{Thread, Timeline};
use holdfast_sim::{CallOff, Config};
use holdfast_workloads::{Recorded, RecordedHost, Workload};

use crate::recorded::record;

/// Returns what the guests in `timeline` did.
pub fn repeats(timeline: &Timeline) -> Repeated {
    repeats_of(timeline, false)
}

/// Returns what the guests in `timeline` did; `with_exits`: and their exits.
fn repeats_of(timeline: &Timeline, with_exits: bool) -> Repeated {
    let mut guests: Vec<(String, Vec<Tid>)> = timeline.vms.iter().map(|name| (name.clone(), Vec::new())).collect();
    for (index, vcpu) in (0..).zip(&timeline.vcpus) {
        let thread = replay::thread_id(timeline, Thread::Vcpu(index));
        guests[vcpu.vm as usize].1.push(thread);
    }
    let mut repeats = Repeats::new(&guests, &[]).with_exits(with_exits);
    for event in replay::events(timeline, None) {
        repeats.take(&event);
    }
    repeats.finish()
}

/// Returns `config` with guests that repeat those of `host`.
fn again(config: &Config, host: &RecordedHost) -> Config {
    let mut again = config.clone();
    for vm in &mut again.vms {
        vm.measured = true;
        vm.boot.workload = Workload::Recorded(Recorded {
            file: "recorded.json".to_owned(),
            guest: vm.name.clone(),
            digest: String::new(),
            threads: host.guests[&vm.name].as_slice().into(),
        });
    }
    replay::forgive(&mut again);
    again
}

/// Records `config`, repeats it as [`replay::Replay::checked`] does, and returns the best check with the guests whose
/// waits kept their recorded lengths.
fn checked(config: &Config) -> (Check, BTreeSet<String>) {
    let (_, timeline) = record(config);
    let recorded = replay::account(&timeline, None);
    let repeated = repeats(&timeline);
    let attempt = |timed: &BTreeSet<String>| {
        let reading = Reading {
            timed: timed.clone(),
            ..Reading::default()
        };
        let config = again(config, &repeated.read(&reading));
        let replayed = replay::account_of(&config, timeline.to.nanos(), &CallOff::new());
        replay::check(&recorded, &replayed.unwrap_or_else(|error| panic!("{error}")))
    };
    let tied = attempt(&BTreeSet::new());
    let timed = repeated.with_tied_waits();
    if tied.passes() || timed.is_empty() {
        return (tied, BTreeSet::new());
    }
    let check = attempt(&timed);
    if check.excess() < tied.excess() {
        (check, timed)
    } else {
        (tied, BTreeSet::new())
    }
}

fn lines(check: &Check) -> String {
    let lines = check.guests.iter().map(|guest| {
        format!(
            "  {}: ready {:.4} s, {:.4} again; wanted {:.4} s, {:.4} again; runs {:.2?}, waits {:.2?}; switches {:.0?}, \
             moves {:.1?}\n",
            guest.name,
            guest.ready_s.recorded,
            guest.ready_s.replayed,
            guest.wanted_s.recorded,
            guest.wanted_s.replayed,
            guest.runs_distance,
            guest.waits_distance,
            guest.switches_per_s,
            guest.moves_per_s,
        )
    });
    lines.collect()
}

/// Two guests of four vCPUs on four pCPUs.
const EXPERIMENT: &str = r#"
name = "repeated"
title = "guests that are recorded and repeated"
metric = "own"
seeds = 1
scale = 1
limit = "600 s"

[machine]
profile = "generic-x86"
sockets = 1
cores = 4
threads = 1

[host]
kernel = "linux-6.6"

[guest]
kernel = "linux-6.6"
vcpus = 4

[[vm]]
name = "web"
workload = "kernbench"

[[vm]]
name = "hogs"
workload = "hog"

[[variants]]
name = "v"
"#;

/// Set-ups that differ in what the host does to the guests: what it is, the scale, and what is set.
const SETUPS: [(&str, f64, &[&str]); 8] = [
    ("twice as many vCPUs as pCPUs", 0.01, &[]),
    ("ticket locks, pause exits", 0.01, &["vm.*.lock=ticket"]),
    ("many IPIs", 0.0005, &["vm.web.workload=hackbench"]),
    (
        "directed yields",
        0.1,
        &["vm.web.workload=amqp", "host.features.yield_to=true"],
    ),
    ("a quota", 0.01, &["vm.*.cgroup=own", "vm.web.quota=\"200 ms\""]),
    ("pins", 0.02, &["vm.web.affinity=0-1", "vm.hogs.affinity=1-3"]),
    ("kicks and halts", 0.5, &["vm.web.workload=pgbench"]),
    (
        "weights",
        0.5,
        &["vm.web.workload=pgbench", "vm.*.cgroup=own", "vm.web.shares=2048"],
    ),
];

fn config(scale: f64, set: &[&str], seed: u64) -> Config {
    let experiment = Experiment::parse("repeated.toml", EXPERIMENT).unwrap_or_else(|problems| panic!("{problems}"));
    let options = Options {
        scale: Some(scale),
        set: set.iter().map(|set| (*set).to_owned()).collect(),
        ..Options::default()
    };
    let plan = Plan::new(experiment, &options).unwrap_or_else(|problems| panic!("{problems}"));
    Config {
        seed,
        ..plan.cells[0].config.clone()
    }
}

#[test]
fn a_replay_gives_its_recording_back() {
    let mut failed = Vec::new();
    for (what, scale, set) in SETUPS {
        let (check, timed) = checked(&config(scale, set, 1));
        println!("{what}, {timed:?}, {}:\n{}", check.passes(), lines(&check));
        if !check.passes() {
            failed.push(format!("{what}:\n{}", lines(&check)));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// A planted fault is seen: the guests are repeated on a host that gives one of them more.
#[test]
fn a_replay_on_another_host_does_not_pass() {
    let recorded_on = config(0.01, &["vm.*.cgroup=own"], 1);
    let (_, timeline) = record(&recorded_on);
    let recorded = replay::account(&timeline, None);
    let other = config(0.01, &["vm.*.cgroup=own", "vm.web.shares=2048"], 1);
    let other = again(&other, &repeats(&timeline).tied);
    let replayed = replay::account_of(&other, timeline.to.nanos(), &CallOff::new());
    let check = replay::check(&recorded, &replayed.unwrap_or_else(|error| panic!("{error}")));
    assert!(!check.passes(), "{}", lines(&check));
}

/// The experiment that `holdfast import` writes has the host's settings: groups, weights, a quota, the version.
#[test]
fn the_experiment_of_a_recording_passes_with_the_settings_of_its_host() {
    let set = [
        "vm.*.cgroup=own",
        "vm.web.shares=2048",
        "vm.hogs.cpu.max=\"220000 100000\"",
    ];
    let (_, timeline) = record(&config(0.005, &set, 1));
    let mut recorded = replay::account(&timeline, None);
    recorded.kernel = Some("6.6.12-cloud".to_owned());
    recorded.preemption = Some("full".to_owned());
    for vm in &mut recorded.vms {
        let level = |name: &str, weight| Level {
            name: name.to_owned(),
            weight,
        };
        let is_web = vm.name == "web";
        vm.groups = Some(Groups {
            levels: vec![
                level("machine.slice", Some(100)),
                level(&vm.name, Some(if is_web { 200 } else { 100 })),
            ],
            of_vcpus: false,
        });
        vm.quota = (!is_web).then_some(2.2);
    }
    let repeated = repeats(&timeline);
    let attempt = |account: &Account| {
        let checked = Replay::checked("mine", account, &repeated, &CallOff::new());
        checked.unwrap_or_else(|error| panic!("{error}"))
    };
    let (replay, check) = attempt(&recorded);
    assert!(check.passes(), "{}\n{}", lines(&check), replay.text);
    // Without what files say of the groups it is another host.
    for vm in &mut recorded.vms {
        (vm.groups, vm.quota) = (None, None);
    }
    let (_, check) = attempt(&recorded);
    assert!(!check.passes(), "{}", lines(&check));
}

/// Calls between two vCPUs, each on a pCPU of its own, next to a guest that computes on that of the called one. Under
/// lazy preemption that one waits for the other guest's exits, and the caller spins.
const CALLS: &str = r#"
name = "calls"
title = "a vCPU that calls another one and spins until it answers"
metric = "throughput"
unit = "calls/s"
seeds = 1
scale = 0.2
limit = "60 s"

[machine]
sockets = 1
cores = 2
threads = 1

[host]
kernel = "linux-7.3"
apicv = false
halt_poll = "0 ns"

[[vm]]
name = "web"
vcpus = 2
workload = "ipi"
ipi.busy = false
pv_sched_yield = false
affinity = [[0], [1]]

[[vm]]
name = "batch"
vcpus = 1
workload = "hog"
affinity = [[1]]

[[variants]]
name = "v"
"#;

#[test]
fn a_call_takes_as_long_as_its_answer_in_a_replay() {
    let experiment = Experiment::parse("calls.toml", CALLS).unwrap_or_else(|problems| panic!("{problems}"));
    let plan = Plan::new(experiment, &Options::default()).unwrap_or_else(|problems| panic!("{problems}"));
    let config = &plan.cells[0].config;
    let (_, timeline) = record(config);
    let recorded = replay::account(&timeline, None);
    let repeated = repeats_of(&timeline, true);
    assert!(repeated.has_spins());
    let check = |spins| {
        let reading = Reading {
            spins,
            ..Reading::default()
        };
        let again = again(config, &repeated.read(&reading));
        let replayed = replay::account_of(&again, timeline.to.nanos(), &CallOff::new());
        replay::check(&recorded, &replayed.unwrap_or_else(|error| panic!("{error}")))
    };
    let (with, without) = (check(true), check(false));
    println!("with spins\n{}without\n{}", lines(&with), lines(&without));
    // The other guest hardly waits: for what the host does when vCPU 1 halts.
    assert!(with.guests[0].passes(), "{}", lines(&with));
    assert!(!without.guests[0].passes(), "{}", lines(&without));
}
