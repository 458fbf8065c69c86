//! An operator's hour: from `holdfast new` to the answer, with the commands of the tutorial, on a small host.

use std::fs;
use std::path::Path;

use crate::command::{Ran, holdfast_in, scratch};

/// Columns of a terminal.
const WIDTH: usize = 100;

/// What `lscpu -p` prints on a host of two sockets with two cores of two threads each.
fn lscpu() -> String {
    let mut text = "# CPU,Core,Socket,Node,,L1d,L1i,L2,L3\n".to_owned();
    for cpu in 0..8 {
        let core = cpu % 4;
        let socket = core / 2;
        text += &format!("{cpu},{core},{socket},{socket},,{core},{core},{core},{socket}\n");
    }
    text
}

/// Runs a command that must succeed, whose lines fit a terminal.
fn step(folder: &Path, command: &str) -> Ran {
    let arguments: Vec<&str> = command.split(' ').collect();
    let ran = holdfast_in(folder, &arguments);
    assert_eq!(ran.status, 0, "{command}: {}", ran.err);
    for line in ran.out.lines().filter(|line| !line.starts_with("machine ")) {
        assert!(line.chars().count() <= WIDTH, "{command}: {line}");
    }
    ran
}

#[test]
fn an_operator_gets_from_a_new_file_to_an_answer() {
    let folder = scratch();
    let folder = folder.path();
    fs::write(folder.join("lscpu.txt"), lscpu()).expect("writable");
    step(
        folder,
        "new web.toml --kernel linux-6.12 --topology lscpu.txt --guest db:pgbench:2 --guest builder:kernbench:2:3 \
         --question pin",
    );
    let text = fs::read_to_string(folder.join("web.toml")).expect("it was written");
    assert!(
        text.contains("metric = \"own\"") && text.contains("work = 10"),
        "{text}"
    );
    let planned = step(folder, "plan web.toml");
    assert!(
        planned.out.contains("as-it-is") && planned.out.contains("pinned"),
        "{}",
        planned.out
    );

    let ran = step(folder, "run web.toml --scale 0.002 --seeds 2 --out results");
    for words in [
        "throughput, transactions/s",
        "elapsed, s",
        "as the guests' users measure:",
        "p99, ms",
        "Against \"as-it-is\": ",
        "Slowest hundredth of the operations (p99). Against \"as-it-is\": ",
        "pinned      db to 0-1, on 2 cores of 1 socket",
    ] {
        assert!(ran.out.contains(words), "{words}: {}", ran.out);
    }
    let results = "results/web.results.json";
    let explained = step(folder, &format!("explain {results}"));
    for words in ["as the guests' users measure", "as operators measure", "useful"] {
        assert!(explained.out.contains(words), "{words}: {}", explained.out);
    }
    let compared = step(folder, &format!("compare {results} --metric p99"));
    assert!(
        compared.out.contains("| pinned ") && !compared.out.contains("builder"),
        "{}",
        compared.out
    );
    let compared = step(folder, &format!("compare {results} --guest builder"));
    assert!(
        compared.out.contains("3 x builder") && !compared.out.contains("p99"),
        "{}",
        compared.out
    );
    step(folder, &format!("report {results}"));
    let page = fs::read_to_string(folder.join("results/web.results.html")).expect("it was written");
    for words in [
        "As the guests' users measure",
        "As operators measure",
        "Slowest hundredth of the operations",
    ] {
        assert!(page.contains(words), "{words}");
    }
    let refused = holdfast_in(folder, &["compare", results, "--guest", "builder", "--metric", "p50"]);
    assert_eq!(refused.status, 2, "{}", refused.out);
}
