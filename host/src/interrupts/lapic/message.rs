//! Interrupt messages to LAPICs, decoded from an interrupt command or an MSI.

use holdfast_abi::lapic::{self as reg, DeliveryMode};
use holdfast_abi::msi;

/// The sender of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The vCPU with this index.
    Vcpu(u32),
    /// A device, by a message (MSI).
    Msi,
}

/// An interrupt message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) origin: Origin,
    pub(crate) vector: u8,
    pub(crate) mode: DeliveryMode,
    pub(crate) shorthand: u32,
    pub(crate) logical: bool,
    pub(crate) destination: u32,
    /// The destination has the width of x2APIC's.
    pub(crate) wide: bool,
    /// Level-triggered. `false`: edge-triggered.
    pub(crate) level: bool,
    /// Asserts. Only the de-assertion of INIT and the end of a level-triggered interrupt do not.
    pub(crate) assert: bool,
    /// The device asks for one receiver of the lowest priority, whatever the mode.
    pub(crate) hint: bool,
}

impl Message {
    /// Returns the message of an interrupt command of the vCPU with index `sender`.
    pub(crate) fn of_icr(sender: u32, low: u32, destination: u32, wide: bool) -> Message {
        Message {
            origin: Origin::Vcpu(sender),
            vector: low as u8,
            mode: DeliveryMode::of(low),
            shorthand: low & reg::ICR_SHORTHAND,
            logical: low & reg::ICR_LOGICAL != 0,
            destination,
            wide,
            level: low & reg::ICR_LEVEL != 0,
            assert: low & reg::ICR_ASSERT != 0,
            hint: false,
        }
    }

    /// Returns the pseudo-interrupt that ends a halt, from the vCPU with index `sender` to one APIC ID.
    pub(crate) fn unhalt(sender: u32, apic_id: u32) -> Message {
        Message::of_icr(sender, DeliveryMode::Unhalt.bits(), apic_id, true)
    }

    /// Returns the message of `data` written to `address`, or `None` if the address is not in the LAPICs' range.
    pub(crate) fn of_msi(address: u64, data: u32) -> Option<Message> {
        if address & msi::ADDRESS_FIXED != msi::ADDRESS {
            return None;
        }
        Some(Message {
            origin: Origin::Msi,
            vector: (data & msi::DATA_VECTOR) as u8,
            mode: DeliveryMode::of(data),
            shorthand: reg::ICR_SHORTHAND_NONE,
            logical: address & msi::ADDRESS_LOGICAL != 0,
            destination: (address >> msi::ADDRESS_DESTINATION_SHIFT) as u32 & 0xff,
            wide: false,
            level: data & msi::DATA_LEVEL != 0,
            // KVM: an MSI is an assertion.
            assert: true,
            hint: address & msi::ADDRESS_REDIRECTION_HINT != 0,
        })
    }

    /// Returns whether its logical destination, in x2APIC's format, has the bit of the LAPIC with ID `id`.
    pub(crate) fn names_x2apic(&self, id: u32) -> bool {
        self.shorthand == reg::ICR_SHORTHAND_NONE
            && self.destination >> 16 == id >> 4
            && self.destination & 1 << (id & 15) != 0
    }

    /// Returns whether it carries a vector that is reserved for exceptions.
    pub(crate) fn has_illegal_vector(&self) -> bool {
        let carries = matches!(self.mode, DeliveryMode::Fixed | DeliveryMode::LowestPriority);
        carries && self.vector < reg::FIRST_LEGAL_VECTOR
    }

    /// Returns whether only one of the addressed LAPICs receives it.
    pub(crate) fn goes_to_one(&self) -> bool {
        self.hint || self.mode == DeliveryMode::LowestPriority
    }

    /// Returns whether the destination is the broadcast of the sender's width. Devices have xAPIC's width.
    pub(crate) fn is_broadcast(&self) -> bool {
        self.destination
            == if self.wide {
                reg::X2APIC_BROADCAST
            } else {
                reg::BROADCAST
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_logical_destination_of_x2apic_names_up_to_sixteen_ids_of_one_cluster() {
        // Cluster 2 (IDs 32 to 47), members 0, 3 and 15.
        for (shorthand, names) in [(reg::ICR_SHORTHAND_NONE, true), (reg::ICR_SHORTHAND_NONE + 1, false)] {
            let message = Message {
                shorthand,
                ..Message::of_icr(0, 0x40, 0x0002_8009, true)
            };
            for id in 0..0x100 {
                let expected = names && [32, 35, 47].contains(&id);
                assert_eq!(message.names_x2apic(id), expected, "{id}, shorthand {shorthand}");
            }
        }
    }
}
