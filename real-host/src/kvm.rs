//! Experiments on this host's real KVM: the same kernels and workloads, with the same parameters, as in the simulator.
//!
//! [`Runs::run`] serves as a [`Runner`](holdfast_lab::run::Runner), as the simulator does, so plans and results have
//! the same form. The parts of a configuration that describe the machine and the host's kernel have no effect here:
//! [`remarks`] lists them, and [`check`] refuses what would change nothing.

mod keys;

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::available_parallelism;
use std::time::Duration;

use holdfast_host::{VmConfig, VmGroup};
use holdfast_kvm::{Error, Feature, Host, Linux, Migration, Options, Report, Task, Vm, VmReport, run};
use holdfast_lab::plan::Plan;
use holdfast_sim::{CallOff, Config, Failure, Outcome, VmOutcome};
use holdfast_workloads::Workload;

/// Real time after which unfinished guests count as hung.
const LIMIT: Duration = Duration::from_secs(600);

/// As [`LIMIT`], for Linux guests. If exits are slow a guest boots for half a minute. Then it measures for seconds.
const LINUX_LIMIT: Duration = Duration::from_secs(180);

/// Number of CPUs that this process may use.
fn cpus() -> u32 {
    available_parallelism().map_or(1, NonZeroUsize::get) as u32
}

/// Checks that guests can run here.
///
/// # Errors
/// The reason why not, and how to change it.
pub fn usable() -> Result<(), String> {
    Host::open().map(drop).map_err(|error| error.to_string())
}

/// A failure of guests on this host.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) failure: Failure,
    /// Whether the same guests fail however often they are tried.
    pub(crate) lasting: bool,
}

impl From<Error> for Failed {
    fn from(error: Error) -> Failed {
        let (lasting, message) = (error.is_lasting(), error.to_string());
        let failure = match error {
            Error::CalledOff => Failure::CalledOff,
            Error::GuestPanic { .. }
            | Error::TripleFault { .. }
            | Error::UnexpectedExit { .. }
            | Error::Refused { .. }
            | Error::Corrupt { .. } => Failure::GuestPanic(message),
            Error::Hang { .. } => Failure::Limit(message),
            _ => Failure::Invalid(message),
        };
        Failed { failure, lasting }
    }
}

/// Runs of a plan on this host's KVM. They end when guests fail in a way that no further attempt changes.
#[derive(Debug, Default)]
pub struct Runs {
    given_up: AtomicBool,
}

impl Runs {
    /// Runs `config`. With `linux` the measured guests run this stock Linux, on the path that it names, and contend for
    /// a lock of that kernel. Tasks, calls, thinking times and `nopvspin` then come from the configuration.
    ///
    /// # Errors
    /// If a guest failed, this host lacks something that `config` needs, or the runs have ended.
    pub fn run(&self, linux: Option<&Linux>, config: &Config, call_off: &CallOff) -> Result<Outcome, Failure> {
        self.attempt(|| attempt(linux, config, limit(linux), call_off))
            .map(outcome)
    }

    fn attempt<T>(&self, attempt: impl FnOnce() -> Result<T, Failed>) -> Result<T, Failure> {
        if self.given_up() {
            return Err(Failure::CalledOff);
        }
        attempt().map_err(|failed| {
            // A configuration that is refused before its guests start says nothing about the others, and takes no time.
            let given_up = failed.lasting && !matches!(failed.failure, Failure::Invalid(_));
            self.given_up.fetch_or(given_up, Relaxed);
            failed.failure
        })
    }

    /// Returns whether a failure has ended the runs.
    pub fn given_up(&self) -> bool {
        self.given_up.load(Relaxed)
    }
}

/// Returns the real time after which unfinished guests count as hung.
pub(super) fn limit(linux: Option<&Linux>) -> Duration {
    linux.map_or(LIMIT, |_| LINUX_LIMIT)
}

/// Runs `config` once, as [`Runs::run`] does. Guests that are not finished after `limit` of real time count as hung.
pub(super) fn attempt(
    linux: Option<&Linux>,
    config: &Config,
    limit: Duration,
    call_off: &CallOff,
) -> Result<Report, Failed> {
    let vms = describe_all(linux, config).map_err(|failure| Failed { failure, lasting: true })?;
    let options = Options {
        limit,
        call_off: Some(call_off.flag()),
        zero_at: config.zero_at_ns.map(Duration::from_nanos),
        migration: config.migration.map(migration),
    };
    Ok(run(&vms, &options)?)
}

fn migration(of: holdfast_sim::Migration) -> Migration {
    Migration {
        every: Duration::from_nanos(of.after_ns),
        downtime: Duration::from_nanos(of.downtime_ns),
        mp_state_only: of.mp_state_only,
    }
}

fn describe_all(linux: Option<&Linux>, config: &Config) -> Result<Vec<Vm>, Failure> {
    config.vms.iter().map(|vm| describe(linux, config, vm)).collect()
}

/// Checks that this host carries out what `plan` says of its guests, and that no two of its cells are the same guests
/// here.
///
/// # Errors
/// One line for each key that cannot be honored, and for each two cells that only other keys tell apart.
pub fn check(plan: &Plan, linux: Option<&Linux>) -> Result<(), Vec<String>> {
    keys::check(plan, linux, |config| told(linux, config))
}

/// Returns all that the VMM is told of the guests of `config`. Guests that it would refuse give nothing.
fn told(linux: Option<&Linux>, config: &Config) -> Option<String> {
    let vms = describe_all(linux, config).ok()?;
    Some(format!(
        "{vms:?} {:?} {:?}",
        config.zero_at_ns,
        config.migration.map(migration)
    ))
}

fn describe(linux: Option<&Linux>, config: &Config, vm: &holdfast_sim::Vm) -> Result<Vm, Failure> {
    // pCPUs beyond this host's CPUs are mapped to the existing CPUs in turn.
    let most = config.machine.topology.pcpus().min(cpus());
    let pins = |vcpu: usize| {
        let wanted = vm.affinity.get(vcpu).filter(|pcpus| !pcpus.is_empty());
        wanted.map_or_else(|| (0..most).collect(), |pcpus| folded(pcpus, most))
    };
    let payload = match linux.filter(|_| vm.measured) {
        Some(linux) => Vm::linux(vm.name.clone(), vm.vcpus, stock(linux, vm)?),
        None => Vm::new(vm.name.clone(), vm.vcpus, Task::Kernel(vm.boot.clone())),
    };
    let mut here = payload
        .pinned((0..vm.vcpus as usize).map(pins).collect())
        .seed(config.seed);
    let mut offers = vm.host;
    let withheld = features(&mut offers).into_iter().filter(|(offered, _)| !**offered);
    here = withheld.fold(here, |here, (_, feature)| here.without(feature));
    if vm.host.realtime_hint {
        here = here.realtime();
    }
    if vm.host.cpu_pm {
        here = here.cpu_pm();
    }
    here = here.nice(vm.host.nice).proximity_domains(vm.domains.clone());
    here = here.from(Duration::from_nanos(vm.stay.from_ns));
    if let Some(ns) = vm.stay.until_ns {
        here = here.until(Duration::from_nanos(ns));
    }
    if let Some(ns) = vm.host.halt_poll_cap_ns {
        here = here.halt_poll_ns(u32::try_from(ns).unwrap_or(u32::MAX));
    }
    Ok(if vm.measured { here } else { here.background() })
}

/// Returns the stock Linux with the guest's workload.
fn stock(linux: &Linux, vm: &holdfast_sim::Vm) -> Result<Linux, Failure> {
    let linux = Linux {
        nopvspin: vm.boot.kernel.nopvspin,
        ..linux.clone()
    };
    match &vm.boot.workload {
        Workload::Contend(contend) => Ok(Linux {
            threads: contend.tasks,
            // Without a span the number of calls ends the interval, or the longest time that a guest measures.
            calls: contend.span_ns.map_or(contend.calls, |_| u64::MAX),
            duration_ns: contend.span_ns.unwrap_or(linux.duration_ns),
            think_ns: contend.think_ns,
            ..linux
        }),
        Workload::Hackbench(messages) => Ok(Linux {
            messages: Some(messages.clone()),
            ..linux
        }),
        _ => {
            let what = format!(
                "{}: a stock Linux guest runs only the workloads contend and hackbench",
                vm.name
            );
            Err(Failure::Invalid(what))
        }
    }
}

/// Returns the offers to a guest, with their features.
fn features(offers: &mut VmConfig) -> [(&mut bool, Feature); 7] {
    [
        (&mut offers.pv_unhalt, Feature::PvUnhalt),
        (&mut offers.steal_time, Feature::StealTime),
        (&mut offers.pv_sched_yield, Feature::PvSchedYield),
        (&mut offers.pv_send_ipi, Feature::PvSendIpi),
        (&mut offers.pv_eoi, Feature::PvEoi),
        (&mut offers.pv_tlb_flush, Feature::PvTlbFlush),
        (&mut offers.poll_control, Feature::PollControl),
    ]
}

/// Sets `offers` to the features of this host's KVM. Without a KVM they stay unchanged.
pub fn offer_what_is_here(offers: &mut VmConfig) {
    let Ok(host) = Host::open() else { return };
    for (offered, feature) in features(offers) {
        *offered = host.offers(feature);
    }
}

/// Returns `pcpus` mapped to a host with `most` CPUs.
fn folded(pcpus: &[u32], most: u32) -> Vec<u32> {
    let mut folded: Vec<u32> = pcpus.iter().map(|pcpu| pcpu % most.max(1)).collect();
    folded.sort_unstable();
    folded.dedup();
    folded
}

pub(super) fn outcome(report: Report) -> Outcome {
    Outcome {
        end_ns: report.elapsed.as_nanos() as u64,
        // A real host has no history to compare.
        history_hash: 0,
        engine: BTreeMap::new(),
        vms: report
            .vms
            .into_iter()
            .map(|vm| vm_outcome(vm, report.elapsed))
            .collect(),
    }
}

fn vm_outcome(vm: VmReport, elapsed: Duration) -> VmOutcome {
    let mut counters = vm.counters.clone();
    let sum = |figure: fn(&holdfast_kvm::VcpuReport) -> u64| vm.vcpus.iter().map(figure).sum::<u64>();
    counters.extend(vm.zeroed_ns.map(|ns| ("zeroed_at_ns".to_owned(), ns)));
    let moved = [
        ("migrations", vm.migrations),
        ("migration_kicks", vm.migrated_kicks),
        ("migration_kicks_lost", vm.lost_kicks),
    ];
    let moved = moved.into_iter().filter(|_| vm.migrations > 0);
    counters.extend(moved.map(|(name, value)| (name.to_owned(), value)));
    counters.insert("cpu_time_ns".to_owned(), sum(|vcpu| vcpu.run_ns));
    counters.insert("runnable_ns".to_owned(), sum(|vcpu| vcpu.wait_ns));
    for (name, value) in vm.vcpus.iter().flat_map(|vcpu| &vcpu.stats) {
        *counters.entry(format!("kvm.vcpu.{name}")).or_insert(0) += value;
    }
    VmOutcome {
        name: vm.name.clone(),
        elapsed_ns: vm.elapsed_ns,
        operations: vm.operations,
        counters,
        // A real host does not record lost time.
        lost_time_ps: BTreeMap::new(),
        vcpu_time_ps: elapsed.as_nanos() as u64 * 1000 * vm.vcpus.len() as u64,
        longest_stall_ns: 0,
        convoy: None,
    }
}

/// Returns remarks on the parts of `plan` that do not apply on a real host.
pub fn remarks(plan: &Plan, linux: Option<&Linux>) -> Vec<String> {
    let mut remarks = vec![
        "the machine profile and all keys of `machine` and `host` but `host.migration`: this machine and its kernel replace them".to_owned(),
        "lost time, convoys and stalls: a real host does not record them (KVM's own counters are in the results)"
            .to_owned(),
        "seeds: guests draw random numbers from them, but runs on a real host cannot be repeated exactly".to_owned(),
    ];
    if let Some(linux) = linux {
        remarks.push(format!(
            "all keys of measured guests except vcpus, affinity, nopvspin, contend.tasks, contend.think, contend.calls, \
             contend.span, hackbench.channel, hackbench.groups, hackbench.pairs and the features that the host offers: \
             Linux {} has its own locks and its own critical sections (without contend.span a guest measures for at \
             most {:.0} s)",
            linux.kernel.release(),
            linux.duration_ns as f64 / 1e9
        ));
    }
    let cells = || plan.cells.iter().map(|cell| &cell.config);
    let pcpus = cells().map(|config| config.machine.topology.pcpus()).max();
    let here = cpus();
    if let Some(pcpus) = pcpus.filter(|&pcpus| pcpus > here) {
        remarks.push(format!(
            "{pcpus} pCPUs: this process may use {here}, to which the vCPUs are assigned in turn"
        ));
    }
    if cells().any(|config| config.vms.iter().any(|vm| vm.host.group != VmGroup::Root)) {
        remarks.push("cgroup: the VMM makes no task groups".to_owned());
    }
    remarks
}

#[cfg(test)]
mod tests;
