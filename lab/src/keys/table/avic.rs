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
        "whether the host uses AVIC, which the part must have (kvm_amd's avic); auto: on Zen 4 and later, with x2AVIC",
        Target::Host(|host| Some(Slot::Choice(&mut host.avic.enable))),
    ),
    key(
        "host.x2avic",
        "whether it uses x2AVIC, too, which the part must have; else guests under AVIC are not offered x2APIC",
        Target::Host(|host| Some(Slot::Flag(&mut host.avic.x2avic))),
    ),
    key(
        "vm.*.avic",
        "whether this guest's LAPICs are AVIC's, where the host uses it",
        Target::Vm(|vm| Some(Slot::Flag(&mut vm.host.avic))),
    ),
];
