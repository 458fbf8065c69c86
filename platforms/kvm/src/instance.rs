//! A VM of KVM with its vCPUs, and KVM's statistics of it.

use kvm_bindings::{
    KVM_CAP_ENFORCE_PV_FEATURE_CPUID, KVM_CAP_HALT_POLL, KVM_CAP_X86_DISABLE_EXITS, kvm_enable_cap,
    kvm_userspace_memory_region,
};
use kvm_ioctls::{VcpuFd, VmFd};
use vm_memory::{GuestAddress, GuestMemoryBackend};

use crate::cpuid;
use crate::error::Error;
use crate::memory::Memory;
use crate::stats::{Statistics, Values, after};
use crate::system::Host;
use crate::vm::Vm;

/// Address of the task state of Intel hosts without unrestricted guests: three pages below the BIOS, as in QEMU.
const TSS_ADDRESS: usize = 0xfffb_d000;

/// KVM's statistics of a VM.
#[derive(Clone, Debug, Default)]
pub(crate) struct HostCounts {
    pub(crate) vm: Values,
    pub(crate) vcpus: Vec<Values>,
}

/// A VM of KVM. A guest that migrates has one after another.
pub(crate) struct Instance {
    pub(crate) fd: VmFd,
    statistics: Option<Statistics>,
    vcpu_statistics: Vec<Option<Statistics>>,
    /// The statistics of the guest's earlier VMs.
    pub(crate) earlier: HostCounts,
}

impl Instance {
    /// Creates the VM of `vm` in `memory`, which must outlive it. Returns it with its vCPUs, which have no state yet.
    pub(crate) fn create(host: &Host, vm: &Vm, memory: &Memory) -> Result<(Instance, Vec<VcpuFd>), Error> {
        let refused = |what: &str| {
            let tried = format!("{}: {what}", vm.name);
            move |error| Error::host(tried, error)
        };
        let fd = host.kvm.create_vm().map_err(refused("create the vm"))?;
        fd.set_tss_address(TSS_ADDRESS)
            .map_err(refused("set the address of the task state"))?;
        fd.create_irq_chip()
            .map_err(refused("create the interrupt controller"))?;
        if vm.cpu_pm {
            // Before the first vCPU, as KVM demands.
            let exits = host.passed_through()?;
            enable(&fd, KVM_CAP_X86_DISABLE_EXITS, exits.into())
                .map_err(refused("pass hlt and pause through to it"))?;
        }
        register_memory(&fd, memory).map_err(refused("register its memory"))?;
        if let Some(ns) = vm.halt_poll_ns {
            enable(&fd, KVM_CAP_HALT_POLL, ns.into()).map_err(refused("limit its halt polling"))?;
        }
        let vcpus: Result<Vec<VcpuFd>, Error> = (0..vm.vcpus).map(|vcpu| create_vcpu(host, &fd, vm, vcpu)).collect();
        let vcpus = vcpus?;
        let instance = Instance {
            statistics: Statistics::of(&fd),
            vcpu_statistics: vcpus.iter().map(Statistics::of).collect(),
            earlier: HostCounts::default(),
            fd,
        };
        Ok((instance, vcpus))
    }

    /// Returns KVM's statistics of the guest, those of its earlier VMs included.
    pub(crate) fn counts(&self) -> HostCounts {
        let vcpus = 0..self.vcpu_statistics.len();
        HostCounts {
            vm: after(read(self.statistics.as_ref()), &self.earlier.vm),
            vcpus: vcpus.map(|vcpu| self.of_vcpu(vcpu)).collect(),
        }
    }

    /// Returns KVM's statistics of vCPU `number`, those of its earlier ones included.
    pub(crate) fn of_vcpu(&self, number: usize) -> Values {
        let now = read(self.vcpu_statistics.get(number).and_then(Option::as_ref));
        match self.earlier.vcpus.get(number) {
            Some(earlier) => after(now, earlier),
            None => now,
        }
    }
}

fn read(statistics: Option<&Statistics>) -> Values {
    statistics.map(Statistics::read).unwrap_or_default()
}

/// Makes KVM rebuild its map from APIC IDs to vCPUs.
///
/// KVM builds the map while it creates a vCPU, without that vCPU, and later only when a guest changes its LAPICs
/// (observed in Linux 6.1). So kicks for the last vCPU would be silently lost. Setting a LAPIC's state, even to the
/// same value, rebuilds the map.
pub(crate) fn rebuild_apic_map(vcpus: &[VcpuFd]) -> Result<(), kvm_ioctls::Error> {
    vcpus.iter().try_for_each(|vcpu| vcpu.set_lapic(&vcpu.get_lapic()?))
}

fn register_memory(fd: &VmFd, memory: &Memory) -> Result<(), kvm_ioctls::Error> {
    let address = memory
        .map
        .get_host_address(GuestAddress(0))
        .map_err(|_| kvm_ioctls::Error::new(libc::EFAULT))?;
    let region = kvm_userspace_memory_region {
        slot: 0,
        guest_phys_addr: 0,
        memory_size: memory.end(),
        userspace_addr: address.addr() as u64,
        flags: 0,
    };
    register_region(fd, region)
}

#[expect(unsafe_code, reason = "the guest accesses this process's memory")]
fn register_region(fd: &VmFd, region: kvm_userspace_memory_region) -> Result<(), kvm_ioctls::Error> {
    // SAFETY: the region is a separate mapping, which outlives the VM (`Instance::create`), and which this process
    // accesses only through vm-memory's volatile operations.
    unsafe { fd.set_user_memory_region(region) }
}

fn enable(fd: &VmFd, capability: u32, argument: u64) -> Result<(), kvm_ioctls::Error> {
    fd.enable_cap(&kvm_enable_cap {
        cap: capability,
        args: [argument, 0, 0, 0],
        ..kvm_enable_cap::default()
    })
}

fn create_vcpu(host: &Host, fd: &VmFd, vm: &Vm, number: u32) -> Result<VcpuFd, Error> {
    let refused = |what: &str| {
        let tried = format!("{}: {what} vcpu {number}", vm.name);
        move |error| Error::host(tried, error)
    };
    let vcpu = fd.create_vcpu(number.into()).map_err(refused("create"))?;
    vcpu.set_cpuid2(&cpuid::of_vcpu(host, vm, number))
        .map_err(refused("set the cpuid of"))?;
    // KVM then also refuses the hypercalls of withheld features. Older hosts lack the capability and only hide the
    // features.
    if host.kvm.check_extension_raw(KVM_CAP_ENFORCE_PV_FEATURE_CPUID.into()) > 0 {
        let _ = vcpu.enable_cap(&kvm_enable_cap {
            cap: KVM_CAP_ENFORCE_PV_FEATURE_CPUID,
            args: [1, 0, 0, 0],
            ..kvm_enable_cap::default()
        });
    }
    Ok(vcpu)
}
