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
        "whether the guest's CPU 0 starts the others by INIT and SIPI, one after another, as on real hardware; else all vCPUs run \
         from power-on",
        Target::Vm(|vm| Some(Slot::Flag(&mut vm.host.waits_for_sipi))),
    ),
    key(
        "vm.*.split_irqchip",
        "whether the I/O APIC is the VMM's: accesses to it, and ends of its level-triggered interrupts, go to userspace (split \
         irqchip, 4.5, uncertain)",
        Target::Vm(|vm| Some(Slot::Flag(&mut vm.host.split_irqchip))),
    ),
    key(
        "vm.*.nic",
        "the guest's network device: vhost, with tap and bridge; or assigned hardware with virtio's queues (vDPA), rung without an \
         exit, whose interrupts go through the IOMMU, under AVIC straight into the guest",
        Target::Vm(|vm| Some(Slot::Choice(&mut vm.host.nic))),
    ),
];
