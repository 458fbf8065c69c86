//! Keys of interrupts: how guests use their APICs, what the host offers them, and which hardware assists.

use holdfast_host::{AvicDriver, AvicEnable, Nic};

use super::key;
use crate::keys::{Key, Target};
use crate::slot::{Slot, choices};

choices!(Nic {
    "vhost" => Nic::Vhost,
    "assigned" => Nic::Assigned,
});

choices!(AvicEnable {
    "off" => AvicEnable::Off,
    "on" => AvicEnable::On,
    "auto" => AvicEnable::Auto,
});

choices!(AvicDriver {
    "linux-4.7" => AvicDriver::Linux4_7,
    "now" => AvicDriver::Now,
});

/// A guest's interrupts, startup and network device.
pub(super) static INTERRUPTS: &[Key] = &[
    key("vm.*.nox2apic", vm!(Flag, boot.kernel.apic.nox2apic)),
    key("vm.*.x2apic_cluster", vm!(Flag, boot.kernel.apic.cluster)),
    key("vm.*.ipi_shorthand", vm!(Flag, boot.kernel.apic.shorthand)),
    key("vm.*.pv_eoi", vm!(Flag, host.pv_eoi)),
    key("vm.*.pv_send_ipi", vm!(Flag, host.pv_send_ipi)),
    key("vm.*.pv_tlb_flush", vm!(Flag, host.pv_tlb_flush)),
    key("vm.*.starts_cpus", vm!(Flag, host.waits_for_sipi)),
    key("vm.*.apic_inhibits", vm!(Inhibits, host.apic_inhibits)).note(
        "A VM has such reasons by devices or guests that are not simulated: a timer chip that reinjects missed \
         interrupts (\"pit_reinj\"), encrypted memory (\"sev\"), automatic EOI of Hyper-V (\"hyperv\").",
    ),
    key("vm.*.device_time", vm!(Nanos, host.device_ns)),
    key("vm.*.nic", vm!(Choice, host.nic)).note(
        "\"vhost\" is the host's software: vhost, tap and bridge. \"assigned\" is hardware with virtio queues \
         (vDPA): the guest rings it without an exit, and its interrupts go through the IOMMU.",
    ),
];

/// Hardware that delivers interrupts to guests: AVIC (AMD) and APICv (Intel).
pub(super) static HARDWARE: &[Key] = &[
    key("host.avic", host!(Choice, avic.enable)).note("\"auto\" uses it on Zen 4 and later, with x2AVIC."),
    key("host.avic_driver", host!(Choice, avic.driver)).note(
        "\"linux-4.7\" is the driver as merged in 4.7 and posted before in RFC v4: it tests IsRunning instead of guest mode, \
         rings the doorbell of its own pCPU too, drops an IPI with an invalid target, does not know erratum 1235, and \
         leaves the interrupts of devices to the host.",
    ),
    key("host.x2avic", host!(Flag, avic.x2avic)),
    key("host.avic_hybrid", host!(Flag, avic.hybrid)),
    key("host.idle_hlt", host!(Flag, idle_hlt)),
    key("host.apicv", host!(Flag, apicv.enable)),
    key("host.ipiv", host!(Flag, apicv.ipiv)),
];
