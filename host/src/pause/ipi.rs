//! Who has sent whom an IPI that is not answered yet: the IPI-aware directed yield proposed in 2025 and 2026
//! (docs/spec/host.md, "Proposals of 2025 and 2026"). In no kernel, and read from posted patches: uncertain.
//!
//! Only what software delivers is seen, and only where one vCPU is meant.

use crate::boundary::VcpuId;
use crate::host::Host;

/// How long a sent IPI counts. Nanoseconds.
const RECENT_NS: u64 = 50_000_000;

/// The last IPIs of a vCPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct IpiRecord {
    /// What it has sent: receiver's index, vector, time.
    sent: Option<(u32, u8, u64)>,
    /// What it has received: sender's index and vector.
    received: Option<(u32, u8)>,
}

impl Host {
    /// `sender` has sent `vector` to `receiver` and to nobody else.
    pub(crate) fn note_ipi(&mut self, sender: VcpuId, receiver: VcpuId, vector: u8, now: u64) {
        if !self.config.pause.filters.ipi_aware || sender == receiver {
            return;
        }
        let (from, to) = (self.at(sender).index, self.at(receiver).index);
        self.at(sender).ipi.sent = Some((to, vector, now));
        self.at(receiver).ipi.received = Some((from, vector));
    }

    /// `vcpu` ends the interrupt `vector`: who sent it waits no longer.
    pub(crate) fn note_eoi(&mut self, vcpu: VcpuId, vector: u8) {
        let at = self.at(vcpu);
        let Some((from, _)) = at.ipi.received.filter(|(_, received)| *received == vector) else {
            return;
        };
        at.ipi.received = None;
        let (vm, index) = (at.vm, at.index);
        let sender = self.vcpu_id(vm, from);
        let sent = &mut self.at(sender).ipi.sent;
        if sent.is_some_and(|(to, sent, _)| (to, sent) == (index, vector)) {
            *sent = None;
        }
    }

    /// The index of the vCPU from which `vcpu` may be waiting for an answer.
    pub(super) fn confirmed_receiver(&mut self, vcpu: VcpuId, now: u64) -> Option<u32> {
        let (to, _, at) = self.at(vcpu).ipi.sent?;
        (now - at <= RECENT_NS).then_some(to)
    }
}
