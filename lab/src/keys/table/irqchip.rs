//! Keys of guests' interrupt controllers.

use holdfast_host::Nic;

use super::key;
use crate::keys::slot::{Slot, choices};
use crate::keys::{Key, Target};

choices!(Nic {
    "vhost" => Nic::Vhost,
    "assigned" => Nic::Assigned,
});

/// Beside what the host offers.
pub(super) static IRQCHIP: &[Key] = &[
    key(
        "vm.*.starts_cpus",
        "The guest's CPU 0 starts the others by INIT and SIPI, one after another, as on real hardware. Otherwise all \
         vCPUs run from power-on.",
        Target::Vm(|vm| Some(Slot::Flag(&mut vm.host.waits_for_sipi))),
    ),
    key(
        "vm.*.split_irqchip",
        "The I/O APIC is the VMM's (QEMU `kernel-irqchip=split`, 4.5, uncertain). Accesses to it, and ends of its \
         level-triggered interrupts, go to user space.",
        Target::Vm(|vm| Some(Slot::Flag(&mut vm.host.split_irqchip))),
    ),
    key(
        "vm.*.nic",
        "The guest's network device. \"vhost\" is the host's software: vhost, tap and bridge. \"assigned\" is \
         hardware with virtio queues (vDPA): the guest rings it without an exit, and its interrupts go through the \
         IOMMU.",
        Target::Vm(|vm| Some(Slot::Choice(&mut vm.host.nic))),
    ),
];
