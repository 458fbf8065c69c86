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

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use holdfast_abi::lapic as reg;
    use proptest::prelude::*;

    use super::*;
    use crate::avic::bit_of;
    use crate::ram::Ram;

    const LAYOUT: iommu::Layout = iommu::Layout {
        registers: 0x1000,
        log: 0x8000,
        log_entries: 4,
        table: 0x10_0000,
    };
    const PAGE: u64 = 0x20_0000;
    const STOPPED: RemapEntry = RemapEntry::guest(0x63, PAGE, GaTag(0x105));

    /// Returns memory with these remap entries. Only `PAGE` is a backing page.
    fn memory(entries: &[RemapEntry]) -> Ram {
        let ram = Ram::new(|address| address < PAGE + 0x1000);
        for (device, entry) in (0..).zip(entries) {
            ram.store64(LAYOUT.entry(device), entry.low);
            ram.store64(LAYOUT.entry(device) + 8, entry.high);
        }
        ram
    }

    fn to_guest(notice: Notice) -> Delivery {
        Delivery::Guest {
            tag: GaTag(0x105),
            vector: 0x63,
            notice,
        }
    }

    fn is_requested(ram: &Ram, vector: u8) -> bool {
        let (irr, bit) = bit_of(PAGE, reg::IRR, vector);
        ram.load32(irr).is_some_and(|bits| bits & bit != 0)
    }

    #[test]
    fn an_interrupt_goes_where_its_entry_says() {
        let elsewhere = RemapEntry::guest(0x63, PAGE + 0x1000, GaTag(0x105));
        let legacy = RemapEntry::legacy(0x41, 0x0102_0307);
        let by_host = Delivery::Host {
            vector: 0x41,
            destination: 0x0102_0307,
        };
        let cases = [
            (RemapEntry::default(), Delivery::Blocked, false),
            (legacy, by_host, false),
            (STOPPED.running(9), to_guest(Notice::Doorbell(9)), true),
            (STOPPED, to_guest(Notice::None), true),
            (STOPPED.stopped(true), to_guest(Notice::Log { interrupt: true }), true),
            (elsewhere.running(9), Delivery::Blocked, false),
        ];
        for (entry, delivery, requests) in cases {
            // The device's entry is not the first.
            let ram = memory(&[RemapEntry::default(), RemapEntry::default(), entry]);
            assert_eq!(Iommu::new(&ram, LAYOUT).deliver(2), delivery);
            assert_eq!(is_requested(&ram, 0x63), requests, "{delivery:?}");
        }
    }

    proptest! {
        /// The log holds what was delivered, in order, and no interrupt of the log is missing or sent twice. A full log
        /// loses entries and says so.
        #[test]
        fn the_log_loses_entries_only_when_it_says_so(acts in proptest::collection::vec((0u8..6, 0u16..3), 0..100)) {
            let ram = memory(&[STOPPED.stopped(true); 3]);
            let iommu = Iommu::new(&ram, LAYOUT);
            let register = |offset| ram.load64(LAYOUT.register(offset)).expect("a register");
            let (mut logged, mut status) = (VecDeque::new(), 0);
            // A bit of another part of the IOMMU.
            ram.store64(LAYOUT.register(iommu::STATUS), 1);
            for (act, device) in acts {
                match act {
                    // Software clears the status bits and reads the log.
                    0 => {
                        ram.store64(LAYOUT.register(iommu::STATUS), 1);
                        status = 0;
                        let mut head = register(iommu::GA_LOG_HEAD);
                        while head != register(iommu::GA_LOG_TAIL) {
                            prop_assert_eq!(ram.load64(LAYOUT.log + head), logged.pop_front());
                            head = LAYOUT.next_in_log(head);
                        }
                        ram.store64(LAYOUT.register(iommu::GA_LOG_HEAD), head);
                        prop_assert_eq!(logged.len(), 0, "entries are missing");
                    }
                    // Software acknowledges new entries and reads them later.
                    1 => {
                        status &= !iommu::STATUS_GA_INTERRUPT;
                        ram.store64(LAYOUT.register(iommu::STATUS), status | 1);
                    }
                    _ => {
                        let before = status;
                        if status & iommu::STATUS_GA_OVERFLOW != 0 {
                        } else if logged.len() == LAYOUT.log_entries - 1 {
                            status |= iommu::STATUS_GA_OVERFLOW;
                        } else {
                            status |= iommu::STATUS_GA_INTERRUPT;
                            logged.push_back(GaLogEntry::new(GaTag(0x105), device).0);
                        }
                        let interrupt = before == 0 && status != 0;
                        prop_assert_eq!(iommu.deliver(device), to_guest(Notice::Log { interrupt }));
                        prop_assert!(is_requested(&ram, 0x63));
                    }
                }
                prop_assert_eq!(register(iommu::STATUS), status | 1);
            }
        }
    }
}
