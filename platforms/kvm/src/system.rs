//! The KVM of this host.

use std::fs;
use std::io;
use std::path::Path;

use holdfast_protocol::{Task, layout};
use kvm_bindings::{
    CpuId, KVM_CAP_X86_DISABLE_EXITS, KVM_MAX_CPUID_ENTRIES, KVM_X86_DISABLE_EXITS_HLT, KVM_X86_DISABLE_EXITS_MWAIT,
    KVM_X86_DISABLE_EXITS_PAUSE,
};
use kvm_ioctls::{Cap, Kvm};

use crate::cpuid;
use crate::error::Error;
use crate::instance::{Instance, rebuild_apic_map};
use crate::memory::Memory;
use crate::migration::{self, to_new_vm};
use crate::vm::{Feature, Vm};

/// The API version of KVM since Linux 2.6.22.
const API_VERSION: i32 = 12;
/// CPUID leaf and bit of EDX: the time-stamp counter never stops and has a constant frequency.
const CPUID_INVARIANT_TSC: (u32, u32) = (0x8000_0007, 1 << 8);

/// An open `/dev/kvm` with the features that every run needs.
#[derive(Debug)]
pub struct Host {
    pub(crate) kvm: Kvm,
    pub(crate) cpuid: CpuId,
}

impl Host {
    /// Opens `/dev/kvm`.
    ///
    /// # Errors
    /// Returns [`Error::NoKvm`], [`Error::NoPermission`] or [`Error::Unsupported`] if this host cannot run guests.
    pub fn open() -> Result<Host, Error> {
        let kvm = Kvm::new().map_err(|error| match io::Error::from(error).kind() {
            io::ErrorKind::NotFound => Error::NoKvm,
            io::ErrorKind::PermissionDenied => Error::NoPermission,
            _ => Error::host("open /dev/kvm", error),
        })?;
        if kvm.get_api_version() != API_VERSION {
            return Err(Error::Unsupported("version 12 of the kvm api"));
        }
        for (capability, name) in [
            (Cap::Irqchip, "an in-kernel interrupt controller (KVM_CAP_IRQCHIP)"),
            (Cap::UserMemory, "memory regions of user space (KVM_CAP_USER_MEMORY)"),
            (Cap::ExtCpuid, "cpuid chosen by the vmm (KVM_CAP_EXT_CPUID)"),
            (Cap::MpState, "vcpu states set by the vmm (KVM_CAP_MP_STATE)"),
        ] {
            if !kvm.check_extension(capability) {
                return Err(Error::Unsupported(name));
            }
        }
        let cpuid = kvm
            .get_supported_cpuid(KVM_MAX_CPUID_ENTRIES)
            .map_err(|error| Error::host("read the cpuid that kvm supports", error))?;
        Ok(Host { kvm, cpuid })
    }

    /// Returns the largest number of vCPUs of one VM.
    pub fn vcpus_max(&self) -> u32 {
        let most = u32::try_from(self.kvm.get_max_vcpus()).unwrap_or(u32::MAX);
        most.min(holdfast_protocol::layout::VCPUS_MAX)
    }

    /// Returns which exits this host can leave out for a guest: of HLT and PAUSE, and of MWAIT if it can
    /// (`KVM_X86_DISABLE_EXITS_*`).
    ///
    /// # Errors
    /// Returns [`Error::Unsupported`] if HLT or PAUSE always exits.
    pub fn passed_through(&self) -> Result<u32, Error> {
        let needed = KVM_X86_DISABLE_EXITS_HLT | KVM_X86_DISABLE_EXITS_PAUSE;
        let able = self.kvm.check_extension_raw(KVM_CAP_X86_DISABLE_EXITS.into());
        let able = u32::try_from(able).unwrap_or(0);
        if able & needed != needed {
            return Err(Error::Unsupported(
                "guests whose hlt and pause do not exit (KVM_CAP_X86_DISABLE_EXITS)",
            ));
        }
        Ok(able & (needed | KVM_X86_DISABLE_EXITS_MWAIT))
    }

    /// Returns whether guests can have MONITOR and MWAIT.
    pub(crate) fn passes_mwait(&self) -> bool {
        self.passed_through()
            .is_ok_and(|exits| exits & KVM_X86_DISABLE_EXITS_MWAIT != 0)
    }

    /// Migrates a VM that never runs, whose vCPU was kicked, and returns whether the kick arrives in the new VM. With
    /// `mp_state_only` it does not: see [`Migration`](crate::Migration).
    ///
    /// # Errors
    /// Returns an error with the name of the `ioctl` that KVM refuses.
    pub fn migrates_kick(&self, mp_state_only: bool) -> Result<bool, Error> {
        let vm = Vm::new("probe", 1, Task::Hog).memory(layout::MEMORY_MIN);
        let memory = Memory::map(vm.name(), layout::MEMORY_MIN)?;
        let (first, vcpus) = Instance::create(self, &vm, &memory)?;
        rebuild_apic_map(&vcpus)
            .map_err(|error| Error::host("set a local apic (KVM_GET_LAPIC, KVM_SET_LAPIC)", error))?;
        migration::kick(&first.fd, 0).map_err(|error| Error::host("kick a vcpu (KVM_SIGNAL_MSI)", error))?;
        let to_new_vm = |from, vcpus, mp_state_only| to_new_vm(self, &vm, &memory, from, vcpus, mp_state_only);
        let (second, vcpus, _) = to_new_vm(&first, &vcpus[..], mp_state_only)?;
        // Only a migration reads the latch.
        let (_third, _vcpus, moved) = to_new_vm(&second, &vcpus[..], false)?;
        Ok(moved.kicks == 1)
    }

    /// Returns EAX, EBX, ECX and EDX of CPUID leaf `leaf` as KVM can offer it, or zeros if KVM has no such leaf.
    pub fn supported_cpuid(&self, leaf: u32) -> [u32; 4] {
        let entry = self.cpuid.as_slice().iter().find(|entry| entry.function == leaf);
        entry.map_or([0; 4], |entry| [entry.eax, entry.ebx, entry.ecx, entry.edx])
    }

    /// Returns whether this host can offer `feature` to guests.
    pub fn offers(&self, feature: Feature) -> bool {
        cpuid::offers(self, feature)
    }

    /// Returns whether guests can use the time-stamp counter as their clock: it is invariant, or the host itself uses
    /// it.
    pub(crate) fn has_steady_tsc(&self) -> bool {
        let (leaf, bit) = CPUID_INVARIANT_TSC;
        let clocksource = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
        self.supported_cpuid(leaf)[3] & bit != 0
            || fs::read_to_string(Path::new(clocksource)).is_ok_and(|name| name.trim() == "tsc")
    }
}
