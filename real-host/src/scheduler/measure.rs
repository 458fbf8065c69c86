//! Measures a real kernel: runs platforms/kvm/testhost/schedule, which needs Debian's packages, and reads what it
//! recorded.

use std::fmt;
use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use super::figures::figures;
use super::judge::Record;
use super::scenario::Scenario;
use super::trace::{self, TraceError};

/// The script, in the root folder of a checkout.
pub const SCRIPT: &str = "platforms/kvm/testhost/schedule";
/// Exit status of the script if this machine cannot emulate a kernel.
const SKIPPED: i32 = 77;
/// Exit status of the script if the emulator did not finish in time.
const TIMED_OUT: i32 = 124;

/// Why a kernel could not be measured.
#[derive(Debug)]
pub enum MeasureError {
    /// This machine cannot have the kernel or the emulator, or is too slow for it.
    Skipped(String),
    /// The script cannot be started.
    Start(io::Error),
    /// The script failed.
    Failed(String),
    /// The recording is damaged.
    Trace(TraceError),
}

impl fmt::Display for MeasureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MeasureError::Skipped(why) => write!(f, "SKIPPED: {why}"),
            MeasureError::Start(error) => write!(
                f,
                "{SCRIPT} cannot be started: {error}; measuring works in the root folder of a checkout"
            ),
            MeasureError::Failed(said) => write!(f, "{SCRIPT} failed: {said}"),
            MeasureError::Trace(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for MeasureError {}

/// Plays `scenarios` on Debian's kernel of series `version`. `step` gets what is done next.
///
/// # Errors
/// [`MeasureError`].
pub fn measure(version: &str, scenarios: &[Scenario], step: &mut dyn FnMut(&str)) -> Result<Record, MeasureError> {
    let mut record = Record {
        version: version.to_owned(),
        release: String::new(),
        emulator: String::new(),
        figures: Vec::new(),
    };
    let mut sizes: Vec<u32> = scenarios.iter().map(|scenario| scenario.cpus).collect();
    sizes.sort_unstable();
    sizes.dedup();
    for cpus in sizes {
        let of_size: Vec<Scenario> = scenarios
            .iter()
            .filter(|scenario| scenario.cpus == cpus)
            .cloned()
            .collect();
        step(&format!("Linux {version}, {cpus} CPUs, {} scenarios", of_size.len()));
        let (text, said) = run(Path::new(SCRIPT), version, cpus, &of_size)?;
        let emulator = said.lines().find(|line| line.starts_with("QEMU"));
        record.emulator = emulator.unwrap_or("unknown").to_owned();
        for recording in trace::read(&text, &of_size).map_err(MeasureError::Trace)? {
            record
                .figures
                .push(figures(&of_size[recording.scenario], &recording.events));
            record.release = recording.release;
        }
    }
    Ok(record)
}

/// Returns the recording and what the script said.
fn run(script: &Path, version: &str, cpus: u32, scenarios: &[Scenario]) -> Result<(String, String), MeasureError> {
    let plan: String = scenarios.iter().map(Scenario::plan).collect();
    let mut child = Command::new(script)
        .args([version, &cpus.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(MeasureError::Start)?;
    let mut input = child.stdin.take().unwrap_or_else(|| unreachable!("piped above"));
    // The script reads its input late. If it ends before, its status says why.
    let writer = thread::spawn(move || input.write_all(plan.as_bytes()));
    let output = child.wait_with_output().map_err(MeasureError::Start)?;
    let _ = writer.join();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    match output.status.code() {
        Some(0) => Ok((String::from_utf8_lossy(&output.stdout).into_owned(), said)),
        Some(SKIPPED) => Err(MeasureError::Skipped(
            last(&said).trim_start_matches("SKIPPED: ").to_owned(),
        )),
        Some(TIMED_OUT) => Err(MeasureError::Skipped(
            "the emulated kernel did not finish in time".to_owned(),
        )),
        _ => Err(MeasureError::Failed(format!("{}: {}", output.status, last(&said)))),
    }
}

fn last(said: &str) -> &str {
    said.lines().last().unwrap_or("it said nothing")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::scheduler::scenario::shipped;

    fn script(text: &str) -> Result<(String, String), MeasureError> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("schedule");
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("a file");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("an executable file");
        run(&path, "6.1", 4, &shipped()[..1])
    }

    #[test]
    fn the_script_gets_the_plan_and_its_output_is_the_recording() {
        let (text, said) = script("echo $1 $2; cat; echo QEMU 1.2 >&2").expect("a run");
        assert!(text.starts_with("6.1 4\nscenario busy "), "{text}");
        assert!(text.ends_with("play\n"), "{text}");
        assert_eq!(said, "QEMU 1.2\n");
    }

    #[test]
    fn a_machine_without_packages_is_skipped_and_a_failure_is_named() {
        let skipped = script("echo SKIPPED: no apt >&2; exit 77").expect_err("no packages");
        assert_eq!(skipped.to_string(), "SKIPPED: no apt");
        assert!(matches!(script("exit 124"), Err(MeasureError::Skipped(_))));
        let error = script("echo no disk >&2; exit 3").expect_err("a failure").to_string();
        assert!(error.contains("no disk") && error.contains('3'), "{error}");
        let none = run(Path::new("/nowhere/schedule"), "6.1", 4, &[]).expect_err("no script");
        assert!(none.to_string().contains("root folder of a checkout"), "{none}");
    }
}
