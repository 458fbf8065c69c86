//! Builds the machine of a run.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};

use holdfast_abi::StealTime;
use holdfast_abi::cpuid;
use holdfast_guest::GuestImage;
use holdfast_host::{GroupId, Host, PcpuPlace, SvmPart, VmGroup, VmId, VmxPart};
use holdfast_locks::{LockStats, NodeTable, WaitTable};
use holdfast_machine::{EventQueue, Lines, Picos, Time, Topology};

use crate::apic::apicv::ApicvCounts;
use crate::apic::avic::AvicCounts;
use crate::apic::iommu::IommuCounts;
use crate::books::cause::Cause;
use crate::books::convoy::ConvoyWatch;
use crate::books::hash::HistoryHash;
use crate::books::yields::YieldWatch;
use crate::core::engine::{Engine, EngineStats, Task, Vm};
use crate::core::failure::Failure;
use crate::cpus::pcpu::Pcpu;
use crate::cpus::vcpu::Vcpu;
use crate::flows::context::Saved;
use crate::flows::flow::boot_flow;
use crate::flows::stack::Stacks;
use crate::guests::machine::SimMachine;
use crate::guests::native::Native;
use crate::guests::net::Network;
use crate::memory::tlb::Spaces;
use crate::run::config::{Config, Vm as VmConfig};

/// Builds the machine of `config`, with kernels made by `image`.
///
/// # Errors
/// If the configuration cannot be built.
pub fn build(
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
        if vm.boot.workload.uses_network() {
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
pub fn in_order(config: &Config) -> impl Iterator<Item = &VmConfig> {
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
