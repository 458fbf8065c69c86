//! One VM of a run: its KVM descriptors, its memory, and the content of its reports.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Instant;

use holdfast_abi::msr;
use holdfast_protocol::{Clock, Heap, Orders, Task, layout};
use kvm_bindings::{
    KVM_CAP_ENFORCE_PV_FEATURE_CPUID, KVM_CAP_HALT_POLL, KVM_CAP_SPLIT_IRQCHIP, KVM_CAP_X86_DISABLE_EXITS,
    kvm_enable_cap, kvm_msi, kvm_userspace_memory_region,
};
use kvm_ioctls::{VcpuFd, VmFd};
use vm_memory::{GuestAddress, GuestMemoryBackend};

use crate::cpuid;
use crate::error::Error;
use crate::image::Image;
use crate::linux::{self, Ports};
use crate::memory::Memory;
use crate::report::VmReport;
use crate::reported::{GuestPanic, OF_HOST, Reported};
use crate::stats::{Statistics, Values, since};
use crate::system::Host;
use crate::vcpu::{self, Start};
use crate::vm::{Payload, Vm};

/// Address of the task state of Intel hosts without unrestricted guests: three pages below the BIOS, as in QEMU.
const TSS_ADDRESS: usize = 0xfffb_d000;

/// Number of pins of the I/O APIC that user space would emulate. KVM reserves as many routes.
const IOAPIC_PINS: u64 = 24;

/// A running VM.
pub(crate) struct Guest {
    pub(crate) vm: Vm,
    pub(crate) memory: Memory,
    pub(crate) reported: Mutex<Reported>,
    /// Whether all vCPUs execute the workload. True from the start if the VM is not measured.
    pub(crate) started: AtomicBool,
    /// Whether the workload is complete. True from the start if the VM is not measured.
    pub(crate) done: AtomicBool,
    /// The I/O ports of a stock Linux guest.
    pub(crate) ports: Option<Ports>,
    created: Instant,
    fd: VmFd,
    statistics: Option<Statistics>,
    vcpu_statistics: Vec<Option<Statistics>>,
    /// KVM's statistics when the counts were zeroed.
    zeroed: OnceLock<HostCounts>,
}

/// KVM's statistics of a VM.
#[derive(Debug, Default)]
struct HostCounts {
    vm: Values,
    vcpus: Vec<Values>,
}

impl Guest {
    /// Creates `vm`, number `number` of its run. Returns it with its vCPUs, which are ready to start.
    pub(crate) fn create(host: &Host, vm: &Vm, number: u32, image: &Image) -> Result<(Guest, Vec<VcpuFd>), Error> {
        check(host, vm)?;
        let created = Instant::now();
        let refused = |what: &str| {
            let tried = format!("{}: {what}", vm.name);
            move |error| Error::host(tried, error)
        };
        let fd = host.kvm.create_vm().map_err(refused("create the vm"))?;
        fd.set_tss_address(TSS_ADDRESS)
            .map_err(refused("set the address of the task state"))?;
        if vm.split_irqchip {
            enable(&fd, KVM_CAP_SPLIT_IRQCHIP, IOAPIC_PINS)
                .map_err(refused("keep only the local apics in the kernel"))?;
        } else {
            fd.create_irq_chip()
                .map_err(refused("create the interrupt controller"))?;
        }
        if vm.cpu_pm {
            // Before the first vCPU, as KVM demands.
            let exits = host.passed_through()?;
            enable(&fd, KVM_CAP_X86_DISABLE_EXITS, exits.into())
                .map_err(refused("pass hlt and pause through to it"))?;
        }
        let memory = Memory::map(&vm.name, vm.memory_bytes)?;
        register_memory(&fd, &memory).map_err(refused("register its memory"))?;
        if let Some(ns) = vm.halt_poll_ns {
            enable(&fd, KVM_CAP_HALT_POLL, ns.into()).map_err(refused("limit its halt polling"))?;
        }
        let mut vcpus = Vec::new();
        for vcpu in 0..vm.vcpus {
            vcpus.push(create_vcpu(host, &fd, vm, vcpu)?);
        }
        match &vm.payload {
            Payload::Image(task) => load_image(host, vm, number, task, &memory, image, &vcpus)?,
            // The boot CPU starts the others.
            Payload::Linux(linux) => vcpu::prepare(&vcpus[0], 0, linux::load(&memory, vm, linux, tsc_khz(&vcpus)?)?)?,
        }
        rebuild_apic_map(&vcpus).map_err(refused("set its local apics"))?;
        let guest = Guest {
            statistics: Statistics::of(&fd),
            vcpu_statistics: vcpus.iter().map(Statistics::of).collect(),
            reported: Mutex::new(Reported::new(&vm.name, vm.vcpus)),
            done: AtomicBool::new(!vm.measured),
            started: AtomicBool::new(!vm.measured),
            ports: matches!(vm.payload, Payload::Linux(_)).then(Ports::default),
            zeroed: OnceLock::new(),
            vm: vm.clone(),
            memory,
            created,
            fd,
        };
        Ok((guest, vcpus))
    }

    /// Reads the guest's new reports. Returns its panic if there is one.
    pub(crate) fn read_reports(&self) -> Result<Option<GuestPanic>, Error> {
        let mut reported = self.lock();
        let mut messages = Vec::new();
        let drained = match &self.ports {
            Some(ports) => ports.drain(&mut messages),
            None => reported.reader.drain(&self.memory.map, &mut messages),
        };
        let panic = messages
            .into_iter()
            .find_map(|message| reported.record(message, self.ports.is_some()));
        if reported.report.boot.is_none() && reported.started >= self.vm.vcpus {
            reported.report.boot = Some(self.created.elapsed());
            self.started.store(true, Ordering::Release);
        }
        if reported.zeroed {
            self.zeroed.get_or_init(|| self.host_counts());
        }
        if reported.is_done() {
            self.done.store(true, Ordering::Release);
        }
        match (panic, drained) {
            (None, Err(what)) => Err(Error::Corrupt {
                vm: self.vm.name.clone(),
                what,
            }),
            (panic, _) => Ok(panic),
        }
    }

    pub(crate) fn lock(&self) -> std::sync::MutexGuard<'_, Reported> {
        // A thread that panicked while it held the lock has already ended the run.
        self.reported.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns KVM's statistics of vCPU `number` that are not 0.
    pub(crate) fn statistics(&self, number: u32) -> Vec<(String, u64)> {
        let known = self.vcpu_statistics.get(number as usize).and_then(Option::as_ref);
        let all = known.map(Statistics::read).unwrap_or_default();
        nonzero(all).collect()
    }

    /// Makes the counts of guest and host begin again, unless they have. A guest with a kernel is asked to report its
    /// counters. The host's counts begin again when it has done so, others at once.
    ///
    /// A guest that does not take interrupts yet loses the request, so the caller must repeat it.
    pub(crate) fn zero_counts(&self) -> Result<(), Error> {
        if self.zeroed.get().is_some() {
            return Ok(());
        }
        if !matches!(self.vm.payload, Payload::Image(Task::Kernel(_))) {
            self.zeroed.get_or_init(|| self.host_counts());
            return Ok(());
        }
        // Fixed delivery to the CPU with APIC ID 0, triggered by an edge.
        let request = kvm_msi {
            address_lo: msr::APIC_BASE_ADDRESS as u32,
            data: u32::from(layout::SNAPSHOT_VECTOR),
            ..kvm_msi::default()
        };
        let sent = self.fd.signal_msi(request);
        let refused = |error| {
            let tried = format!("{}: interrupt vcpu 0 to zero its counts (KVM_SIGNAL_MSI)", self.vm.name);
            Error::host(tried, error)
        };
        sent.map(drop).map_err(refused)
    }

    fn host_counts(&self) -> HostCounts {
        let read = |statistics: &Option<Statistics>| statistics.as_ref().map(Statistics::read).unwrap_or_default();
        HostCounts {
            vm: read(&self.statistics),
            vcpus: self.vcpu_statistics.iter().map(read).collect(),
        }
    }

    /// Returns the report of the VM, with the host's counts. The threads of its vCPUs must have ended.
    pub(crate) fn report(self) -> VmReport {
        let now = self.host_counts();
        let nothing = HostCounts::default();
        let before = self.zeroed.get().unwrap_or(&nothing);
        let of_vm = since(now.vm, &before.vm);
        let none = Values::new();
        let of_vcpu = |(vcpu, values)| since(values, before.vcpus.get(vcpu).unwrap_or(&none));
        let of_vcpus: Vec<Values> = now.vcpus.into_iter().enumerate().map(of_vcpu).collect();
        drop(self.fd);
        let reported = self.reported.into_inner();
        let mut report = reported.unwrap_or_else(PoisonError::into_inner).into_report();
        report
            .counters
            .extend(nonzero(of_vm).map(|(name, value)| (format!("{OF_HOST}{name}"), value)));
        for (vcpu, values) in report.vcpus.iter_mut().zip(of_vcpus) {
            vcpu.stats = values.into_iter().map(|(name, value)| (name, value.value)).collect();
        }
        report
    }
}

/// Returns the statistics that are not 0.
fn nonzero(values: Values) -> impl Iterator<Item = (String, u64)> {
    let values = values.into_iter().map(|(name, value)| (name, value.value));
    values.filter(|(_, value)| *value > 0)
}

fn check(host: &Host, vm: &Vm) -> Result<(), Error> {
    let allowed = host.vcpus_max();
    if vm.vcpus == 0 || vm.vcpus > allowed {
        return Err(Error::TooManyVcpus {
            vm: vm.name.clone(),
            asked: vm.vcpus,
            allowed,
        });
    }
    let invalid = |what: String| {
        Err(Error::Invalid {
            vm: vm.name.clone(),
            what,
        })
    };
    for (what, count) in [("pcpus", vm.pins.len()), ("proximity domains", vm.domains.len())] {
        if count > vm.vcpus as usize {
            return invalid(format!("{what} given for {count} vcpus, but it has {}", vm.vcpus));
        }
    }
    if vm.split_irqchip && matches!(vm.payload, Payload::Linux(_)) {
        return invalid("a stock Linux needs the interrupt controllers of the kernel".to_owned());
    }
    Ok(())
}

/// Makes KVM rebuild its map from APIC IDs to vCPUs.
///
/// KVM builds the map while it creates a vCPU, without that vCPU, and later only when a guest changes its LAPICs
/// (observed in Linux 6.1). So kicks for the last vCPU would be silently lost. Setting a LAPIC's state, even to the
/// same value, rebuilds the map.
fn rebuild_apic_map(vcpus: &[VcpuFd]) -> Result<(), kvm_ioctls::Error> {
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
    // SAFETY: the region is a separate mapping, which the same `Guest` owns as long as the VM, and which this process
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

fn load_image(
    host: &Host,
    vm: &Vm,
    number: u32,
    task: &Task,
    memory: &Memory,
    image: &Image,
    vcpus: &[VcpuFd],
) -> Result<(), Error> {
    let taken = memory.load(&vm.name, vm.vcpus, image)?;
    for (number, vcpu) in (0..).zip(vcpus) {
        let start = Start::image(image.entry, taken.boot_stack(number), number);
        vcpu::prepare(vcpu, number, start)?;
    }
    let clock = match tsc_khz(vcpus) {
        Ok(khz) if host.has_steady_tsc() && khz > 0 => Clock::Tsc { khz },
        _ => Clock::Kvm,
    };
    memory.write_orders(&Orders {
        heap: Heap {
            begin: taken.heap(),
            end: memory.end(),
        },
        cpus: vm.vcpus,
        clock,
        seed: vm.seed,
        guest: number,
        domains: vm.domains.clone(),
        task: task.clone(),
    })
}

/// Returns the frequency of the vCPUs' time-stamp counters in kHz.
fn tsc_khz(vcpus: &[VcpuFd]) -> Result<u32, Error> {
    vcpus[0]
        .get_tsc_khz()
        .map_err(|error| Error::host("read the frequency of the time-stamp counter", error))
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
