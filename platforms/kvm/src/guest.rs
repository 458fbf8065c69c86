//! One VM of a run: its KVM descriptors, its memory, and the content of its reports.

use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use holdfast_abi::msr;
use holdfast_protocol::{Clock, Heap, Orders, Task, layout};
use kvm_bindings::kvm_msi;
use kvm_ioctls::VcpuFd;

use crate::error::Error;
use crate::gate::Gate;
use crate::image::Image;
use crate::instance::{HostCounts, Instance, rebuild_apic_map};
use crate::linux::{self, Ports};
use crate::memory::Memory;
use crate::migration::{Moved, to_new_vm};
use crate::report::VmReport;
use crate::reported::{GuestPanic, OF_HOST, Reported};
use crate::stats::{Values, since};
use crate::system::Host;
use crate::vcpu::{self, Start};
use crate::vm::{Payload, Vm};

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
    /// Where the threads of its vCPUs stop while it migrates.
    pub(crate) gate: Gate<VcpuFd>,
    /// Set when the threads of its vCPUs must end before those of others.
    pub(crate) leaves: AtomicBool,
    /// Whether its vCPUs have started and it is not destroyed.
    here: AtomicBool,
    created: Instant,
    /// `None` once it is destroyed.
    instance: Mutex<Option<Instance>>,
    /// KVM's last statistics of a guest that is destroyed.
    last: OnceLock<HostCounts>,
    moved: Mutex<Moved>,
    /// KVM's statistics when the counts were zeroed.
    zeroed: OnceLock<HostCounts>,
}

/// A VM that a guest has left. To destroy it takes KVM some grace periods, which the guest need not await.
#[expect(dead_code, reason = "only destroyed")]
pub(crate) struct Left {
    vcpus: Vec<VcpuFd>,
    instance: Instance,
}

impl Guest {
    /// Creates `vm`, number `number` of its run. Returns it with its vCPUs, which are ready to start.
    pub(crate) fn create(host: &Host, vm: &Vm, number: u32) -> Result<(Guest, Vec<VcpuFd>), Error> {
        check(host, vm)?;
        let created = Instant::now();
        let memory = Memory::map(&vm.name, vm.memory_bytes)?;
        let (instance, vcpus) = Instance::create(host, vm, &memory)?;
        match &vm.payload {
            Payload::Image(task) => load_image(host, vm, number, task, &memory, &vcpus)?,
            // The boot CPU starts the others.
            Payload::Linux(linux) => vcpu::prepare(&vcpus[0], 0, linux::load(&memory, vm, linux, tsc_khz(&vcpus)?)?)?,
        }
        rebuild_apic_map(&vcpus).map_err(|error| Error::host(format!("{}: set its local apics", vm.name), error))?;
        let guest = Guest {
            reported: Mutex::new(Reported::new(&vm.name, vm.vcpus)),
            done: AtomicBool::new(!vm.measured),
            started: AtomicBool::new(!vm.measured),
            ports: matches!(vm.payload, Payload::Linux(_)).then(Ports::default),
            zeroed: OnceLock::new(),
            vm: vm.clone(),
            gate: Gate::new(vm.vcpus),
            leaves: AtomicBool::new(false),
            here: AtomicBool::new(false),
            moved: Mutex::default(),
            instance: Mutex::new(Some(instance)),
            last: OnceLock::new(),
            memory,
            created,
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
            self.zeroed.get_or_init(|| self.counts());
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

    fn instance(&self) -> MutexGuard<'_, Option<Instance>> {
        self.instance.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns KVM's statistics of the guest, the last ones if it is destroyed.
    fn counts(&self) -> HostCounts {
        match &*self.instance() {
            Some(instance) => instance.counts(),
            None => self.last.get().cloned().unwrap_or_default(),
        }
    }

    /// Notes that the vCPUs start.
    pub(crate) fn come(&self) {
        self.here.store(true, Ordering::Release);
    }

    /// Returns whether the vCPUs have started and the VM is not destroyed.
    pub(crate) fn is_here(&self) -> bool {
        self.here.load(Ordering::Acquire)
    }

    /// Destroys the VM. The threads of its vCPUs must have ended.
    pub(crate) fn destroy(&self) {
        self.here.store(false, Ordering::Release);
        if let Some(instance) = self.instance().take() {
            self.last.get_or_init(|| instance.counts());
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Reported> {
        // A thread that panicked while it held the lock has already ended the run.
        self.reported.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns KVM's statistics of vCPU `number` that are not 0.
    pub(crate) fn statistics(&self, number: u32) -> Vec<(String, u64)> {
        let instance = self.instance();
        let values = instance.as_ref().map(|instance| instance.of_vcpu(number as usize));
        nonzero(values.unwrap_or_default()).collect()
    }

    /// Makes the counts of guest and host begin again, unless they have. A guest with a kernel is asked to report its
    /// counters. The host's counts begin again when it has done so, others at once. So do those of a guest that is not
    /// there.
    ///
    /// A guest that does not take interrupts yet loses the request, so the caller must repeat it.
    pub(crate) fn zero_counts(&self) -> Result<(), Error> {
        if self.zeroed.get().is_some() {
            return Ok(());
        }
        if !self.is_here() || !matches!(self.vm.payload, Payload::Image(Task::Kernel(_))) {
            self.zeroed.get_or_init(|| self.counts());
            return Ok(());
        }
        // Fixed delivery to the CPU with APIC ID 0, triggered by an edge.
        let request = kvm_msi {
            address_lo: msr::APIC_BASE_ADDRESS as u32,
            data: u32::from(layout::SNAPSHOT_VECTOR),
            ..kvm_msi::default()
        };
        let Some(sent) = self.instance().as_ref().map(|instance| instance.fd.signal_msi(request)) else {
            return Ok(());
        };
        let refused = |error| {
            let tried = format!("{}: interrupt vcpu 0 to zero its counts (KVM_SIGNAL_MSI)", self.vm.name);
            Error::host(tried, error)
        };
        sent.map(drop).map_err(refused)
    }

    /// Moves the guest to a new VM, and returns the one that it has left. Its threads, which must have stopped at the
    /// gate, get the new vCPUs there. With `mp_state_only` latched kicks stay behind.
    ///
    /// # Errors
    /// Returns an error if KVM refuses a step. The guest cannot continue then.
    pub(crate) fn migrate(&self, host: &Host, mp_state_only: bool) -> Result<Left, Error> {
        let vcpus = self.gate.take();
        let mut place = self.instance();
        let instance = place.as_mut().expect("no guest comes or goes in a run with migrations");
        let (new, new_vcpus, moved) = to_new_vm(host, &self.vm, &self.memory, instance, &vcpus, mp_state_only)?;
        let left = Left {
            vcpus,
            instance: mem::replace(instance, new),
        };
        self.gate.give(new_vcpus);
        let mut all = self.moved.lock().unwrap_or_else(PoisonError::into_inner);
        all.migrations += moved.migrations;
        all.kicks += moved.kicks;
        all.kicks_lost += moved.kicks_lost;
        Ok(left)
    }

    /// Returns the report of the VM, with the host's counts. The threads of its vCPUs must have ended.
    pub(crate) fn report(self) -> VmReport {
        let now = self.counts();
        let nothing = HostCounts::default();
        let before = self.zeroed.get().unwrap_or(&nothing);
        let of_vm = since(now.vm, &before.vm);
        let none = Values::new();
        let of_vcpu = |(vcpu, values)| since(values, before.vcpus.get(vcpu).unwrap_or(&none));
        let of_vcpus: Vec<Values> = now.vcpus.into_iter().enumerate().map(of_vcpu).collect();
        drop(self.instance);
        let moved = self.moved.into_inner().unwrap_or_else(PoisonError::into_inner);
        let reported = self.reported.into_inner();
        let mut report = reported.unwrap_or_else(PoisonError::into_inner).into_report();
        report
            .counters
            .extend(nonzero(of_vm).map(|(name, value)| (format!("{OF_HOST}{name}"), value)));
        report.migrations = moved.migrations;
        report.migrated_kicks = moved.kicks;
        report.lost_kicks = moved.kicks_lost;
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
    if let Some(until) = vm.until {
        if vm.measured {
            return invalid("it is measured, and so cannot leave before it is done".to_owned());
        }
        if until <= vm.from {
            return invalid(format!("it leaves after {until:?}, and comes after {:?}", vm.from));
        }
    }
    Ok(())
}

fn load_image(host: &Host, vm: &Vm, number: u32, task: &Task, memory: &Memory, vcpus: &[VcpuFd]) -> Result<(), Error> {
    let image = Image::embedded();
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
