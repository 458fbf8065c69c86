use holdfast_host::{PauseControls, PauseExit, YieldFilters};
use holdfast_locks::LockKind;
use holdfast_machine::PauseHardware;
use holdfast_workloads::Workload;

use super::*;
use crate::shipped;

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
fn cycles_follow_the_frequency() {
    let text = SMALL.to_owned() + "[machine]\nfrequency = \"1 GHz\"\ncosts.pause = \"40 cycles\"\nple = true\n";
    let machine = &plan(&text).cells[0].config.machine;
    assert_eq!(machine.costs.pause.0, 40_000);
    assert_eq!(machine.pause_hardware, Some(PauseHardware::Ple));
    let controls = plan(&text).cells[0].config.host.pause_controls;
    assert_eq!(controls, PauseControls::INTEL);
    assert_eq!(plan(&text).cells[0].config.host.tsc_hz, 1_000_000_000);
}

#[test]
fn nodes_follow_the_pinning_where_asked_to() {
    let text = SMALL.replacen(
        "vcpus = 2",
        "vcpus = 2\naffinity = [[9, 10], [0]]\nnuma = \"pinned\"",
        1,
    );
    let vms = &plan(&text).cells[0].config.vms;
    assert_eq!(vms[1].domains, [1, 0], "generic-x86 has 8 pCPUs on each socket");
    assert!(vms[0].domains.is_empty(), "no table by default");
    let listed = SMALL.replacen("vcpus = 2", "vcpus = 2\nnuma = [5, 5]", 1);
    assert_eq!(plan(&listed).cells[0].config.vms[1].domains, [5, 5]);
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
        "small.toml:7: guest.vcpus: found 0, expected a whole number from 1 to 1024"
    );
    assert_eq!(
        wrong("vcpus = 2", "affinity = [99]"),
        "small.toml:16: vm.noise.affinity: found pCPU 99, expected pCPUs from 0 to 15 of generic-x86"
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
fn impossible_machines_are_refused() {
    for (section, found) in [
        ("[machine]\nsockets = 0", "found 0"),
        (
            "[machine]\nsockets = 200\ncores = 200",
            "found 200 x 200 x 1 = 40000 pCPUs",
        ),
        ("[machine]\nprofile = \"xeon-x5571\"", "did you mean \"xeon-x5570\"?"),
        (
            "[machine]\ncosts.paus = \"1 ns\"",
            "did you mean `machine.costs.pause`?",
        ),
        ("[machine]\ncosts.pause = 3", "found 3, expected a time with its unit"),
        ("[machine]\nprofile = \"missing.toml\"", "found \"missing.toml\" ("),
    ] {
        let message = complaint(&format!("{SMALL}{section}\n"));
        assert!(
            message.contains(found) && message.starts_with("small.toml:"),
            "{section}: {message}"
        );
    }
}

#[test]
fn pause_windows_that_cannot_work_are_refused() {
    for (section, message) in [
        (
            "[machine]\nple_gap = \"4096 cycles\"",
            "machine.ple_gap: found 4096 cycles, expected less than the window (4096 cycles)",
        ),
        (
            "[machine]\nple_gap = \"0 ns\"",
            "machine.ple_gap: found 0 ns, expected 1 to 4294967294 cycles",
        ),
        (
            "[machine]\nple_window = \"0 ns\"",
            "machine.ple_window: found 0 ns, expected more than the gap (128 cycles)",
        ),
        (
            "[machine]\nfrequency = \"90 GHz\"\nple_window = \"1 s\"",
            "machine.ple_window: found 1 s, expected more than",
        ),
        (
            "[host]\npause_window.grow = 1",
            "host.pause_window.grow: found 1, expected 0, or 2 and more",
        ),
        (
            "[host]\npause_window.shrink = 1",
            "host.pause_window.shrink: found 1, expected 0, or 2 and more",
        ),
        (
            "[host]\npause_window.grow = -2",
            "host.pause_window.grow: found -2, expected a whole number from 0",
        ),
        (
            "[host]\npause_window.max = 4000",
            "host.pause_window.max: found 4000, expected 4096 (the window that it starts from)",
        ),
        (
            "[machine]\nprofile = \"epyc-rome\"\n[host]\npause_window.max = 70000",
            "host.pause_window.max: found 70000, expected 3000 (the window that it starts from) to 65535",
        ),
        (
            "[machine]\nprofile = \"epyc-rome\"\npause_filter_count = 0",
            "machine.pause_filter_count: found 0, expected a whole number from 1 to 65535",
        ),
        (
            "[machine]\nprofile = \"epyc-rome\"\npause_filter_threshold = \"1 ms\"",
            "machine.pause_filter_threshold: found 1 ms, expected 0 to 65535 cycles",
        ),
        (
            "[machine]\nprofile = \"epyc-rome\"\nple = true",
            "machine.ple: found a key that does not apply here, expected an Intel CPU",
        ),
        (
            "[machine]\npause_filter = true",
            "machine.pause_filter: found a key that does not apply here, expected an AMD CPU",
        ),
        (
            "[host]\npause_exit = \"directed-yeild-2011\"",
            "did you mean \"directed-yield-2011\"?",
        ),
        (
            "[host]\nkick_yields = true",
            "host.kick_yields: found an unknown key, expected a known key",
        ),
    ] {
        let found = complaint(&format!("{SMALL}{section}\n"));
        assert!(
            found.contains(message) && found.starts_with("small.toml:"),
            "{section}: {found}"
        );
        let line: usize = found["small.toml:".len()..]
            .split(':')
            .next()
            .and_then(|line| line.parse().ok())
            .expect("a line");
        assert!(line > SMALL.lines().count(), "{section}: {found}");
    }
}

#[test]
fn a_kernels_name_sets_all_switches_and_each_can_differ() {
    let host = |section: &str| plan(&format!("{SMALL}[host]\n{section}\n")).cells[0].config.host.pause;
    let later = host("pause_exit = \"linux-4.12\"");
    assert_eq!(later.filters, YieldFilters::LINUX_3_10);
    assert_eq!((later.window.grow, later.kick_yields), (2, false));
    // The order in the file does not matter.
    let mixed = host("pause_window.grow = 7\nyield.ipi_aware = true\npause_exit = \"linux-4.12\"");
    assert_eq!(
        (mixed.window.grow, mixed.filters.ipi_aware, mixed.filters.preempted),
        (7, true, true)
    );
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
fn bare_metal_is_the_whole_machine_and_there_is_one() {
    let bare = SMALL.replace("name = \"build\"", "name = \"build\"\nbare_metal = true");
    let vm = &plan(&format!("{bare}[machine]\nsockets = 1\ncores = 6\n")).cells[0]
        .config
        .vms[0];
    assert_eq!((vm.bare_metal, vm.vcpus), (true, 6));
    let pinned = complaint(&bare.replace("bare_metal = true", "bare_metal = true\naffinity = [0]"));
    assert!(pinned.contains("affinity: found pCPUs for bare metal"), "{pinned}");
    let two = complaint(&bare.replace("workload = \"hog\"", "workload = \"hog\"\nbare_metal = true"));
    assert!(two.contains("one kernel on the machine itself at most"), "{two}");
}

#[test]
fn netperf_has_no_network_device_on_the_machine_itself() {
    let remote = SMALL.replace("workload = \"hog\"", "workload = \"netperf\"\nbare_metal = true");
    let found = complaint(&remote);
    assert!(
        found.contains(".bare_metal: found true, with the workload netperf, expected false"),
        "{found}"
    );
}

#[test]
fn hardware_that_the_machine_lacks_is_not_silently_left_out() {
    let with = |machine: &str, set: &str| {
        let options = Options {
            set: vec![format!("machine.profile=\"{machine}\""), set.to_owned()],
            ..Options::default()
        };
        plan_with(SMALL, &options).map_err(|problems| problems.to_string())
    };
    for (machine, set, what) in [
        ("xeon-x5570", "host.avic=\"on\"", "AVIC"),
        ("xeon-x5570", "host.x2avic=true", "x2AVIC"),
        ("carrizo-4", "host.x2avic=true", "x2AVIC"),
        ("xeon-x5570", "host.apicv=true", "APICv"),
        ("carrizo-4", "host.apicv=true", "APICv"),
        ("xeon-x5570", "host.ipiv=true", "IPI virtualization"),
        ("xeon-x5570", "machine.ple=true", "PLE"),
        // Its CPU has APICv, and hardware sends IPIs only from Sapphire Rapids on.
        ("generic-x86", "host.ipiv=true", "IPI virtualization"),
        ("generic-x86", "host.avic=\"on\"", "AVIC"),
    ] {
        let complaint = with(machine, set).expect_err("the part has it not");
        let said = format!("{what}, which machine \"{machine}\" (CPU model ");
        assert!(complaint.contains(&said) && complaint.contains(set), "{complaint}");
    }
    for (machine, set) in [
        ("xeon-x5570", "host.avic=\"auto\""),
        ("xeon-x5570", "host.avic=\"off\""),
        ("xeon-x5570", "host.ipiv=false"),
        ("carrizo-4", "host.avic=\"on\""),
        ("generic-x86", "host.apicv=true"),
        ("epyc-rome", "host.avic=\"on\""),
        ("broadwell-2x14", "host.apicv=true"),
    ] {
        assert!(with(machine, set).is_ok(), "{machine}: {set}");
    }
}

/// [`SMALL`] with three identical guests that build.
fn three() -> String {
    SMALL.replacen("name = \"build\"", "name = \"build\"\ncount = 3", 1)
}

#[test]
fn a_count_stands_for_as_many_identical_guests() {
    let text = three();
    let planned = plan(&text);
    let config = &planned.cells[1].config;
    let names: Vec<&str> = config.vms.iter().map(|vm| vm.name.as_str()).collect();
    assert_eq!(names, ["build-1", "build-2", "build-3", "noise"]);
    let by_hand =
        ["build-1", "build-2", "build-3"].map(|name| format!("[[vm]]\nname = \"{name}\"\nworkload = \"kernbench\"\n"));
    let written = SMALL.replacen(
        "[[vm]]\nname = \"build\"\nworkload = \"kernbench\"\n",
        &by_hand.concat(),
        1,
    );
    let written = plan(&written);
    for (counted, written) in planned.cells.iter().zip(&written.cells) {
        assert_eq!(format!("{:?}", counted.config), format!("{:?}", written.config));
    }
}

#[test]
fn a_path_names_all_identical_guests_or_one() {
    let options = Options {
        set: vec!["vm.build.vcpus=3".to_owned(), "vm.build-2.hz=250".to_owned()],
        ..Options::default()
    };
    let planned = plan_with(&three(), &options).expect("valid options");
    let vms = &planned.cells[0].config.vms;
    assert_eq!(vms.iter().map(|vm| vm.vcpus).collect::<Vec<_>>(), [3, 3, 3, 2]);
    assert_eq!(
        vms.iter().map(|vm| vm.boot.kernel.hz).collect::<Vec<_>>(),
        [1000, 250, 1000, 1000]
    );
}

#[test]
fn impossible_counts_are_refused_once() {
    for (count, found) in [
        ("0", "found 0"),
        ("-1", "found -1"),
        ("\"two\"", "found \"two\""),
        ("100000", "found 100000"),
    ] {
        let complaint = complaint(&three().replacen("count = 3", &format!("count = {count}"), 1));
        assert!(
            complaint.starts_with("small.toml:12: vm.0.count: ") && complaint.contains(found),
            "{complaint}"
        );
    }
    let wrong = complaint(&three().replacen("count = 3", "count = 3\nlock = \"tickt\"", 1));
    assert_eq!(wrong.lines().count(), 1, "{wrong}");
    assert!(
        wrong.starts_with("small.toml:13: vm.build.lock: found \"tickt\""),
        "{wrong}"
    );
    let twice = complaint(&three().replacen("name = \"noise\"", "name = \"build\"", 1));
    assert!(twice.contains("expected a name of its own"), "{twice}");
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
