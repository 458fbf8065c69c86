//! This machine's kernel as a host of the simulator: its version, and the settings of its scheduler.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use holdfast_host::{HostConfig, SchedConfig, SchedulerKind, TickPhase};
use holdfast_peers::{affinity, clock};
use serde::Serialize;

use super::pauses;
use super::sample::Sampled;
use crate::doctor::kernel_version;

/// A kernel with its scheduler's settings.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Host {
    /// Release of the kernel.
    pub kernel: Option<String>,
    /// The simulator's scheduler that is nearest to the kernel's, by version.
    pub scheduler: &'static str,
    /// Scheduler ticks per second.
    pub hz: u32,
    /// Whether `hz` was measured. Otherwise it is assumed.
    pub hz_known: bool,
    /// Slice of a thread before scaling, in nanoseconds, or `None` for the default of `scheduler`.
    pub base_slice_ns: Option<u64>,
    /// Time for which one of two threads on a CPU runs until the other one does, in nanoseconds.
    pub measured_slice: Option<Sampled>,
    #[serde(skip)]
    kind: SchedulerKind,
}

/// Returns the scheduler that is nearest to that of kernel `version`.
fn nearest(version: Option<(u32, u32)>) -> SchedulerKind {
    match version {
        Some((2, _)) => SchedulerKind::Cfs2637,
        Some((3, _)) => SchedulerKind::Cfs33,
        Some((4 | 5, _)) => SchedulerKind::Cfs412,
        Some((6, 0..=5)) => SchedulerKind::Cfs61,
        Some((6, 6..=11)) => SchedulerKind::Eevdf66,
        Some((6, 15..)) => SchedulerKind::Eevdf618,
        Some((7.., _)) => SchedulerKind::Eevdf73,
        // Also what no release is known of.
        _ => SchedulerKind::Eevdf612,
    }
}

impl Host {
    /// Returns the kernel of this machine.
    pub fn here() -> Host {
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease");
        let kernel = kernel.ok().map(|release| release.trim().to_owned());
        let period = clock::coarse_period_ns();
        let hz = period.and_then(|ns| u32::try_from(1_000_000_000 / ns.max(1)).ok());
        let version = kernel.as_deref().and_then(kernel_version);
        Host {
            base_slice_ns: base_slice(version),
            measured_slice: slice(),
            ..Host::of(kernel, hz)
        }
    }

    /// Returns a kernel of which only the release and the tick are known.
    pub fn of(kernel: Option<String>, hz: Option<u32>) -> Host {
        let kind = nearest(kernel.as_deref().and_then(kernel_version));
        Host {
            kernel,
            scheduler: kind.name(),
            hz: hz.unwrap_or(250),
            hz_known: hz.is_some(),
            base_slice_ns: None,
            measured_slice: None,
            kind,
        }
    }

    /// Returns the configuration of the simulator's host that is nearest.
    pub fn config(&self) -> HostConfig {
        let mut sched = SchedConfig::of(self.kind);
        if let Some(slice) = self.base_slice_ns {
            sched.base_slice_ns = slice;
        }
        HostConfig {
            hz: self.hz,
            // The boot CPU and the CPUs that it starts set up their ticks at different times, also in a virtual
            // machine.
            tick_phase: TickPhase::Spread,
            sched,
            pause: pauses::handling(self.kernel.as_deref().and_then(kernel_version)),
            ..HostConfig::default()
        }
    }

    /// Returns the same settings as arguments of `--set`.
    pub fn settings(&self) -> Vec<String> {
        let mut settings = vec![
            format!("host.hz={}", self.hz),
            "host.tick_phase=spread".to_owned(),
            format!("host.scheduler={}", self.scheduler),
        ];
        settings.extend(self.base_slice_ns.map(|ns| format!("host.base_slice={} us", ns / 1000)));
        settings
    }
}

/// Returns the slice that the kernel reports, divided by the kernel's scaling. If there is no report the version
/// decides: 0.70 ms since 6.15 (uncertain), 0.75 ms before, which is the scheduler's default (`None`).
fn base_slice(version: Option<(u32, u32)>) -> Option<u64> {
    let reported = fs::read_to_string("/sys/kernel/debug/sched/base_slice_ns").ok();
    let reported = reported.and_then(|text| text.trim().parse::<u64>().ok());
    let cpus = thread::available_parallelism().map_or(1, |cpus| cpus.get().min(8));
    let scaling = 1 + u64::from(cpus.ilog2());
    match (reported, version) {
        (Some(ns), _) if ns >= scaling => Some(ns / scaling),
        (_, Some((6, 15..) | (7.., _))) => Some(700_000),
        _ => None,
    }
}

/// Measures the time for which each of two busy threads on one CPU runs until it is switched out.
fn slice() -> Option<Sampled> {
    const SPAN: Duration = Duration::from_millis(400);
    let run = || {
        affinity::pin(0);
        let (begin, mut runs) = (Instant::now(), Vec::new());
        let (mut since, mut last) = (begin, begin);
        while last - begin < SPAN {
            let now = Instant::now();
            // This is longer than an interrupt and shorter than any slice.
            if now - last > Duration::from_micros(300) {
                runs.push((last - since).as_nanos() as f64);
                since = now;
            }
            last = now;
        }
        runs
    };
    thread::scope(|scope| {
        let (one, other) = (scope.spawn(run), scope.spawn(run));
        let mut runs = one.join().ok()?;
        runs.extend(other.join().ok()?);
        Sampled::of(runs)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_has_a_nearest_scheduler_that_settings_accept() {
        for version in [
            None,
            Some((2, 6)),
            Some((3, 10)),
            Some((5, 15)),
            Some((6, 1)),
            Some((6, 6)),
            Some((6, 18)),
            Some((7, 2)),
        ] {
            let kind = nearest(version);
            let name = kind.name();
            let host = Host {
                kernel: None,
                scheduler: name,
                hz: 250,
                hz_known: true,
                base_slice_ns: Some(700_000),
                measured_slice: None,
                kind,
            };
            assert_eq!(host.config().sched.kind, kind);
            let text =
                "name = \"x\"\ntitle = \"x\"\nmetric = \"elapsed\"\n[[vm]]\nname = \"a\"\nworkload = \"kernbench\"\n";
            let experiment = holdfast_lab::experiment::Experiment::parse("x.toml", text).expect("whole");
            let options = holdfast_lab::options::Options {
                set: host.settings(),
                ..holdfast_lab::options::Options::default()
            };
            let plan =
                holdfast_lab::plan::Plan::new(experiment, &options).unwrap_or_else(|problems| panic!("{problems}"));
            let (set, own) = (&plan.cells[0].config.host, host.config());
            assert_eq!(
                (set.sched, set.hz, set.tick_phase),
                (own.sched, own.hz, own.tick_phase),
                "{name}"
            );
        }
    }
}
