//! `holdfast import --experiment` of recordings of a real KVM (`recordings/tests/files/README.md`): their replays.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::command::{Ran, holdfast_in, scratch};

/// Unpacks the recording of this kernel.
fn unpacked(folder: &Path, kernel: &str) {
    let archive = format!(
        "{}/../recordings/tests/files/{kernel}-host.recording.tar.gz",
        env!("CARGO_MANIFEST_DIR")
    );
    let unpacked = Command::new("tar")
        .current_dir(folder)
        .args(["-xzf", &archive])
        .status();
    assert!(unpacked.expect("tar starts").success(), "{archive}");
}

fn replayed(folder: &Path) -> Ran {
    let ran = holdfast_in(folder, &["import", "host.recording", "--experiment", "replay.toml"]);
    assert_eq!(ran.status, 0, "{}", ran.err);
    ran
}

#[test]
fn replays_of_two_kernels_give_the_recorded_ready_time_back() {
    for kernel in ["6.1", "7.3"] {
        let folder = scratch();
        unpacked(folder.path(), kernel);
        let notes = replayed(folder.path()).err;
        for vm in ["web", "db"] {
            assert!(notes.contains(&format!("replay of {vm}: ready ")), "{kernel}: {notes}");
        }
        assert!(
            notes.contains("the replay gives the recorded ready time back, within 5 %"),
            "{kernel}: {notes}"
        );
        assert!(!notes.contains("not within 5 %"), "{kernel}: {notes}");
    }
}

/// The check is worth something: it fails if the files say what the recorded host was not.
#[test]
fn a_replay_on_another_host_does_not_give_it_back() {
    let folder = scratch();
    unpacked(folder.path(), "6.1");
    let quota = folder.path().join("host.recording/sys/fs/cgroup/web/cpu.max");
    assert_eq!(fs::read_to_string(&quota).expect("a copy of the quota"), "max 100000\n");
    fs::write(&quota, "20000 100000\n").expect("writable");
    let notes = replayed(folder.path()).err;
    assert!(notes.contains("not within 5 %"), "{notes}");
    assert!(
        notes.contains("warning: the replay does not give the recording back"),
        "{notes}"
    );
}
