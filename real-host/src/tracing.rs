//! Records the host kernel's tracepoints during a run, as a timeline like the simulator's.
//!
//! A real host shows less than the simulator: the thread on each pCPU, the causes of exits, and kicks. It does not know
//! what a guest does inside, nor its locks and waiters. The timeline is empty there.

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
pub(crate) use line::{Parts, parts};

/// Size of the buffer of each CPU in KiB, which holds the newest few hundred thousand events.
const BUFFER_KIB: u32 = 16 << 10;
/// Error of a recording.
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

/// A tracing instance, separate from other tracing. It is removed when it is dropped.
#[derive(Debug)]
pub struct Recording {
    folder: PathBuf,
}

impl Recording {
    /// Starts a recording with the tracing file system at `root`.
    ///
    /// # Errors
    /// If the kernel refuses a step. Nothing is left behind then.
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

    /// Ends the recording. Returns the events as the kernel prints them.
    ///
    /// # Errors
    /// If the kernel refuses a step.
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

/// Runs `config` as [`kvm::Runs::run`] does, and records the run.
///
/// # Errors
/// As for that function, or if nothing can be recorded.
pub fn run(linux: Option<&Linux>, config: &Config, call_off: &CallOff) -> Result<(Outcome, Timeline), Failure> {
    let refused = |error: TracingError| Failure::Invalid(error.to_string());
    let recording = Recording::begin(Path::new(TRACEFS)).map_err(refused)?;
    let report = kvm::attempt(linux, config, kvm::limit(linux), call_off).map_err(|failed| failed.failure)?;
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
        let folder = crate::scratch();
        let error = Recording::begin(folder.path()).expect_err("no tracefs");
        let said = error.to_string();
        assert!(said.contains("mount -t tracefs"), "{said}");
    }
}
