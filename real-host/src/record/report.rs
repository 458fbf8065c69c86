//! How a recording went.

use std::fs;
use std::path::Path;

use serde::Serialize;

use super::machine::RecordError;

/// How a recording went. It is written into the folder.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Release of the kernel.
    pub kernel: String,
    /// The trace's clock, which counts nanoseconds.
    pub clock: String,
    /// Length of the recording in ns.
    pub length_ns: u64,
    /// Times in ns between the reading of `schedstat` and the begin of the events, and between its second reading and
    /// their end.
    pub delays_off_ns: [u64; 2],
    /// A signal ended the recording before its time.
    pub interrupted: bool,
    /// Events that this kernel lacks.
    pub missing: Vec<String>,
    /// System files of interest that could not be read, and why.
    pub unreadable: Vec<String>,
    /// Events by CPU.
    pub cpus: Vec<Cpu>,
    /// Processes with vCPU threads.
    pub vms: Vec<u32>,
    /// CPU time in ns that the program itself used while it recorded.
    pub own_cpu_ns: u64,
    /// Size of the file of events in bytes.
    pub bytes: u64,
    /// Tracing instances of programs that were killed, with the command that removes them.
    #[serde(skip)]
    pub left_over: Vec<String>,
}

/// Events of a CPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cpu {
    /// Its number.
    pub cpu: u32,
    /// Events that were read.
    pub events: u64,
    /// Events that the kernel lost, since its buffer was full.
    pub lost: u64,
    /// Pages that newer ones replaced on disk, since the limit was reached.
    pub pages_replaced: u64,
    /// Pages in the file.
    pub pages: u64,
}

impl Report {
    /// Sums a figure of all CPUs.
    pub fn sum(&self, figure: impl Fn(&Cpu) -> u64) -> u64 {
        self.cpus.iter().map(figure).fold(0, u64::saturating_add)
    }

    /// Writes the report to `path`.
    pub(super) fn write(&self, path: &Path) -> Result<(), RecordError> {
        let text = serde_json::to_string_pretty(self).map_err(|error| RecordError::of(path)(error.into()))?;
        fs::write(path, text + "\n").map_err(RecordError::of(path))
    }
}
