//! The answers of `/dev/kvm` itself.

use std::time::Duration;

use holdfast_kvm::{Contention, Error, Host, Options, Report, Task, Vm, run};

use super::inside::{self, Inside};

/// Answers of `/dev/kvm`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Probe {
    /// Why the device could not be opened. Then all other fields but `inside` are `None`.
    pub refused: Option<String>,
    /// Answer to the request KVM_GET_API_VERSION.
    pub api_version: Option<i32>,
    /// EAX of leaf 0x40000001 in KVM_GET_SUPPORTED_CPUID: what guests can be offered.
    pub features: Option<u32>,
    /// Whether a kick that was latched arrives in a new VM when a VMM saves and restores one, or the `ioctl` that KVM
    /// refused. `None` if it was not tried.
    pub kick_migrates: Option<Result<bool, String>>,
    /// Simple ring-0 instructions per second in a small guest.
    pub instructions_per_second: Option<f64>,
    /// Why the speed is not known.
    pub loop_failed: Option<String>,
    /// Whether KVM gave the statistics of a small guest by file descriptor (KVM_CAP_BINARY_STATS_FD).
    pub statistics: Option<bool>,
    /// What this machine is offered as a guest, whatever its `/dev/kvm`. `None` on bare metal.
    pub inside: Option<Inside>,
}

/// Asks this machine's `/dev/kvm`, partly by running small guests.
pub fn ask() -> Probe {
    let probe = Probe {
        inside: inside::ask(),
        ..device()
    };
    if probe.refused.is_some() || probe.loop_failed.is_some() {
        return probe;
    }
    let report = small_guest("statistics", 1_000_000);
    let has_statistics = |report: Report| {
        report
            .vms
            .iter()
            .flat_map(|vm| &vm.vcpus)
            .all(|vcpu| !vcpu.stats.is_empty())
    };
    Probe {
        statistics: report.ok().map(has_statistics),
        ..probe
    }
}

/// Opens the device and asks for its version and features.
fn device() -> Probe {
    match Host::open() {
        Ok(host) => Probe {
            api_version: Some(12),
            kick_migrates: Some(host.migrates_kick(false).map_err(|error| error.to_string())),
            features: Some(host.supported_cpuid(FEATURES_LEAF)[0]),
            ..loop_speed()
        },
        Err(error) => Probe {
            refused: Some(error.to_string()),
            ..Probe::default()
        },
    }
}

/// KVM's paravirtual features (Documentation/virt/kvm/x86/cpuid.rst).
const FEATURES_LEAF: u32 = 0x4000_0001;

/// Runs a guest whose only vCPU takes and releases a free lock for `duration_ns`.
fn small_guest(name: &str, duration_ns: u64) -> Result<Report, Error> {
    let contention = Contention {
        duration_ns,
        ..Contention::default()
    };
    let options = Options {
        limit: Duration::from_secs(20),
        ..Options::default()
    };
    run(&[Vm::new(name, 1, Task::Contention(contention))], &options)
}

/// Measures the speed of a small guest: one vCPU takes and releases a free lock, which is about ten instructions.
fn loop_speed() -> Probe {
    const INSTRUCTIONS: f64 = 10.0;
    match small_guest("probe", 100_000_000) {
        Ok(report) => Probe {
            instructions_per_second: report.vms[0].per_second().map(|rate| rate * INSTRUCTIONS),
            ..Probe::default()
        },
        Err(error) => Probe {
            loop_failed: error.to_string().lines().next().map(str::to_owned),
            ..Probe::default()
        },
    }
}
