//! Cost of a guest kernel's own instructions on a host.
//!
//! Virtual time models the kernel's work as spans of computing, which stand for its instructions. If instructions are
//! slow (an emulated host executes a hundred million per second), the guest's own instructions add to that. The
//! benchmark is a system call that takes and releases a free spinlock.

use holdfast_host::VmConfig;
use holdfast_lab::profile::MachineProfile;
use holdfast_sim::{Config, Outcome, Vm};
use holdfast_workloads::{Boot, Contend, Hog, KernelConfig, Workload};

use super::host::Host;
use super::stage::machine_of;
use crate::kvm::offer_what_is_here;

/// Returns the configuration of both sides: a guest that makes calls on one CPU, and a guest that computes on the
/// other. Returns `None` if a cost is too large.
pub fn config(profile: &MachineProfile, host: &Host) -> Option<Config> {
    let mut config = machine_of(profile, host)?;
    let mut offers = VmConfig {
        halt_poll_cap_ns: Some(0),
        ..VmConfig::default()
    };
    offer_what_is_here(&mut offers);
    let vm = |name: &str, pcpu: u32, workload: Workload| Vm {
        name: name.to_owned(),
        vcpus: 1,
        affinity: vec![vec![pcpu]],
        host: offers,
        boot: Boot {
            kernel: KernelConfig {
                hz: host.hz,
                ..KernelConfig::default()
            },
            workload,
            ..Boot::default()
        },
        measured: pcpu == 0,
        bare_metal: false,
        ..config.vms[0].clone()
    };
    let calls = Contend {
        tasks: Some(1),
        held_ns: 0,
        think_ns: 0,
        // Some ticks of host and guest, so that translations and caches are warm for most of it.
        span_ns: Some(5_000_000_000 / u64::from(host.hz.max(1))),
        ..Contend::default()
    };
    config.vms = vec![
        vm("measured", 0, Workload::Contend(calls)),
        vm("busy", 1, Workload::Hog(Hog::default())),
    ];
    Some(config)
}

/// Returns the nanoseconds for a call in a run of [`config`].
pub fn time(outcome: &Outcome) -> Option<f64> {
    let vm = &outcome.vms[0];
    let calls = vm.operations.filter(|&calls| calls > 0)?;
    Some(vm.elapsed_ns? as f64 / calls as f64)
}
