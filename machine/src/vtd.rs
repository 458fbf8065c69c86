//! The interrupt path of Intel's IOMMU (VT-d): a device's interrupt goes to a host CPU, or is posted to the descriptor
//! of a vCPU.
//!
//! - **No log**: a sleeping vCPU is reached by the notification vector in its descriptor, and a preempted one has its
//!   notifications suppressed. The hypervisor changes the descriptor, and the entries stay as they are.
//!
//! Source: Intel Virtualization Technology for Directed I/O specification, "Interrupt Posting". See
//! docs/spec/interrupts.md, "VT-d posted interrupts".

use holdfast_abi::Memory;
use holdfast_abi::vtd::Irte;

use crate::apicv::post;
use crate::iommu::Delivery;

/// Delivers the interrupt of `device`, the index of its entry in the table at `table`.
pub fn deliver<M: Memory>(memory: &M, table: u64, device: u16) -> Delivery {
    let address = table + u64::from(device) * Irte::BYTES;
    let [low, high] = memory.load128(address).unwrap_or_default();
    let entry = Irte { low, high };
    let vector = entry.vector();
    if !entry.is_present() {
        return Delivery::Blocked;
    }
    if !entry.is_posted() {
        return Delivery::Host {
            vector,
            destination: entry.destination(),
        };
    }
    Delivery::Posted {
        descriptor: entry.descriptor(),
        vector,
        notification: post(memory, entry.descriptor(), vector),
    }
}

#[cfg(test)]
mod tests {
    use holdfast_abi::posted::{self, Control};

    use super::*;
    use crate::apicv::Notification;
    use crate::ram::Ram;

    const TABLE: u64 = 0x1000;
    const DESCRIPTOR: u64 = 0x8000;

    /// Returns memory with one entry and one descriptor with `control`.
    fn memory(entry: Irte, control: Control) -> Ram {
        let ram = Ram::new(|address| address < 0x1_0000);
        ram.store128(TABLE, [entry.low, entry.high]);
        ram.store64(DESCRIPTOR + posted::CONTROL, control.0);
        ram
    }

    fn is_posted(ram: &Ram, vector: u8) -> bool {
        let (word, bit) = posted::pir_bit(vector);
        ram.load32(DESCRIPTOR + word).is_some_and(|bits| bits & bit != 0)
    }

    #[test]
    fn an_interrupt_goes_where_its_entry_says() {
        let control = Control::new(posted::NOTIFICATION_VECTOR, 7);
        let absent = memory(Irte::default(), control);
        assert_eq!(deliver(&absent, TABLE, 0), Delivery::Blocked);
        let by_host = memory(Irte::remapped(0x41, 9), control);
        let host = Delivery::Host {
            vector: 0x41,
            destination: 9,
        };
        assert_eq!(deliver(&by_host, TABLE, 0), host);
        let guest = memory(Irte::posted(0x63, DESCRIPTOR), control);
        let notified = Some(Notification {
            vector: posted::NOTIFICATION_VECTOR,
            destination: 7,
        });
        let posted = |notification| Delivery::Posted {
            descriptor: DESCRIPTOR,
            vector: 0x63,
            notification,
        };
        assert_eq!(deliver(&guest, TABLE, 0), posted(notified));
        assert!(is_posted(&guest, 0x63));
        assert_eq!(deliver(&guest, TABLE, 0), posted(None), "a notification is outstanding");
    }

    #[test]
    fn a_preempted_vcpu_is_not_notified_and_a_bad_descriptor_harms_nobody() {
        let control = Control::new(posted::NOTIFICATION_VECTOR, 7).with(Control::SN);
        let guest = memory(Irte::posted(0x63, DESCRIPTOR), control);
        let silent = |descriptor| Delivery::Posted {
            descriptor,
            vector: 0x63,
            notification: None,
        };
        assert_eq!(deliver(&guest, TABLE, 0), silent(DESCRIPTOR));
        assert!(is_posted(&guest, 0x63));
        let nowhere = memory(Irte::posted(0x63, 0x10_0000), control);
        assert_eq!(deliver(&nowhere, TABLE, 0), silent(0x10_0000));
    }
}
