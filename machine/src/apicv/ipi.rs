//! Posting an interrupt to a descriptor. The sender is a vCPU (an IPI), a device (by the IOMMU) or the hypervisor.

use holdfast_abi::posted::{self, Control, PidPointer};
use holdfast_abi::{Memory, lapic};

use super::Apicv;

/// A notification: the interrupt by which a sender makes a host CPU process a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Notification {
    /// Vector of the interrupt (NV).
    pub vector: u8,
    /// APIC ID of the target host CPU (NDST).
    pub destination: u32,
}

/// Posts `vector` to the descriptor at the host-physical address `descriptor`. Returns the notification to send, or
/// `None` if none is needed.
pub fn post<M: Memory>(memory: &M, descriptor: u64, vector: u8) -> Option<Notification> {
    let (word, bit) = posted::pir_bit(vector);
    // **PIR first**: pairs with the hypervisor's fence between clearing SN and reading PIR.
    memory.set32(descriptor + word, bit)?;
    memory.fence();
    let address = descriptor + posted::CONTROL;
    let mut control = Control(memory.load64(address)?);
    loop {
        if control.is_on() || control.is_suppressed() {
            return None;
        }
        match memory.compare_exchange64(address, control.0, control.with(Control::ON).0)? {
            Ok(_) => break,
            Err(now) => control = Control(now),
        }
    }
    Some(Notification {
        vector: control.vector(),
        destination: control.destination(),
    })
}

impl<M: Memory> Apicv<'_, M> {
    /// Carries out IPI virtualization: posts `vector` to the vCPU with physical APIC ID `id`. Returns the notification
    /// to send, or `None` if the table has no usable entry and software must send.
    pub(super) fn send(&mut self, id: u32, vector: u8) -> Option<Option<Notification>> {
        debug_assert!(vector >= lapic::FIRST_LEGAL_VECTOR);
        if id > u32::from(self.vmcs.last_pid_index) {
            return None;
        }
        let entry = self.vmcs.pid_table + u64::from(id) * PidPointer::BYTES;
        let pointer = PidPointer(self.memory.load64(entry)?);
        if !pointer.is_usable() {
            return None;
        }
        Some(post(self.memory, pointer.descriptor(), vector))
    }
}
