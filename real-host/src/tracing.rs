//! What the host's kernel says of a run: its tracepoints, as a timeline like the simulator's.
//!
//! A real host tells less than the simulator: who has each pCPU, why vCPUs are out of their guests, who kicks whom. What a guest
//! does inside, which locks it holds and whom its waiters wait for, it cannot know; the timeline is empty there.

mod assemble;
pub(crate) mod events;
mod line;

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use holdfast_kvm::Linux;
use holdfast_sim::timeline::Timeline;
use holdfast_sim::{CallOff, Config, Failure, Outcome};

use crate::kvm;
use assemble::{VcpuThread, assemble};
use events::{EVENTS, TRACEFS};

/// What is recorded of each CPU, KiB: some hundred thousand events, the newest.
const BUFFER_KIB: u32 = 16 << 10;
/// Why nothing can be recorded.
#[derive(Debug)]
pub struct TracingError {
    tried: PathBuf,
    error: io::Error,
}

impl fmt::Display for TracingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let advice = match self.error.kind() {
            io::ErrorKind::NotFound => ": is it mounted? mount -t tracefs tracefs /sys/kernel/tracing",
            io::ErrorKind::PermissionDenied => ": tracing is for root",
            _ => "",
        };
        write!(
            f,
            "the kernel's tracepoints cannot be had: {}: {}{advice}",
            self.tried.display(),
            self.error
        )
    }
}

impl std::error::Error for TracingError {}

/// A recording of our own, beside whatever else traces. Gone when it is dropped.
#[derive(Debug)]
pub struct Recording {
    folder: PathBuf,
}

impl Recording {
    /// Begins to record, with the tracing file system at `root`.
    ///
    /// # Errors
    /// What was refused. Nothing is left then.
    pub fn begin(root: &Path) -> Result<Recording, TracingError> {
        let folder = root.join("instances").join(format!("holdfast-{}", std::process::id()));
        fs::create_dir(&folder).map_err(|error| TracingError {
            tried: folder.clone(),
            error,
        })?;
        let recording = Recording { folder };
        recording.set("tracing_on", "0")?;
        recording.set("trace_clock", "mono")?;
        recording.set("buffer_size_kb", &BUFFER_KIB.to_string())?;
        for event in EVENTS {
            recording.set(&format!("events/{event}/enable"), "1")?;
        }
        recording.set("tracing_on", "1")?;
        Ok(recording)
    }

    fn set(&self, file: &str, value: &str) -> Result<(), TracingError> {
        let tried = self.folder.join(file);
        fs::write(&tried, value).map_err(|error| TracingError { tried, error })
    }

    /// Ends it; what was recorded, as the kernel prints it.
    ///
    /// # Errors
    /// What was refused.
    pub fn finish(self) -> Result<String, TracingError> {
        self.set("tracing_on", "0")?;
        let tried = self.folder.join("trace");
        let text = fs::read(&tried).map_err(|error| TracingError { tried, error })?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        let _ = self.set("tracing_on", "0");
        let _ = fs::remove_dir(&self.folder);
    }
}

/// Runs `config` as [`kvm::run_here`] or [`kvm::run_linux`] do, recorded.
///
/// # Errors
/// As these; or that nothing can be recorded.
pub fn run(linux: Option<&Linux>, config: &Config, call_off: &CallOff) -> Result<(Outcome, Timeline), Failure> {
    let refused = |error: TracingError| Failure::Invalid(error.to_string());
    let recording = Recording::begin(Path::new(TRACEFS)).map_err(refused)?;
    let report = kvm::report(linux, config, call_off)?;
    let text = recording.finish().map_err(refused)?;
    let threads: Vec<VcpuThread> = (0..)
        .zip(&report.vms)
        .flat_map(|(vm, told)| {
            (0..)
                .zip(&told.vcpus)
                .map(move |(number, vcpu)| (vm, number, vcpu.thread))
        })
        .map(|(vm, number, thread)| VcpuThread { vm, number, thread })
        .collect();
    let names = report.vms.iter().map(|vm| vm.name.clone()).collect();
    let timeline = assemble(&text, names, &threads);
    Ok((kvm::outcome(report), timeline))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_said_with_what_to_do() {
        let folder = tempfile::tempdir().expect("a folder");
        let error = Recording::begin(folder.path()).expect_err("no tracefs");
        let said = error.to_string();
        assert!(said.contains("mount -t tracefs"), "{said}");
    }
}
