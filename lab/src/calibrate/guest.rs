//! What only a guest can measure of a machine and its host's KVM: exits, injection, kicks, and what instructions cost there.
//!
//! **One source**: the small benchmarks ([`holdfast_workloads::micro`]) run in a guest on this host's KVM and in the simulator,
//! and one after another each of them determines the one cost that those before it have left open.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use holdfast_kvm::{Options, Task, Vm, run};
use holdfast_sim::{Config, run_images};
pub use holdfast_workloads::Micro;
use holdfast_workloads::micro::{MEDIAN, QUARTER, THREE_QUARTERS, micro as image};

use super::fit::fit_all;
use super::sample::Sampled;
use super::stage::machine_of;
use super::system::Host;
use super::{CalibrateError, Closure, Parameter};
use crate::profile::MachineProfile;

/// What each benchmark came to.
pub type Found = BTreeMap<Micro, Sampled>;

/// Real time after which a guest that measures counts as hung.
const LIMIT: Duration = Duration::from_secs(20);
/// Guest memory: image, stacks, samples.
const MEMORY_BYTES: u64 = 32 << 20;
/// Samples in the simulator, where only the first few differ.
const SIMULATED_SAMPLES: u32 = 9;

/// Which cost each benchmark determines, in the order in which they do: each depends on its own cost and those before it. Kicking
/// a vCPU that sleeps determines none: what it is made of is known by then, and whether it comes out says how well.
///
/// Sums that no guest can divide are left whole: the way out and back is in `exit_software`, and what an interrupt takes beside
/// its exits in `apic_deliver`.
pub const COSTS: [(Micro, &str); 12] = [
    (Micro::Load, "load_hit"),
    (Micro::Store, "store"),
    (Micro::Exchange, "rmw_hit"),
    (Micro::Fence, "fence"),
    (Micro::Pause, "pause"),
    (Micro::Line, "transfer_socket"),
    (Micro::Cpuid, "exit_software"),
    (Micro::Hypercall, "hypercall"),
    (Micro::Msr, "msr"),
    (Micro::SelfIpi, "apic_deliver"),
    (Micro::KickHere, "vcpu_load"),
    (Micro::KickThere, "idle_exit"),
];

/// Runs all benchmarks in guests on this host's KVM.
///
/// # Errors
/// If it was stopped, or a guest did not come to its end twice.
pub fn measure(
    samples: u32,
    step: &mut dyn FnMut(&str) -> Result<(), CalibrateError>,
) -> Result<Found, CalibrateError> {
    let mut found = Found::new();
    for micro in Micro::ALL {
        step(micro.name())?;
        // Once more where a guest was lost, as nested and emulated hosts do now and then.
        let sampled = here(micro, samples).or_else(|| here(micro, samples));
        found.insert(micro, sampled.ok_or(CalibrateError::Unmeasured(micro.name()))?);
    }
    Ok(found)
}

/// Runs `micro` in a guest on this host's KVM.
fn here(micro: Micro, samples: u32) -> Option<Sampled> {
    let places = micro.places();
    let vm = Vm::new("measured", places.len() as u32, Task::Micro { micro, samples })
        .pinned(places.iter().map(|&cpu| vec![cpu]).collect())
        .memory(MEMORY_BYTES)
        .halt_poll_ns(0);
    let options = Options {
        limit: LIMIT,
        ..Options::default()
    };
    let report = run(&[vm], &options).ok()?;
    sampled(samples, &report.vms[0].counters)
}

/// Runs `micro` in a guest of the simulator.
pub fn simulated(micro: Micro, samples: u32, profile: &MachineProfile, host: &Host) -> Option<Sampled> {
    let config = config(micro, profile, host)?;
    let guest = |_: &holdfast_sim::Vm, machine| image(machine, micro, samples);
    let outcome = run_images(&config, &AtomicBool::new(false), guest).ok()?;
    sampled(samples, &outcome.vms[0].counters)
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

/// Puts into `profile` what `found` says of it, by the costs that `costs` name, and returns that.
pub fn refine(
    profile: &mut MachineProfile,
    host: &Host,
    found: &Found,
    costs: &[(Micro, &'static str)],
) -> Vec<Parameter> {
    fit_all(profile, costs, Micro::name, found, |micro, profile| {
        simulated(micro, SIMULATED_SAMPLES, profile, host)
    })
}

/// All benchmarks on both sides.
pub fn closure(profile: &MachineProfile, host: &Host, found: &Found) -> Vec<Closure> {
    let both = found.iter().map(|(&micro, sampled)| Closure {
        benchmark: micro.name(),
        measured_ns: sampled.median_ns,
        simulated_ns: simulated(micro, SIMULATED_SAMPLES, profile, host).map(|sampled| sampled.median_ns),
    });
    both.collect()
}
