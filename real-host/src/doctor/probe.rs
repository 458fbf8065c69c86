//! What `/dev/kvm` itself says.

use std::time::Duration;

use holdfast_kvm::{Contention, Host, Options, Report, Task, Vm, run};

/// What `/dev/kvm` said when it was asked.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Probe {
    /// Why it could not be opened; then nothing else is known.
    pub refused: Option<String>,
    /// KVM_GET_API_VERSION.
    pub api_version: Option<i32>,
    /// EAX of leaf 0x40000001 in KVM_GET_SUPPORTED_CPUID: what guests can be offered.
    pub features: Option<u32>,
    /// Simple ring-0 instructions that a small guest executed per second.
    pub instructions_per_second: Option<f64>,
    /// Why that is not known.
    pub loop_failed: Option<String>,
    /// Whether KVM told a small guest's statistics by file descriptor (KVM_CAP_BINARY_STATS_FD).
    pub statistics: Option<bool>,
}

/// What this machine's own `/dev/kvm` says; where there is none, why.
pub fn ask() -> Probe {
    let probe = device();
    if probe.refused.is_some() || probe.loop_failed.is_some() {
        return probe;
    }
    let contention = Contention {
        duration_ns: 1_000_000,
        ..Contention::default()
    };
    let options = Options {
        limit: Duration::from_secs(20),
        ..Options::default()
    };
    let report = run(&[Vm::new("statistics", 1, Task::Contention(contention))], &options);
    let told = |report: Report| {
        report
            .vms
            .iter()
            .flat_map(|vm| &vm.vcpus)
            .all(|vcpu| !vcpu.stats.is_empty())
    };
    Probe {
        statistics: report.ok().map(told),
        ..probe
    }
}

/// What `/dev/kvm` says when it is asked.
fn device() -> Probe {
    match Host::open() {
        Ok(host) => Probe {
            api_version: Some(12),
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

/// How fast a small guest gets on: a vCPU that takes and releases a lock that nobody else wants, which is some ten instructions.
fn loop_speed() -> Probe {
    const INSTRUCTIONS: f64 = 10.0;
    let contention = Contention {
        duration_ns: 100_000_000,
        ..Contention::default()
    };
    let options = Options {
        limit: Duration::from_secs(20),
        ..Options::default()
    };
    match run(&[Vm::new("probe", 1, Task::Contention(contention))], &options) {
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
