//! Comparison of predictions with this host's KVM: guests whose tasks contend for one lock of their kernel, on two
//! CPUs.
//!
//! **One source**: both sides get the same configuration; kernel, workload and lock are the same code. The simulator's
//! side has a machine profile that [`calibrate`](crate::calibrate) made, in guests too, without taking a lock.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use holdfast_host::HostConfig;
use holdfast_lab::profile::MachineProfile;
use holdfast_lab::stats::Summary;
use holdfast_locks::LockKind;
use holdfast_sim::{CallOff, Config, Failure, Outcome, run};
use holdfast_workloads::{Boot, Contend, KernelConfig, Workload};

use super::judge::Row;
use super::{Session, Settings};
use crate::calibrate::{Host, machine_of};
use crate::kvm::{Failed, attempt, offer_what_is_here, outcome};
use crate::linux::Linux;

/// Real time after which a guest counts as lost: a hundred times its usual time.
const LIMIT: Duration = Duration::from_secs(15);
/// Number of retries after a lost guest, since nested and emulated hosts lose one now and then.
const RETRIES_MAX: u32 = 2;

/// Returns this host's configuration as far as its files show it: halt polling and pause-loop exiting.
fn host_config(profile: &MachineProfile, host: &Host) -> HostConfig {
    let told = |name: &str| {
        let path = format!("/sys/module/kvm/parameters/{name}");
        std::fs::read_to_string(path).ok()?.trim().parse::<u64>().ok()
    };
    let own = host.config();
    let controls = profile.pauses.controls(profile.frequency_hz);
    HostConfig {
        halt_poll_ns: told("halt_poll_ns").unwrap_or(own.halt_poll_ns),
        halt_poll_grow: told("halt_poll_ns_grow").unwrap_or(own.halt_poll_grow),
        halt_poll_grow_start_ns: told("halt_poll_ns_grow_start").unwrap_or(own.halt_poll_grow_start_ns),
        halt_poll_shrink: told("halt_poll_ns_shrink").unwrap_or(own.halt_poll_shrink),
        pause_controls: controls.unwrap_or(own.pause_controls),
        ..own
    }
}

/// Returns the configuration of one lock in one topology, for both sides.
pub(super) fn config(settings: &Settings, kind: LockKind, vcpus: u32, held_ns: u64, machine: &Config) -> Config {
    let mut config = machine.clone();
    let vm = &mut config.vms[0];
    vm.name = "contenders".to_owned();
    vm.bare_metal = false;
    vm.vcpus = vcpus;
    vm.affinity = (0..vcpus).map(|vcpu| vec![vcpu % 2]).collect();
    offer_what_is_here(&mut vm.host);
    vm.boot = Boot {
        kernel: KernelConfig {
            lock: kind,
            hz: 250,
            ..KernelConfig::default()
        },
        workload: Workload::Contend(Contend {
            tasks: None,
            held_ns,
            think_ns: held_ns,
            span_ns: Some(settings.cell_ms * 1_000_000),
            ..Contend::default()
        }),
        ..Boot::default()
    };
    config
}

/// A lock in a topology with its samples so far.
#[derive(Clone)]
pub(super) struct Cell {
    pub(super) vcpus: u32,
    pub(super) section_ns: u64,
    pub(super) lock: String,
    /// What a stock Linux runs, and the name of its path. `None`: the guests have our own kernel.
    pub(super) linux: Option<(Linux, &'static str)>,
    /// The acquisitions that count as one operation.
    pub(super) sections: f64,
    /// What is simulated.
    pub(super) config: Config,
    pub(super) samples: Vec<f64>,
    pub(super) lost: Vec<String>,
}

impl Cell {
    /// Returns what is measured. The time between two calls of a stock Linux is its own.
    fn measured(&self) -> Config {
        let mut config = self.config.clone();
        if self.linux.is_some()
            && let Workload::Contend(contend) = &mut config.vms[0].boot.workload
        {
            contend.think_ns = 0;
        }
        config
    }

    /// Returns the median of the samples.
    pub(super) fn median(&self) -> f64 {
        Summary::of(&self.samples).map_or(0.0, |summary| summary.median)
    }
}

/// Returns the configuration of the calibrated machine, without guests.
pub(super) fn machine_here(profile: &MachineProfile, host: &Host) -> Result<Config, Failure> {
    let machine = machine_of(profile, host);
    let machine = machine.ok_or_else(|| Failure::Invalid("a cost is beyond all measure".to_owned()))?;
    Ok(Config {
        host: host_config(profile, host),
        ..machine
    })
}

/// Measures and predicts.
///
/// # Errors
/// If a measurement fails repeatedly or cannot succeed, or [`Failure::CalledOff`].
pub fn compare(settings: &Settings, session: &mut Session<'_>) -> Result<(), Failure> {
    let machine = machine_here(session.profile, session.host)?;
    let topologies = settings.contenders.len() * settings.sections_ns.len();
    let total = (topologies * (settings.locks.len() * settings.rounds as usize + 1)) as u64;
    for &vcpus in &settings.contenders {
        for &section_ns in &settings.sections_ns {
            let cell = |kind: LockKind| Cell {
                vcpus,
                section_ns,
                lock: kind.name().to_owned(),
                linux: None,
                sections: 1.0,
                config: config(settings, kind, vcpus, section_ns, &machine),
                samples: Vec::new(),
                lost: Vec::new(),
            };
            let mut cells: Vec<Cell> = settings.locks.iter().map(|&kind| cell(kind)).collect();
            for round in 0..settings.rounds {
                for cell in &mut cells {
                    let what = format!("{vcpus} vCPUs, {section_ns} ns, round {}: {}", round + 1, cell.lock);
                    session.next(&what, total)?;
                    measure(cell, round, LIMIT, session.call_off)?;
                }
            }
            session.next(&format!("{vcpus} vCPUs, {section_ns} ns, predicted"), total)?;
            predict(cells, settings.rounds, session.call_off)?
                .into_iter()
                .for_each(&mut *session.keep);
        }
    }
    Ok(())
}

pub(super) fn measure(cell: &mut Cell, round: u32, limit: Duration, call_off: &CallOff) -> Result<(), Failure> {
    let mut config = cell.measured();
    config.seed = u64::from(round) + 1;
    let mut tries = 0;
    loop {
        let linux = cell.linux.as_ref().map(|(linux, _)| linux);
        let failed = match attempt(linux, &config, limit, call_off).map(|report| rate(&outcome(report))) {
            Ok(Ok(sample)) => {
                cell.samples.push(sample);
                return Ok(());
            }
            Ok(Err(failure)) => Failed {
                failure,
                lasting: false,
            },
            Err(failed) => failed,
        };
        if failed.lasting || tries == RETRIES_MAX || failed.failure == Failure::CalledOff {
            return Err(failed.failure);
        }
        tries += 1;
        cell.lost.push(failed.failure.to_string());
    }
}

/// Returns the rows of `cells` with the median of `histories` simulations, which run on all CPUs.
///
/// # Errors
/// Only [`Failure::CalledOff`]. Rows contain other failures.
pub(super) fn predict(cells: Vec<Cell>, histories: u32, call_off: &CallOff) -> Result<Vec<Row>, Failure> {
    let next = AtomicUsize::new(0);
    let jobs = cells.len() * histories as usize;
    let work = || {
        let mut done = Vec::new();
        loop {
            let job = next.fetch_add(1, Ordering::Relaxed);
            if job >= jobs {
                return done;
            }
            let mut config = cells[job / histories as usize].config.clone();
            config.seed = (job % histories as usize) as u64 + 1;
            let sections = cells[job / histories as usize].sections;
            let rate = run(&config, call_off).and_then(|outcome| rate(&outcome));
            done.push((job, rate.map(|rate| rate / sections)));
        }
    };
    let workers = thread::available_parallelism().map_or(1, usize::from).min(jobs.max(1));
    let mut predicted: Vec<_> = thread::scope(|scope| {
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        let joined = workers
            .into_iter()
            .map(|worker| worker.join().expect("a simulation fails by its result"));
        joined.flatten().collect()
    });
    if predicted.iter().any(|(_, rate)| *rate == Err(Failure::CalledOff)) {
        return Err(Failure::CalledOff);
    }
    predicted.sort_by_key(|(job, _)| *job);
    let mut predicted = predicted.into_iter().map(|(_, rate)| rate);
    let mut row = |cell: Cell| {
        let rates: Result<Vec<f64>, Failure> = predicted.by_ref().take(histories as usize).collect();
        Row {
            threads: cell.vcpus,
            section_ns: cell.section_ns,
            path: cell.linux.as_ref().map(|&(_, path)| path.to_owned()),
            measured: cell.median(),
            lock: cell.lock,
            failure: rates.as_ref().err().map(Failure::to_string),
            predicted: rates
                .ok()
                .and_then(|rates| Summary::of(&rates))
                .map(|summary| summary.median),
            samples: cell.samples,
            retries: cell.lost.len() as u32,
            lost: cell.lost,
        }
    };
    Ok(cells.into_iter().map(&mut row).collect())
}

/// Returns the calls per second.
fn rate(outcome: &Outcome) -> Result<f64, Failure> {
    let vm = &outcome.vms[0];
    let rate = vm.operations.zip(vm.elapsed_ns.filter(|&ns| ns > 0));
    let rate = rate.map(|(calls, ns)| calls as f64 * 1e9 / ns as f64);
    rate.ok_or_else(|| Failure::Invalid("the guest has not said how many calls it made".to_owned()))
}
