//! What the kernel costs: system calls, switches, wake-ups, interrupts; and how its scheduler is set.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use holdfast_host::{HostConfig, SchedConfig, SchedulerKind, TickPhase};
use holdfast_lab::profile::MachineProfile;
use holdfast_peers::{affinity, clock};
use serde::Serialize;

use super::fit::fit_all;
use super::micro::Micro;
use super::noise::Noise;
use super::parameter::{CalibrateError, Parameter};
use super::pauses;
use super::sample::Sampled;
use super::stage::{self, Measured};
use crate::doctor::kernel_version;

/// Samples in the simulator, where only the first few differ.
const SIMULATED_SAMPLES: u32 = 9;

/// How this machine's kernel schedules.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Host {
    /// Its release.
    pub kernel: Option<String>,
    /// The scheduler of the simulator that is nearest, by the kernel's version.
    pub scheduler: &'static str,
    /// Scheduler ticks per second.
    pub hz: u32,
    /// Whether that was learnt; otherwise it is assumed.
    pub hz_known: bool,
    /// The slice that a thread asks for before scaling, in nanoseconds, where that differs from the scheduler's own.
    pub base_slice_ns: Option<u64>,
    /// Two threads that share a CPU: how long one runs until the other one does, in nanoseconds.
    pub measured_slice: Option<Sampled>,
    #[serde(skip)]
    kind: SchedulerKind,
}

/// The scheduler nearest to that of kernel `version`.
fn nearest(version: Option<(u32, u32)>) -> SchedulerKind {
    match version {
        Some((2, _)) => SchedulerKind::Cfs2637,
        Some((3, _)) => SchedulerKind::Cfs33,
        Some((4 | 5, _) | (6, 0..=5)) => SchedulerKind::Cfs412,
        Some((6, 6..=11)) => SchedulerKind::Eevdf66,
        _ => SchedulerKind::Eevdf612,
    }
}

impl Host {
    /// This one.
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

    /// A kernel of which nothing is known but its release and its tick.
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

    /// As the simulator's host.
    pub fn config(&self) -> HostConfig {
        let mut sched = SchedConfig::of(self.kind);
        if let Some(slice) = self.base_slice_ns {
            sched.base_slice_ns = slice;
        }
        HostConfig {
            hz: self.hz,
            // The boot CPU and those that it starts set their ticks up at different times; virtual machines do, too.
            tick_phase: TickPhase::Spread,
            sched,
            pause: pauses::handling(self.kernel.as_deref().and_then(kernel_version)),
            ..HostConfig::default()
        }
    }

    /// What `--set` says the same.
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

/// The slice as the kernel tells it, divided by its scaling; else by version: 0.70 ms since 6.15 (uncertain), 0.75 ms
/// before.
fn base_slice(version: Option<(u32, u32)>) -> Option<u64> {
    let told = fs::read_to_string("/sys/kernel/debug/sched/base_slice_ns").ok();
    let told = told.and_then(|text| text.trim().parse::<u64>().ok());
    let cpus = thread::available_parallelism().map_or(1, |cpus| cpus.get().min(8));
    let scaling = 1 + u64::from(cpus.ilog2());
    match (told, version) {
        (Some(ns), _) if ns >= scaling => Some(ns / scaling),
        (_, Some((6, 15..) | (7.., _))) => Some(700_000),
        _ => None,
    }
}

/// How long each of two busy threads on one CPU runs at a time.
fn slice() -> Option<Sampled> {
    const SPAN: Duration = Duration::from_millis(400);
    let run = || {
        affinity::pin(0);
        let (begin, mut runs) = (Instant::now(), Vec::new());
        let (mut since, mut last) = (begin, begin);
        while last - begin < SPAN {
            let now = Instant::now();
            // Longer than an interrupt, shorter than any slice.
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

/// Giving way on a CPU that two threads want, and how often that switched: nanoseconds for a switch.
fn switches(samples: u32, alone_ns: f64) -> Option<Sampled> {
    const YIELDS: u32 = 200;
    let run = || {
        affinity::pin(0);
        let mut costs = Vec::new();
        for _ in 0..samples {
            let (begin, before) = (Instant::now(), involuntary());
            (0..YIELDS).for_each(|_| thread::yield_now());
            let (took, after) = (begin.elapsed().as_nanos() as f64, involuntary());
            if let Some(switches) = after.zip(before).map(|(after, before)| after - before)
                && switches >= u64::from(YIELDS) / 4
            {
                // The other thread yields as often: both pay for each of the switches there and back.
                let yields = took - 2.0 * f64::from(YIELDS) * alone_ns;
                costs.push(yields / (2.0 * switches as f64));
            }
        }
        costs
    };
    thread::scope(|scope| {
        let (one, other) = (scope.spawn(run), scope.spawn(run));
        let costs = one.join().ok()?;
        let _ = other.join();
        Sampled::of(costs)
    })
}

/// How often the calling thread lost its CPU without going to sleep.
fn involuntary() -> Option<u64> {
    let status = fs::read_to_string("/proc/thread-self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("nonvoluntary_ctxt_switches:"))?;
    line.trim().parse().ok()
}

/// What was read on this machine, from which the costs follow.
#[derive(Clone, Debug)]
pub struct Readings {
    /// What each small benchmark came to.
    pub measured: Measured,
    /// How long the other CPU was interrupted for, in the benchmark that does so.
    pub gaps: Option<Sampled>,
    /// A switch between two threads.
    pub switch: Sampled,
    /// A busy thread's interrupts.
    pub interrupts: Option<Sampled>,
}

/// Runs all small benchmarks on this machine.
///
/// # Errors
/// If it was stopped, or something cannot be measured.
pub fn read(
    samples: u32,
    noise: &Noise,
    step: &mut dyn FnMut(&str) -> Result<(), CalibrateError>,
) -> Result<Readings, CalibrateError> {
    let (mut measured, mut gaps) = (Measured::new(), None);
    for micro in Micro::ALL {
        step(micro.name())?;
        let mut found = stage::here(micro, samples).unwrap_or_default().into_iter();
        let first = found.next().and_then(Sampled::of);
        measured.insert(micro, first.ok_or(CalibrateError::Unmeasured(micro.name()))?);
        if micro == Micro::Settle {
            gaps = found.next().and_then(Sampled::of);
        }
    }
    step("switches")?;
    let alone = measured[&Micro::GiveWay];
    Ok(Readings {
        measured,
        gaps,
        switch: switches(samples, alone.median_ns).ok_or(CalibrateError::Unmeasured("switches"))?,
        interrupts: Sampled::of(noise.interrupts_ns.clone()),
    })
}

/// The costs that were seen as they are.
pub fn seen(readings: &Readings) -> Vec<Parameter> {
    let parameter = |name, how: &str, samples: Sampled, less: f64| Parameter {
        name,
        ns: (samples.median_ns - less).max(0.0),
        how: how.to_owned(),
        samples,
    };
    let switches = "two threads that give way on one CPU, by switch that the kernel counted";
    let mut seen = vec![parameter("context_switch", switches, readings.switch, 0.0)];
    if let Some(gaps) = readings.gaps {
        let how = "gaps in a thread's time that calls from another CPU make";
        seen.push(parameter("host_interrupt", how, gaps, 0.0));
    }
    if let Some(interrupts) = readings.interrupts {
        let how = "gaps of 0.4 to 200 us in a busy thread's time, less host_interrupt";
        let handler = readings.gaps.map_or(0.0, |gaps| gaps.median_ns);
        seen.push(parameter("tick", how, interrupts, handler));
    }
    seen
}

/// Which cost each small benchmark determines, in the order in which they do: each depends on its own cost and those
/// before it.
pub const COSTS: [(Micro, &str); 8] = [
    (Micro::SystemCall, "syscall"),
    (Micro::GiveWay, "sched_yield"),
    (Micro::WakeNobody, "futex"),
    (Micro::Line, "transfer_socket"),
    (Micro::KickHere, "wake"),
    (Micro::KickCall, "ipi_send"),
    (Micro::Settle, "ipi_latency"),
    (Micro::KickThere, "idle_exit"),
];

/// Puts into `profile` what the small benchmarks say of it, by the costs that `costs` name, and returns that.
pub fn divide(
    profile: &mut MachineProfile,
    host: &Host,
    measured: &Measured,
    costs: &[(Micro, &'static str)],
) -> Vec<Parameter> {
    fit_all(profile, costs, Micro::name, measured, |micro, profile| {
        stage::simulated(micro, SIMULATED_SAMPLES, profile, host)
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
            let options = holdfast_lab::plan::Options {
                set: host.settings(),
                ..holdfast_lab::plan::Options::default()
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
