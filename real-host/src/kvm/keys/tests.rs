use holdfast_lab::experiment::Experiment;
use holdfast_lab::keys::{KEYS, Key};
use holdfast_lab::options::Options;
use serde_json::Value;

use super::*;
use crate::kvm::{check, told};

/// What becomes of another value of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    /// The VMM is told something else.
    Honored,
    /// The plan is refused, and the key is named.
    Refused,
    /// The guests stay the same. This host decides it.
    Meaningless,
}

/// Keys of guests that are refused.
const REFUSED: &[&str] = &[
    "apic_inhibits",
    "bare_metal",
    "boot.exits",
    "burst",
    "cpu_pm",
    "dirty_rate",
    "disk_depth",
    "disk_latency",
    "disk_rate",
    "guest_policy",
    "guest_word",
    "inside",
    "kernbench.cold",
    "memory",
    "netperf.transactions",
    "nic",
    "parent",
    "preempted_flag",
    "quota",
    "shares",
    "slice_end",
    "starts_cpus",
    "vcpu_quota",
];

/// Keys of the run that are honored.
const HONORED: &[&str] = &[
    // Guests are offered what this version knows.
    "host.kernel",
    "host.migration.downtime",
    "host.migration.every",
    "host.migration.mp_state_only",
    "zero_at",
];

/// Keys of guests that only divide CPU time among task groups, which the VMM does not make.
const OF_GROUPS: &[&str] = &["cgroup", "period", "vcpu_period"];

/// Keys of guests that say how long the host's own devices take, how often the main thread of its VMM wakes, and how it
/// creates the threads of vCPUs.
const OF_VMM: &[&str] = &["device_time", "vcpus_wait", "vmm_period"];

/// Keys of the machine that say which pCPUs there are, and so to which of this host's CPUs the vCPUs are pinned.
const TOPOLOGY: &[&str] = &["machine.sockets", "machine.cores", "machine.threads"];

fn plan(set: &[String], sweep: &[String]) -> Plan {
    let text = "name = \"all-keys\"\ntitle = \"Any key\"\nmetric = \"elapsed\"\n\
                [machine]\nprofile = \"generic-x86\"\n[[group]]\nname = \"other\"\n[[group]]\nname = \"above\"\n[[vm]]\nname = \"guest\"\nvcpus = 2\n\
                workload = \"contend\"\n[[vm]]\nname = \"rest\"\nworkload = \"contend\"\n\
                [[vm]]\nname = \"carrier\"\nworkload = \"idle\"\n[[task]]\nname = \"noise\"\n";
    let needs = |word: &str| set.iter().chain(sweep).any(|change| change.contains(word));
    let without = |text: String, part: &str, word: &str| if needs(word) { text } else { text.replace(part, "") };
    let text = without(
        text.to_owned(),
        "[[group]]\nname = \"other\"\n[[group]]\nname = \"above\"\n",
        "other",
    );
    let text = without(text, "[[vm]]\nname = \"carrier\"\nworkload = \"idle\"\n", "carrier");
    let text = without(text, "[[task]]\nname = \"noise\"\n", "task.");
    let experiment = Experiment::parse("all-keys.toml", &text).unwrap_or_else(|problems| panic!("{problems}"));
    let options = Options {
        set: set.to_vec(),
        sweep_variants: sweep.to_vec(),
        ..Options::default()
    };
    Plan::new(experiment, &options).unwrap_or_else(|problems| panic!("{set:?}: {problems}"))
}

/// Returns a value of `key` other than `value`.
fn other_value(key: &Key, value: &Value) -> String {
    let described = key.describe(holdfast_lab::extensions::Extensions::shipped());
    match key.path {
        "vm.*.affinity" => return "[[0], [0]]".to_owned(),
        "vm.*.numa" => return "[0, 1]".to_owned(),
        "vm.*.apic_inhibits" => return "[\"sev\"]".to_owned(),
        // A factor of 1 is refused.
        "host.pause_window.grow" | "host.pause_window.shrink" => return "3".to_owned(),
        "host.pause_window.max" => return "9000".to_owned(),
        "vm.*.inside" => return "\"carrier\"".to_owned(),
        "vm.*.pcid" => return "true".to_owned(),
        "vm.*.workload" => return "\"pgbench\"".to_owned(),
        "vm.*.vcpus" => return "3".to_owned(),
        "group.*.parent" => return "\"above\"".to_owned(),
        "vm.*.parent" | "task.*.parent" => return "\"other\"".to_owned(),
        "task.*.affinity" => return "[0]".to_owned(),
        "machine.profile" => return "\"xeon-x5570\"".to_owned(),
        "machine.cpu" => return "\"haswell-ep\"".to_owned(),
        _ => {}
    }
    let kind = described.kind.as_str();
    if let Some(names) = kind.strip_prefix("one of ") {
        let mut names = names.split(", ");
        let other = names.find(|name| Some(*name) != value.as_str());
        return format!("\"{}\"", other.expect("a choice has two values"));
    }
    match (value, kind) {
        (Value::Bool(flag), _) => (!flag).to_string(),
        (Value::Number(number), _) => match number.as_f64().expect("a number") {
            share if share.fract() != 0.0 => "0.5".to_owned(),
            whole => (whole + 1.0).to_string(),
        },
        (_, kind) if kind.contains("frequency") => "\"1500 MHz\"".to_owned(),
        (_, kind) if kind.contains("time") && key.path.starts_with("machine.") => "\"50 ns\"".to_owned(),
        (_, kind) if kind.contains("time") => "\"7 ms\"".to_owned(),
        _ => "7".to_owned(),
    }
}

/// Returns what becomes of `key` if only it has another value.
fn effect(key: &Key) -> Effect {
    let parts: Vec<&str> = key.path.split('.').collect();
    let mut common = Vec::new();
    match parts[..] {
        ["vm", _, "kernbench", "cold"] => {
            common.extend(["vm.guest.workload=\"kernbench\"", "vm.guest.disk_latency=\"9 ms\""].map(str::to_owned));
        }
        ["vm", _, "disk_depth" | "disk_rate"] => common.push("vm.guest.disk_latency=\"9 ms\"".to_owned()),
        ["vm", _, workload, _] => common.push(format!("vm.guest.workload=\"{workload}\"")),
        ["vm", _, "shares" | "quota" | "period" | "vcpu_quota" | "vcpu_period"] => {
            common.push("vm.guest.cgroup=\"own-with-vcpu-groups\"".to_owned());
        }
        ["vm", _, "burst"] => {
            common.extend(["vm.guest.cgroup=\"own\"", "vm.guest.quota=\"10 ms\""].map(str::to_owned));
        }
        ["vm", _, "vcpus_wait"] => common.push("vm.guest.from=\"9 ms\"".to_owned()),
        ["group", _, "burst"] => common.push("group.other.quota=\"10 ms\"".to_owned()),
        ["vm", _, "memory" | "dirty_rate"] | ["host", "migration", "auto_converge"] => {
            common.extend(["host.migration.every=\"9 ms\"", "host.migration.bandwidth=10"].map(str::to_owned));
        }
        ["host", "migration", "downtime" | "bandwidth" | "mp_state_only"] => {
            common.push("host.migration.every=\"9 ms\"".to_owned());
        }
        ["host", "avic" | "x2avic"] => {
            common.extend(["machine.profile=\"carrizo-4\"", "machine.cpu=\"zen4\""].map(str::to_owned));
        }
        ["host", "idle_hlt" | "avic_hybrid"] => {
            common.extend(["machine.profile=\"carrizo-4\"", "machine.cpu=\"zen6\""].map(str::to_owned));
        }
        ["host", "ipiv"] => common.push("machine.cpu=\"sapphire-rapids\"".to_owned()),
        ["machine", name] if name.starts_with("pause_filter") => {
            common.push("machine.profile=\"epyc-rome\"".to_owned());
        }
        _ => {}
    }
    let name = match parts[0] {
        "group" => "other",
        "task" => "noise",
        "machine" => "exit_hardware",
        _ => "guest",
    };
    let path = key.path.replacen('*', name, 1);
    let before = plan(&common, &[]);
    let parameters = &before.cells[0].parameters;
    let value = parameters.get(&path).or_else(|| parameters.get(key.path));
    let value = value.unwrap_or(&Value::Null);
    let changed = [common, vec![format!("{path}={}", other_value(key, value))]].concat();
    let after = plan(&changed, &[]);
    assert!(*parameters != after.cells[0].parameters, "{path} has another value");
    let guests = |plan: &Plan| told(None, &plan.cells[0].config).expect("guests that can be described");
    match check(&after, None) {
        Err(faults) => {
            let named = ["vm.guest.", "group.", "task.", "host.migration."]
                .iter()
                .any(|start| faults[0].starts_with(start));
            assert!(named, "{path}: {faults:?}");
            Effect::Refused
        }
        Ok(()) if guests(&before) != guests(&after) => Effect::Honored,
        Ok(()) => Effect::Meaningless,
    }
}

#[test]
fn every_key_is_honored_or_refused_or_decided_by_this_host() {
    let mut faults = Vec::new();
    // Keys of another host are refused together: see below.
    let of_one_host = |key: &&&Key| !TOPOLOGY.contains(&key.path) && key.path != "host.migration.to.*";
    // Other forms of keys are what these are.
    let of_one_host = |key: &&&Key| of_one_host(key) && key.form_of.is_empty();
    // Without a file there is no such guest; with one its workload is refused.
    let of_one_host = |key: &&&Key| of_one_host(key) && !key.path.starts_with("vm.*.recorded.");
    // Only programs have such workloads and policies. The VMM refuses them.
    let of_one_host = |key: &&&Key| of_one_host(key) && key.path != "vm.*.own.*";
    for key in KEYS.iter().filter(of_one_host) {
        let expected = match key.path.split_once(".*.") {
            Some(("vm", "cpu_pm")) if passes_halts() => Effect::Honored,
            Some(("vm", name)) if REFUSED.contains(&name) => Effect::Refused,
            Some(("vm", name)) if OF_GROUPS.contains(&name) || OF_VMM.contains(&name) => Effect::Meaningless,
            Some(("vm", _)) => Effect::Honored,
            Some(("group" | "task", _)) => Effect::Refused,
            _ if HONORED.contains(&key.path) => match key.path.starts_with("host.migration.") && migrates().is_err() {
                true => Effect::Refused,
                false => Effect::Honored,
            },
            _ if ["host.migration.bandwidth", "host.migration.auto_converge"].contains(&key.path) => Effect::Refused,
            _ => Effect::Meaningless,
        };
        let found = effect(key);
        if found != expected {
            faults.push(format!("{}: {found:?} instead of {expected:?}", key.path));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn migrations_to_another_host_are_refused_and_named() {
    let set = ["host.migration.every=\"9 ms\"", "host.migration.to.halt_poll=\"7 us\""].map(str::to_owned);
    let refused = check(&plan(&set, &[]), None).expect_err("there is no other host");
    assert!(
        refused.iter().any(|fault| fault.starts_with("host.migration.to: ")),
        "{refused:?}"
    );
}

#[test]
fn variants_that_only_this_host_tells_apart_are_refused() {
    let sweep = |change: &str| check(&plan(&[], &[change.to_owned()]), None);
    let refused = sweep("host.halt_poll=0,\"200 us\"").expect_err("two variants are the same guests here");
    assert_eq!(refused.len(), 1, "{refused:?}");
    assert!(
        refused[0].contains("differ only in what this host decides itself: host.halt_poll"),
        "{refused:?}"
    );
    assert_eq!(sweep("vm.guest.nice=0,5"), Ok(()));
    assert_eq!(sweep("vm.guest.wait_early_preempted=true,false"), Ok(()));
}
