//! The host's KVM.

use std::fs;
use std::io;
use std::path::Path;

use kvm_bindings::{CpuId, KVM_MAX_CPUID_ENTRIES};
use kvm_ioctls::{Cap, Kvm};

use crate::cpuid;
use crate::error::Error;
use crate::vm::Feature;

/// The version that every KVM since 2.6.22 speaks.
const API_VERSION: i32 = 12;
/// Leaf and bit of EDX: the time-stamp counter never stops or changes its pace.
const CPUID_INVARIANT_TSC: (u32, u32) = (0x8000_0007, 1 << 8);

/// `/dev/kvm`, opened and found to have what every run needs.
#[derive(Debug)]
pub struct Host {
    pub(crate) kvm: Kvm,
    pub(crate) cpuid: CpuId,
}

impl Host {
    /// Opens `/dev/kvm`.
    ///
    /// # Errors
    /// [`Error::NoKvm`], [`Error::NoPermission`], [`Error::Unsupported`].
    pub fn open() -> Result<Host, Error> {
        let kvm = Kvm::new().map_err(|error| match io::Error::from(error).kind() {
            io::ErrorKind::NotFound => Error::NoKvm,
            io::ErrorKind::PermissionDenied => Error::NoPermission,
            _ => Error::host("open /dev/kvm", error),
        })?;
        if kvm.get_api_version() != API_VERSION {
            return Err(Error::Unsupported("version 12 of its interface"));
        }
        for (capability, name) in [
            (Cap::Irqchip, "an interrupt controller in the kernel"),
            (Cap::UserMemory, "memory regions of user space"),
            (Cap::ExtCpuid, "settable CPUID"),
            (Cap::MpState, "settable vcpu states"),
        ] {
            if !kvm.check_extension(capability) {
                return Err(Error::Unsupported(name));
            }
        }
        let cpuid = kvm
            .get_supported_cpuid(KVM_MAX_CPUID_ENTRIES)
            .map_err(|error| Error::host("ask kvm for its cpuid", error))?;
        Ok(Host { kvm, cpuid })
    }

    /// The most vCPUs of one VM.
    pub fn vcpus_max(&self) -> u32 {
        let most = u32::try_from(self.kvm.get_max_vcpus()).unwrap_or(u32::MAX);
        most.min(holdfast_protocol::layout::VCPUS_MAX)
    }

    /// EAX, EBX, ECX, EDX of the CPUID leaf that a guest can be given; zeros if there is none.
    pub fn supported_cpuid(&self, leaf: u32) -> [u32; 4] {
        let entry = self.cpuid.as_slice().iter().find(|entry| entry.function == leaf);
        entry.map_or([0; 4], |entry| [entry.eax, entry.ebx, entry.ecx, entry.edx])
    }

    /// Whether guests can be offered `feature`.
    pub fn offers(&self, feature: Feature) -> bool {
        cpuid::offers(self, feature)
    }

    /// Whether guests can tell the time by the time-stamp counter: it is invariant, or the host itself does so.
    pub(crate) fn has_steady_tsc(&self) -> bool {
        let (leaf, bit) = CPUID_INVARIANT_TSC;
        let clocksource = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
        self.supported_cpuid(leaf)[3] & bit != 0
            || fs::read_to_string(Path::new(clocksource)).is_ok_and(|name| name.trim() == "tsc")
    }
}

/// Lets the calling thread run on `pcpus` only.
///
/// # Errors
/// The kernel's: no such CPU, or not for this process.
pub fn pin_to(pcpus: &[u32]) -> io::Result<()> {
    crate::vcpu::pin_to(pcpus)
}
