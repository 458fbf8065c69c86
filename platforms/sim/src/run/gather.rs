//! Gathers the outcome of a run.

use std::collections::BTreeMap;

use holdfast_host::{Nanos, VcpuId, VmId};

use crate::books::cause::Cause;
use crate::core::engine::{Engine, EngineStats};
use crate::run::build::in_order;
use crate::run::config::Config;
use crate::run::outcome::{Convoy, Outcome, VmOutcome};

/// The outcome of `engine`, which has played `config`.
pub fn gather(engine: &mut Engine, config: &Config) -> Outcome {
    engine.close_ledgers();
    let mut gathered = in_order(config).zip(0..).collect::<Vec<_>>();
    // As they were configured.
    gathered.sort_by_key(|(vm, _)| config.vms.iter().position(|other| std::ptr::eq(*vm, other)));
    let vms = gathered.iter().map(|&(_, number)| gather_vm(engine, number)).collect();
    let EngineStats {
        operations,
        switches,
        parks,
        events,
        host_steps,
        acquisitions,
    } = engine.stats;
    Outcome {
        vms,
        end_ns: engine.now.nanos(),
        history_hash: engine.hash.value(),
        engine: BTreeMap::from([
            ("operations", operations),
            ("switches", switches),
            ("parks", parks),
            ("events", events),
            ("host_steps", host_steps),
            ("acquisitions", acquisitions),
        ]),
    }
}

/// Whether the host uses AVIC for guest `number`.
fn is_avic_used(engine: &Engine, number: u32) -> bool {
    let native = engine.native.as_ref().is_some_and(|native| native.vm == number);
    let first = VcpuId(engine.vms[number as usize].first_vcpu);
    !native && engine.host.vmcb(first).is_some()
}

fn gather_vm(engine: &Engine, number: u32) -> VmOutcome {
    let vm = &engine.vms[number as usize];
    let mut lost_time_ps: BTreeMap<&'static str, u64> = BTreeMap::new();
    for vcpu in engine.vcpus.iter().filter(|vcpu| vcpu.vm.0 == number) {
        for (cause, time) in Cause::ALL.into_iter().zip(vcpu.ledger.totals()) {
            *lost_time_ps.entry(cause.name()).or_insert(0) += time;
        }
    }
    let ran_ps: u64 = engine
        .vcpus
        .iter()
        .filter(|vcpu| vcpu.vm.0 == number)
        .map(|vcpu| engine.now.0 - vcpu.off_time_at(engine.now))
        .sum();
    let mut counters = vm.counters.clone();
    // CPU time as `top` shows it on the host, exits' handling included; 1000 is one pCPU.
    let ran_ns = match &engine.native {
        Some(native) if native.vm == number => {
            let now = Nanos(engine.now.nanos());
            let threads = (0..native.threads.len() as u32).map(|thread| native.task_of(thread));
            threads.map(|thread| engine.host.cpu_time(thread, now).0).sum()
        }
        _ => {
            let counted = engine.host.counters(VmId(number));
            counters.extend(counted.map(|(name, value)| (name.to_owned(), value)));
            ran_ps / 1000
        }
    };
    counters.insert("cpu_time_ns".to_owned(), ran_ns);
    let permille = u128::from(ran_ns) * 1_000_000 / u128::from(engine.now.0.max(1));
    counters.insert("cpu_permille".to_owned(), permille as u64);
    counters.extend(
        vm.lock_stats
            .iter()
            .filter(|(_, value)| *value > 0)
            .map(|(name, value)| (name.to_owned(), value)),
    );
    if vm.begun.is_some() {
        counters.insert("measured_exits".to_owned(), vm.exits.iter().sum());
        let by_cause = Cause::ALL.into_iter().zip(vm.exits).filter(|(_, count)| *count > 0);
        counters.extend(by_cause.map(|(cause, count)| (format!("measured_exits.{}", cause.name()), count)));
    }
    counters.insert("preempted_holding_lock".to_owned(), vm.preempted_holding);
    counters.insert("preempted_waiting_for_lock".to_owned(), vm.preempted_waiting);
    if is_avic_used(engine, number) {
        counters.extend(vm.avic.counters().map(|(name, value)| (name.to_owned(), value)));
    }
    let is_guest = engine.native.as_ref().is_none_or(|native| native.vm != number);
    if is_guest && engine.host.vmcs(VcpuId(vm.first_vcpu)).is_some() {
        counters.extend(vm.apicv.counters().map(|(name, value)| (name.to_owned(), value)));
    }
    if engine.has_assigned_nic(number) {
        counters.extend(vm.iommu.counters().map(|(name, value)| (name.to_owned(), value)));
    }
    counters.extend(vm.yields.counters().map(|(name, value)| (name.to_owned(), value)));
    let now = Nanos(engine.now.nanos());
    if is_guest && let Some(throttling) = engine.host.vm_throttling(VmId(number), now) {
        counters.insert("throttled_holding_lock".to_owned(), vm.throttled_holding);
        counters.insert("throttled_waiting_for_lock".to_owned(), vm.throttled_waiting);
        counters.insert("bandwidth_periods".to_owned(), throttling.periods);
        counters.insert("bandwidth_throttled_periods".to_owned(), throttling.throttled_periods);
        counters.insert("bandwidth_throttled_ns".to_owned(), throttling.throttled_ns);
    }
    let elapsed = vm.begun.zip(vm.done).map(|(begun, done)| done.since(begun).0 / 1000);
    VmOutcome {
        name: vm.name.clone(),
        elapsed_ns: elapsed.filter(|_| vm.measured),
        operations: vm.operations.filter(|_| vm.measured),
        counters,
        lost_time_ps,
        vcpu_time_ps: engine.now.0 * u64::from(vm.vcpus),
        longest_stall_ns: vm.longest_stall.0 / 1000,
        convoy: vm
            .convoys
            .found()
            .map(|(since_ns, total_ns)| Convoy { since_ns, total_ns }),
    }
}
