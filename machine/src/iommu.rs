//! AMD's IOMMU, as far as it takes devices' interrupts: to a host CPU, or by guest mode straight into a guest
//! (docs/spec/interrupts.md, "IOMMU interrupts").
//!
//! Registers, remap table and log are memory that the hypervisor shares, so nothing is kept here.
//!
//! - **IRR first**: IRR is set before IsRun is read, which is not cached (Linux, `amd_iommu_update_ga`). The hypervisor clears
//!   IsRun before it looks at IRR; so one of both sees the other.
//! - **A log that is full loses entries, and says so**: then nothing is logged before the hypervisor has restarted the log.
//!   IRR is set all the same.
//! - **One interrupt for what is new**: the log's own interrupt is sent when the first of its status bits becomes set; whoever
//!   clears them looks at the log afterwards.
//!
//! Not known: whether an interrupt is logged whose IRR bit was set already. Here it is, since the vCPU may sleep all the same.

use holdfast_abi::Memory;
use holdfast_abi::avic::GaTag;
use holdfast_abi::iommu::{self, GaLogEntry, RemapEntry};

use crate::avic::request;

/// An IOMMU.
#[derive(Clone, Copy, Debug)]
pub struct Iommu<'m, M> {
    memory: &'m M,
    layout: iommu::Layout,
}

/// What became of a device's interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// Nothing: the entry is not valid, or names no page.
    Blocked,
    /// It goes to a host CPU.
    Host {
        /// The host's vector.
        vector: u8,
        /// The host CPU's APIC ID.
        destination: u32,
    },
    /// It is in a guest's page.
    Guest {
        /// Whose, as the hypervisor named it.
        tag: GaTag,
        /// The guest's vector.
        vector: u8,
        /// Who is notice.
        notice: Notice,
    },
}

/// Who is notice of an interrupt that is in a guest's page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The vCPU: the doorbell of this host CPU is rung.
    Doorbell(u32),
    /// The hypervisor, by the log; whether the log's interrupt is sent.
    Log {
        /// Else it has been sent already, and nobody has cleared its status bit since.
        interrupt: bool,
    },
    /// Nobody: the vCPU will look.
    None,
}

impl<'m, M: Memory> Iommu<'m, M> {
    /// The IOMMU whose registers and tables lie as `layout` says.
    pub fn new(memory: &'m M, layout: iommu::Layout) -> Iommu<'m, M> {
        Iommu { memory, layout }
    }

    fn entry(&self, device: u16) -> RemapEntry {
        let [low, high] = self.memory.load128(self.layout.entry(device)).unwrap_or_default();
        RemapEntry { low, high }
    }

    /// `device` signals its interrupt.
    pub fn deliver(&self, device: u16) -> Delivery {
        let entry = self.entry(device);
        if !entry.is_valid() {
            return Delivery::Blocked;
        }
        if !entry.is_guest() {
            return Delivery::Host {
                vector: entry.vector(),
                destination: entry.destination(),
            };
        }
        if !request(self.memory, entry.backing_page(), entry.vector()) {
            return Delivery::Blocked;
        }
        // **IRR first**: pairs with the hypervisor's fence between clearing IsRun and looking at IRR.
        self.memory.fence();
        let now = self.entry(device);
        let notice = if now.is_run() {
            Notice::Doorbell(now.destination())
        } else if now.is_logged() {
            Notice::Log {
                interrupt: self.log(GaLogEntry::new(now.tag(), device)),
            }
        } else {
            Notice::None
        };
        Delivery::Guest {
            tag: entry.tag(),
            vector: entry.vector(),
            notice,
        }
    }

    /// Appends `entry` to the log. Whether the log's interrupt is to be sent.
    fn log(&self, entry: GaLogEntry) -> bool {
        let register = |offset| self.layout.register(offset);
        let status = self.memory.load64(register(iommu::STATUS)).unwrap_or(0);
        if status & iommu::STATUS_GA_OVERFLOW != 0 {
            return false;
        }
        let head = self.memory.load64(register(iommu::GA_LOG_HEAD)).unwrap_or(0);
        let tail = self.memory.load64(register(iommu::GA_LOG_TAIL)).unwrap_or(0);
        let next = self.layout.next_in_log(tail);
        if next == head {
            return self.raise(iommu::STATUS_GA_OVERFLOW);
        }
        self.memory.store64(self.layout.log + tail, entry.0);
        self.memory.store64(register(iommu::GA_LOG_TAIL), next);
        self.raise(iommu::STATUS_GA_INTERRUPT)
    }

    /// Sets `bits` of the status register. Whether the interrupt is sent: neither of the log's was set before.
    fn raise(&self, bits: u64) -> bool {
        let address = self.layout.register(iommu::STATUS);
        let mut before = self.memory.load64(address).unwrap_or(0);
        while let Some(Err(now)) = self.memory.compare_exchange64(address, before, before | bits) {
            before = now;
        }
        before & (iommu::STATUS_GA_INTERRUPT | iommu::STATUS_GA_OVERFLOW) == 0
    }
}
