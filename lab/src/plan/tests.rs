use holdfast_host::{PauseControls, PauseExit, YieldFilters};
use holdfast_locks::LockKind;
use holdfast_machine::PauseHardware;
use holdfast_workloads::Workload;

use super::*;
use crate::shipped;

mod guests;
mod hardware;
mod versions;

const SMALL: &str = r#"
name = "small"
title = "two guests"
metric = "elapsed"

[guest]
vcpus = 4
lock = "ticket"

[[vm]]
name = "build"
workload = "kernbench"

[[vm]]
name = "noise"
vcpus = 2
workload = "hog"

[[variants]]
name = "ticket"

[[variants]]
name = "pv"
set = { "vm.*.lock" = "pv-ticket", "vm.noise.lock" = "tas" }
"#;

fn plan_with(text: &str, options: &Options) -> Result<Plan, Problems> {
    Plan::new(Experiment::parse("small.toml", text)?, options)
}

fn plan(text: &str) -> Plan {
    plan_with(text, &Options::default()).unwrap_or_else(|problems| panic!("{problems}"))
}

/// The message for `text`.
fn complaint(text: &str) -> String {
    plan_with(text, &Options::default())
        .expect_err("a mistake is found")
        .to_string()
}

#[test]
fn every_shipped_experiment_is_valid() {
    for shipped in shipped::EXPERIMENTS {
        let experiment = Experiment::parse(shipped.file, shipped.text).unwrap_or_else(|problems| panic!("{problems}"));
        assert_eq!(experiment.name, shipped.name);
        assert!(experiment.source.is_some(), "{} says where it comes from", shipped.name);
        // Some experiments have no published figures. The plan checks that each published figure names a cell.
        let plan = Plan::new(experiment, &Options::default()).unwrap_or_else(|problems| panic!("{problems}"));
        assert!(!plan.cells.is_empty());
    }
}

#[test]
fn a_path_that_names_its_guest_wins_over_one_for_all() {
    let plan = plan(SMALL);
    let locks = |cell: usize| {
        plan.cells[cell]
            .config
            .vms
            .iter()
            .map(|vm| vm.boot.kernel.lock)
            .collect::<Vec<_>>()
    };
    assert_eq!(locks(0), [LockKind::Ticket, LockKind::Ticket]);
    assert_eq!(locks(1), [LockKind::PvTicket, LockKind::Tas]);
    let vcpus: Vec<u32> = plan.cells[0].config.vms.iter().map(|vm| vm.vcpus).collect();
    assert_eq!(vcpus, [4, 2]);
}

#[test]
fn later_layers_replace_earlier_ones() {
    let options = Options {
        set: vec!["vm.*.lock=ticket".to_owned()],
        ..Options::default()
    };
    let plan = plan_with(SMALL, &options).expect("a valid option");
    assert!(
        plan.cells
            .iter()
            .flat_map(|cell| &cell.config.vms)
            .all(|vm| vm.boot.kernel.lock == LockKind::Ticket)
    );
}

#[test]
fn only_what_ends_is_measured() {
    let plan = plan(SMALL);
    let measured: Vec<bool> = plan.cells[0].config.vms.iter().map(|vm| vm.measured).collect();
    assert_eq!(measured, [true, false]);
}

#[test]
fn scale_shrinks_the_work_only() {
    let options = Options {
        scale: Some(0.25),
        ..Options::default()
    };
    let plan = plan_with(SMALL, &options).expect("a valid option");
    let Workload::Kernbench(parameters) = &plan.cells[0].config.vms[0].boot.workload else {
        panic!("kernbench")
    };
    assert_eq!(parameters.scale, 0.25);
    assert_eq!(parameters.jobs, 20);
}

#[test]
fn sweeps_multiply_cases() {
    let options = Options {
        sweep: vec!["guest.spin_threshold=1024,32768".to_owned()],
        ..Options::default()
    };
    let plan = plan_with(SMALL, &options).expect("a valid option");
    let cells: Vec<(&str, u32)> = plan
        .cells
        .iter()
        .map(|cell| (cell.case.as_str(), cell.config.vms[0].boot.spin_threshold))
        .collect();
    let expected = [("spin_threshold=1024", 1024), ("spin_threshold=32768", 32768)];
    assert_eq!(cells, [expected[0], expected[0], expected[1], expected[1]]);
}

#[test]
fn messages_name_line_key_found_and_expected() {
    let wrong = |from: &str, to: &str| complaint(&SMALL.replacen(from, to, 1));
    let lock = wrong("lock = \"ticket\"", "lock = \"tickt\"");
    assert!(
        lock.starts_with("small.toml:8: guest.lock: found \"tickt\", expected one of tas, "),
        "{lock}"
    );
    assert!(lock.ends_with("; did you mean \"ticket\"?"), "{lock}");
    assert_eq!(
        wrong("vcpus = 4", "vcpus = 0"),
        "small.toml:7: guest.vcpus: found 0, expected a whole number from 1 to 1048576"
    );
    assert_eq!(
        wrong("vcpus = 2", "affinity = [99]"),
        "small.toml:16: vm.noise.affinity: found pCPU 99, expected pCPUs from 0 to 63 of xeon-2x16"
    );
    assert_eq!(
        wrong("vcpus = 2", "affinity = [[0], [1]]"),
        "small.toml:16: vm.noise.affinity: found 2 sets of pCPUs, expected 4, one for each vCPU"
    );
    assert_eq!(
        wrong("vcpus = 2", "numa = [0, 1]"),
        "small.toml:16: vm.noise.numa: found 2 nodes, expected 4, one for each vCPU"
    );
    assert_eq!(
        wrong("vcpus = 2", "numa = \"two\""),
        "small.toml:16: vm.1.numa: found \"two\", expected \"one\", \"pinned\", or a node from 0 to 1023 for each vCPU, as [0, \
         0, 1, 1]"
    );
    assert_eq!(
        wrong("vcpus = 2", "numa = \"pinned\""),
        "small.toml:16: vm.noise.numa: found \"pinned\", and a vCPU that may run on several sockets, expected \
         vm.noise.affinity that keeps each vCPU on one socket"
    );
    assert_eq!(
        wrong("metric = \"elapsed\"", "metric = \"throughput\"\nunit = \"jobs\""),
        "small.toml:5: unit: found \"jobs\", expected a unit that ends in /s or /min"
    );
    assert_eq!(
        wrong("workload = \"hog\"", "workload = \"aim7\"\naim7.file_system = \"ext3\""),
        "small.toml:18: vm.1.aim7.file_system: found \"ext3\", expected one of plain, ext4, xfs; did you mean \"ext4\"?"
    );
    assert_eq!(
        wrong("vcpus = 2", "vcpu = 2"),
        "small.toml:16: vm.1.vcpu: found an unknown key, expected a known key; did you mean `vm.*.vcpus`? (`holdfast \
         keys` lists all)"
    );
    assert_eq!(
        wrong("\"vm.noise.lock\"", "\"vm.noize.lock\""),
        "small.toml:24: vm.noize.lock: found an unknown key, expected a vm by its number or name: 0 (build), 1 (noise)"
    );
    assert_eq!(
        wrong("workload = \"kernbench\"", "workload = \"idle\""),
        "small.toml:12: vm: found no measured guest, expected at least one guest whose workload ends and is measured, \
         such as kernbench"
    );
    assert_eq!(
        wrong("workload = \"hog\"", "workload = \"hog\"\nkernbench.jobs = 2"),
        "small.toml:18: vm.1.kernbench.jobs: found a key that does not apply here, expected a guest with workload = \
         \"kernbench\""
    );
}

#[test]
fn options_are_checked_as_files_are() {
    for (set, message) in [
        (
            "vm.9.lock=tas",
            "--set vm.9.lock=tas: vm.9.lock: found an unknown key, expected a vm by its number or name: 0 (build), 1 (noise)",
        ),
        ("nonsense", "--set nonsense: found \"nonsense\", expected key=value"),
        (
            "host.hz=x",
            "--set host.hz=x: host.hz: found \"x\", expected a whole number from 10 to 10000",
        ),
    ] {
        let options = Options {
            set: vec![set.to_owned()],
            ..Options::default()
        };
        assert_eq!(
            plan_with(SMALL, &options).expect_err("a mistake is found").to_string(),
            message
        );
    }
}

#[test]
fn a_kernels_name_sets_all_switches_and_each_can_differ() {
    let host = |section: &str| plan(&format!("{SMALL}[host]\n{section}\n")).cells[0].config.host.pause;
    let later = host("pause_exit = \"linux-4.12\"");
    assert_eq!(later.filters, YieldFilters::LINUX_3_10);
    assert_eq!((later.window.grow, later.kick_yields), (2, false));
    // The order in the file does not matter.
    let mixed = host("pause_window.grow = 7\npause_exit = \"linux-4.12\"");
    assert_eq!((mixed.window.grow, mixed.filters.preempted), (7, true));
    assert_eq!(
        host("pause_exit = \"linux-2.6.37\"").exit,
        PauseExit::Sleep { ns: 100_000 }
    );
}

#[test]
fn published_rows_must_name_a_cell() {
    let row = "[[published]]\ncase = \"default\"\nvariant = \"tiket\"\nvm = \"build\"\nmean = 1\nunit = \"s\"\nsource = \"x\"\n";
    let message = complaint(&format!("{SMALL}{row}"));
    assert!(
        message.contains("published.variant: found \"tiket\", expected one of ticket, pv"),
        "{message}"
    );
}

#[test]
fn a_case_can_name_its_variants() {
    let cases = "[[cases]]\nname = \"a\"\nvariants = [\"pv\"]\n[[cases]]\nname = \"b\"\n";
    let plan = plan(&format!("{SMALL}{cases}"));
    let cells = plan
        .cells
        .iter()
        .map(|cell| (cell.case.as_str(), cell.variant.as_str()));
    assert_eq!(cells.collect::<Vec<_>>(), [("a", "pv"), ("b", "ticket"), ("b", "pv")]);
    let unknown = complaint(&format!("{SMALL}{}", cases.replace("\"pv\"", "\"pw\"")));
    assert!(
        unknown.contains("cases.variants: found \"pw\", expected one of ticket, pv"),
        "{unknown}"
    );
    let none = complaint(&format!("{SMALL}{}", cases.replace("[\"pv\"]", "[]")));
    assert!(none.contains("cases.variants"), "{none}");
    let options = Options {
        cases: vec!["a".to_owned()],
        variants: vec!["ticket".to_owned()],
        ..Options::default()
    };
    let apart = plan_with(&format!("{SMALL}{cases}"), &options).expect_err("no cell");
    assert!(apart.to_string().contains("found no cell"), "{apart}");
}

#[test]
fn sweeps_of_options_can_multiply_variants() {
    let swept = |text: &str, sweep: &str, variants: &[&str]| {
        let options = Options {
            sweep_variants: vec![sweep.to_owned()],
            variants: variants.iter().map(|name| (*name).to_owned()).collect(),
            ..Options::default()
        };
        plan_with(text, &options).map_err(|problems| problems.to_string())
    };
    let planned = swept(SMALL, "host.hz=100,250", &[]).expect("a valid sweep");
    let cells: Vec<(&str, u32)> = planned
        .cells
        .iter()
        .map(|cell| (cell.variant.as_str(), cell.config.host.hz))
        .collect();
    let expected = [
        ("ticket hz=100", 100),
        ("ticket hz=250", 250),
        ("pv hz=100", 100),
        ("pv hz=250", 250),
    ];
    assert_eq!(cells, expected);
    let alone = SMALL.split("[[variants]]").next().expect("a text");
    let planned = swept(alone, "vm.*.lock=tas,qspin", &[]).expect("a valid sweep");
    let variants: Vec<&str> = planned.cells.iter().map(|cell| cell.variant.as_str()).collect();
    assert_eq!(variants, ["lock=tas", "lock=qspin"]);
    assert!(
        swept(SMALL, "vm.*.lock=tas,qspin", &["ticket"]).is_ok(),
        "the variant sets no lock"
    );
    let lost = swept(SMALL, "vm.noise.lock=tas,qspin", &[]).expect_err("a variant sets it");
    assert!(
        lost.contains("--sweep-variants vm.noise.lock=tas,qspin") && lost.contains("the variants pv set"),
        "{lost}"
    );
}
