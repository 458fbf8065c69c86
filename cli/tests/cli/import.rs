//! `holdfast import`.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::command::{Ran, holdfast_in, scratch};

/// Two VMs of two vCPUs on two pCPUs, as `perf script` prints what `perf record` saw of them. VM 5000 gets a quarter of
/// each pCPU.
fn recording() -> String {
    taking_turns(3000, 1000)
}

/// The same, with turns of so many us of VM 4000 and VM 5000.
pub fn taking_turns(first: u64, second: u64) -> String {
    let mut text = String::new();
    for cpu in [0, 1] {
        let (mut at, mut runs, mut next) = (1_000_000_u64 + cpu * 7, 4001 + cpu, 5001 + cpu);
        while at < 3_000_000 {
            let process = |thread: u64| thread / 1000 * 1000;
            let span = if next < 5000 { first } else { second };
            let line = |text: &mut String, thread: u64, at: u64, event: &str| {
                let (seconds, micros) = (at / 1_000_000, at % 1_000_000);
                let process = process(thread);
                writeln!(
                    text,
                    "CPU {cpu}/KVM {process}/{thread} [{cpu:03}] {seconds}.{micros:06}000: {event}"
                )
                .expect("a text grows");
            };
            line(
                &mut text,
                runs,
                at,
                &format!(
                    "sched:sched_switch: prev_comm=CPU {cpu}/KVM prev_pid={runs} prev_prio=120 prev_state=R ==> \
                     next_comm=CPU {cpu}/KVM next_pid={next} next_prio=120"
                ),
            );
            line(&mut text, next, at + 5, &format!("kvm:kvm_entry: vcpu {cpu}, rip 0x1"));
            let exit = format!("kvm:kvm_exit: vcpu {cpu} reason EXTERNAL_INTERRUPT rip 0x1 info 0 0");
            line(&mut text, next, at + span - 5, &exit);
            at += span;
            (runs, next) = (next, runs);
        }
    }
    let mut lines: Vec<&str> = text.lines().collect();
    let time = |line: &&str| line.split("] ").nth(1).map(str::to_owned);
    lines.sort_by_key(time);
    lines.join("\n") + "\n"
}

fn import(folder: &Path, more: &[&str]) -> Ran {
    fs::write(folder.join("trace.txt"), recording()).expect("a new file");
    holdfast_in(folder, &[&["import", "trace.txt"], more].concat())
}

#[test]
fn one_sentence_says_who_waits_behind_whom() {
    let folder = scratch();
    let ran = import(folder.path(), &[]);
    assert_eq!(ran.status, 0, "{}", ran.err);
    let first = ran.out.lines().next().expect("a line");
    let expected = "vm 5000: 75 % of the wanted CPU time was spent waiting for a pCPU, all of that behind vm 4000.";
    assert_eq!(first, expected);
    // What the recording lacks is said, and not guessed.
    assert!(ran.err.contains("sched:sched_waking"), "{}", ran.err);
    let all = import(folder.path(), &["--all", "--quiet"]);
    for out in [&ran.out, &all.out] {
        let widest = out.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(100), "{out}");
    }
    assert!(
        all.out.contains("EXTERNAL_INTERRUPT") && all.out.contains("pause exits per s"),
        "{}",
        all.out
    );
}

#[test]
fn the_document_has_each_figure_with_its_basis() {
    let folder = scratch();
    let ran = import(folder.path(), &["--format", "json"]);
    let account = ran.json();
    assert_eq!(
        (&account["schema"], &account["source"]["format"]),
        (&"holdfast.account/1".into(), &"text of a trace".into())
    );
    let vm = &account["vms"][0];
    let figure = |name: &str| {
        let figures = vm["figures"].as_array().expect("a list");
        let found = figures.iter().find(|figure| figure["name"] == name);
        found.unwrap_or_else(|| panic!("no {name}")).clone()
    };
    let ready = figure("ready_percent");
    assert!(
        (ready["value"].as_f64().expect("a number") - 75.0).abs() < 1.0,
        "{ready}"
    );
    let (wakes, siblings) = (figure("wake_to_run_p99_us"), figure("behind_siblings_percent"));
    assert_eq!(
        (&wakes["value"], &wakes["basis"]),
        (&serde_json::Value::Null, &"unknown".into())
    );
    assert_eq!((&siblings["value"], &siblings["basis"]), (&0.0.into(), &"known".into()));
}

#[test]
fn page_timeline_and_metrics_are_written_where_they_are_asked_for() {
    let folder = scratch();
    fs::create_dir(folder.path().join("out")).expect("a new folder");
    let ran = import(
        folder.path(),
        &["--out", "out", "--timeline", "out/", "--metrics", "vms.prom"],
    );
    assert_eq!(ran.status, 0, "{}", ran.err);
    let page = fs::read_to_string(folder.path().join("out/trace.html")).expect("the page");
    assert!(page.contains("75 % of the wanted CPU time") || page.contains("75\u{a0}% of the wanted CPU time"));
    assert!(page.contains("Around the longest wait") && !page.contains("<script"));
    assert!(
        fs::metadata(folder.path().join("out/trace.pftrace"))
            .expect("the timeline")
            .len()
            > 1000
    );
    let metrics = fs::read_to_string(folder.path().join("vms.prom")).expect("the metrics");
    assert!(metrics.contains("holdfast_ready_percent{vm=\"vm 5000\",process=\"5000\",vcpu=\"1\",thread=\"5002\""));
    for line in metrics.lines().filter(|line| !line.starts_with('#')) {
        let value = line.rsplit(' ').next().and_then(|value| value.parse::<f64>().ok());
        assert!(value.is_some(), "{line}");
    }
}

#[test]
fn files_beside_a_recording_name_its_vms() {
    let folder = scratch();
    let domain = "<domstatus pid='4000'><domain type='kvm'><name>web</name></domain></domstatus>";
    fs::write(folder.path().join("web.xml"), domain).expect("a new file");
    let ran = import(folder.path(), &["web.xml"]);
    assert!(
        ran.out
            .starts_with("vm 5000: 75 % of the wanted CPU time was spent waiting for a pCPU, all of that behind web.")
    );
    // A folder as `holdfast record` makes it.
    let recorded = folder.path().join("host.recording");
    fs::create_dir_all(recorded.join("libvirt")).expect("a new folder");
    fs::copy(folder.path().join("trace.txt"), recorded.join("trace.txt")).expect("a copy");
    fs::copy(folder.path().join("web.xml"), recorded.join("libvirt/web.xml")).expect("a copy");
    let whole = holdfast_in(folder.path(), &["import", "host.recording"]);
    assert_eq!((whole.status, &whole.out), (0, &ran.out), "{}", whole.err);
}

#[test]
fn what_can_be_read_of_a_damaged_recording_is_shown() {
    let folder = scratch();
    let text = recording();
    let damaged = format!(
        "{}\n\u{1}\u{2}garbage\n{}",
        &text[..text.len() / 2],
        &text[text.len() / 2 + 77..]
    );
    fs::write(folder.path().join("cut.txt"), damaged).expect("a new file");
    let ran = holdfast_in(folder.path(), &["import", "cut.txt"]);
    assert_eq!(ran.status, 0, "{}", ran.err);
    assert!(ran.err.contains("warning: cut.txt: at byte"), "{}", ran.err);
    assert!(ran.out.starts_with("vm 5000: 7"), "{}", ran.out);
}

#[test]
fn what_is_no_recording_is_refused() {
    let folder = scratch();
    fs::write(folder.path().join("empty"), "").expect("a new file");
    fs::write(folder.path().join("a.txt"), recording()).expect("a new file");
    fs::write(folder.path().join("other.xml"), "<network/>").expect("a new file");
    fs::create_dir(folder.path().join("none")).expect("a new folder");
    for (files, why) in [
        (
            &["empty"][..],
            "empty: at byte 0: not a recording that can be read: an empty file",
        ),
        (&["missing"], "missing: cannot read it"),
        (&["none"], "found no recording, expected a file of `perf record`"),
        (
            &["a.txt", "a.txt"],
            "found two recordings, a.txt and a.txt, expected one",
        ),
        (&["a.txt", "other.xml"], "other.xml: no <domain> in it"),
        (&["/dev/zero"], "/dev/zero: at byte 0: not a recording that can be read"),
        (
            &["a.txt", "--timeline", "t", "--for", "0"],
            "found --for 0, expected a time longer than nothing",
        ),
    ] {
        let ran = holdfast_in(folder.path(), &[&["import"], files].concat());
        assert_eq!((ran.status, ran.out.as_str()), (2, ""), "{files:?}: {}", ran.err);
        let message = ran.err.strip_prefix("error: ").unwrap_or_default();
        assert!(message.starts_with(why), "{files:?}: {}", ran.err);
    }
}
