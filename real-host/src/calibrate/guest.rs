//! Costs that only a guest can measure: exits, injection, kicks, and instructions in a guest.
//!
//! **One source**: the small benchmarks ([`holdfast_workloads::micro`]) run in a guest on this host's KVM and in the
//! simulator, and one after another each of them determines the one cost that those before it have left open.

use std::collections::BTreeMap;
use std::time::Duration;

use holdfast_kvm::{Options, Task, Vm, run};
use holdfast_lab::profile::MachineProfile;
use holdfast_lab::shipped;
use holdfast_sim::{CallOff, Config, run_images};
pub use holdfast_workloads::Micro;
use holdfast_workloads::micro::{MEDIAN, QUARTER, THREE_QUARTERS, micro as image};

use super::fit::fit_all;
use super::host::Host;
use super::kernel;
use super::parameter::{CalibrateError, Closure, Parameter};
use super::sample::Sampled;
use super::stage::machine_of;
use crate::kvm::{Failed, attempt, outcome};

/// A benchmark that runs in guests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bench {
    /// A benchmark on bare CPUs.
    Bare(Micro),
    /// A system call of the guest kernel.
    Call,
}

impl Bench {
    /// All members of this type.
    pub fn all() -> impl Iterator<Item = Bench> {
        Micro::ALL.iter().copied().map(Bench::Bare).chain([Bench::Call])
    }

    /// Returns the name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Bench::Bare(micro) => micro.name(),
            Bench::Call => "guest kernel: a system call with a free spinlock",
        }
    }
}

/// Figures of the benchmarks.
pub type Found = BTreeMap<Bench, Sampled>;

/// Real time after which a measuring guest counts as hung.
const LIMIT: Duration = Duration::from_secs(20);
/// Runs of [`Bench::Call`] in each round.
const CALL_RUNS: u32 = 5;
/// Guest memory: image, stacks, samples.
const MEMORY_BYTES: u64 = 32 << 20;
/// Samples in the simulator, where only the first few differ.
const SIMULATED_SAMPLES: u32 = 9;

/// Cost that each benchmark determines, in order: each benchmark depends on its own cost and those before it. Kicking
/// a sleeping vCPU determines no cost: its costs are known by then, and its figure shows how well.
///
/// Sums that a guest cannot divide stay whole: the way out and back is in `exit_software`, and the cost of an interrupt
/// without its exits is in `apic_deliver`.
pub const COSTS: [(Bench, &str); 14] = [
    (Bench::Bare(Micro::Load), "load_hit"),
    (Bench::Bare(Micro::Store), "store"),
    (Bench::Bare(Micro::Exchange), "rmw_hit"),
    (Bench::Bare(Micro::Fence), "fence"),
    (Bench::Bare(Micro::Pause), "pause"),
    (Bench::Bare(Micro::Line), "transfer_socket"),
    (Bench::Bare(Micro::Cpuid), "exit_software"),
    (Bench::Bare(Micro::Hypercall), "hypercall"),
    (Bench::Bare(Micro::Msr), "msr"),
    (Bench::Bare(Micro::Taken), "tick"),
    (Bench::Bare(Micro::SelfIpi), "apic_deliver"),
    (Bench::Bare(Micro::KickHere), "vcpu_load"),
    (Bench::Bare(Micro::KickThere), "idle_exit"),
    (Bench::Call, "guest_code"),
];

/// Rounds of all benchmarks, so that a CPU that other tenants slow down for seconds does not make one cost high
/// and the next cost low.
const ROUNDS: u32 = 3;

/// The reason why a benchmark has no samples.
pub struct Lost {
    pub why: String,
    /// Whether another attempt cannot succeed.
    pub lasting: bool,
}

/// Runs all benchmarks by `here`, in guests. Returns for each the round whose median is the middle one.
///
/// # Errors
/// If the calibration was stopped, or a benchmark failed twice or cannot succeed.
pub fn measure(
    samples: u32,
    here: &mut dyn FnMut(Bench, u32) -> Result<Sampled, Lost>,
    step: &mut dyn FnMut(&str) -> Result<(), CalibrateError>,
) -> Result<Found, CalibrateError> {
    let samples = samples.div_ceil(ROUNDS);
    let mut rounds: BTreeMap<Bench, Vec<Sampled>> = BTreeMap::new();
    for _ in 0..ROUNDS {
        for bench in Bench::all() {
            step(bench.name())?;
            let sampled = match here(bench, samples) {
                // A second attempt, since nested and emulated hosts lose a guest now and then.
                Err(lost) if !lost.lasting => here(bench, samples),
                first => first,
            };
            let sampled = sampled.map_err(|lost| {
                let (what, why) = (bench.name(), lost.why);
                match lost.lasting {
                    true => CalibrateError::Guests { what, why },
                    false => CalibrateError::Unmeasured { what, why },
                }
            })?;
            rounds.entry(bench).or_default().push(sampled);
        }
    }
    let middle = |(bench, mut rounds): (Bench, Vec<Sampled>)| {
        rounds.sort_by(|one, other| one.median_ns.total_cmp(&other.median_ns));
        (bench, rounds.swap_remove(rounds.len() / 2))
    };
    Ok(rounds.into_iter().map(middle).collect())
}

/// Runs `bench` in guests on this host's KVM.
pub fn here(bench: Bench, samples: u32, host: &Host) -> Result<Sampled, Lost> {
    match bench {
        Bench::Bare(micro) => bare(micro, samples),
        Bench::Call => call(host),
    }
}

/// Runs the guest kernel's system call in [`CALL_RUNS`] guests, of which some may fail.
fn call(host: &Host) -> Result<Sampled, Lost> {
    let mut lost = Lost {
        why: "the guests counted no calls".to_owned(),
        lasting: true,
    };
    let mut samples = Vec::new();
    if let Some(config) = kernel::config(&shipped::generic_machine(), host) {
        for _ in 0..CALL_RUNS {
            match attempt(None, &config, LIMIT, &CallOff::new()) {
                Ok(report) => samples.extend(kernel::time(&outcome(report))),
                Err(Failed { failure, lasting }) => {
                    lost.why = failure.to_string();
                    if lasting {
                        break;
                    }
                }
            }
        }
    }
    Sampled::of(samples).ok_or(lost)
}

/// Runs `micro` on the bare CPUs of a guest on this host's KVM.
fn bare(micro: Micro, samples: u32) -> Result<Sampled, Lost> {
    let places = micro.places();
    let vm = Vm::new("measured", places.len() as u32, Task::Micro { micro, samples })
        .pinned(places.iter().map(|&cpu| vec![cpu]).collect())
        .memory(MEMORY_BYTES)
        .halt_poll_ns(0);
    let options = Options {
        limit: LIMIT,
        ..Options::default()
    };
    let report = run(&[vm], &options).map_err(|error| Lost {
        why: error.to_string(),
        lasting: error.is_lasting(),
    })?;
    let vm = &report.vms[0];
    sampled(samples, &vm.counters).ok_or_else(|| Lost {
        why: format!("the guest ended without a sample; its log: {:?}", vm.log),
        lasting: false,
    })
}

/// Runs `bench` in guests of the simulator.
pub fn simulated(bench: Bench, samples: u32, profile: &MachineProfile, host: &Host) -> Option<Sampled> {
    match bench {
        Bench::Bare(micro) => {
            let config = config(micro, profile, host)?;
            let guest = |_: &holdfast_sim::Vm, machine| image(machine, micro, samples);
            let outcome = run_images(&config, &CallOff::new(), guest).ok()?;
            sampled(samples, &outcome.vms[0].counters)
        }
        Bench::Call => {
            let outcome = holdfast_sim::run(&kernel::config(profile, host)?, &CallOff::new()).ok()?;
            Sampled::of(vec![kernel::time(&outcome)?])
        }
    }
}

fn config(micro: Micro, profile: &MachineProfile, host: &Host) -> Option<Config> {
    let mut config = machine_of(profile, host)?;
    let vm = &mut config.vms[0];
    vm.name = "measured".to_owned();
    vm.bare_metal = false;
    vm.vcpus = micro.places().len() as u32;
    vm.affinity = micro.places().iter().map(|&cpu| vec![cpu]).collect();
    vm.host.halt_poll_cap_ns = Some(0);
    Some(config)
}

fn sampled(samples: u32, counters: &BTreeMap<String, u64>) -> Option<Sampled> {
    let ns = |name: &str| counters.get(name).map(|&picos| picos as f64 / 1000.0);
    Some(Sampled {
        count: samples as usize,
        median_ns: ns(MEDIAN)?,
        quarter_ns: ns(QUARTER)?,
        three_quarters_ns: ns(THREE_QUARTERS)?,
    })
}

/// Finds the costs named in `costs` from the figures `found`, puts them into `profile` and returns them.
pub fn refine(
    profile: &mut MachineProfile,
    host: &Host,
    found: &Found,
    costs: &[(Bench, &'static str)],
) -> Vec<Parameter> {
    fit_all(profile, costs, Bench::name, found, |bench, profile| {
        simulated(bench, SIMULATED_SAMPLES, profile, host)
    })
}

/// Returns all benchmarks on the machine and in the simulator.
pub fn closure(profile: &MachineProfile, host: &Host, found: &Found) -> Vec<Closure> {
    let both = found.iter().map(|(&bench, sampled)| Closure {
        benchmark: bench.name(),
        measured_ns: sampled.median_ns,
        simulated_ns: simulated(bench, SIMULATED_SAMPLES, profile, host).map(|sampled| sampled.median_ns),
    });
    both.collect()
}
