//! Judges the host scheduler's figures by a real kernel's.

use std::collections::BTreeMap;

use holdfast_host::SchedulerKind;
use serde::{Deserialize, Serialize};

use super::figures::{Figures, GroupFigures, figures};
use super::play::{PlayError, play};
use super::scenario::Scenario;

/// Goal for the median share of a CPU. Percentage points.
pub const SHARE_POINTS: f64 = 2.0;
/// Goal for the median slice.
pub const SLICE: f64 = 0.10;
/// Goal for wake-to-run, p50 and p99.
pub const WAKE: f64 = 0.25;
/// A difference in wake-to-run that is not judged. The emulated CPUs take turns of up to 30 µs, so one of four sees an
/// interrupt from another up to 90 µs late. Microseconds.
pub const WAKE_US: f64 = 90.0;
/// Fewest slices or wakeups of which a percentile is judged.
const ENOUGH: u64 = 50;

/// Figures of all scenarios under one real kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// The kernel's version, as in "6.1".
    pub version: String,
    /// The kernel's release (`uname -r`).
    pub release: String,
    /// The emulator.
    pub emulator: String,
    /// Figures of each scenario.
    pub figures: Vec<Figures>,
}

/// A real kernel that the repository has a record of.
#[derive(Clone, Copy, Debug)]
pub struct Kernel {
    /// Its version.
    pub version: &'static str,
    /// The scheduler that stands for it.
    pub scheduler: SchedulerKind,
    /// Its record, as JSON.
    pub record: &'static str,
}

/// The kernels, the oldest first.
pub const KERNELS: &[Kernel] = &[
    Kernel {
        version: "6.1",
        scheduler: SchedulerKind::Cfs61,
        record: include_str!("../../scheduler/linux-6.1.json"),
    },
    Kernel {
        version: "6.12",
        scheduler: SchedulerKind::Eevdf612,
        record: include_str!("../../scheduler/linux-6.12.json"),
    },
    Kernel {
        version: "6.18",
        scheduler: SchedulerKind::Eevdf618,
        record: include_str!("../../scheduler/linux-6.18.json"),
    },
    Kernel {
        version: "7.3",
        scheduler: SchedulerKind::Eevdf73,
        record: include_str!("../../scheduler/linux-7.3.json"),
    },
];

impl Kernel {
    /// Returns the kernel's record.
    ///
    /// # Panics
    /// If the record that the repository has is damaged. A test reads all of them.
    pub fn record(&self) -> Record {
        serde_json::from_str(self.record).unwrap_or_else(|error| panic!("Linux {}: {error}", self.version))
    }
}

/// Threads that do the same, under both schedulers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Name of the scenario.
    pub scenario: String,
    /// Their figures under the real kernel.
    pub linux: GroupFigures,
    /// Their figures under the host scheduler.
    pub holdfast: GroupFigures,
    /// Whether each figure that is judged is within its goal.
    pub within: BTreeMap<&'static str, bool>,
}

/// Judgment of the host scheduler by one kernel.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Judgment {
    /// The kernel's version.
    pub kernel: String,
    /// Its release.
    pub release: String,
    /// The scheduler that stands for it.
    pub scheduler: &'static str,
    /// Rows, in the order of the scenarios.
    pub rows: Vec<Row>,
    /// Recorded scenarios that are not the present ones, and present ones that are not recorded.
    pub missing: Vec<String>,
}

impl Judgment {
    /// Returns how many figures called `name` are within their goal, and how many are judged.
    pub fn count(&self, name: &str) -> (usize, usize) {
        let judged: Vec<bool> = self
            .rows
            .iter()
            .filter_map(|row| row.within.get(name).copied())
            .collect();
        (judged.iter().filter(|&&within| within).count(), judged.len())
    }
}

/// Plays `scenarios` under `scheduler` and judges the figures by `record`.
///
/// # Errors
/// If the scheduler cannot play a scenario.
pub fn judge(record: &Record, scheduler: SchedulerKind, scenarios: &[Scenario]) -> Result<Judgment, PlayError> {
    let mut rows = Vec::new();
    let mut missing = Vec::new();
    for scenario in scenarios {
        let Some(linux) = record.figures.iter().find(|figures| figures.scenario == scenario.name) else {
            missing.push(scenario.name.clone());
            continue;
        };
        let ours = figures(scenario, &play(scenario, scheduler)?);
        for holdfast in ours.threads {
            match linux.threads.iter().find(|linux| linux.name == holdfast.name) {
                Some(linux) => rows.push(row(scenario, linux.clone(), holdfast)),
                None => missing.push(format!("{}: {}", scenario.name, holdfast.name)),
            }
        }
    }
    Ok(Judgment {
        kernel: record.version.clone(),
        release: record.release.clone(),
        scheduler: scheduler.name(),
        rows,
        missing,
    })
}

fn row(scenario: &Scenario, linux: GroupFigures, holdfast: GroupFigures) -> Row {
    let mut within = BTreeMap::new();
    let points = (linux.share[1] - holdfast.share[1]).abs();
    within.insert("share", points <= SHARE_POINTS);
    if linux.slices.min(holdfast.slices) >= ENOUGH {
        within.insert("slice", near(linux.slice_ms[1], holdfast.slice_ms[1], SLICE, 0.0));
        if let (Some(real), Some(ours)) = (linux.wake_us, holdfast.wake_us) {
            within.insert("wake p50", near(real[0], ours[0], WAKE, WAKE_US));
            within.insert("wake p99", near(real[1], ours[1], WAKE, WAKE_US));
        }
    }
    Row {
        scenario: scenario.name.clone(),
        linux,
        holdfast,
        within,
    }
}

/// Returns whether `ours` differs from `real` by at most `share` of it, or by at most `least`.
fn near(real: f64, ours: f64, share: f64, least: f64) -> bool {
    (real - ours).abs() <= (share * real).max(least)
}

/// Returns `record` as JSON with a line for each scenario.
///
/// # Errors
/// If a figure is not a number.
pub fn to_json(record: &Record) -> Result<String, serde_json::Error> {
    let lines: Result<Vec<String>, _> = record.figures.iter().map(serde_json::to_string).collect();
    Ok(format!(
        "{{\n\"version\": {},\n\"release\": {},\n\"emulator\": {},\n\"figures\": [\n{}\n]\n}}\n",
        serde_json::to_string(&record.version)?,
        serde_json::to_string(&record.release)?,
        serde_json::to_string(&record.emulator)?,
        lines?.join(",\n")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::scenario::shipped;

    #[test]
    fn records_are_read_written_and_have_the_scenarios_threads() {
        let scenarios = shipped();
        for kernel in KERNELS {
            let record = kernel.record();
            assert_eq!(record.version, kernel.version);
            assert!(record.release.starts_with(kernel.version), "{}", record.release);
            assert_eq!(to_json(&record).expect("numbers"), kernel.record);
            for figures in &record.figures {
                let scenario = scenarios.iter().find(|scenario| scenario.name == figures.scenario);
                let scenario = scenario.unwrap_or_else(|| panic!("{}: {}", kernel.version, figures.scenario));
                let names: Vec<&str> = figures.threads.iter().map(|threads| threads.name.as_str()).collect();
                let expected: Vec<&str> = scenario.threads.iter().map(|threads| threads.name.as_str()).collect();
                assert_eq!(names, expected, "{}: {}", kernel.version, figures.scenario);
            }
        }
    }

    #[test]
    fn the_host_scheduler_is_near_the_real_kernels() {
        // Wide bounds, so that a mechanism may be mended without all others. The table is in
        // docs/validation-scheduler.md. Linux 7.3 has two mechanisms that are missing here.
        let scenarios = shipped();
        for kernel in KERNELS.iter().filter(|kernel| kernel.version != "7.3") {
            let judgment = judge(&kernel.record(), kernel.scheduler, &scenarios).expect("played");
            for (name, least) in [("share", 0.6), ("slice", 0.6), ("wake p50", 0.7), ("wake p99", 0.5)] {
                let (within, judged) = judgment.count(name);
                let enough = within as f64 >= least * judged as f64;
                assert!(enough && judged > 0, "{}: {name}: {within} of {judged}", kernel.version);
            }
        }
    }

    #[test]
    fn a_difference_is_judged_by_its_goal() {
        assert!(near(10.0, 11.0, SLICE, 0.0) && !near(10.0, 11.2, SLICE, 0.0));
        assert!(near(3.0, 90.0, WAKE, WAKE_US) && !near(1000.0, 1260.0, WAKE, WAKE_US));
    }
}
