//! Builds inner hosts.

use holdfast_guest::GuestImage;
use holdfast_host::{ApicvConfig, AvicConfig, Host, HostConfig, PcpuPlace, VcpuId, VmId};
use holdfast_machine::Picos;

use crate::config::{Config, Stay, Vm as VmConfig};
use crate::core::failure::Failure;
use crate::engine::Engine;
use crate::engine::handle::Handle;
use crate::guests::machine::SimMachine;
use crate::memory::nodes::delays;
use crate::nested::kernel::Hypervisor;
use crate::parts::inner::InnerHost;

/// The guests that run inside of guest `carrier`.
pub fn inside<'c>(config: &'c Config, carrier: &'c VmConfig) -> impl Iterator<Item = &'c VmConfig> + Clone {
    let is_inside = |vm: &&VmConfig| vm.inside.as_ref() == Some(&carrier.name);
    config.vms.iter().filter(is_inside)
}

/// Checks that guests inside of others can run there.
///
/// # Errors
/// Names the guest that cannot, and why.
pub fn check(config: &Config) -> Result<(), Failure> {
    for vm in &config.vms {
        let Some(name) = &vm.inside else { continue };
        let carrier = config.vms.iter().find(|other| other.name == *name);
        let why = match carrier {
            None => "does not exist",
            Some(carrier) if carrier.inside.is_some() => "is inside of another guest itself",
            Some(carrier) if carrier.measured => "is measured, and its own workload does not run",
            Some(carrier) if carrier.host.cpu_pm => "does not exit for HLT",
            Some(carrier) if carrier.stay != Stay::default() => "comes and goes",
            Some(_) if config.vms.iter().any(|vm| vm.bare_metal) => "runs next to a bare-metal kernel",
            Some(_) if config.migration.is_some() => "migrates",
            Some(_) if vm.boot.workload.uses_network() => "has no network for its guests",
            Some(_) if vm.host.cpu_pm => "has guests that do not exit for HLT",
            Some(_) if vm.stay != Stay::default() => "has guests that come and go",
            Some(_) if vm.group.is_some() => "has no task groups of the outer host",
            Some(_) => continue,
        };
        let what = format!("{} cannot run inside of {name}, which {why}", vm.name);
        return Err(Failure::Invalid(what));
    }
    Ok(())
}

/// The configuration of the hosts inside of guests: that of the machine's host, without hardware for their interrupts.
/// No machine gives a guest's hypervisor AVIC or APICv here, and locks of its run queues are not contended.
fn inner_config(host: HostConfig) -> HostConfig {
    HostConfig {
        avic: AvicConfig::default(),
        apicv: ApicvConfig::default(),
        idle_hlt: false,
        ..host
    }
}

/// Makes the inner hosts of `config`, whose machine's host has the configuration `host`.
///
/// # Errors
/// If an inner host refuses a guest.
pub fn add_hosts(engine: &mut Engine, config: &Config, host: &HostConfig) -> Result<(), Failure> {
    let invalid = |error: holdfast_host::ConfigError| Failure::Invalid(error.to_string());
    let inner = inner_config(host.clone());
    for carrier in &config.vms {
        let mut guests = inside(config, carrier).peekable();
        let Some(first) = guests.peek() else { continue };
        let (carrier_id, first) = (named(engine, &carrier.name), named(engine, &first.name));
        let first_vcpu = engine.vms[first].first_vcpu;
        let places: Vec<PcpuPlace> = (0..carrier.vcpus).map(place).collect();
        let mut host = Host::new(&inner, &places).map_err(invalid)?;
        let (index, mut vcpus) = (engine.inner_hosts().len(), 0);
        for vm in guests {
            let wanted = holdfast_host::VmConfig {
                parent: None,
                ..vm.host
            };
            host.add_vm(&wanted, vm.vcpus, &vm.affinity).map_err(invalid)?;
            let delays = delays_inside(config, carrier, vm);
            for (vcpu, delays) in (first_vcpu.0 + vcpus..).map(VcpuId).zip(delays) {
                engine.vcpus[vcpu].memory.delays = delays;
                engine.vcpus[vcpu].nesting_mut().host = Some(index);
            }
            vcpus += vm.vcpus;
        }
        for vcpu in engine.vms[carrier_id].vcpu_ids() {
            engine.vcpus[vcpu].nesting_mut().carries_for = Some(index);
        }
        let of = (first, first_vcpu);
        engine.add_inner(InnerHost::new(host, carrier_id, carrier.vcpus, of, vcpus));
    }
    Ok(())
}

fn named(engine: &Engine, name: &str) -> VmId {
    let found = engine.vms.ids().find(|&vm| engine.vms[vm].name == name);
    found.unwrap_or_else(|| unreachable!("guest {name} is configured and was not added"))
}

/// The delays of memory of each vCPU of `vm`: its memory is that of `carrier`.
fn delays_inside(config: &Config, carrier: &VmConfig, vm: &VmConfig) -> Vec<Box<[Picos]>> {
    let mut pcpus = carrier.affinity.concat();
    if carrier.affinity.iter().any(Vec::is_empty) {
        pcpus.clear();
    }
    let affinity = vec![pcpus; vm.vcpus as usize];
    let remote = config.machine.costs.remote_memory;
    delays(&config.machine.topology, remote, vm.vcpus, &affinity, &[])
}

/// The kernel of guest `vm` if it boots an inner host.
pub fn kernel(handle: Handle, vm: VmId, machine: SimMachine) -> Option<Box<dyn GuestImage>> {
    let (index, cpus) = handle.with(|engine| {
        let index = engine.inner_hosts().iter().position(|inner| inner.carrier == vm)?;
        Some((index, engine.vms[vm].vcpus))
    })?;
    Some(Box::new(Hypervisor::new(machine, handle, index, cpus)))
}

/// A guest's firmware reports one socket, with one core for each vCPU.
fn place(core: u32) -> PcpuPlace {
    PcpuPlace {
        thread: 0,
        core,
        socket: 0,
    }
}
