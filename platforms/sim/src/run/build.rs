//! Builds the machine of a run.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};

use holdfast_abi::cpuid;
use holdfast_guest::GuestImage;
use holdfast_host::{GroupId, Host, IdVec, PcpuPlace, PvFaults, SvmPart, VcpuId, VmGroup, VmId, VmxPart};
use holdfast_locks::{LockStats, NodeTable, WaitTable};
use holdfast_machine::{Lines, Picos, Time, Topology};
use holdfast_workloads::{Recorded, Workload};

use crate::config::{Config, Stay, Vm as VmConfig};
use crate::core::clock::Clock;
use crate::core::failure::Failure;
use crate::core::latencies::Latencies;
use crate::engine::Engine;
use crate::engine::boot::boot_flow;
use crate::engine::handle::{EngineCell, Handle};
use crate::guests::machine::SimMachine;
use crate::memory::dirty::Pages;
use crate::memory::lines::Memory;
use crate::memory::nodes::delays;
use crate::memory::records::SharedMemory;
use crate::memory::tlb::Spaces;
use crate::nested::build as nested;
use crate::parts::hardware::{Hardware, Part};
use crate::parts::vcpu::Vcpu;
use crate::parts::vm::{FixedPart, LockTables, Progress, Settings, Vm, Watched};
use crate::tasks::HostTasks;
use crate::tasks::disk::Disk;
use crate::tasks::native::Native;
use crate::tasks::network::Network;
use crate::tasks::noise;
use crate::tasks::task::{Drawn, Task};
use crate::tasks::vmm::Vmm;

/// Builds the machine of `config`, with kernels made by `image`.
///
/// # Errors
/// If the configuration cannot be built.
pub fn build(
    config: &Config,
    image: impl Fn(&VmConfig, SimMachine) -> Box<dyn GuestImage>,
) -> Result<Rc<EngineCell>, Failure> {
    static RUNS: AtomicU32 = AtomicU32::new(1);
    nested::check(config)?;
    let topology = config.machine.topology;
    let (host, (vms, vcpus), tasks) = build_host(config)?;
    let memory = Memory::new(
        RUNS.fetch_add(1, Ordering::Relaxed),
        Lines::new(&topology, &config.machine.costs),
    );
    let mut engine = Engine::new(
        Clock::new(topology.pcpus()),
        memory,
        Hardware::new(&config.machine, config.seed),
        vcpus,
        vms,
        host,
        tasks,
    );
    engine.flows.execute_spins = config.execute_spins;
    engine.end.limit = Time::from_nanos(config.limit_ns);
    nested::add_hosts(&mut engine, config, &host_config(config))?;
    let cell = EngineCell::new(engine);
    boot(cell.handle(), config, image);
    Ok(cell)
}

/// The host of `config` at power-on, and the engine's tables of what runs on it.
fn build_host(config: &Config) -> Result<(Host, Tables, HostTasks), Failure> {
    let topology = config.machine.topology;
    let mut host = Host::new(&host_config(config), &places(&topology)).map_err(|error| invalid(&error))?;
    let groups = add_groups(&mut host, config)?;
    let tables = add_guests(&mut host, config, &groups)?;
    let tasks = add_tasks(&mut host, config, &groups)?;
    Ok((host, tables, tasks))
}

/// The other host to which the guests of `config` migrate, at power-on, and its CPUs' part in virtualization. `None` if
/// it is of the same kind.
pub fn build_destination(config: &Config) -> Result<Option<(Host, Part)>, Failure> {
    let Some(there) = &config.destination else {
        return Ok(None);
    };
    let mut other = config.clone();
    // The guests were told of the first machine's features once, and the VMM offers the same again.
    other.host = holdfast_host::HostConfig {
        tsc_hz: config.host.tsc_hz,
        traces_interrupts: config.host.traces_interrupts,
        ..there.host.clone()
    };
    other.machine.avic = there.machine.avic;
    other.machine.apicv = there.machine.apicv;
    other.machine.pause_hardware = there.machine.pause_hardware;
    let part = Hardware::new(&other.machine, config.seed).part();
    let (host, _, _) = build_host(&other)?;
    Ok(Some((host, part)))
}

fn invalid(what: &dyn std::fmt::Display) -> Failure {
    Failure::Invalid(what.to_string())
}

/// The tables of guests and of vCPUs.
type Tables = (IdVec<VmId, Vm>, IdVec<VcpuId, Vcpu>);

/// Task groups by name.
type Groups<'c> = [(&'c str, GroupId)];

/// The group `name`; `None` stands for the root group.
fn group_of(groups: &Groups<'_>, name: &Option<String>) -> Result<Option<GroupId>, Failure> {
    name.as_ref().map(|name| find_group(groups, name)).transpose()
}

/// Adds the guests to the host, and makes records of them and of the bare-metal kernel.
fn add_guests(host: &mut Host, config: &Config, groups: &Groups<'_>) -> Result<Tables, Failure> {
    let mut vms = IdVec::new();
    let mut vcpus: IdVec<VcpuId, Vcpu> = IdVec::new();
    for vm in in_order(config) {
        if !vm.domains.is_empty() && vm.domains.len() != vm.vcpus as usize {
            let (domains, vcpus, name) = (vm.domains.len(), vm.vcpus, &vm.name);
            return Err(invalid(&format!(
                "{domains} proximity domains for {vcpus} vcpus of {name}"
            )));
        }
        let id = vms.push(new_vm(
            vm,
            VcpuId(vcpus.len() as u32),
            (config.seed, stream_number(config, vm)),
            config.host.planted.pv,
        ));
        for number in 0..vm.vcpus {
            vcpus.push(if vm.bare_metal {
                Vcpu::of_native(id, number)
            } else {
                Vcpu::new(id, number)
            });
        }
        check_stay(vm, config)?;
        check_disk(vm, config)?;
        // An inner host has the guests inside of its own.
        if vm.bare_metal || vm.inside.is_some() {
            continue;
        }
        let wanted = holdfast_host::VmConfig {
            nested: nested::inside(config, vm).next().is_some(),
            dormant: vm.stay.from_ns > 0,
            parent: group_of(groups, &vm.group)?,
            ..vm.host
        };
        let known = host
            .add_vm(&wanted, vm.vcpus, &vm.affinity)
            .map_err(|error| invalid(&error))?;
        assert_eq!(known, id, "host and engine number the guests differently");
        for (vcpu, pcpu) in (vms[id].first_vcpu.0..).zip(first_pcpus(config, vm)) {
            if let Some(pcpu) = pcpu {
                host.begin_on(VcpuId(vcpu), pcpu).map_err(|error| invalid(&error))?;
            }
        }
        // The host has checked the pCPUs.
        let machine = &config.machine;
        let remote = machine.costs.remote_memory;
        let delays = delays(&machine.topology, remote, vm.vcpus, &vm.affinity, &vm.domains);
        for (number, delays) in (vms[id].first_vcpu.0..).zip(delays) {
            vcpus[VcpuId(number)].memory.delays = delays;
        }
    }
    Ok((vms, vcpus))
}

/// Returns the pCPU of `config` where each recorded thread of `vm` was first. A scheduler places the threads of copies,
/// and those that had a pCPU which this host has not.
fn first_pcpus(config: &Config, vm: &VmConfig) -> Vec<Option<u32>> {
    fn recorded(vm: &VmConfig) -> Option<&Recorded> {
        match &vm.boot.workload {
            Workload::Recorded(recorded) => Some(recorded),
            _ => None,
        }
    }
    let Some(own) = recorded(vm) else { return Vec::new() };
    let alike = config.vms.iter().filter(|other| recorded(other) == Some(own));
    if alike.count() > 1 {
        return Vec::new();
    }
    let machine = &config.machine;
    let (topology, pcpus) = (&machine.topology, machine.topology.pcpus());
    let index = |number: u32| Some(machine.numbering.index(topology, number)).filter(|&index| index < pcpus);
    let threads = own.threads.iter().take(vm.vcpus as usize);
    threads.map(|thread| index(thread.first_pcpu?)).collect()
}

/// Checks that `vm` can come and go if it is to.
fn check_stay(vm: &VmConfig, config: &Config) -> Result<(), Failure> {
    let stay = vm.stay;
    let goes = stay.until_ns.is_some();
    let why = if stay == Stay::default() {
        return Ok(());
    } else if vm.bare_metal {
        "is bare metal"
    } else if vm.measured && goes {
        "is measured"
    } else if vm.boot.workload.uses_network() && goes {
        "has a network"
    } else if config.migration.is_some() {
        "migrates"
    } else {
        return Ok(());
    };
    Err(invalid(&format!("{} {why}, and cannot come and go", vm.name)))
}

/// Checks that `vm` can have its disk, whose requests stay where they are.
fn check_disk(vm: &VmConfig, config: &Config) -> Result<(), Failure> {
    let why = if vm.vmm.disk.is_none() {
        return Ok(());
    } else if vm.bare_metal {
        "is bare metal"
    } else if vm.inside.is_some() {
        "runs inside of another guest"
    } else if vm.stay.until_ns.is_some() {
        "goes"
    } else if config.migration.is_some() {
        "migrates"
    } else {
        return Ok(());
    };
    Err(invalid(&format!("{} {why}, and cannot have a disk", vm.name)))
}

/// Adds the host tasks: the threads of network devices and disks, the configured tasks, VMMs and the host kernel's
/// threads. The bare-metal kernel's come later.
fn add_tasks(host: &mut Host, config: &Config, groups: &Groups<'_>) -> Result<HostTasks, Failure> {
    let bare_metal = config.vms.iter().find(|vm| vm.bare_metal);
    let parent = bare_metal.map(|vm| group_of(groups, &vm.group)).transpose()?;
    let native = native(config, host, parent.flatten())?;
    let mut all = BTreeMap::new();
    let (mut networks, mut disks) = (Vec::new(), Vec::new());
    for (vm, number) in in_order(config)
        .zip(0..)
        .filter(|(vm, _)| !vm.bare_metal && vm.inside.is_none())
    {
        if vm.boot.workload.uses_network() {
            let network = Network::new(host, VmId(number), vm.host.nic)?;
            all.extend(network.threads());
            networks.push(network);
        }
        if let Some(disk) = vm.vmm.disk {
            let disk = Disk::new(host, VmId(number), disk)?;
            all.extend([disk.task()]);
            disks.push(disk);
        }
    }
    for task in &config.tasks {
        let wanted = holdfast_host::TaskConfig {
            nice: task.nice,
            affinity: task.affinity.clone(),
            group: group_of(groups, &task.group)?,
            ..holdfast_host::TaskConfig::default()
        };
        let id = host.add_task(&wanted).map_err(|error| invalid(&error))?;
        let busy = (task.busy_ns != u64::MAX).then(|| Picos::from_nanos(task.busy_ns));
        let sleep = Picos::from_nanos(task.sleep_ns);
        let remaining = busy.unwrap_or(Picos(u64::MAX));
        let task = Task {
            name: task.name.clone(),
            busy,
            sleep,
            drawn: Drawn::Never,
            remaining,
        };
        all.insert(id, task);
    }
    let mut vmms = BTreeMap::new();
    let have_vmm = |vm: &VmConfig| !vm.bare_metal && vm.inside.is_none();
    for (vm, number) in in_order(config).zip(0..).filter(|(vm, _)| have_vmm(vm)) {
        vmms.extend(Vmm::add(host, VmId(number), vm, config.seed)?);
    }
    noise::add(host, config, &mut all).map_err(|error| invalid(&error))?;
    Ok(HostTasks {
        all,
        in_vmm: BTreeMap::new(),
        vmms,
        networks,
        disks,
        native,
    })
}

/// The host's configuration, with the CPU model's features as CPUID reports it.
fn host_config(config: &Config) -> holdfast_host::HostConfig {
    let mut host = config.host.clone();
    host.pcid = config.machine.pcid;
    if let Some(part) = config.machine.avic {
        let has = |feature, has| if has { feature } else { 0 };
        let x2avic = has(cpuid::SVM_X2AVIC, part.hardware.x2avic);
        let idle_hlt = has(cpuid::SVM_IDLE_HLT, part.hardware.idle_hlt);
        host.avic.part = SvmPart {
            features: cpuid::SVM_NESTED_PAGING | cpuid::SVM_AVIC | x2avic | idle_hlt,
            family: part.family,
            extended_tables: part.hardware.extended_tables,
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

/// Adds the task groups. A parent comes before its children.
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
    found
        .map(|(_, id)| *id)
        .ok_or_else(|| Failure::Invalid(format!("task group {name} does not exist, or comes after its members")))
}

/// The guests first, as the host numbers them; then those inside of each, as the hosts there number them; then the
/// bare-metal kernel.
pub fn in_order(config: &Config) -> impl Iterator<Item = &VmConfig> {
    let guests = config.vms.iter().filter(|vm| !vm.bare_metal && vm.inside.is_none());
    let inner = guests.clone().flat_map(|vm| nested::inside(config, vm));
    guests.chain(inner).chain(config.vms.iter().filter(|vm| vm.bare_metal))
}

/// The bare-metal kernel, if the configuration has one.
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
            "{name} and {other} cannot both be bare metal"
        )));
    }
    if vm.vcpus != pcpus || !vm.affinity.is_empty() {
        let what = format!(
            "{name} is bare metal and has the machine's {pcpus} pcpus, not {} vcpus",
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
    Ok(Some(Native::new(VmId(number), VcpuId(first), pcpus, task)))
}

/// Builds each guest's kernel, and the flows in which its vCPUs boot it.
fn boot(handle: Handle, config: &Config, image: impl Fn(&VmConfig, SimMachine) -> Box<dyn GuestImage>) {
    let ids = handle.with(|engine| engine.vms.ids());
    for (id, vm) in ids.zip(in_order(config)) {
        handle.with(|engine| engine.flows.current = engine.vms[id].first_vcpu);
        let machine = SimMachine::new(handle, id);
        let image = nested::kernel(handle, id, machine).unwrap_or_else(|| image(vm, machine));
        handle.with(|engine| engine.vms[id].image = Some(image));
    }
    handle.with(|engine| {
        for vcpu in engine.vcpus.ids() {
            boot_flow(engine, vcpu);
        }
    });
}

/// The number of `vm` for its random streams: its place among all guests, or after them for the bare-metal kernel.
fn stream_number(config: &Config, vm: &VmConfig) -> u32 {
    let mut guests = config.vms.iter().filter(|vm| !vm.bare_metal);
    let place = guests.position(|other| std::ptr::eq(other, vm));
    place.unwrap_or_else(|| config.vms.iter().filter(|vm| !vm.bare_metal).count()) as u32
}

fn new_vm(config: &VmConfig, first_vcpu: VcpuId, (seed, number): (u64, u32), faults: PvFaults) -> Vm {
    let vcpus = config.vcpus as usize;
    Vm {
        name: config.name.clone(),
        first_vcpu,
        vcpus: config.vcpus,
        measured: config.measured,
        image: None,
        fixed: Rc::new(FixedPart {
            settings: Settings {
                waits_for_sipi: config.host.waits_for_sipi,
                seed,
                number,
                spin_threshold: config.boot.spin_threshold,
                wait_early_preempted: config.boot.wait_early_preempted,
                device: Picos::from_nanos(config.host.device_ns),
                cpu_pm: config.host.cpu_pm,
                domains: config.domains.clone().into(),
            },
            memory: SharedMemory::new(vcpus, faults),
            numa_nodes: vec![Cell::new(0); vcpus].into(),
            locks: LockTables {
                nodes: NodeTable::new(vcpus),
                waiting: WaitTable::new(vcpus),
                stats: LockStats::new(),
            },
        }),
        pages: Pages::default(),
        spaces: Spaces::default(),
        report: Progress {
            wakes: matches!(config.boot.workload, Workload::Recorded(_)).then(Latencies::default),
            ..Progress::default()
        },
        watched: Watched::default(),
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
