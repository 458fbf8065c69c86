//! What benchmarks read from the command line and from the machine.

use std::fs;
use std::thread;

/// The arguments of a benchmark: a number of rounds, a part of the names of rows, and `raw=FILE`.
pub struct Arguments {
    pub rounds: usize,
    part: Option<String>,
    raw: Option<String>,
}

impl Arguments {
    /// Reads the arguments of this process. `rounds` is the default number.
    pub fn read(rounds: usize) -> Arguments {
        let mut arguments = Arguments {
            rounds,
            part: None,
            raw: None,
        };
        // Cargo passes `--bench`.
        for argument in std::env::args().skip(1).filter(|argument| argument != "--bench") {
            if let Ok(rounds) = argument.parse() {
                arguments.rounds = rounds;
            } else if let Some(raw) = argument.strip_prefix("raw=") {
                arguments.raw = Some(raw.to_owned());
            } else {
                arguments.part = Some(argument);
            }
        }
        arguments
    }

    /// Returns whether the row is asked for.
    pub fn takes(&self, row: &str) -> bool {
        self.part.as_ref().is_none_or(|part| row.contains(part.as_str()))
    }

    /// Writes the raw figures to the file that is asked for.
    pub fn write(&self, runs: &str) {
        if let Some(path) = &self.raw
            && let Err(error) = fs::write(path, runs)
        {
            eprintln!("cannot write the raw figures to {path}: {error}");
            std::process::exit(1);
        }
    }
}

/// Returns what the figures depend on, one fact in each line.
pub fn describe() -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let model = read("/proc/cpuinfo");
    let model = model
        .lines()
        .find_map(|line| line.strip_prefix("model name"))
        .unwrap_or("");
    let git = std::process::Command::new("git")
        .args(["rev-parse", "--short", "HEAD"])
        .output();
    let commit = git.map_or_else(
        |_| String::new(),
        |git| String::from_utf8_lossy(&git.stdout).into_owned(),
    );
    let cpus = thread::available_parallelism().map_or(0, usize::from);
    let (kernel, load) = (read("/proc/sys/kernel/osrelease"), read("/proc/loadavg"));
    let model = model.trim_matches([' ', '\t', ':']);
    format!(
        "machine: {model}, {cpus} CPUs, Linux {}\nload: {}\ncommit: {}\n",
        kernel.trim(),
        load.trim(),
        commit.trim()
    )
}
