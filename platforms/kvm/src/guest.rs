//! One VM of a run: what KVM has of it, and what it has told.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use holdfast_protocol::{Clock, Crash, Message, Orders, Task};
use kvm_bindings::{KVM_CAP_ENFORCE_PV_FEATURE_CPUID, KVM_CAP_HALT_POLL, kvm_enable_cap, kvm_userspace_memory_region};
use kvm_ioctls::{VcpuFd, VmFd};
use vm_memory::{GuestAddress, GuestMemoryBackend};

use crate::cpuid;
use crate::error::Error;
use crate::image::Image;
use crate::linux::{self, Ports};
use crate::memory::Memory;
use crate::report::{VcpuReport, VmReport};
use crate::ring::Reader;
use crate::stats::Statistics;
use crate::system::Host;
use crate::vcpu::{self, Start};
use crate::vm::{Payload, Vm};

/// Where hosts without unrestricted guests keep a task state (three pages below the BIOS, as QEMU does).
const TSS_ADDRESS: usize = 0xfffb_d000;

/// A VM that runs.
pub(crate) struct Guest {
    pub(crate) vm: Vm,
    pub(crate) memory: Memory,
    pub(crate) told: Mutex<Told>,
    /// All its vCPUs execute the workload, or it is not measured.
    pub(crate) started: AtomicBool,
    /// Its measured workload is done, or it has none.
    pub(crate) done: AtomicBool,
    /// Of a stock Linux guest.
    pub(crate) ports: Option<Ports>,
    created: Instant,
    fd: VmFd,
    statistics: Option<Statistics>,
    vcpu_statistics: Vec<Option<Statistics>>,
}

/// What a guest has told.
#[derive(Default)]
pub(crate) struct Told {
    reader: Reader,
    started: u32,
    boot: Option<Duration>,
    begun_ns: Option<u64>,
    done_ns: Option<u64>,
    operations: Option<u64>,
    counters: BTreeMap<String, u64>,
    log: Vec<String>,
    pub(crate) vcpus: Vec<VcpuReport>,
}

/// What came of a look at the ring.
pub(crate) enum Heard {
    /// Nothing that ends the run.
    Nothing,
    /// The guest has given up.
    Panic { message: String, crash: Option<Crash> },
}

impl Guest {
    /// Creates `vm`, number `number` of its run, with its vCPUs ready to start.
    pub(crate) fn create(host: &Host, vm: &Vm, number: u32, image: &Image) -> Result<(Guest, Vec<VcpuFd>), Error> {
        check(host, vm)?;
        let created = Instant::now();
        let refused = |what: &str| {
            let tried = format!("{}: {what}", vm.name);
            move |error| Error::host(tried, error)
        };
        let fd = host.kvm.create_vm().map_err(refused("create the vm"))?;
        fd.set_tss_address(TSS_ADDRESS)
            .map_err(refused("set the task state's address"))?;
        fd.create_irq_chip()
            .map_err(refused("create the interrupt controller"))?;
        let memory = Memory::map(&vm.name, vm.memory_bytes)?;
        lend(&fd, &memory).map_err(refused("lend it memory"))?;
        if let Some(ns) = vm.halt_poll_ns {
            enable(&fd, KVM_CAP_HALT_POLL, ns.into()).map_err(refused("limit its halt polling"))?;
        }
        let mut vcpus = Vec::new();
        for vcpu in 0..vm.vcpus {
            vcpus.push(create_vcpu(host, &fd, vm, vcpu)?);
        }
        match &vm.payload {
            Payload::Image(task) => load_image(host, vm, number, task, &memory, image, &vcpus)?,
            // Its boot CPU starts the others.
            Payload::Linux(linux) => vcpu::prepare(&vcpus[0], 0, linux::load(&memory, vm, linux, tsc_khz(&vcpus)?)?)?,
        }
        acquaint(&vcpus).map_err(refused("set its local apics"))?;
        let guest = Guest {
            statistics: Statistics::of(&fd),
            vcpu_statistics: vcpus.iter().map(Statistics::of).collect(),
            told: Mutex::new(Told {
                vcpus: vec![VcpuReport::default(); vm.vcpus as usize],
                ..Told::default()
            }),
            done: AtomicBool::new(!vm.measured),
            started: AtomicBool::new(!vm.measured),
            ports: matches!(vm.payload, Payload::Linux(_)).then(Ports::default),
            vm: vm.clone(),
            memory,
            created,
            fd,
        };
        Ok((guest, vcpus))
    }

    /// Reads what the guest has written since the last look.
    pub(crate) fn listen(&self) -> Result<Heard, Error> {
        let mut told = self.lock();
        let mut messages = Vec::new();
        let drained = match &self.ports {
            Some(ports) => ports.drain(&mut messages),
            None => told.reader.drain(&self.memory.map, &mut messages),
        };
        for message in messages {
            if let Message::Panic { message, crash, .. } = message {
                return Ok(Heard::Panic { message, crash });
            }
            self.take(&mut told, message);
        }
        drained.map(|()| Heard::Nothing).map_err(|what| Error::Corrupt {
            vm: self.vm.name.clone(),
            what,
        })
    }

    fn take(&self, told: &mut Told, message: Message) {
        match message {
            Message::Log(line) => {
                if self.ports.is_some()
                    && let Some(lock) = linux::lock_in(&line)
                {
                    told.counters.insert(format!("guest.lock.{lock}"), 1);
                }
                told.log.push(line);
            }
            Message::Started { .. } => {
                told.started += 1;
                if told.started == self.vm.vcpus {
                    told.boot = Some(self.created.elapsed());
                    self.started.store(true, Ordering::Release);
                }
            }
            Message::Begin { now_ns } => told.begun_ns = Some(now_ns),
            Message::Done { now_ns, operations } => {
                told.done_ns = Some(now_ns);
                told.operations = operations;
                self.done.store(true, Ordering::Release);
            }
            Message::Counter(name, value) => {
                let counter = told.counters.entry(name).or_default();
                *counter = counter.saturating_add(value);
            }
            Message::Contended(contended) => {
                if let Some(vcpu) = told.vcpus.get_mut(contended.cpu as usize) {
                    vcpu.acquisitions = contended.acquisitions;
                    vcpu.waits = contended.waits;
                    vcpu.kicks = contended.kicks;
                    vcpu.halts = contended.halts;
                    vcpu.longest_wait_ns = contended.longest_wait_ns;
                }
            }
            Message::Panic { .. } => {}
        }
    }

    pub(crate) fn lock(&self) -> std::sync::MutexGuard<'_, Told> {
        // A thread that panicked while it held this has ended the run already.
        self.told.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// KVM's statistics of vCPU `number` that are not 0.
    pub(crate) fn statistics(&self, number: u32) -> Vec<(String, u64)> {
        let known = self.vcpu_statistics.get(number as usize).and_then(Option::as_ref);
        let all = known.map(Statistics::read).unwrap_or_default();
        all.into_iter().filter(|(_, value)| *value > 0).collect()
    }

    /// What it did, with the host's own counts. Its threads have ended.
    pub(crate) fn report(self) -> VmReport {
        let statistics = self.statistics.as_ref().map(Statistics::read).unwrap_or_default();
        let vcpu_statistics: Vec<_> = self
            .vcpu_statistics
            .iter()
            .map(|known| known.as_ref().map(Statistics::read).unwrap_or_default())
            .collect();
        drop(self.fd);
        let mut told = self
            .told
            .into_inner()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let nonzero = statistics.into_iter().filter(|(_, value)| *value > 0);
        told.counters
            .extend(nonzero.map(|(name, value)| (format!("kvm.{name}"), value)));
        for (vcpu, stats) in told.vcpus.iter_mut().zip(vcpu_statistics) {
            vcpu.stats = stats;
        }
        VmReport {
            name: self.vm.name,
            boot: told.boot,
            elapsed_ns: told
                .begun_ns
                .zip(told.done_ns)
                .map(|(begun, done)| done.saturating_sub(begun)),
            operations: told.operations,
            counters: told.counters,
            vcpus: told.vcpus,
            log: told.log,
        }
    }
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
    if vm.pins.len() > vm.vcpus as usize {
        return Err(Error::Invalid {
            vm: vm.name.clone(),
            what: format!("pcpus given for {} vcpus of {}", vm.pins.len(), vm.vcpus),
        });
    }
    Ok(())
}

/// Has KVM take note of every local APIC. Its map from APIC IDs to vCPUs is made while a vCPU is created, without that one, and
/// afterwards only when a guest changes its APICs (seen in Linux 6.1): kicks for the last vCPU would be lost without a word.
/// Setting an APIC's state, be it to what it is, has the map made anew.
fn acquaint(vcpus: &[VcpuFd]) -> Result<(), kvm_ioctls::Error> {
    vcpus.iter().try_for_each(|vcpu| vcpu.set_lapic(&vcpu.get_lapic()?))
}

fn lend(fd: &VmFd, memory: &Memory) -> Result<(), kvm_ioctls::Error> {
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
    lend_region(fd, region)
}

#[expect(unsafe_code, reason = "the guest is lent this process's memory")]
fn lend_region(fd: &VmFd, region: kvm_userspace_memory_region) -> Result<(), kvm_ioctls::Error> {
    // SAFETY: the region is a mapping of its own, which lives in the same `Guest` as the VM and is accessed through
    // vm-memory's volatile operations only.
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
        cpus: vm.vcpus,
        heap: taken.heap(),
        memory: memory.end(),
        clock,
        seed: vm.seed,
        guest: number,
        task: task.clone(),
    })
}

/// What the vCPUs' time-stamp counters count in a millisecond.
fn tsc_khz(vcpus: &[VcpuFd]) -> Result<u32, Error> {
    vcpus[0]
        .get_tsc_khz()
        .map_err(|error| Error::host("ask for the pace of the time-stamp counter", error))
}

fn create_vcpu(host: &Host, fd: &VmFd, vm: &Vm, number: u32) -> Result<VcpuFd, Error> {
    let refused = |what: &str| {
        let tried = format!("{}: {what} vcpu {number}", vm.name);
        move |error| Error::host(tried, error)
    };
    let vcpu = fd.create_vcpu(number.into()).map_err(refused("create"))?;
    vcpu.set_cpuid2(&cpuid::of_vcpu(host, vm, number))
        .map_err(refused("set the cpuid of"))?;
    // Hypercalls of features that are withheld are refused, not only hidden. Older hosts cannot, and need not.
    if host.kvm.check_extension_raw(KVM_CAP_ENFORCE_PV_FEATURE_CPUID.into()) > 0 {
        let _ = vcpu.enable_cap(&kvm_enable_cap {
            cap: KVM_CAP_ENFORCE_PV_FEATURE_CPUID,
            args: [1, 0, 0, 0],
            ..kvm_enable_cap::default()
        });
    }
    Ok(vcpu)
}
