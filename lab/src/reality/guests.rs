//! Predicted against measured on this host's real KVM: guests whose tasks contend for one lock of their kernel, on two CPUs.
//!
//! **One source**: both sides get the same configuration; kernel, workload and lock are the same code. The simulator's side has
//! a machine profile; what only a guest can measure of it (exits, injection) is copied into a calibrated one.

use std::ops::ControlFlow;

use holdfast_host::HostConfig;
use holdfast_locks::LockKind;
use holdfast_sim::{CallOff, Config, Failure, Outcome, run};
use holdfast_workloads::{Boot, Contend, Workload};

use super::judge::Row;
use super::kvm::run_here;
use crate::calibrate::{Host, machine_of};
use crate::profile::MachineProfile;
use crate::stats::Summary;

/// What is compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Numbers of vCPUs, on two CPUs.
    pub vcpus: Vec<u32>,
    /// Lengths of the critical section in nanoseconds; each task then computes for as long on average.
    pub sections_ns: Vec<u64>,
    /// The locks.
    pub locks: Vec<LockKind>,
    /// How often each is measured.
    pub rounds: u32,
    /// How long all sections of a run are together, in milliseconds.
    pub work_ms: u64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            vcpus: vec![2, 4, 8],
            sections_ns: vec![500, 5_000],
            locks: LockKind::ALL.to_vec(),
            rounds: 2,
            work_ms: 25,
        }
    }
}

/// Most calls of a run: those with short sections take as long for what is around them.
const CALLS_MAX: u64 = 20_000;

/// Halt polling as this host has it.
fn host_config(host: &Host) -> HostConfig {
    let told = |name: &str| {
        let path = format!("/sys/module/kvm/parameters/{name}");
        std::fs::read_to_string(path).ok()?.trim().parse::<u64>().ok()
    };
    let own = host.config();
    HostConfig {
        halt_poll_ns: told("halt_poll_ns").unwrap_or(own.halt_poll_ns),
        halt_poll_grow: told("halt_poll_ns_grow").unwrap_or(own.halt_poll_grow),
        halt_poll_grow_start_ns: told("halt_poll_ns_grow_start").unwrap_or(own.halt_poll_grow_start_ns),
        halt_poll_shrink: told("halt_poll_ns_shrink").unwrap_or(own.halt_poll_shrink),
        ..own
    }
}

fn config(settings: &Settings, kind: LockKind, vcpus: u32, held_ns: u64, machine: &Config, host: &Host) -> Config {
    let mut config = machine.clone();
    config.host = host_config(host);
    let vm = &mut config.vms[0];
    vm.name = "contenders".to_owned();
    vm.bare_metal = false;
    vm.vcpus = vcpus;
    vm.affinity = (0..vcpus).map(|vcpu| vec![vcpu % 2]).collect();
    vm.boot = Boot {
        lock: kind,
        hz: 250,
        workload: Workload::Contend(Contend {
            tasks: None,
            held_ns,
            think_ns: held_ns,
            calls: (settings.work_ms * 1_000_000 / held_ns.max(1)).min(CALLS_MAX),
        }),
        ..Boot::default()
    };
    config
}

/// Measures and predicts. `step` is told what comes next, and how many steps there are; it may stop all of it, and then only
/// what is complete is there.
///
/// # Errors
/// If a measurement fails: then no other would say anything either.
pub fn compare(
    settings: &Settings,
    profile: &MachineProfile,
    host: &Host,
    step: &mut dyn FnMut(&str, u64) -> ControlFlow<()>,
) -> Result<Vec<Row>, Failure> {
    let machine = machine_of(profile, host);
    let machine = machine.ok_or_else(|| Failure::Invalid("a cost is beyond all measure".to_owned()))?;
    let cells = settings.vcpus.len() * settings.sections_ns.len() * settings.locks.len();
    let total = cells as u64 * u64::from(settings.rounds + 1);
    let never = CallOff::new(false);
    let mut rows = Vec::new();
    for &vcpus in &settings.vcpus {
        for &section_ns in &settings.sections_ns {
            for &kind in &settings.locks {
                let mut config = config(settings, kind, vcpus, section_ns, &machine, host);
                let (mut samples, mut retries) = (Vec::new(), 0);
                for round in 0..settings.rounds {
                    if step(&format!("{vcpus} vCPUs, {section_ns} ns, {kind}"), total).is_break() {
                        return Ok(rows);
                    }
                    config.seed = u64::from(round) + 1;
                    let mut sample = rate(run_here(&config, &never));
                    if sample.is_err() {
                        // Some hosts lose a guest now and then (nested and emulated ones do): once more, and it is counted.
                        retries += 1;
                        sample = rate(run_here(&config, &never));
                    }
                    samples.push(sample?);
                }
                if step(&format!("{vcpus} vCPUs, {section_ns} ns, {kind}, predicted"), total).is_break() {
                    return Ok(rows);
                }
                config.seed = 1;
                let predicted = rate(run(&config, &never));
                rows.push(Row {
                    threads: vcpus,
                    section_ns,
                    lock: kind.name().to_owned(),
                    failure: predicted.as_ref().err().map(Failure::to_string),
                    predicted: predicted.ok(),
                    measured: Summary::of(&samples).map_or(0.0, |summary| summary.median),
                    samples,
                    retries,
                });
            }
        }
    }
    Ok(rows)
}

/// Calls a second.
fn rate(outcome: Result<Outcome, Failure>) -> Result<f64, Failure> {
    let outcome = outcome?;
    let vm = &outcome.vms[0];
    let rate = vm.operations.zip(vm.elapsed_ns.filter(|&ns| ns > 0));
    let rate = rate.map(|(calls, ns)| calls as f64 * 1e9 / ns as f64);
    rate.ok_or_else(|| Failure::Invalid("the guest has not said how many calls it made".to_owned()))
}
