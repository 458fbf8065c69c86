//! The machine and what it has.

use super::*;

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
        "vcpus = 2\naffinity = [[17, 48], [0]]\nnuma = \"pinned\"",
        1,
    );
    let vms = &plan(&text).cells[0].config.vms;
    assert_eq!(
        vms[1].domains,
        [1, 0],
        "xeon-2x16 has 16-31 and 48-63 on its second socket"
    );
    assert!(vms[0].domains.is_empty(), "no table by default");
    let listed = SMALL.replacen("vcpus = 2", "vcpus = 2\nnuma = [5, 5]", 1);
    assert_eq!(plan(&listed).cells[0].config.vms[1].domains, [5, 5]);
}

#[test]
fn impossible_machines_are_refused() {
    for (section, found) in [
        ("[machine]\nsockets = 0", "found 0"),
        (
            "[machine]\nsockets = 200\ncores = 200",
            "found 200 x 200 x 2 = 80000 pCPUs",
        ),
        ("[machine]\nprofile = \"xeon-x5571\"", "did you mean \"xeon-x5570\"?"),
        (
            "[machine]\ncosts.paus = \"1 ns\"",
            "did you mean `machine.costs.pause`?",
        ),
        ("[machine]\ncosts.pause = 3", "found 3, expected a time with its unit"),
        (
            "[machine]\ncosts.pause = \"0 ns\"\ncosts.load_hit = \"0 ns\"",
            "machine.costs.pause: found 0 ns, like machine.costs.load_hit",
        ),
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
fn bare_metal_is_the_whole_machine_and_there_is_one() {
    let bare = SMALL.replace("name = \"build\"", "name = \"build\"\nbare_metal = true");
    let vm = &plan(&format!("{bare}[machine]\nsockets = 1\ncores = 6\nthreads = 1\n")).cells[0]
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
        ("epyc-rome", "host.idle_hlt=true", "the idle HLT intercept"),
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

#[test]
fn features_of_later_drivers_are_not_silently_left_out() {
    let with = |set: &[&str]| {
        let options = Options {
            set: set.iter().map(|&set| set.to_owned()).collect(),
            ..Options::default()
        };
        plan_with(SMALL, &options).map_err(|problems| problems.to_string())
    };
    let base = [
        "machine.profile=\"epyc-rome\"",
        "machine.cpu=\"zen4\"",
        "host.avic_driver=\"linux-4.7\"",
    ];
    for later in ["host.avic=\"auto\"", "host.x2avic=true"] {
        let complaint = with(&[&base[..], &[later]].concat()).expect_err("4.7 does not know it");
        assert!(
            complaint.contains("host.avic_driver \"linux-4.7\" does not know"),
            "{complaint}"
        );
        assert!(with(&[&base[..2], &[later]].concat()).is_ok(), "{later}");
    }
    assert!(with(&[&base[..], &["host.avic=\"on\""]].concat()).is_ok());
}
