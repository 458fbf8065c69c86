//! Examination of machines that consist of files in a folder.

use std::fs;

use proptest::prelude::*;

use super::*;

/// All files that the examination reads.
const PATHS: [&str; 46] = [
    "/dev/kvm",
    "/proc/cpuinfo",
    "/proc/stat",
    "/proc/pressure/cpu",
    "/proc/sys/kernel/numa_balancing",
    "/proc/9/cmdline",
    "/proc/9/task/9/comm",
    "/proc/9/task/9/status",
    "/proc/9/task/9/schedstat",
    "/proc/9/task/9/cgroup",
    "/proc/sys/kernel/osrelease",
    "/proc/sys/kernel/sched_autogroup_enabled",
    "/proc/config",
    "/proc/sys/kernel/sched_latency_ns",
    "/sys/kernel/debug/sched/base_slice_ns",
    "/sys/kernel/debug/sched/features",
    "/sys/kernel/debug/sched/preempt",
    "/sys/kernel/debug/kvm",
    "/sys/fs/cgroup/cgroup.controllers",
    "/sys/fs/cgroup/cpu/cpu.shares",
    "/sys/devices/system/cpu/online",
    "/sys/devices/system/cpu/smt/active",
    "/sys/devices/system/cpu/cpuidle/current_driver",
    "/sys/devices/system/clocksource/clocksource0/current_clocksource",
    "/sys/module/kvm/parameters/halt_poll_ns",
    "/sys/module/kvm/parameters/halt_poll_ns_grow",
    "/sys/module/kvm/parameters/halt_poll_ns_shrink",
    "/sys/module/kvm_amd/parameters/nested",
    "/sys/module/kvm_amd/parameters/avic",
    "/sys/module/kvm_amd/parameters/enable_ipiv",
    "/sys/module/kvm_amd/parameters/pause_filter_count",
    "/sys/module/kvm_amd/parameters/pause_filter_thresh",
    "/sys/module/kvm_amd/parameters/pause_filter_count_grow",
    "/sys/module/kvm_intel/parameters/nested",
    "/sys/module/kvm_intel/parameters/enable_apicv",
    "/sys/module/kvm_intel/parameters/enable_ipiv",
    "/sys/module/kvm_intel/parameters/ple_gap",
    "/sys/module/kvm_intel/parameters/ple_window",
    "/sys/module/kvm_intel/parameters/ple_window_grow",
    "/sys/module/kvm_intel/parameters/ple_window_shrink",
    "/sys/module/kvm_intel/parameters/ple_window_max",
    "/sys/module/kvm_other/parameters/force",
    "/sys/kernel/security/lockdown",
    "/sys/kernel/tracing/tracing_on",
    "/sys/kernel/tracing/events/kvm/kvm_entry",
    "/sys/kernel/tracing/events/sched/sched_switch",
];

/// Returns the findings for a machine with these files.
fn found(files: &[(&str, &[u8])], probe: Option<&Probe>) -> Report {
    let root = crate::scratch();
    for (path, contents) in files {
        let path = root.path().join(path.trim_start_matches('/'));
        let folder = path.parent().expect("a folder above each file");
        // A file may have the path of another file's folder. Then that other file is missing.
        if fs::create_dir_all(folder).is_ok() {
            let _ = fs::write(path, contents);
        }
    }
    examine(root.path(), probe)
}

fn check<'r>(report: &'r Report, name: &str) -> &'r Check {
    let found = report.checks.iter().find(|check| check.name == name);
    found.unwrap_or_else(|| panic!("nothing is said of {name}"))
}

#[test]
fn a_machine_without_any_file_lacks_kvm_and_nothing_else_is_known() {
    let report = found(&[], None);
    assert!(!report.has_kvm());
    assert_eq!(check(&report, "/dev/kvm").verdict, Verdict::Lacking);
    assert_eq!(check(&report, "scheduler").verdict, Verdict::Unknown);
    assert_eq!(check(&report, "halt polling").verdict, Verdict::Unknown);
}

#[test]
fn a_pause_filter_that_is_set_is_good_and_a_count_of_0_is_a_lack_with_its_remedy() {
    let files: &[(&str, &[u8])] = &[("/sys/module/kvm_amd/parameters/pause_filter_count", b"3000\n")];
    let report = found(files, None);
    assert_eq!(check(&report, "pause-loop exiting").verdict, Verdict::Good);
    let files: &[(&str, &[u8])] = &[("/sys/module/kvm_amd/parameters/pause_filter_count", b"0\n")];
    let report = found(files, None);
    let lack = check(&report, "pause-loop exiting");
    assert_eq!(lack.verdict, Verdict::Lacking);
    assert!(
        lack.change
            .as_deref()
            .is_some_and(|change| change.contains("pause_filter_count=3000"))
    );
}

#[test]
fn schedulers_are_told_apart_by_version() {
    for (release, verdict, name) in [
        ("5.10.0-28-amd64", Verdict::Good, "CFS"),
        ("6.5.13", Verdict::Good, "CFS"),
        ("6.6.1", Verdict::Lacking, "EEVDF"),
        ("6.12.9+deb13-amd64", Verdict::Unknown, "EEVDF"),
        ("6.18.44-fc", Verdict::Good, "EEVDF"),
        ("7.1-rc2", Verdict::Good, "EEVDF"),
    ] {
        let report = found(&[("/proc/sys/kernel/osrelease", release.as_bytes())], None);
        let scheduler = check(&report, "scheduler");
        assert_eq!(scheduler.verdict, verdict, "{release}");
        assert!(scheduler.found.starts_with(name), "{release}: {}", scheduler.found);
    }
}

#[test]
fn an_interpreted_guest_is_said_to_be_one() {
    let probe = |rate| Probe {
        api_version: Some(12),
        features: Some(0x0100_7efb),
        instructions_per_second: Some(rate),
        ..Probe::default()
    };
    let slow = found(&[], Some(&probe(1.3e6)));
    assert_eq!(check(&slow, "guest kernel code").verdict, Verdict::Lacking);
    let fast = found(&[], Some(&probe(4e8)));
    assert_eq!(check(&fast, "guest kernel code").verdict, Verdict::Good);
    assert!(fast.has_kvm());
    assert_eq!(check(&fast, "PV_UNHALT").verdict, Verdict::Good);
}

#[test]
fn a_host_on_which_guests_cannot_migrate_names_the_request_it_refuses() {
    let verdict = |kick_migrates| {
        let probe = Probe {
            kick_migrates,
            ..Probe::default()
        };
        let report = found(&[], Some(&probe));
        let check = check(&report, "migration");
        assert_eq!(check.change.is_some(), check.verdict == Verdict::Lacking);
        (check.verdict, check.found.clone())
    };
    assert_eq!(verdict(Some(Ok(true))).0, Verdict::Good);
    assert_eq!(verdict(Some(Ok(false))).0, Verdict::Lacking);
    let refused = "probe: migrate vcpu 0 (KVM_GET_XCRS): Invalid argument".to_owned();
    assert_eq!(verdict(Some(Err(refused.clone()))), (Verdict::Lacking, refused));
    assert_eq!(verdict(None).0, Verdict::Unknown);
}

#[test]
fn a_refused_device_says_why_and_offers_no_features() {
    let probe = Probe {
        refused: Some("permission denied".to_owned()),
        ..Probe::default()
    };
    let report = found(&[("/dev/kvm", b"")], Some(&probe));
    let device = check(&report, "/dev/kvm");
    assert_eq!(
        (device.verdict, device.found.as_str()),
        (Verdict::Lacking, "permission denied")
    );
    assert!(device.change.as_deref().is_some_and(|change| change.contains("group")));
    assert!(report.checks.iter().all(|check| check.area != "guest"));
}

#[test]
fn paravirtual_features_are_counted_and_those_withheld_named() {
    let offering = |features| Probe {
        api_version: Some(12),
        features: Some(features),
        ..Probe::default()
    };
    let all = found(&[], Some(&offering(0x0100_7efb)));
    let offers = check(&all, "paravirtual features");
    assert_eq!(
        (offers.verdict, offers.found.as_str()),
        (Verdict::Good, "6 of 6 offered, 0 withheld")
    );
    // Without PV_UNHALT (bit 7) and PV_TLB_FLUSH (bit 9).
    let some = found(&[], Some(&offering(0x0100_7efb & !(1 << 7 | 1 << 9))));
    let offers = check(&some, "paravirtual features");
    assert_eq!(offers.verdict, Verdict::Lacking);
    assert_eq!(offers.found, "4 of 6 offered, 2 withheld: PV_UNHALT, PV_TLB_FLUSH");
    assert!(check(&some, "PV_UNHALT").change.is_some());
    // The files of another machine do not show the features of this one.
    let copied = found(&[], None);
    assert_eq!(check(&copied, "paravirtual features").verdict, Verdict::Unknown);
}

#[test]
fn counters_are_judged_by_a_guest_or_else_by_the_version() {
    let verdict = |release: &str, told| {
        let probe = Probe {
            statistics: told,
            ..Probe::default()
        };
        let report = found(&[("/proc/sys/kernel/osrelease", release.as_bytes())], Some(&probe));
        check(&report, "KVM's counters").verdict
    };
    assert_eq!(verdict("5.10.0-28-amd64", None), Verdict::Lacking);
    assert_eq!(verdict("5.14.0", None), Verdict::Note);
    assert_eq!(verdict("6.1.0", Some(false)), Verdict::Lacking);
    assert_eq!(verdict("5.10.0", Some(true)), Verdict::Good);
    assert_eq!(verdict("nonsense", None), Verdict::Unknown);
}

#[test]
fn tracepoints_that_cannot_be_recorded_are_a_lack_with_its_remedy() {
    let events = crate::tracing::events::EVENTS.map(|event| format!("/sys/kernel/tracing/events/{event}/enable"));
    let mut files: Vec<(&str, &[u8])> = vec![("/sys/kernel/tracing/tracing_on", b"1")];
    files.extend(events.iter().map(|path| (path.as_str(), &b"0"[..])));
    let tracing = |files: &[(&str, &[u8])], probe: Option<&Probe>| check(&found(files, probe), "tracepoints").clone();
    let lacks = |check: Check, found: &str, change: &str| {
        assert_eq!(check.verdict, Verdict::Lacking);
        assert!(check.found.contains(found), "{}", check.found);
        assert!(
            check.change.as_deref().is_some_and(|told| told.contains(change)),
            "{check:?}"
        );
        assert!(check.means.is_some_and(|means| means.contains("--trace")));
    };
    assert_eq!(tracing(&files, None).verdict, Verdict::Note);
    assert_eq!(tracing(&files, Some(&Probe::default())).verdict, Verdict::Good);
    lacks(tracing(&[], None), "no tracefs is mounted", "mount -t tracefs");
    lacks(
        tracing(&files[..3], None),
        "3 of 5 missing: kvm/kvm_entry, kvm/kvm_exit, kvm/kvm_hypercall",
        "load the KVM modules",
    );
    // No user, not even root, can write to a folder.
    let folder: &[(&str, &[u8])] = &[("/sys/kernel/tracing/tracing_on/x", b"")];
    lacks(tracing(folder, Some(&Probe::default())), "not for this user", "as root");
    files.push(("/sys/kernel/security/lockdown", b"none integrity [confidentiality]\n"));
    lacks(
        tracing(&files, Some(&Probe::default())),
        "locked down",
        "lockdown=integrity",
    );
}

fn contents() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..200),
        any::<i128>().prop_map(|number| number.to_string().into_bytes()),
        "[YNyn01\n ]{0,4}".prop_map(String::into_bytes),
        "(flags|vendor_id|model name)?[\t ]*:?[ a-z:]{0,40}\n{0,2}".prop_map(String::into_bytes),
        "[0-9]{0,30}[-,.][0-9]{0,30}".prop_map(String::into_bytes),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn whatever_is_in_the_files_is_looked_at_without_panic_and_shown_on_one_line(
        files in proptest::collection::vec((proptest::sample::select(&PATHS[..]), contents()), 0..20)
    ) {
        let borrowed: Vec<(&str, &[u8])> = files.iter().map(|(path, text)| (*path, text.as_slice())).collect();
        for check in found(&borrowed, None).checks {
            prop_assert!(!check.found.contains('\n'), "{}: {:?}", check.name, check.found);
            let said = !matches!(check.verdict, Verdict::Lacking | Verdict::Unknown) || check.means.is_some();
            prop_assert!(said, "{} is lacking, and what that means is not said", check.name);
        }
    }

    #[test]
    fn lists_of_cpus_are_counted_or_refused(list in "[0-9,-]{0,40}") {
        let _ = machine::count(&list);
    }
}
