//! What a run costs this machine: wall time, CPU time, peak memory. None of it is part of a result.

use std::fs;
use std::time::Instant;

use serde::{Deserialize, Serialize};

/// What a run cost the machine that it ran on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Wall time in seconds.
    pub wall_s: f64,
    /// CPU time of the run's thread in seconds; null where the system does not report it.
    pub cpu_s: Option<f64>,
    /// Largest resident memory of the process in bytes; null where the system does not report it.
    pub peak_bytes: Option<u64>,
    /// Whether `peak_bytes` is of this run alone. If not, it is of the whole process until the end of the run.
    pub peak_is_own: bool,
}

/// A measurement that has begun, on the thread of the run.
#[derive(Debug)]
pub struct Meter {
    begun: Instant,
    cpu_s: Option<f64>,
    alone: bool,
}

impl Meter {
    /// Starts the measurement. `alone`: no other run of this process is under way.
    pub fn start(alone: bool) -> Meter {
        // Linux then counts the peak again from now on (proc_pid_clear_refs(5)).
        let alone = alone && fs::write("/proc/self/clear_refs", "5").is_ok();
        Meter {
            begun: Instant::now(),
            cpu_s: cpu_s(),
            alone,
        }
    }

    /// Ends the measurement.
    pub fn stop(self) -> Cost {
        let cpu_s = self.cpu_s.zip(cpu_s()).map(|(begin, end)| end - begin);
        Cost {
            wall_s: self.begun.elapsed().as_secs_f64(),
            cpu_s,
            peak_bytes: peak_bytes(),
            peak_is_own: self.alone,
        }
    }
}

/// Returns the CPU time of this thread, from the first field of Linux's schedstat (kernel, `proc_pid_schedstat`).
fn cpu_s() -> Option<f64> {
    let text = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let nanos: u64 = text.split_whitespace().next()?.parse().ok()?;
    // A kernel without CONFIG_SCHED_INFO reports zeros.
    (nanos > 0).then_some(nanos as f64 / 1e9)
}

/// Returns the CPU's name for itself, or `None` where the system does not report it.
pub fn cpu_name() -> Option<String> {
    let info = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = info.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// Returns the largest resident memory of this process (`VmHWM`).
fn peak_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kib << 10)
}
