//! What a simulated host charges for guests that repeat recorded ones.

use holdfast_machine::{Costs, Picos};
use holdfast_sim::{Config, VmOutcome};
use holdfast_workloads::{RecordedHost, Workload};

/// A way out of idle of up to so many ns costs a woken vCPU nothing worth a word.
const IDLE_EXIT_NS: u64 = 10_000;

/// Returns the ready time in ns that the ways out of idle add to that of `vm`, whose recorded host needs
/// `idle_exit_ns` for one, the mean. A replay lets a woken vCPU have an idle pCPU nearly at once. On that host it is
/// ready for so long, each time that it has slept.
pub fn idle_exits_ns(vm: &VmOutcome, idle_exit_ns: Option<u64>) -> f64 {
    let counter = |name: &str| vm.counters.get(name).map_or(0.0, |count| *count as f64);
    let slept = (counter("halt_exits") - counter("halt_successful_poll")).max(0.0);
    slept * idle_exit_ns.filter(|ns| *ns >= IDLE_EXIT_NS).unwrap_or(0) as f64
}

/// Charges no CPU time for what the host and the hardware do, if all guests of `config` repeat recorded ones: the
/// recorded time on CPUs has it, by the recorded host's own costs. What passes while no thread has the pCPU stays: the
/// way of an interrupt, and the way out of idle. A PAUSE keeps its time, since a spin consists of them. The host does
/// not poll for its own threads. Guests have run before, so the host has found how long to poll for them.
pub fn forgive(config: &mut Config) {
    for vm in &mut config.vms {
        if matches!(&vm.boot.workload, Workload::Recorded(recorded) if recorded.guest == RecordedHost::HOST) {
            vm.host.halt_poll_cap_ns = Some(0);
        }
    }
    let is_recorded = |workload: &Workload| matches!(workload, Workload::Recorded(_));
    if !config.vms.iter().all(|vm| is_recorded(&vm.boot.workload)) {
        return;
    }
    for vm in &mut config.vms {
        vm.host.has_polled = true;
    }
    let costs = &config.machine.costs;
    let (ipi_latency, idle_exit, timer_delay) = (costs.ipi_latency, costs.idle_exit, costs.timer_delay);
    let pause = costs.pause;
    let nothing = Costs::from_costs(|_| Some(Picos::ZERO)).expect("there is a cost of each name");
    config.machine.costs = Costs {
        ipi_latency,
        idle_exit,
        timer_delay,
        pause,
        ..nothing
    };
    if let Some(avic) = &mut config.machine.avic {
        (avic.register, avic.ipi, avic.doorbell, avic.exit) = Default::default();
    }
    if let Some(apicv) = &mut config.machine.apicv {
        (apicv.register, apicv.ipi, apicv.processing, apicv.exit) = Default::default();
    }
}
