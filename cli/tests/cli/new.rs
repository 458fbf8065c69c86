//! An operator's first hour: a new file, its run, and the words that find keys.

use std::fs;

use crate::command::{holdfast, holdfast_in, scratch};

#[test]
fn a_new_file_runs_and_says_what_it_sets_up() {
    let folder = scratch();
    let made = holdfast_in(folder.path(), &["new", "mine.toml"]);
    assert_eq!((made.status, made.out.as_str()), (0, ""), "{}", made.err);
    let text = fs::read_to_string(folder.path().join("mine.toml")).expect("it was written");
    assert!(
        text.starts_with("# Made by `holdfast new`") && text.contains("kernel = \"linux-6.12\""),
        "{text}"
    );
    let ran = holdfast_in(
        folder.path(),
        &["run", "mine.toml", "--scale", "0.0005", "--seeds", "1", "--quiet"],
    );
    assert_eq!(ran.status, 0, "{}", ran.err);
    for line in [
        "machine     xeon-2x16: 1 socket x 8 cores x 2 threads, 16 pCPUs; 0,8 are siblings",
        "host        linux-6.12\n",
        "overcommit  1.5 vCPUs of guests with work for each pCPU",
        "load        ",
    ] {
        assert!(ran.out.contains(line), "{line}: {}", ran.out);
    }
    let again = holdfast_in(folder.path(), &["new", "mine.toml"]);
    assert_eq!(again.status, 2);
    assert!(again.err.contains("which is there already"), "{}", again.err);
    assert_eq!(holdfast_in(folder.path(), &["new", "mine.toml", "--force"]).status, 0);
}

#[test]
fn a_host_is_described_by_its_own_lscpu() {
    let folder = scratch();
    let mut lscpu = "# CPU,Core,Socket,Node,,L1d,L1i,L2,L3\n".to_owned();
    for cpu in 0..8 {
        let core = cpu % 4;
        lscpu += &format!("{cpu},{core},{},0,,{core},{core},{core},{}\n", core / 2, core / 2);
    }
    fs::write(folder.path().join("lscpu.txt"), lscpu).expect("writable");
    let options = [
        "--topology",
        "lscpu.txt",
        "--guest",
        "db:pgbench:2",
        "--guest",
        "load:hog:4:2",
        "--question",
        "pin",
    ];
    let made = holdfast_in(folder.path(), &[&["new", "mine.toml"][..], &options[..]].concat());
    assert_eq!(made.status, 0, "{}", made.err);
    let run = ["run", "mine.toml", "--scale", "0.0005", "--seeds", "1", "--quiet"];
    let ran = holdfast_in(folder.path(), &run);
    assert!(
        ran.out
            .contains("2 sockets x 2 cores x 2 threads, 8 pCPUs; 0,4 are siblings"),
        "{}{}",
        ran.out,
        ran.err
    );
    assert!(ran.out.contains("0-1,4-5"), "{}", ran.out);
    fs::write(folder.path().join("lscpu.txt"), "nothing\n").expect("writable");
    let ran = holdfast_in(folder.path(), &run);
    assert_eq!(ran.status, 2);
    let found = "machine.topology: found \"lscpu.txt\", with the line \"nothing\", expected the output of `lscpu -p`";
    assert!(ran.err.contains(found), "{}", ran.err);
}

#[test]
fn words_of_operators_lead_to_keys() {
    for (words, key) in [
        (&["vcpupin"][..], "vm.*.affinity = "),
        (&["cpu.weight"], "vm.*.cpu.weight = "),
        (&["kernel", "version"], "host.kernel = "),
        (&["overcommit"], "vm.*.vcpus = "),
    ] {
        let found = holdfast(&[&["keys"][..], words].concat());
        assert!(found.status == 0 && found.out.contains(key), "{words:?}: {}", found.out);
    }
    let unknown = holdfast(&["run", "--set", "vm.build.pin=0-3"]);
    assert!(
        unknown.err.contains("by its meaning `vm.*.affinity`"),
        "{}",
        unknown.err
    );
}

#[test]
fn results_without_a_case_make_no_report() {
    let folder = scratch();
    let ran = holdfast(&[
        "run", "--scale", "0.0005", "--seeds", "1", "--case", "1x", "--format", "json", "--quiet",
    ]);
    let mut results: serde_json::Value = serde_json::from_str(&ran.out).expect("results");
    results["cases"] = serde_json::json!([]);
    fs::write(folder.path().join("none.json"), results.to_string()).expect("writable");
    let refused = holdfast_in(folder.path(), &["report", "none.json"]);
    assert_eq!(refused.status, 2, "{}", refused.err);
    assert!(refused.err.contains("which has no case"), "{}", refused.err);
    results["schema"] = "holdfast.results/3".into();
    fs::write(folder.path().join("later.json"), results.to_string()).expect("writable");
    let later = holdfast_in(folder.path(), &["report", "later.json"]);
    assert!(
        later.err.contains("which a newer version of this program wrote"),
        "{}",
        later.err
    );
}

#[test]
fn a_moment_after_the_end_is_named_and_whole_nanoseconds_are_times() {
    let run = [
        "run",
        "--case",
        "1x",
        "--variant",
        "ticket",
        "--scale",
        "0.0005",
        "--seeds",
        "1",
        "--quiet",
    ];
    let early = holdfast(&[&run[..], &["--zero-at", "5"]].concat());
    assert_eq!(early.status, 0, "{}", early.err);
    let late = holdfast(&[&run[..], &["--zero-at", "100 s"]].concat());
    assert_eq!(late.status, 1);
    assert!(
        late.err.contains("zero_at: found 100 s, expected a moment before "),
        "{}",
        late.err
    );
}

#[test]
fn out_names_a_folder_or_a_file() {
    let folder = scratch();
    let run = ["run", "--scale", "0.0005", "--seeds", "1", "--case", "1x", "--quiet"];
    for (out, file) in [
        ("made/", "made/kernbench-overcommit.results.json"),
        ("mine.json", "mine.json"),
    ] {
        assert_eq!(
            holdfast_in(folder.path(), &[&run[..], &["--out", out]].concat()).status,
            0
        );
        assert!(folder.path().join(file).is_file(), "{file}");
    }
    assert_eq!(
        holdfast_in(folder.path(), &["report", "mine.json", "--out", "made"]).status,
        0
    );
    assert!(folder.path().join("made/kernbench-overcommit.html").is_file());
}
