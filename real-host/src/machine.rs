//! Description of the machine on which figures were measured.

use std::fs;
use std::num::NonZeroUsize;
use std::thread::available_parallelism;

use holdfast_lab::meter::cpu_name;
use serde::{Deserialize, Serialize};

/// A machine, as far as this process sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// The CPU's name for itself.
    pub cpu: Option<String>,
    /// Number of CPUs that this process may use.
    pub cpus: usize,
    /// Operating system and version.
    pub kernel: Option<String>,
    /// Runnable threads, averaged over a minute, before the measurements. Well above 0, other programs were running.
    pub load_before: Option<f64>,
    /// Runnable threads after the measurements, including the benchmark's own load.
    pub load_after: Option<f64>,
}

impl Machine {
    /// Describes this machine. What is not known is missing.
    pub fn here() -> Machine {
        Machine {
            cpu: cpu_name(),
            cpus: available_parallelism().map_or(1, NonZeroUsize::get),
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease")
                .ok()
                .map(|release| format!("Linux {}", release.trim())),
            load_before: load(),
            load_after: None,
        }
    }

    /// Completes the description at the end of the run.
    pub fn note_load_after(&mut self) {
        self.load_after = load();
    }
}

fn load() -> Option<f64> {
    fs::read_to_string("/proc/loadavg")
        .ok()?
        .split(' ')
        .next()?
        .parse()
        .ok()
}
