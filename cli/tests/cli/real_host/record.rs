//! `holdfast record` on this machine: a recording, or what is lacking for one.

use std::fs;
use std::path::Path;

use crate::command::{Ran, Running, scratch, skipped, with_default_signals};

/// Starts a recording of an hour into `folder`, and sends `signals` once it records. Returns `None` if this machine
/// lacks something: then the command says what.
fn ended_by(folder: &Path, signals: &[&str]) -> Option<Ran> {
    let mut command = with_default_signals(env!("CARGO_BIN_EXE_holdfast"));
    command
        .args(["record", "--seconds", "3600", "--out", "host.recording"])
        .current_dir(folder);
    let running = Running::new(&mut command);
    let instance = format!("/sys/kernel/tracing/instances/holdfast-{}", running.id());
    let records = || fs::read_to_string(format!("{instance}/tracing_on")).is_ok_and(|on| on.trim() == "1");
    running.until("recording", || records() || running.has_ended());
    if !running.has_ended() {
        for signal in signals {
            running.send(signal);
        }
    }
    let (ran, _) = running.end();
    assert!(!Path::new(&instance).exists(), "{instance} is left: {}", ran.err);
    if ran.status == 77 {
        assert!(
            ran.err.contains("SKIPPED: a recording of this host: it needs "),
            "{}",
            ran.err
        );
        assert_eq!(fs::read_dir(folder).expect("ours").count(), 0);
        skipped(&ran.err);
        return None;
    }
    Some(ran)
}

#[test]
fn each_signal_ends_a_recording_and_removes_the_instance() {
    for (signal, status) in [
        ("INT", 130),
        ("TERM", 143),
        ("HUP", 129),
        ("QUIT", 131),
        ("USR1", 138),
        ("ALRM", 142),
    ] {
        let folder = scratch();
        let Some(ran) = ended_by(folder.path(), &[signal]) else {
            return;
        };
        assert_eq!(ran.status, status, "{}", ran.err);
        let recording = folder.path().join("host.recording");
        let trace = fs::read(recording.join("trace.dat")).expect("events so far");
        assert!(trace.starts_with(b"\x17\x08\x44tracing6\0"));
        let report = fs::read_to_string(recording.join("recording.json")).expect("a report");
        assert!(report.contains("\"interrupted\": true"), "{report}");
        assert_eq!(fs::read_dir(folder.path()).expect("ours").count(), 1);
    }
}

#[test]
fn a_second_ctrl_c_removes_the_instance_as_well() {
    let folder = scratch();
    let Some(ran) = ended_by(folder.path(), &["INT", "INT"]) else {
        return;
    };
    assert_eq!(ran.status, 130, "{}", ran.err);
}
