//! Posting: into a descriptor, by an IPI of a vCPU, by a device through the IOMMU, or by the hypervisor.

use holdfast_abi::posted::{self, Control, PidPointer};
use holdfast_abi::{Memory, lapic};

use super::Apicv;

/// An interrupt that tells a host CPU to look into a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Notification {
    /// NV.
    pub vector: u8,
    /// NDST: the host APIC ID.
    pub destination: u32,
}

/// Posts `vector` into the descriptor at `descriptor`. Returns the interrupt to send, if one is needed.
pub fn post<M: Memory>(memory: &M, descriptor: u64, vector: u8) -> Option<Notification> {
    let (word, bit) = posted::pir_bit(vector);
    // **PIR first**: pairs with the hypervisor's fence between clearing SN and looking at PIR.
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
    /// IPI virtualization: posts `vector` to the vCPU with physical APIC ID `id`. `None` if the table has none: software's.
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
