//! IPIs without an answer, for the IPI-aware directed yield proposed in 2025 and 2026 (docs/spec/host.md, "IPI-aware
//! yield"). It is in no kernel. Read from the posted patches: uncertain.
//!
//! Only IPIs that software delivers to a single vCPU are recorded.

use crate::boundary::VcpuId;
use crate::guests::Guests;

/// How long a sent IPI counts as unanswered. Nanoseconds.
const RECENT_NS: u64 = 50_000_000;

impl Guests {
    /// Records that `sender` has sent `vector` to `receiver` alone.
    pub(crate) fn note_ipi(&mut self, sender: VcpuId, receiver: VcpuId, vector: u8, now: u64) {
        if sender == receiver {
            return;
        }
        let (from, to) = (self.vcpus[sender].index, self.vcpus[receiver].index);
        self.vcpus[sender].spin.ipi.sent = Some((to, vector, now));
        self.vcpus[receiver].spin.ipi.received = Some((from, vector));
    }

    /// `vcpu` ends the interrupt `vector`, so its sender no longer waits for it.
    pub(crate) fn note_eoi(&mut self, vcpu: VcpuId, vector: u8) {
        let at = &mut self.vcpus[vcpu];
        let Some((from, _)) = at.spin.ipi.received.filter(|(_, received)| *received == vector) else {
            return;
        };
        at.spin.ipi.received = None;
        let (vm, index) = (at.vm, at.index);
        let sender = self.vcpu_id(vm, from);
        let sent = &mut self.vcpus[sender].spin.ipi.sent;
        if sent.is_some_and(|(to, sent, _)| (to, sent) == (index, vector)) {
            *sent = None;
        }
    }

    /// Returns the index of the vCPU from which `vcpu` may be waiting for an answer.
    pub(super) fn confirmed_receiver(&mut self, vcpu: VcpuId, now: u64) -> Option<u32> {
        let (to, _, at) = self.vcpus[vcpu].spin.ipi.sent?;
        (now - at <= RECENT_NS).then_some(to)
    }
}
