//! Gathers the outcome of a run.

use std::collections::BTreeMap;

use holdfast_host::{Host, Nanos, VcpuId, VmId};

use crate::books::account::Account;
use crate::config::Config;
use crate::core::cause::Cause;
use crate::core::latencies::{OPERATIONS, WAKES};
use crate::engine::Engine;
use crate::parts::vm::Vm;
use crate::run::build::in_order;
use crate::run::outcome::{Outcome, VmOutcome};

/// Gathers the outcome of `engine`, which has played `config`.
pub fn gather(engine: &mut Engine, config: &Config) -> Outcome {
    engine.close_accounts();
    let mut gathered = engine.vms.ids().zip(in_order(config)).collect::<Vec<_>>();
    // Into the order of the configuration.
    gathered.sort_by_key(|(_, vm)| config.vms.iter().position(|other| std::ptr::eq(*vm, other)));
    let vms = gathered.iter().map(|&(vm, _)| gather_vm(engine, config, vm)).collect();
    Outcome {
        vms,
        end_ns: engine.clock.now.nanos(),
        history_hash: engine.books.hash.value(),
        engine: BTreeMap::from(engine.books.stats.counters()),
    }
}

fn gather_vm(engine: &Engine, config: &Config, id: VmId) -> VmOutcome {
    let (vm, book) = (&engine.vms[id], &engine.books.guests[id]);
    let (longest_stall, convoy) = book.stall_and_convoys();
    let mut lost_time_ps: BTreeMap<&'static str, u64> = BTreeMap::new();
    for vcpu in vm.vcpu_ids() {
        let totals = engine.books.accounts[vcpu].ledger.totals();
        for (cause, time) in Cause::ALL.into_iter().zip(totals) {
            *lost_time_ps.entry(cause.name()).or_insert(0) += time;
        }
    }
    // A VM that is not there has no time.
    lost_time_ps.insert(Cause::Off.name(), 0);
    let report = &vm.report;
    let elapsed = report.begun.zip(report.done);
    let elapsed = elapsed.map(|(begun, done)| done.since(begun).0 / 1000);
    VmOutcome {
        name: vm.name.clone(),
        elapsed_ns: elapsed.filter(|_| vm.measured),
        operations: report.operations.filter(|_| vm.measured),
        counters: counters(engine, config, id),
        vcpu_time_ps: lost_time_ps.values().sum(),
        lost_time_ps,
        longest_stall_ns: longest_stall.0 / 1000,
        convoy,
    }
}

/// All counters of guest `id`: those that it reported, and those of its locks, the host and the machine.
fn counters(engine: &Engine, config: &Config, id: VmId) -> BTreeMap<String, u64> {
    let (vm, book) = (&engine.vms[id], &engine.books.guests[id]);
    let mut counters = vm.report.counters.clone();
    let is_guest = engine.tasks.native.as_ref().is_none_or(|native| native.vm != id);
    if is_guest {
        let (host, own) = engine.host_of(id);
        let host = host.counters(own);
        add(
            &mut counters,
            host.map(|(name, value)| (name, book.counted(name, value))),
        );
    }
    add(&mut counters, waits(engine, vm));
    add(&mut counters, vm.report.latencies.counters(OPERATIONS));
    if let Some(wakes) = &vm.report.wakes {
        add(&mut counters, wakes.counters(WAKES));
    }
    let ran_ns = cpu_time_ns(engine, id);
    let permille = u128::from(ran_ns) * 1_000_000 / u128::from(engine.clock.now.0.max(1));
    counters.insert("cpu_time_ns".to_owned(), ran_ns);
    counters.insert("cpu_permille".to_owned(), permille as u64);
    add(
        &mut counters,
        vm.fixed.locks.stats.iter().filter(|(_, value)| *value > 0),
    );
    let blocked = vm.fixed.locks.stats.blocked_by_bucket();
    counters.extend(blocked.map(|(bucket, count)| (format!("histo_blocked.{bucket}"), count)));
    if vm.report.begun.is_some() {
        counters.insert("measured_exits".to_owned(), book.exits.0.iter().sum());
        let by_cause = Cause::ALL.into_iter().zip(book.exits.0).filter(|(_, count)| *count > 0);
        counters.extend(by_cause.map(|(cause, count)| (format!("measured_exits.{}", cause.name()), count)));
    }
    counters.insert("preempted_holding_lock".to_owned(), book.losses.preempted_holding);
    counters.insert("preempted_waiting_for_lock".to_owned(), book.losses.preempted_waiting);
    if is_guest && engine.vcpus[vm.first_vcpu].nesting().host.is_none() {
        add_hardware_counters(&mut counters, engine, id, vm);
    }
    if let Some(migrations) = &engine.migrations {
        counters.insert("migrations".to_owned(), migrations.done);
        if config.migration.is_some_and(|migration| migration.copy.is_some()) {
            add(&mut counters, migrations.copied.counters());
        }
        if config.migration.is_some_and(|migration| migration.mp_state_only) {
            counters.insert("migration_kicks_lost".to_owned(), migrations.kicks_lost);
        }
    }
    add(&mut counters, book.yields.counters());
    let now = Nanos(engine.clock.now.nanos());
    let (host, own) = engine.host_of(id);
    if is_guest && let Some(throttling) = host.vm_throttling(own, now) {
        counters.insert("throttled_holding_lock".to_owned(), book.losses.throttled_holding);
        counters.insert("throttled_waiting_for_lock".to_owned(), book.losses.throttled_waiting);
        counters.insert("bandwidth_periods".to_owned(), throttling.periods);
        counters.insert("bandwidth_throttled_periods".to_owned(), throttling.throttled_periods);
        counters.insert("bandwidth_throttled_ns".to_owned(), throttling.throttled_ns);
        if throttling.bursts > 0 {
            counters.insert("bandwidth_bursts".to_owned(), throttling.bursts);
            counters.insert("bandwidth_burst_ns".to_owned(), throttling.burst_ns);
        }
    }
    counters
}

/// What the vCPUs of `vm` wait for a pCPU, as operators measure it, in nanoseconds.
fn waits(engine: &Engine, vm: &Vm) -> [(&'static str, u64); 3] {
    let now = engine.clock.now;
    let accounts = || vm.vcpu_ids().map(|vcpu| &engine.books.accounts[vcpu]);
    let ready = |account: &Account| {
        let causes = [Cause::Runnable, Cause::Throttled, Cause::WakeLatency];
        causes.map(|cause| account.ledger.of(cause).0).iter().sum::<u64>()
    };
    let wait = accounts().map(|account| account.gaps.longest_wait(now).0).max();
    let gap = accounts().map(|account| account.gaps.longest_gap(now).0).max();
    [
        ("ready_ns", accounts().map(ready).sum::<u64>() / 1000),
        ("pcpu_wait_ns_max", wait.unwrap_or(0) / 1000),
        ("tick_gap_ns_max", gap.unwrap_or(0) / 1000),
    ]
}

fn add<'n>(counters: &mut BTreeMap<String, u64>, more: impl IntoIterator<Item = (&'n str, u64)>) {
    counters.extend(more.into_iter().map(|(name, value)| (name.to_owned(), value)));
}

/// Adds what APIC virtualization and the IOMMU did for guest `id`, if it has them.
fn add_hardware_counters(counters: &mut BTreeMap<String, u64>, engine: &Engine, id: VmId, vm: &Vm) {
    let book = &engine.books.guests[id];
    for reason in engine.host.apic_inhibits(id).iter().flat_map(|set| set.reasons()) {
        counters.insert(format!("apic_inhibited.{}", reason.name()), 1);
    }
    let first: VcpuId = vm.first_vcpu;
    let passed = |like: &dyn Fn(&Host) -> bool| {
        let migrations = engine.migrations.as_ref();
        like(&engine.host) || migrations.is_some_and(|all| all.passes(like))
    };
    if passed(&|host| host.vmcb(first).is_some()) {
        add(counters, book.apic.of_avic());
    }
    if passed(&|host| host.vmcs(first).is_some()) {
        add(counters, book.apic.of_apicv());
    }
    if engine.tasks.assigned_nic(id).is_some() {
        add(counters, book.iommu.counters());
    }
}

/// The CPU time that `top` would show on the host, including the handling of exits.
fn cpu_time_ns(engine: &Engine, id: VmId) -> u64 {
    let now = engine.clock.now;
    match &engine.tasks.native {
        Some(native) if native.vm == id => {
            let threads = (0..native.threads.len() as u32).map(|thread| native.task_of(thread));
            let now = Nanos(now.nanos());
            threads.map(|thread| engine.host.cpu_time(thread, now).0).sum()
        }
        _ => {
            let accounts = engine.vms[id].vcpu_ids().map(|vcpu| &engine.books.accounts[vcpu]);
            let ran_ps: u64 = accounts.map(|account| now.0 - account.off_time_at(now)).sum();
            ran_ps / 1000
        }
    }
}
