//! One run: builds the machine, plays it, and gathers what it gave.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};

use holdfast_abi::StealTime;
use holdfast_abi::cpuid;
use holdfast_guest::GuestImage;
use holdfast_host::{GroupId, Host, Nanos, PcpuPlace, SvmPart, VcpuId, VmGroup, VmId, VmxPart};
use holdfast_locks::{LockStats, NodeTable, WaitTable};
use holdfast_machine::{EventQueue, Lines, Picos, Time, Topology};

use crate::api::{CallOff, Config, Convoy, Failure, Outcome, Vm as VmConfig, VmOutcome};
use crate::apicv::ApicvCounts;
use crate::avic::AvicCounts;
use crate::cause::Cause;
use crate::context::Saved;
use crate::convoy::ConvoyWatch;
use crate::engine::{Engine, EngineStats, Task, Vm};
use crate::flow::{boot_flow, play};
use crate::hash::HistoryHash;
use crate::iommu::IommuCounts;
use crate::machine::SimMachine;
use crate::native::Native;
use crate::net::Network;
use crate::pcpu::Pcpu;
use crate::stack::Stacks;
use crate::timeline::{Recorder, Timeline, Window};
use crate::tlb::Spaces;
use crate::vcpu::Vcpu;
use crate::yields::YieldWatch;

/// Runs `config` to its end. Deterministic: equal configurations give equal outcomes, hash included.
///
/// # Errors
/// [`Failure`] says why the run could not finish.
pub fn run(config: &Config, call_off: &CallOff) -> Result<Outcome, Failure> {
    run_images(config, call_off, |vm, machine| {
        holdfast_workloads::image(machine, &vm.boot)
    })
}

/// As [`run`], but with kernels of the caller's making: `image` builds one for each guest.
///
/// # Errors
/// As [`run`].
pub fn run_images(
    config: &Config,
    call_off: &CallOff,
    image: impl Fn(&VmConfig, SimMachine) -> Box<dyn GuestImage>,
) -> Result<Outcome, Failure> {
    execute(&mut *build(config, image)?, config, call_off)
}

/// As [`run_images`], where the kernel on the machine itself may have its threads run on these pCPUs only; empty: on all.
pub(crate) fn run_pinned(
    config: &Config,
    call_off: &CallOff,
    affinities: &[Vec<u32>],
    image: impl Fn(&VmConfig, SimMachine) -> Box<dyn GuestImage>,
) -> Result<Outcome, Failure> {
    let mut engine = build(config, image)?;
    if let Some(native) = &mut engine.native {
        native.affinities = affinities.to_vec();
    }
    execute(&mut engine, config, call_off)
}

/// As [`run`], and records what happens within `window`: up to a failure, if there is one. The outcome is that of [`run`],
/// bit for bit.
///
/// # Errors
/// As [`run`], if the run cannot even begin.
pub fn record(
    config: &Config,
    call_off: &CallOff,
    window: Window,
) -> Result<(Result<Outcome, Failure>, Timeline), Failure> {
    record_images(config, call_off, window, |vm, machine| {
        holdfast_workloads::image(machine, &vm.boot)
    })
}

/// As [`record`], but with kernels of the caller's making.
///
/// # Errors
/// As [`record`].
pub fn record_images(
    config: &Config,
    call_off: &CallOff,
    window: Window,
    image: impl Fn(&VmConfig, SimMachine) -> Box<dyn GuestImage>,
) -> Result<(Result<Outcome, Failure>, Timeline), Failure> {
    let mut engine = build(config, image)?;
    let names = config.tasks.iter().map(|task| task.name.clone());
    let tasks = engine.tasks.keys().map(|task| task.0).zip(names).collect();
    let recorder = Recorder::new(window, engine.pcpus.len(), engine.vcpus.len(), tasks);
    engine.timeline = Some(Box::new(recorder));
    let outcome = execute(&mut engine, config, call_off);
    let timeline = engine.take_timeline(outcome.is_ok());
    Ok((outcome, timeline))
}

pub(crate) fn execute(engine: &mut Engine, config: &Config, call_off: &CallOff) -> Result<Outcome, Failure> {
    engine.power_on();
    engine.set_watchdog();
    play(engine, call_off);
    match engine.failure.take() {
        Some(failure) => Err(failure),
        None => Ok(gather(engine, config)),
    }
}

pub(crate) fn build(
    config: &Config,
    image: impl Fn(&VmConfig, SimMachine) -> Box<dyn GuestImage>,
) -> Result<Box<Engine>, Failure> {
    let invalid = |what: &dyn std::fmt::Display| Failure::Invalid(what.to_string());
    let topology = config.machine.topology;
    let mut host = Host::new(&host_config(config), &places(&topology)).map_err(|error| invalid(&error))?;
    let groups = add_groups(&mut host, config)?;
    let group = |name: &Option<String>| match name {
        None => Ok(None),
        Some(name) => find_group(&groups, name).map(Some),
    };
    let (mut vms, mut vcpus) = (Vec::new(), Vec::new());
    for vm in in_order(config) {
        if !vm.domains.is_empty() && vm.domains.len() != vm.vcpus as usize {
            let found = format!(
                "{} proximity domains for {} vcpus of {}",
                vm.domains.len(),
                vm.vcpus,
                vm.name
            );
            return Err(invalid(&found));
        }
        let id = VmId(vms.len() as u32);
        vms.push(new_vm(vm, vcpus.len() as u32, config.seed));
        if vm.bare_metal {
            vcpus.extend((0..vm.vcpus).map(|number| Vcpu::of_native(id, number)));
            continue;
        }
        let wanted = holdfast_host::VmConfig {
            parent: group(&vm.group)?,
            ..vm.host
        };
        let known = host
            .add_vm(&wanted, vm.vcpus, &vm.affinity)
            .map_err(|error| invalid(&error))?;
        assert_eq!(known, id, "host and engine number guests alike");
        vcpus.extend((0..vm.vcpus).map(|number| Vcpu::new(id, number)));
    }
    let beneath = config.vms.iter().find(|vm| vm.bare_metal).map(|vm| group(&vm.group));
    let native = native(config, &mut host, beneath.transpose()?.flatten())?;
    let mut tasks = BTreeMap::new();
    let mut networks = Vec::new();
    for (vm, number) in in_order(config).zip(0..).filter(|(vm, _)| !vm.bare_metal) {
        if matches!(vm.boot.workload, holdfast_workloads::Workload::Netperf(_)) {
            let network = Network::new(&mut host, VmId(number), vm.host.nic)?;
            tasks.extend(network.threads());
            networks.push(network);
        }
    }
    for task in &config.tasks {
        let wanted = holdfast_host::TaskConfig {
            nice: task.nice,
            affinity: task.affinity.clone(),
            group: group(&task.group)?,
            ..holdfast_host::TaskConfig::default()
        };
        let id = host.add_task(&wanted).map_err(|error| invalid(&error))?;
        let busy = (task.busy_ns != u64::MAX).then(|| Picos::from_nanos(task.busy_ns));
        let remaining = busy.unwrap_or(Picos(u64::MAX));
        tasks.insert(
            id,
            Task {
                busy,
                sleep: Picos::from_nanos(task.sleep_ns),
                remaining,
            },
        );
    }
    static RUNS: AtomicU32 = AtomicU32::new(1);
    let mut engine = Box::new(Engine {
        run: RUNS.fetch_add(1, Ordering::Relaxed),
        now: Time(0),
        queue: EventQueue::new(),
        lines: Lines::new(&topology, &config.machine.costs),
        records: Vec::new(),
        groups: BTreeMap::new(),
        costs: config.machine.costs.clone(),
        pause_hardware: config.machine.pause_hardware,
        avic: config.machine.avic,
        apicv: config.machine.apicv,
        rung: Vec::new(),
        frequency_hz: config.machine.frequency_hz,
        pcpus: vec![Pcpu::new(); topology.pcpus() as usize],
        vcpus,
        vms,
        native,
        networks,
        tasks,
        current: 0,
        main: Saved::NONE,
        stacks: Stacks::new(),
        host,
        commands: Vec::new(),
        exit: None,
        call: None,
        failure: None,
        finished: false,
        timeline: None,
        audit: None,
        migrations: None,
        hash: HistoryHash::new(),
        stats: EngineStats::default(),
        execute_spins: config.execute_spins,
        limit: Time::from_nanos(config.limit_ns),
        firing: None,
        spare_slots: Vec::new(),
        free_slots: Vec::new(),
        free_line_slots: Vec::new(),
    });
    boot(&mut engine, config, image);
    Ok(engine)
}

/// The host's configuration, with what CPUID tells it of the part.
fn host_config(config: &Config) -> holdfast_host::HostConfig {
    let mut host = config.host.clone();
    if let Some(part) = config.machine.avic {
        let x2avic = if part.hardware.x2avic { cpuid::SVM_X2AVIC } else { 0 };
        host.avic.part = SvmPart {
            features: cpuid::SVM_NESTED_PAGING | cpuid::SVM_AVIC | x2avic,
            family: part.family,
        };
    }
    if let Some(part) = config.machine.apicv {
        host.apicv.part = VmxPart {
            apicv: true,
            ipiv: part.ipiv,
        };
    }
    host
}

/// Adds the task groups, parents before what stands beneath them.
fn add_groups<'c>(host: &mut Host, config: &'c Config) -> Result<Vec<(&'c str, GroupId)>, Failure> {
    let mut groups: Vec<(&str, GroupId)> = Vec::new();
    for group in &config.groups {
        let invalid =
            |error: holdfast_host::ConfigError| Failure::Invalid(format!("task group {}: {error}", group.name));
        let parent = match &group.parent {
            None => None,
            Some(name) => Some(find_group(&groups, name)?),
        };
        let id = host.add_group(parent, group.shares).map_err(invalid)?;
        if let Some(quota) = group.quota {
            host.set_quota(id, quota).map_err(invalid)?;
        }
        groups.push((&group.name, id));
    }
    Ok(groups)
}

fn find_group(groups: &[(&str, GroupId)], name: &str) -> Result<GroupId, Failure> {
    let found = groups.iter().find(|(known, _)| *known == name);
    found.map(|(_, id)| *id).ok_or_else(|| {
        Failure::Invalid(format!(
            "task group {name} does not exist, or comes later than what is in it"
        ))
    })
}

/// Guests first, as the host numbers them; then the kernel on the machine itself.
fn in_order(config: &Config) -> impl Iterator<Item = &VmConfig> {
    let guests = config.vms.iter().filter(|vm| !vm.bare_metal);
    guests.chain(config.vms.iter().filter(|vm| vm.bare_metal))
}

/// The kernel on the machine itself, if there shall be one.
fn native(config: &Config, host: &mut Host, parent: Option<GroupId>) -> Result<Option<Native>, Failure> {
    let pcpus = config.machine.topology.pcpus();
    let guests = config.vms.iter().filter(|vm| !vm.bare_metal);
    let (number, first) = guests.fold((0, 0), |(number, first), vm| (number + 1, first + vm.vcpus));
    let mut natives = config.vms.iter().filter(|vm| vm.bare_metal);
    let Some(vm) = natives.next() else { return Ok(None) };
    let name = &vm.name;
    if let Some(other) = natives.next() {
        let other = &other.name;
        return Err(Failure::Invalid(format!(
            "{name} and {other} cannot both have the machine itself"
        )));
    }
    if vm.vcpus != pcpus || !vm.affinity.is_empty() {
        let what = format!(
            "{name}, on the machine itself, has its {pcpus} pCPUs, not {} vCPUs",
            vm.vcpus
        );
        return Err(Failure::Invalid(what));
    }
    let group = match vm.host.group {
        VmGroup::Root => parent,
        VmGroup::Own { shares } | VmGroup::OwnWithVcpuGroups { shares } => {
            let group = host.add_group(parent, shares);
            Some(group.map_err(|error| Failure::Invalid(error.to_string()))?)
        }
    };
    let task = holdfast_host::TaskConfig {
        nice: vm.host.nice,
        group,
        voluntary: true,
        dormant: true,
        ..holdfast_host::TaskConfig::default()
    };
    Ok(Some(Native::new(number, first, pcpus, task)))
}

/// Builds each guest's kernel, and the flows in which its vCPUs boot it.
fn boot(engine: &mut Engine, config: &Config, image: impl Fn(&VmConfig, SimMachine) -> Box<dyn GuestImage>) {
    let pointer: *mut Engine = engine;
    for (index, vm) in in_order(config).enumerate() {
        engine.current = engine.vms[index].first_vcpu;
        let machine = SimMachine::new(pointer, index as u32);
        engine.vms[index].image = Some(image(vm, machine));
    }
    for vcpu in 0..engine.vcpus.len() as u32 {
        boot_flow(engine, vcpu);
    }
}

fn new_vm(config: &VmConfig, first_vcpu: u32, seed: u64) -> Vm {
    let vcpus = config.vcpus as usize;
    Vm {
        name: config.name.clone(),
        first_vcpu,
        vcpus: config.vcpus,
        image: None,
        waits_for_sipi: config.host.waits_for_sipi,
        seed,
        spin_threshold: config.boot.spin_threshold,
        wait_early_preempted: config.boot.wait_early_preempted,
        steal_time: (0..vcpus).map(|_| StealTime::default()).collect(),
        pv_eoi: vec![Cell::new(0); vcpus].into(),
        spaces: Spaces::default(),
        faults: config.host.faults,
        exits: [0; Cause::ALL.len()],
        network: Box::default(),
        domains: config.domains.clone().into(),
        numa_nodes: vec![Cell::new(0); vcpus].into(),
        nodes: NodeTable::new(vcpus),
        waiting: WaitTable::new(vcpus),
        lock_stats: LockStats::new(),
        measured: config.measured,
        begun: None,
        done: None,
        operations: None,
        counters: BTreeMap::new(),
        last_work: Time(0),
        last_user: Time(0),
        longest_stall: Picos::ZERO,
        convoys: ConvoyWatch::default(),
        preempted_holding: 0,
        preempted_waiting: 0,
        throttled_holding: 0,
        throttled_waiting: 0,
        yields: YieldWatch::default(),
        avic: AvicCounts::default(),
        apicv: ApicvCounts::default(),
        iommu: IommuCounts::default(),
    }
}

fn places(topology: &Topology) -> Vec<PcpuPlace> {
    (0..topology.pcpus())
        .map(|pcpu| PcpuPlace {
            thread: pcpu % topology.threads,
            core: pcpu / topology.threads % topology.cores,
            socket: pcpu / topology.threads / topology.cores,
        })
        .collect()
}

fn gather(engine: &mut Engine, config: &Config) -> Outcome {
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
