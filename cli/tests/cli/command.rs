//! Runs the built command.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Outputs of a command that has ended.
#[derive(Debug)]
pub struct Ran {
    /// Exit status.
    pub status: i32,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

/// Runs `holdfast ARGUMENTS` in `folder`.
pub fn holdfast_in<S: AsRef<OsStr>>(folder: &Path, arguments: &[S]) -> Ran {
    let output = Command::new(env!("CARGO_BIN_EXE_holdfast"))
        .current_dir(folder)
        .args(arguments)
        // The width of help texts.
        .env_remove("COLUMNS")
        .output();
    Ran::of(output.expect("the command starts"))
}

/// Runs `holdfast ARGUMENTS`.
pub fn holdfast<S: AsRef<OsStr>>(arguments: &[S]) -> Ran {
    holdfast_in(Path::new(env!("CARGO_MANIFEST_DIR")), arguments)
}

impl Ran {
    /// Returns exit status and texts of `output`.
    pub fn of(output: Output) -> Ran {
        Ran {
            status: output.status.code().expect("no signal"),
            out: String::from_utf8(output.stdout).expect("UTF-8"),
            err: String::from_utf8(output.stderr).expect("UTF-8"),
        }
    }

    /// Returns standard output, which must be one JSON document.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {}", self.out))
    }
}

/// Reports a skipped check. The test harness does not capture the message.
pub fn skipped(what: &str) {
    use std::io::Write as _;
    writeln!(std::io::stderr(), "SKIPPED: {what}").expect("standard error");
}

/// Returns a new folder, which is removed when it is dropped. It is not in `TMPDIR`, which may name anything.
pub fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("cargo has made the folder above")
}

/// A running program.
#[derive(Debug)]
pub struct Running(Child);

impl Running {
    /// Starts `command`.
    pub fn new(command: &mut Command) -> Running {
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        Running(child.expect("the command starts"))
    }

    /// Returns the value of a line in the process's status file.
    fn status(&self, name: &str) -> String {
        let status = fs::read_to_string(format!("/proc/{}/status", self.0.id())).expect("the process lives");
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.expect("Linux says it").trim().to_owned()
    }

    /// Returns the process ID.
    #[cfg(all(target_os = "linux", feature = "real-host"))]
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// Returns whether the program has ended.
    #[cfg(all(target_os = "linux", feature = "real-host"))]
    pub fn has_ended(&self) -> bool {
        self.status("State:").starts_with('Z')
    }

    /// Waits until `ready` returns true.
    pub fn until(&self, what: &str, ready: impl Fn() -> bool) {
        let begun = Instant::now();
        while !ready() {
            assert!(begun.elapsed() < Duration::from_secs(60), "{what} does not happen");
            sleep(Duration::from_millis(5));
        }
    }

    /// Waits until the program handles Ctrl-C.
    pub fn until_it_listens(&self) {
        const SIGINT: u32 = 2;
        self.until_it_handles(SIGINT);
    }

    /// Waits until the program handles `signal`.
    pub fn until_it_handles(&self, signal: u32) {
        self.until("catching the signal", || {
            let caught = u64::from_str_radix(&self.status("SigCgt:"), 16).expect("hexadecimal");
            caught & (1 << (signal - 1)) != 0
        });
    }

    /// Waits until the program has at least so many threads.
    pub fn until_it_has_threads(&self, count: u32) {
        self.until("having that many threads", || {
            self.status("Threads:").parse::<u32>().expect("a number") >= count
        });
    }

    /// Sends Ctrl-C.
    pub fn interrupt(&self) {
        self.send("INT");
    }

    /// Sends the signal called `name`.
    pub fn send(&self, name: &str) {
        let killed = Command::new("kill")
            .args(["-s", name, &self.0.id().to_string()])
            .status();
        assert!(killed.expect("kill is there").success());
    }

    /// Ends the program at once, as a crash of its machine does.
    pub fn kill(mut self) {
        self.0.kill().expect("it runs");
        self.0.wait().expect("it has ended");
    }

    /// Waits for the end. Returns the program's outputs and the time that it took.
    pub fn end(self) -> (Ran, Duration) {
        let begun = Instant::now();
        let output = self.0.wait_with_output().expect("it ends");
        (Ran::of(output), begun.elapsed())
    }
}

/// Returns a command that runs `program` with the default actions of the signals that end programs. The process that
/// started the tests may ignore them, as `nohup` does, and programs inherit that.
pub fn with_default_signals(program: &str) -> Command {
    // SIGHUP, SIGINT and SIGTERM.
    const THAT_END: u64 = 1 << 0 | 1 << 1 | 1 << 14;
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    if ignored.unwrap_or(0) & THAT_END == 0 {
        return Command::new(program);
    }
    let mut command = Command::new("env");
    command.args(["--default-signal=HUP,INT,TERM", program]);
    command
}

/// Starts `holdfast ARGUMENTS`.
pub fn start<S: AsRef<OsStr>>(arguments: &[S]) -> Running {
    Running::new(with_default_signals(env!("CARGO_BIN_EXE_holdfast")).args(arguments))
}
