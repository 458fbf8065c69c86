//! The interrupt path of AMD's IOMMU: a device's interrupt goes to a host CPU, or in guest mode directly to a guest.
//!
//! Registers, remap table and log are memory that the hypervisor shares, so the IOMMU has no state of its own.
//!
//! - **IRR first**: the IOMMU sets IRR before it reads IsRun, and does not cache IsRun (Linux, `amd_iommu_update_ga`).
//!   The hypervisor clears IsRun before it reads IRR. So at least one of the two sees the other's store.
//! - **Overflow is reported**: a full log loses entries and sets its overflow bit. Nothing is logged until the
//!   hypervisor has restarted the log. IRR is set regardless.
//! - **One interrupt per batch**: the log's interrupt is sent when the first of its status bits becomes set. The
//!   hypervisor clears the bits before it reads the log.
//!
//! Uncertain: whether hardware logs an interrupt whose IRR bit was already set. Here it does, since the vCPU may be
//! asleep.
//!
//! Source: AMD I/O Virtualization Technology Specification (document 48882), "Guest Virtual APIC". See
//! docs/spec/interrupts.md, "IOMMU interrupts".

use holdfast_abi::Memory;
use holdfast_abi::avic::GaTag;
use holdfast_abi::iommu::{self, GaLogEntry, RemapEntry};

use crate::avic::request;

/// An IOMMU over shared `memory`.
#[derive(Clone, Copy, Debug)]
pub struct Iommu<'m, M> {
    memory: &'m M,
    layout: iommu::Layout,
}

/// The outcome of a device's interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// The interrupt is dropped: the entry is not valid, or its backing page is not memory.
    Blocked,
    /// The interrupt goes to a host CPU.
    Host {
        /// The host's vector.
        vector: u8,
        /// The host CPU's APIC ID.
        destination: u32,
    },
    /// The interrupt is set in a guest's backing page.
    Guest {
        /// The target vCPU, as the hypervisor tagged it.
        tag: GaTag,
        /// The guest's vector.
        vector: u8,
        /// How the interrupt is announced.
        notice: Notice,
    },
}

/// How the IOMMU announces an interrupt that it has set in a guest's backing page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The IOMMU rings the doorbell of the host CPU with this APIC ID, where the vCPU runs.
    Doorbell(u32),
    /// The IOMMU adds an entry to its log, for the hypervisor.
    Log {
        /// Whether the log's interrupt is sent. If not, it was sent earlier, and its status bit is still set.
        interrupt: bool,
    },
    /// The IOMMU announces nothing. The vCPU checks IRR at its next entry.
    None,
}

impl<'m, M: Memory> Iommu<'m, M> {
    /// Returns the IOMMU whose registers and tables are at the addresses of `layout`.
    pub fn new(memory: &'m M, layout: iommu::Layout) -> Iommu<'m, M> {
        Iommu { memory, layout }
    }

    fn entry(&self, device: u16) -> RemapEntry {
        let [low, high] = self.memory.load128(self.layout.entry(device)).unwrap_or_default();
        RemapEntry { low, high }
    }

    /// Delivers the interrupt of `device`, the index of its remap entry.
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
        // **IRR first**: pairs with the hypervisor's fence between clearing IsRun and reading IRR.
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

    /// Appends `entry` to the log. Returns whether the log's interrupt must be sent.
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

    /// Sets `bits` of the status register. Returns whether the log's interrupt must be sent: neither of its bits was
    /// set before.
    fn raise(&self, bits: u64) -> bool {
        let address = self.layout.register(iommu::STATUS);
        let mut before = self.memory.load64(address).unwrap_or(0);
        while let Some(Err(now)) = self.memory.compare_exchange64(address, before, before | bits) {
            before = now;
        }
        before & (iommu::STATUS_GA_INTERRUPT | iommu::STATUS_GA_OVERFLOW) == 0
    }
}
