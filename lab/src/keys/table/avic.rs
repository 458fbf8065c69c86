//! Keys of AMD's interrupt controller for guests.

use holdfast_host::AvicEnable;

use super::key;
use crate::keys::slot::{Slot, choices};
use crate::keys::{Key, Target};

choices!(AvicEnable {
    "off" => AvicEnable::Off,
    "on" => AvicEnable::On,
    "auto" => AvicEnable::Auto,
});

/// AVIC: the part, the host, guests.
pub(super) static AVIC: &[Key] = &[
    key(
        "host.avic",
        "Whether the host uses AVIC, if the CPU has it (kvm_amd `avic`). \"auto\" uses it on Zen 4 and later, with \
         x2AVIC.",
        Target::Host(|host| Some(Slot::Choice(&mut host.avic.enable))),
    ),
    key(
        "host.x2avic",
        "Whether the host also uses x2AVIC, if the CPU has it. Without it a guest under AVIC is not offered x2APIC.",
        Target::Host(|host| Some(Slot::Flag(&mut host.avic.x2avic))),
    ),
    key(
        "vm.*.avic",
        "Whether AVIC virtualizes this guest's LAPICs, if the host uses AVIC.",
        Target::Vm(|vm| Some(Slot::Flag(&mut vm.host.avic))),
    ),
];
