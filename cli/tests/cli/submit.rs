//! Engines: what is submitted, and the local engine with a process that is killed.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::command::{holdfast_in, skipped};

const SWEEP: &[&str] = &["--seeds", "3", "--scale", "0.001", "--case", "1x"];

fn submit(folder: &Path, more: &[&str]) -> crate::command::Ran {
    holdfast_in(folder, &[&["submit"], SWEEP, more].concat())
}

fn one_run(folder: &Path) -> String {
    holdfast_in(folder, &[&["run", "--format", "json"], SWEEP].concat()).out
}

#[test]
fn the_local_engine_gives_the_bytes_of_one_run_and_resumes() {
    let folder = tempfile::tempdir().expect("a folder");
    let arguments = ["--engine", "local", "--shards", "3", "--out", "shared"];
    let ran = submit(folder.path(), &arguments);
    assert_eq!(ran.status, 0, "{}", ran.err);
    let results = folder.path().join("shared/kernbench-overcommit.results.json");
    let expected = one_run(folder.path());
    assert_eq!(fs::read_to_string(&results).expect("results"), expected);
    let status = holdfast_in(folder.path(), &["status", "shared", "--format", "json"]);
    let status: serde_json::Value = serde_json::from_str(&status.out).expect("JSON");
    assert_eq!((&status[0]["done"], &status[0]["units"]), (&6.into(), &6.into()));
    assert!(
        holdfast_in(folder.path(), &["status", "shared"])
            .out
            .contains("| kernbench-overcommit |     6 |")
    );
    let none = holdfast_in(folder.path(), &["status", "."]);
    assert!(none.status == 2 && none.err.contains("no plan in ."), "{}", none.err);
    fs::remove_file(&results).expect("ours");
    let again = submit(folder.path(), &arguments);
    assert!(again.err.contains("all 6 units are in the cache"), "{}", again.err);
    assert_eq!(fs::read_to_string(&results).expect("results"), expected);
}

#[test]
fn a_lost_process_begins_again() {
    let folder = tempfile::tempdir().expect("a folder");
    // The first process of a shard kills itself.
    let program = folder.path().join("program");
    let script = format!(
        "#!/bin/sh\nmkdir '{0}/killed' 2>/dev/null && kill -9 $$\nexec '{1}' \"$@\"\n",
        folder.path().display(),
        env!("CARGO_BIN_EXE_holdfast")
    );
    fs::write(&program, script).expect("writable");
    Command::new("chmod")
        .arg("755")
        .arg(&program)
        .status()
        .expect("chmod is there");
    let program = program.display().to_string();
    let ran = submit(
        folder.path(),
        &[
            "--engine",
            "local",
            "--shards",
            "2",
            "--out",
            "shared",
            "--program",
            &program,
        ],
    );
    assert_eq!(ran.status, 0, "{}", ran.err);
    assert!(
        ran.err.contains("was lost (signal: 9 (SIGKILL)), and begins again"),
        "{}",
        ran.err
    );
    let results = folder.path().join("shared/kernbench-overcommit.results.json");
    assert_eq!(fs::read_to_string(results).expect("results"), one_run(folder.path()));
}

#[test]
fn rounds_of_the_local_engine_give_the_bytes_of_one_adaptive_run() {
    let folder = tempfile::tempdir().expect("a folder");
    let adaptive = ["--until-ci", "1%", "--seeds-max", "12"];
    let ran = submit(
        folder.path(),
        &[
            &["--engine", "local", "--shards", "3", "--out", "shared"],
            &adaptive[..],
        ]
        .concat(),
    );
    assert_eq!(ran.status, 0, "{}", ran.err);
    let expected = holdfast_in(
        folder.path(),
        &[&["run", "--format", "json"], SWEEP, &adaptive].concat(),
    )
    .out;
    let results = folder.path().join("shared/kernbench-overcommit.results.json");
    assert_eq!(fs::read_to_string(results).expect("results"), expected);
    let document: serde_json::Value = serde_json::from_str(&expected).expect("JSON");
    let seeds = document["cases"][0]["samples"].as_array().expect("a list").len();
    assert!(seeds > 3, "there is a second round: {seeds} seeds");

    // The same by hand, as any engine can: plan a round, run it, until no unit is left.
    let plan = |more: &[&str]| holdfast_in(folder.path(), &[&["plan"], SWEEP, &adaptive, more].concat());
    let mut rounds = 0;
    loop {
        let round = plan(&["--cache", "mine", "--missing", "--format", "jsonl"]).out;
        fs::write(folder.path().join("round.jsonl"), &round).expect("writable");
        let merge = ["merge", "round.jsonl", "mine", "--format", "json"];
        fs::create_dir_all(folder.path().join("mine")).expect("writable");
        let merged = holdfast_in(folder.path(), &merge);
        if round.lines().count() == 1 {
            assert_eq!((merged.status, merged.out), (0, expected));
            break;
        }
        assert_eq!(merged.status, 1, "not all rounds are done");
        assert!(merged.err.contains("have no record"), "{}", merged.err);
        let ran = holdfast_in(folder.path(), &["run", "--units", "round.jsonl", "--cache", "mine"]);
        assert_eq!(ran.status, 0, "{}", ran.err);
        rounds += 1;
    }
    assert!(rounds > 1, "{rounds}");
    let table = plan(&["--cache", "mine", "--missing"]).out;
    assert!(table.contains(" 0 to run"), "{table}");
}

#[test]
fn a_dry_run_prints_the_job_and_does_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let dry = |engine: &str| {
        let ran = submit(
            folder.path(),
            &[
                "--engine",
                engine,
                "--shards",
                "4",
                "--out",
                "it's shared",
                "--dry-run",
                "--program",
                "/opt/holdfast",
            ],
        );
        assert_eq!(ran.status, 0, "{}", ran.err);
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0);
        ran.out
    };
    let slurm = dry("slurm");
    assert!(slurm.starts_with("#!/bin/sh\n#SBATCH --job-name=holdfast-kernbench-overcommit\n#SBATCH --array=1-4\n"));
    assert!(
        slurm.contains(r#"--shard "$SLURM_ARRAY_TASK_ID/4" --jobs 1"#),
        "{slurm}"
    );
    assert!(
        slurm.contains(r"it'\''s shared/kernbench-overcommit.plan.jsonl'"),
        "{slurm}"
    );
    let hyperqueue = dry("hyperqueue");
    assert_eq!(hyperqueue.matches("[[task]]").count(), 4);
    assert!(hyperqueue.contains(r#""--shard","4/4""#), "{hyperqueue}");
    let manifest: serde_json::Value = serde_json::from_str(&dry("kubernetes")).expect("JSON");
    assert_eq!(manifest["spec"]["completionMode"], "Indexed");
    assert_eq!(manifest["spec"]["completions"], 4);
    let line = &manifest["spec"]["template"]["spec"]["containers"][0]["command"][2];
    let line = line.as_str().expect("text");
    assert!(line.contains(r#"--shard "$((JOB_COMPLETION_INDEX + 1))/4""#), "{line}");
    // Each line for a shell is one that a shell accepts.
    let dask = dry("dask");
    assert!(
        dask.contains(r#""--shard","@SHARD@/4""#) && dask.contains("range(1, 4 + 1)"),
        "{dask}"
    );
    match Command::new("python3")
        .args(["-c", "import ast, sys; ast.parse(sys.argv[1])", &dask])
        .status()
    {
        Ok(status) => assert!(status.success(), "{dask}"),
        Err(_) => skipped("the script for Dask was not parsed: no python3"),
    }
    for text in [slurm.as_str(), line, &dry("local")] {
        let checked = Command::new("sh").args(["-n", "-c", text]).status();
        assert!(checked.expect("sh is there").success(), "{text}");
    }
}

#[test]
fn an_engine_that_is_not_there_leaves_its_job() {
    let folder = tempfile::tempdir().expect("a folder");
    if Command::new("sbatch").arg("--version").output().is_ok() {
        skipped("1 test of an engine that is not there: this machine has sbatch");
        return;
    }
    let ran = submit(folder.path(), &["--engine", "slurm", "--out", "shared"]);
    assert_eq!(ran.status, 77);
    assert!(ran.err.contains("SKIPPED: sbatch: cannot start it"), "{}", ran.err);
    assert!(folder.path().join("shared/kernbench-overcommit.sbatch").is_file());
}

#[test]
fn tables_as_csv_have_what_the_results_have() {
    let folder = tempfile::tempdir().expect("a folder");
    let csv = holdfast_in(
        folder.path(),
        &[&["run", "--format", "csv", "--out", "."], SWEEP].concat(),
    );
    assert_eq!(csv.status, 0, "{}", csv.err);
    let results: serde_json::Value = serde_json::from_str(&one_run(folder.path())).expect("JSON");
    let rows: Vec<Vec<&str>> = csv.out.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(
        rows[0][..8],
        ["experiment", "case", "variant", "vm", "seed", "metric", "unit", "value"]
    );
    let cases = results["cases"].as_array().expect("a list");
    let mut row = rows[1..].iter();
    for case in cases {
        for (seed, sample) in [(1, 0), (2, 1), (3, 2)] {
            let row = row.next().expect("a row for each sample");
            assert_eq!(row[4], seed.to_string());
            assert_eq!(row[7].parse::<f64>().ok(), case["samples"][sample].as_f64());
            assert_eq!(row[13], case["history_hashes"][sample]);
        }
    }
    assert!(row.next().is_none());
    let file = "kernbench-overcommit.results.json";
    let ran = holdfast_in(folder.path(), &["report", file, "--csv", "tables"]);
    assert_eq!(ran.status, 0, "{}", ran.err);
    let read = |name: &str| fs::read_to_string(folder.path().join("tables").join(name)).expect(name);
    assert_eq!(read("kernbench-overcommit.samples.csv"), csv.out);
    for (name, key) in [("lost-time", "lost_time"), ("counters", "counters")] {
        let text = read(&format!("kernbench-overcommit.{name}.csv"));
        let count: usize = ["cases", "background"]
            .into_iter()
            .flat_map(|list| results[list].as_array().expect("a list"))
            .map(|guest| guest[key].as_object().expect("a map").len())
            .sum();
        assert_eq!(text.lines().count(), 1 + count, "{name}");
    }
}
