//! Keys of Intel's APIC virtualization.

use super::key;
use crate::keys::slot::Slot;
use crate::keys::{Key, Target};

/// APICv: the part, the host, guests.
pub(super) static APICV: &[Key] = &[
    key(
        "host.apicv",
        "whether the host uses APICv and posted interrupts, which the part must have (kvm_intel's enable_apicv)",
        Target::Host(|host| Some(Slot::Flag(&mut host.apicv.enable))),
    ),
    key(
        "host.ipiv",
        "whether it has hardware send IPIs, too; where the part can, unless it is set (kvm_intel's enable_ipiv)",
        Target::Host(|host| Some(Slot::Flag(&mut host.apicv.ipiv))),
    ),
    key(
        "vm.*.apicv",
        "whether this guest's LAPICs are APICv's, where the host uses it",
        Target::Vm(|vm| Some(Slot::Flag(&mut vm.host.apicv))),
    ),
];
