//! The kernel's costs: system calls, switches, wakeups and interrupts.

use std::fs;
use std::thread;
use std::time::Instant;

use holdfast_lab::profile::MachineProfile;
use holdfast_peers::affinity;

use super::fit::fit_all;
use super::host::Host;
use super::micro::Micro;
use super::noise::Noise;
use super::parameter::{CalibrateError, Parameter};
use super::sample::Sampled;
use super::stage::{self, Measured};

/// Number of samples in the simulator, where only the first few differ.
const SIMULATED_SAMPLES: u32 = 9;

/// Measures a context switch: two threads on one CPU yield to each other, and the kernel counts the switches.
/// `alone_ns`: time of a `sched_yield` without a switch.
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
                // The other thread yields as often, so this thread's time includes the switches in both directions.
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

/// Returns the number of times that the calling thread lost its CPU without going to sleep.
fn involuntary() -> Option<u64> {
    let status = fs::read_to_string("/proc/thread-self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("nonvoluntary_ctxt_switches:"))?;
    line.trim().parse().ok()
}

/// Measurements on this machine, from which the costs follow.
#[derive(Clone, Debug)]
pub struct Readings {
    /// Figure of each small benchmark.
    pub measured: Measured,
    /// Length of the interruptions of the other CPU, in the benchmark that interrupts it.
    pub gaps: Option<Sampled>,
    /// Time of a switch between two threads.
    pub switch: Sampled,
    /// Length of the interrupts of a busy thread.
    pub interrupts: Option<Sampled>,
}

/// Runs all small benchmarks on this machine.
///
/// # Errors
/// If the calibration was stopped, or a figure cannot be measured.
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
        measured.insert(micro, first.ok_or(CalibrateError::no_sample(micro.name()))?);
        if micro == Micro::Interrupt {
            gaps = found.next().and_then(Sampled::of);
        }
    }
    step("switches")?;
    let alone = measured[&Micro::GiveWay];
    Ok(Readings {
        measured,
        gaps,
        switch: switches(samples, alone.median_ns).ok_or(CalibrateError::no_sample("switches"))?,
        interrupts: Sampled::of(noise.interrupts_ns.clone()),
    })
}

/// Returns the costs that are measured directly, not as part of a sum.
pub fn seen(readings: &Readings) -> Vec<Parameter> {
    let parameter = |name, how: &str, samples: Sampled, less: f64| Parameter {
        name,
        ns: (samples.median_ns - less).max(0.0),
        how: how.to_owned(),
        samples,
    };
    let switches = "two threads that yield to each other on one CPU, per context switch that the kernel counted";
    let mut seen = vec![parameter("context_switch", switches, readings.switch, 0.0)];
    if let Some(gaps) = readings.gaps {
        let how = "gaps in a thread's time due to calls from another CPU";
        seen.push(parameter("host_interrupt", how, gaps, 0.0));
    }
    if let Some(interrupts) = readings.interrupts {
        let how = "gaps of 0.4 to 200 us in a busy thread's time, minus host_interrupt";
        let handler = readings.gaps.map_or(0.0, |gaps| gaps.median_ns);
        seen.push(parameter("tick", how, interrupts, handler));
    }
    seen
}

/// The cost that each small benchmark determines. Each benchmark depends on its own cost and on those before it in the
/// list.
pub const COSTS: [(Micro, &str); 8] = [
    (Micro::SystemCall, "syscall"),
    (Micro::GiveWay, "sched_yield"),
    (Micro::WakeNobody, "futex"),
    (Micro::Line, "transfer_socket"),
    (Micro::KickHere, "wake"),
    (Micro::KickCall, "ipi_send"),
    (Micro::Interrupt, "ipi_latency"),
    (Micro::KickThere, "idle_exit"),
];

/// Sets in `profile` the costs that `costs` lists to the values that explain the small benchmarks. Returns the new
/// values.
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
