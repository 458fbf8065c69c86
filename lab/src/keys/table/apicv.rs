//! Keys of Intel's APIC virtualization.

use super::key;
use crate::keys::slot::Slot;
use crate::keys::{Key, Target};

/// APICv: the part, the host, guests.
pub(super) static APICV: &[Key] = &[
    key(
        "host.apicv",
        "Whether the host uses APICv and posted interrupts, if the CPU has them (kvm_intel `enable_apicv`).",
        Target::Host(|host| Some(Slot::Flag(&mut host.apicv.enable))),
    ),
    key(
        "host.ipiv",
        "Whether hardware also sends IPIs, if the CPU can (kvm_intel `enable_ipiv`).",
        Target::Host(|host| Some(Slot::Flag(&mut host.apicv.ipiv))),
    ),
    key(
        "vm.*.apicv",
        "Whether APICv virtualizes this guest's LAPICs, if the host uses APICv.",
        Target::Vm(|vm| Some(Slot::Flag(&mut vm.host.apicv))),
    ),
];
