//! `holdfast kvm`: messages about a host.

use std::fs;

use crate::command::{Ran, holdfast, holdfast_in, scratch, skipped};

#[test]
fn the_doctor_looks_at_another_machines_files() {
    let folder = scratch();
    let parameters = folder.path().join("sys/module/kvm_amd/parameters");
    fs::create_dir_all(&parameters).expect("writable");
    fs::write(parameters.join("pause_filter_count"), "0\n").expect("writable");
    fs::write(parameters.join("avic"), "Y\n").expect("writable");
    let ran = holdfast_in(folder.path(), &["kvm", "doctor", "--root", ".", "--format", "json"]);
    assert_eq!(ran.status, 0, "{}", ran.err);
    let report = ran.json();
    assert_eq!(report["schema"], "holdfast.doctor/1");
    let verdict = |name: &str| {
        let checks = report["checks"].as_array().expect("a list");
        let check = checks.iter().find(|check| check["name"] == name);
        check.map(|check| check["verdict"].clone()).expect("looked at")
    };
    assert_eq!(verdict("pause-loop exiting"), "lacking");
    assert_eq!(verdict("AVIC"), "good");
    assert_eq!(verdict("/dev/kvm"), "lacking");

    let ran = holdfast_in(folder.path(), &["kvm", "doctor", "--root", "."]);
    assert_eq!(ran.status, 0, "{}", ran.err);
    assert!(ran.out.contains("| pauses"), "{}", ran.out);
    assert!(
        ran.out
            .contains("to change it: modprobe kvm_amd pause_filter_count=3000"),
        "{}",
        ran.out
    );
}

#[test]
fn the_doctor_says_something_of_this_machine() {
    let ran = holdfast(&["kvm", "doctor", "--format", "json"]);
    assert_eq!(ran.status, 0, "{}", ran.err);
    assert!(ran.json()["checks"].as_array().is_some_and(|checks| checks.len() > 10));
}

#[test]
fn a_root_that_is_no_directory_is_bad_input() {
    let ran = holdfast(&["kvm", "doctor", "--root", "no-such-folder"]);
    assert_eq!((ran.status, ran.out.as_str()), (2, ""));
    assert!(
        ran.err
            .contains("found \"no-such-folder\", expected --root to be a directory"),
        "{}",
        ran.err
    );
}

#[test]
fn an_experiment_for_kvm_is_checked_before_kvm_is_asked_for() {
    let ran = holdfast(&["kvm", "run", "no-such-experiment"]);
    assert_eq!((ran.status, ran.out.as_str()), (2, ""));
    assert!(
        ran.err
            .contains("found \"no-such-experiment\", expected a TOML file, or one of"),
        "{}",
        ran.err
    );
    let ran = holdfast(&["kvm", "run", "lock-crossover", "--set", "vm.contenders.lock=mcs"]);
    assert_eq!((ran.status, ran.out.as_str()), (2, ""));
    assert!(
        ran.err.contains("vm.contenders.lock: found \"mcs\", expected one of"),
        "{}",
        ran.err
    );
}

#[test]
fn a_kernel_that_cannot_be_booted_is_bad_input() {
    let folder = scratch();
    let refused = |kernel: &str, expected: &str| {
        let ran = holdfast_in(
            folder.path(),
            &["kvm", "run", "linux-pvspin", &format!("--linux={kernel}")],
        );
        assert_eq!((ran.status, ran.out.as_str()), (2, ""), "{}", ran.err);
        assert!(ran.err.contains(expected), "{}", ran.err);
    };
    refused("no-such-kernel", "no-such-kernel: cannot read it");
    refused(".", ".: cannot read it");
    fs::write(folder.path().join("script"), "#!/bin/sh\n".repeat(100)).expect("writable");
    refused("script", "script: not a bzImage");
    let mut kernel = vec![0; 0x400];
    kernel[0x1f4] = 0xff;
    kernel[0x1fe..0x208].copy_from_slice(b"\x55\xaa\xeb\x6aHdrS\x0f\x02");
    (kernel[0x211], kernel[0x236]) = (1, 1);
    fs::write(folder.path().join("part"), kernel).expect("writable");
    refused("part", "part: truncated: 1024 bytes, but its header claims 6640");
    // Options for Linux guests are refused without `--linux`.
    let ran = holdfast_in(folder.path(), &["kvm", "run", "linux-pvspin", "--path", "futex"]);
    assert_eq!((ran.status, ran.out.as_str()), (2, ""));
    assert!(ran.err.contains("--linux"), "{}", ran.err);
}

#[test]
fn only_a_single_run_is_recorded() {
    let ran = holdfast(&["kvm", "run", "linux-pvspin", "--seeds", "1", "--trace", "never.pftrace"]);
    assert_eq!((ran.status, ran.out.as_str()), (2, ""));
    assert!(
        ran.err.contains("found \"6 runs\", expected a single one with --trace"),
        "{}",
        ran.err
    );
}

/// Runs `holdfast ARGUMENTS` with a /dev/kvm that is no KVM. Returns `None` if that cannot be arranged.
#[cfg(target_os = "linux")]
fn without_kvm(arguments: &[&str]) -> Option<Ran> {
    if !std::path::Path::new("/dev/kvm").exists() {
        return Some(holdfast(arguments));
    }
    // For this process and its children only, /dev/null replaces the device.
    let script = "mount --bind /dev/null /dev/kvm || exit 99; exec \"$0\" \"$@\"";
    let output = std::process::Command::new("unshare")
        .args([
            "--map-root-user",
            "--mount",
            "sh",
            "-c",
            script,
            env!("CARGO_BIN_EXE_holdfast"),
        ])
        .args(arguments)
        .output();
    let ran = Ran::of(output.ok()?);
    (ran.status != 99 && !ran.err.starts_with("unshare: ")).then_some(ran)
}

/// Returns the messages about runs that are impossible on this machine.
#[cfg(target_os = "linux")]
fn assert_skipped(ran: &Ran, expected: &str) {
    assert_eq!((ran.status, ran.out.as_str()), (77, ""), "{}", ran.err);
    assert!(ran.err.starts_with(&format!("SKIPPED: {expected}: ")), "{}", ran.err);
    assert_eq!(ran.err.lines().count(), 1, "{}", ran.err);
}

#[cfg(target_os = "linux")]
#[test]
fn runs_are_counted_as_skipped_without_a_kvm() {
    for (arguments, expected) in [
        (
            &["kvm", "run", "lock-crossover", "--case", "8-1x-4"][..],
            "9 runs of lock-crossover",
        ),
        (&["calibrate", "--kvm"], "calibrate --kvm"),
        (&["validate", "kvm"], "validate kvm"),
    ] {
        let Some(ran) = without_kvm(arguments) else {
            skipped("what is skipped without a KVM: there is one, and it cannot be hidden");
            return;
        };
        assert_skipped(&ran, expected);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn runs_are_counted_as_skipped_where_a_host_keeps_no_kernel_of_its_own() {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    if std::path::Path::new(&format!("/boot/vmlinuz-{}", release.trim())).exists() {
        skipped("a host without a kernel of its own: this one has it");
        return;
    }
    let ran = holdfast(&[
        "kvm",
        "run",
        "linux-pvspin",
        "--linux",
        "--seeds",
        "1",
        "--format",
        "json",
    ]);
    assert_skipped(&ran, "6 runs of linux-pvspin");
    assert!(
        ran.err.contains("this host's own kernel: /boot/vmlinuz-")
            && ran.err.contains("name another by --linux=BZIMAGE"),
        "{}",
        ran.err
    );
}

#[cfg(target_os = "linux")]
#[test]
fn a_machine_of_one_cpu_is_not_calibrated() {
    let ran = std::process::Command::new("taskset")
        .args(["-c", "0", env!("CARGO_BIN_EXE_holdfast"), "calibrate"])
        .output();
    let Ok(ran) = ran else {
        skipped("calibration on one CPU: no `taskset` of util-linux");
        return;
    };
    let said = String::from_utf8_lossy(&ran.stderr);
    assert_eq!(ran.status.code(), Some(77), "{said}");
    assert!(said.contains("SKIPPED: calibration: found one CPU"), "{said}");
}
