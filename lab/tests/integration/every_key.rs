//! Every key changes the history, or is refused, or stands in a short list with a reason; and it does so in whatever
//! way it is set.

use std::collections::BTreeMap;

use holdfast_lab::experiment::Experiment;
use holdfast_lab::keys::KEYS;
use holdfast_lab::options::Options;
use holdfast_lab::plan::Plan;
use holdfast_sim::{CallOff, Config};

use crate::histories::SETTINGS;

/// A small experiment: a guest that builds, next to one that computes and a host thread.
const SMALL: &str = r#"
name = "every-key"
title = "every key changes the history"
metric = "elapsed"
seeds = 1
scale = 0.002
limit = "100 s"
[machine]
profile = "generic-x86"
sockets = 2
cores = 2
threads = 1
[host]
kernel = "linux-3.3"
scheduler = "cfs-4.12"
pause_exit = "linux-4.19"
halt_poll = "200 us"
[guest]
kernel = "linux-3.3"
[[group]]
name = "above"
[[group]]
name = "limited"
quota = "30 ms"
[[vm]]
name = "one"
vcpus = 4
lock = "pv-qspin"
workload = "kernbench"
[[vm]]
name = "two"
vcpus = 2
workload = "hog"
[[task]]
name = "noise"
busy = "700 us"
sleep = "1900 us"
"#;

/// Keys, each with another value than [`SMALL`] has and with what it needs. The other keys are those of
/// `histories/settings.toml`, whose variants all have other histories (`histories::every_setting_matters`).
const OTHER: &[(&str, &str, &[&str])] = &[
    (
        "group.limited.parent",
        "above",
        &["vm.two.parent=limited", "group.above.shares=100"],
    ),
    (
        "host.avic_driver",
        "linux-4.7",
        &[
            "machine.profile=\"carrizo-4\"",
            "machine.sockets=1",
            "host.avic=on",
            "machine.cpu=zen3",
        ],
    ),
    (
        "host.avic_hybrid",
        "true",
        &["machine.profile=\"carrizo-4\"", "machine.cpu=zen6", "host.avic=on"],
    ),
    (
        "host.features.next_buddy",
        "true",
        &["host.scheduler=eevdf-6.12", "vm.one.cgroup=own"],
    ),
    ("host.migration.bandwidth", "100", &["host.migration.every=\"20 ms\""]),
    ("host.migration.downtime", "7 ms", &["host.migration.every=\"20 ms\""]),
    ("host.migration.every", "20 ms", &[]),
    (
        "host.migration.rounds",
        "1",
        &[
            "host.migration.every=\"5 ms\"",
            "host.migration.bandwidth=1000",
            "host.migration.downtime=\"1 ms\"",
        ],
    ),
    ("machine.frequency", "3 GHz", &[]),
    (
        "machine.pause_filter",
        "false",
        &["machine.profile=\"epyc-rome\"", "vm.one.lock=ticket"],
    ),
    (
        "machine.pause_filter_count",
        "100",
        &["machine.profile=\"epyc-rome\"", "vm.one.lock=ticket"],
    ),
    (
        "machine.pause_filter_threshold",
        "0 ns",
        &[
            "machine.profile=\"epyc-rome\"",
            "machine.pause_filter_count=50",
            "vm.one.lock=ticket",
            "vm.one.workload=hackbench",
            "vm.one.vcpus=16",
        ],
    ),
    ("machine.ple", "true", &["vm.one.lock=ticket"]),
    (
        "machine.ple_gap",
        "1 ns",
        &[
            "machine.ple=true",
            "vm.one.lock=ticket",
            "vm.one.workload=contend",
            "machine.ple_window=\"500 ns\"",
        ],
    ),
    (
        "machine.ple_window",
        "300 ns",
        &["machine.ple=true", "vm.one.lock=ticket"],
    ),
    ("machine.profile", "xeon-x5570", &["machine.sockets=1"]),
    ("task.noise.affinity", "0", &[]),
    ("task.noise.parent", "limited", &[]),
    ("task.noise.sleep", "900 us", &[]),
    ("vm.one.affinity", "0-1", &[]),
    ("vm.one.aim7.file_system", "ext4", &["vm.one.workload=aim7"]),
    ("vm.one.aim7.users", "7", &["vm.one.workload=aim7"]),
    ("vm.one.amqp.payload", "4000", &["vm.one.workload=amqp"]),
    (
        "vm.one.apic_inhibits",
        "[\"sev\"]",
        &[
            "machine.profile=\"carrizo-4\"",
            "machine.sockets=1",
            "host.avic=on",
            "machine.cpu=zen3",
        ],
    ),
    ("vm.one.bare_metal", "true", &[]),
    ("vm.one.boot.exits", "true", &["vm.one.workload=boot"]),
    ("vm.one.contend.held", "2 us", &["vm.one.workload=contend"]),
    ("vm.one.contend.calls", "100000", &["vm.one.workload=contend"]),
    ("vm.one.contend.span", "1 s", &["vm.one.workload=contend"]),
    ("vm.one.contend.tasks", "2", &["vm.one.workload=contend"]),
    ("vm.one.contend.think", "9 us", &["vm.one.workload=contend"]),
    ("vm.one.cpu_pm", "true", &[]),
    ("vm.one.dbench.clients", "2", &["vm.one.workload=dbench"]),
    ("vm.one.dbench.file_system", "xfs", &["vm.one.workload=dbench"]),
    ("vm.one.dbench.megabytes", "30", &["vm.one.workload=dbench"]),
    (
        "vm.one.device_time",
        "50 us",
        &["vm.one.workload=boot", "vm.one.boot.exits=true"],
    ),
    ("vm.one.ebizzy.allocation", "mapping", &["vm.one.workload=ebizzy"]),
    ("vm.one.ebizzy.threads_per_vcpu", "3", &["vm.one.workload=ebizzy"]),
    ("vm.two.from", "3 ms", &[]),
    ("vm.one.hackbench.channel", "sockets", &["vm.one.workload=hackbench"]),
    ("vm.one.hackbench.threads", "true", &["vm.one.workload=hackbench"]),
    ("vm.two.hog.tasks", "1", &[]),
    ("vm.one.disk_latency", "3 ms", &[]),
    (
        "vm.one.disk_depth",
        "8",
        &["vm.one.kernbench.cold=true", "vm.one.disk_latency=\"60 ms\""],
    ),
    (
        "vm.one.disk_rate",
        "1",
        &["vm.one.kernbench.cold=true", "vm.one.disk_latency=\"1 ms\""],
    ),
    ("vm.one.idle", "poll", &[]),
    ("vm.one.inside", "two", &["vm.two.workload=idle", "vm.two.vcpus=4"]),
    ("vm.one.ipi.busy", "false", &["vm.one.workload=ipi"]),
    ("vm.one.kernbench.cold", "true", &["vm.one.disk_latency=\"1 ms\""]),
    ("vm.one.kernbench.file_system", "xfs", &[]),
    ("vm.one.kernbench.jobs", "3", &[]),
    (
        "vm.one.kernbench.repeat",
        "true",
        &["vm.two.workload=kernbench", "vm.two.vcpus=1"],
    ),
    ("vm.one.kernbench.serial_share", "0.5", &[]),
    ("vm.one.kernbench.unit_faults", "5", &[]),
    ("vm.one.kernbench.unit_tools", "5", &[]),
    ("vm.one.kernbench.user_cpu_seconds", "100", &[]),
    ("vm.one.netperf.transactions", "900000", &["vm.one.workload=netperf"]),
    ("vm.one.nic", "assigned", &["vm.one.workload=netperf"]),
    ("vm.one.numa", "[0, 0, 1, 1]", &[]),
    ("vm.one.parent", "limited", &[]),
    ("vm.one.pcid", "true", &["machine.cpu=broadwell-ep", "vm.one.vcpus=4"]),
    ("host.policy", "grace", &["vm.one.vcpus=4", "vm.one.lock=ticket"]),
    ("host.siblings_apart", "true", &["vm.one.vcpus=4"]),
    ("host.slices_aligned", "6 ms", &["vm.one.vcpus=4"]),
    ("vm.one.guest_word", "true", &["host.policy=grace", "vm.one.vcpus=4"]),
    ("vm.one.poll_control", "true", &["vm.one.idle=haltpoll"]),
    ("vm.one.rwlocks", "queued", &["vm.one.vcpus=8"]),
    (
        "vm.one.placement",
        "averages",
        &["vm.one.workload=hackbench", "vm.one.vcpus=4"],
    ),
    (
        "vm.one.migrated_credit",
        "false",
        &["vm.one.workload=hackbench", "vm.one.vcpus=4"],
    ),
    (
        "vm.one.rwsem_stealing",
        "true",
        &[
            "vm.one.workload=ebizzy",
            "vm.one.vcpus=4",
            "vm.one.mmap_lock=downgrading",
            "vm.one.ebizzy.allocation=mapping",
        ],
    ),
    ("vm.one.exclusive_pipes", "true", &["vm.one.workload=hackbench"]),
    ("vm.one.lock_free_calls", "true", &["vm.one.workload=ebizzy"]),
    ("vm.one.shares", "100", &["vm.one.cgroup=own"]),
    ("vm.one.cpu.weight", "10", &["vm.one.cgroup=own"]),
    ("vm.one.cpu.max", "30000 100000", &["vm.one.cgroup=own"]),
    ("group.limited.cpu.weight", "10", &["vm.one.parent=limited"]),
    ("group.limited.cpu.max", "10000 100000", &["vm.one.parent=limited"]),
    ("host.kernel", "linux-6.12", &[]),
    ("vm.one.kernel", "linux-6.12", &[]),
    ("machine.numbering", "sockets-alternate", &["vm.one.affinity=\"0-1\""]),
    ("vm.one.tar.file_system", "xfs", &["vm.one.workload=tar"]),
    ("vm.two.until", "5 ms", &[]),
    ("vm.one.vcpus_wait", "true", &["vm.one.from=\"3 ms\""]),
    ("vm.one.vcpus", "3", &[]),
    ("vm.one.work", "2", &["vm.one.workload=contend"]),
    (
        "vm.one.burst",
        "60 ms",
        &[
            "host.scheduler=eevdf-6.12",
            "vm.one.cgroup=own",
            "vm.one.quota=\"60 ms\"",
            "vm.one.period=\"40 ms\"",
            "vm.one.kernbench.jobs=2",
        ],
    ),
    (
        "group.limited.burst",
        "60 ms",
        &[
            "host.scheduler=eevdf-6.12",
            "vm.one.parent=limited",
            "vm.one.kernbench.jobs=2",
            "group.limited.quota=\"60 ms\"",
            "group.limited.period=\"40 ms\"",
        ],
    ),
    (
        "vm.one.memory",
        "64",
        &["host.migration.every=\"5 ms\"", "host.migration.bandwidth=10000"],
    ),
    (
        "vm.one.dirty_rate",
        "2000",
        &[
            "host.migration.every=\"5 ms\"",
            "host.migration.bandwidth=10000",
            "host.migration.downtime=\"1 ms\"",
            "vm.one.memory=64",
        ],
    ),
    (
        "host.migration.auto_converge",
        "true",
        &[
            "host.migration.every=\"5 ms\"",
            "host.migration.bandwidth=100",
            "host.migration.downtime=\"1 ms\"",
            "vm.one.memory=110",
            "vm.one.dirty_rate=100",
            "vm.one.workload=contend",
            "vm.one.contend.think=\"100 us\"",
            "vm.one.contend.span=\"1500 s\"",
        ],
    ),
    ("machine.costs.wake", "9 us", &[]),
    (
        "host.migration.to.scheduler",
        "cfs-6.1",
        &["host.migration.every=\"5 ms\"", "host.migration.downtime=\"1 ms\""],
    ),
];

/// Keys that change no history of [`SMALL`], with the reason.
const INERT: &[(&str, &str)] = &[
    ("machine.topology", "it names a file of the machine to describe"),
    (
        "host.idle_hlt",
        "only a halt with an interrupt pending is another one (integration/avic.rs)",
    ),
    (
        "vm.*.own.*",
        "no shipped workload is a program's own (integration/own_workload.rs)",
    ),
    ("vm.*.recorded.file", "it names a file with threads (sim/recorded.rs)"),
    ("vm.*.recorded.guest", "it names threads of that file"),
    (
        "vm.*.guest_policy",
        "the steal governor first looks after a second (sim/guest_policy.rs)",
    ),
    (
        "vm.*.slice_end",
        "only a lock that looks at the end of its slice behaves otherwise (examples/own-lock)",
    ),
    ("limit", "it ends a run, and changes nothing before"),
    ("zero_at", "it changes what is counted, not what happens"),
    (
        "host.migration.mp_state_only",
        "only a kick that is latched at a migration is lost",
    ),
    (
        "vm.*.preempted_flag",
        "only locks and mutexes that look at the flag of a preempted vCPU behave otherwise",
    ),
];

/// Returns the plan of `text` with `options`, or what is wrong.
fn plan(text: &str, options: &Options) -> Result<Plan, String> {
    let experiment = Experiment::parse("every-key.toml", text).map_err(|problems| problems.to_string())?;
    Plan::new(experiment, options).map_err(|problems| problems.to_string())
}

/// Returns the configuration of [`SMALL`] with `needs`, and with `more` options and text.
fn config(needs: &[&str], text: &str, more: Options) -> Result<Config, String> {
    let needs = needs.iter().map(|need| (*need).to_owned());
    let options = Options {
        set: needs.chain(more.set).collect(),
        ..more
    };
    let plan = plan(&format!("{SMALL}{text}"), &options)?;
    assert_eq!(plan.cells.len(), 1, "one value is one cell: {options:?}");
    Ok(plan.cells[0].config.clone())
}

fn history(config: &Config) -> Result<u64, String> {
    let config = Config {
        seed: 1,
        ..config.clone()
    };
    let outcome = holdfast_sim::run(&config, &CallOff::new());
    outcome
        .map(|outcome| outcome.history_hash)
        .map_err(|failure| failure.to_string())
}

/// Returns `value` as TOML.
fn as_toml(value: &str) -> String {
    let is_toml = value.parse::<f64>().is_ok() || matches!(value, "true" | "false") || value.starts_with('[');
    if is_toml {
        value.to_owned()
    } else {
        format!("{value:?}")
    }
}

/// Returns the pattern of `key` in the table of keys.
fn pattern(key: &str) -> String {
    let parts: Vec<&str> = key.split('.').collect();
    match parts[..] {
        ["vm" | "group" | "task", _, ref rest @ ..] => format!("{}.*.{}", parts[0], rest.join(".")),
        ["guest", ref rest @ ..] => format!("vm.*.{}", rest.join(".")),
        ["machine", "costs", _] => "machine.costs.*".to_owned(),
        ["host", "migration", "to", ..] => "host.migration.to.*".to_owned(),
        _ => key.to_owned(),
    }
}

#[test]
fn every_key_changes_the_history_or_has_a_reason() {
    let settings = Experiment::parse(SETTINGS.file, SETTINGS.text).expect("valid");
    let of_settings = settings
        .variants
        .iter()
        .chain(&settings.cases)
        .flat_map(|layer| &layer.settings);
    let mut tried: Vec<String> = of_settings.map(|setting| pattern(&setting.path)).collect();
    tried.extend(OTHER.iter().map(|(key, _, _)| pattern(key)));
    let is_known = |path: &str| tried.iter().any(|key| key == path) || INERT.iter().any(|(key, _)| *key == path);
    let missing: Vec<&str> = KEYS.iter().map(|key| key.path).filter(|path| !is_known(path)).collect();
    assert!(missing.is_empty(), "keys that no test changes: {missing:?}");

    let mut without: BTreeMap<&[&str], u64> = BTreeMap::new();
    let mut idle = Vec::new();
    for &(key, value, needs) in OTHER {
        let before = *without.entry(needs).or_insert_with(|| {
            let plain = config(needs, "", Options::default()).unwrap_or_else(|problems| panic!("{key}: {problems}"));
            history(&plain).unwrap_or_else(|failure| panic!("{key}: {failure}"))
        });
        let options = Options {
            set: vec![format!("{key}={value}")],
            ..Options::default()
        };
        let changed = config(needs, "", options).unwrap_or_else(|problems| panic!("{key}: {problems}"));
        if history(&changed).unwrap_or_else(|failure| panic!("{key}: {failure}")) == before {
            idle.push(key);
        }
    }
    assert!(idle.is_empty(), "keys that change nothing: {idle:?}");
}

/// A guest that comes later, or leaves earlier, takes its keys as one that is always there does.
#[test]
fn keys_of_a_guest_that_comes_or_goes_have_an_effect() {
    let mut without: BTreeMap<Vec<&str>, Result<u64, String>> = BTreeMap::new();
    let (mut idle, mut refused, mut tried) = (Vec::new(), Vec::new(), 0);
    for &(key, value, needs) in OTHER {
        // What matters only to guests that contend at one of the moments matters at the other.
        let stays: [&[&str]; 2] = match key.split('.').collect::<Vec<_>>()[..] {
            ["vm", _, "from" | "until" | "vcpus_wait"] => continue,
            ["vm", "one", ..] => [&["vm.one.from=\"2 ms\""], &["vm.one.from=\"500 us\""]],
            ["vm", "two", ..] => [
                &["vm.two.from=\"1 ms\"", "vm.two.until=\"9 ms\""],
                &["vm.two.until=\"5 ms\""],
            ],
            _ => continue,
        };
        tried += 1;
        let mut changes = false;
        for stay in stays {
            let needs = [needs, stay].concat();
            let run = |set: Vec<String>| {
                let options = Options {
                    set,
                    ..Options::default()
                };
                config(&needs, "", options).and_then(|config| history(&config))
            };
            let before = without.entry(needs.clone()).or_insert_with(|| run(Vec::new())).clone();
            match (before, run(vec![format!("{key}={value}")])) {
                (Ok(before), Ok(after)) => changes |= before != after,
                (_, Err(why)) | (Err(why), _) => {
                    refused.push((key, why));
                    changes = true;
                }
            }
            if changes {
                break;
            }
        }
        if !changes {
            idle.push(key);
        }
    }
    assert!(tried > 40, "{tried} keys");
    assert!(idle.is_empty(), "keys that change nothing: {idle:?}");
    let words = ["found ", "expected "];
    let unclear = |(_, why): &&(&str, String)| !words.iter().all(|word| why.contains(word));
    assert_eq!(
        refused.iter().find(unclear),
        None,
        "a refusal says what was found and expected"
    );
    let names: Vec<&str> = refused.iter().map(|(key, _)| *key).collect();
    let known = [
        "vm.one.bare_metal",
        "vm.one.inside",
        "vm.one.memory",
        "vm.one.dirty_rate",
    ];
    assert_eq!(names, known, "{refused:?}");
}

#[test]
fn a_key_means_the_same_however_it_is_set() {
    for &(key, value, needs) in OTHER {
        let text = as_toml(value);
        let with = |set: &str| Options {
            set: vec![set.to_owned()],
            ..Options::default()
        };
        let shown = |config: Result<Config, String>| config.map(|config| format!("{config:?}"));
        let by_name = shown(config(needs, "", with(&format!("{key}={value}"))));
        assert!(by_name.is_ok(), "{key}: {by_name:?}");
        let layer = |kind: &str| format!("[[{kind}]]\nname = \"only\"\nset = {{ {key:?} = {text} }}\n");
        let sweep = vec![format!("{key}={text}")];
        let ways = [
            (
                "--set in TOML",
                shown(config(needs, "", with(&format!("{key}={text}")))),
            ),
            ("case", shown(config(needs, &layer("cases"), Options::default()))),
            ("variant", shown(config(needs, &layer("variants"), Options::default()))),
            (
                "--sweep",
                shown(config(
                    needs,
                    "",
                    Options {
                        sweep: sweep.clone(),
                        ..Options::default()
                    },
                )),
            ),
            (
                "--sweep-variants",
                shown(config(
                    needs,
                    "",
                    Options {
                        sweep_variants: sweep,
                        ..Options::default()
                    },
                )),
            ),
            (
                "[[sweeps]]",
                shown(config(
                    needs,
                    &format!("[[sweeps]]\nkey = {key:?}\nvalues = [{text}]\n"),
                    Options::default(),
                )),
            ),
        ];
        for (way, config) in ways {
            assert_eq!(config, by_name, "{key} by {way}");
        }
        // For all guests at once it has an effect, or is refused.
        let Some(rest) = key.strip_prefix("vm.").and_then(|rest| rest.split_once('.')) else {
            continue;
        };
        let plain = shown(config(needs, "", Options::default()));
        let all = [format!("vm.*.{}", rest.1), format!("guest.{}", rest.1)];
        let [stars, guest] = all.map(|key| shown(config(needs, "", with(&format!("{key}={value}")))));
        assert_ne!(stars, plain, "{key} for all guests changes nothing and is not refused");
        assert_eq!(stars.is_ok(), guest.is_ok(), "{key}");
        if let (Ok(stars), Ok(guest)) = (stars, guest) {
            assert_eq!(stars, guest, "{key}");
        }
    }
}
