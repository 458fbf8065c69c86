//! Threads of one core: computing takes longer while the other threads do something.
//!
//! **Nothing without siblings**: on a machine with one thread per core no time changes, and no event is added.
//!
//! What the siblings do is read when a span of computing begins, and a long span is divided
//! ([`SLICE`]). So a change there has its effect late by one slice at most. Memory accesses and PAUSEs keep their
//! times: they wait for a cache or for the clock, not for a share of the core.

use holdfast_host::PcpuId;
use holdfast_machine::Picos;

use crate::engine::Engine;
use crate::parts::pcpu::Activity;

/// Longest computing for which a pCPU's speed is not read again. A vCPU runs for milliseconds and halts for tens of
/// microseconds.
pub const SLICE: Picos = Picos::from_nanos(10_000);

/// The unit of [`holdfast_machine::Costs::smt_computing`].
const MICROSECOND: u128 = 1_000_000;

/// What a thread of a core takes from its siblings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Load {
    Nothing,
    Pausing,
    Computing,
}

impl Engine {
    /// The time that `span` of computing takes on `pcpu`, with what its siblings do now.
    #[inline]
    pub fn stretched(&self, pcpu: PcpuId, span: Picos) -> Picos {
        if self.hardware.has_siblings() {
            span + stretch(span, self.slowdown(pcpu))
        } else {
            span
        }
    }

    /// The time by which a microsecond of computing on `pcpu` takes longer now.
    pub fn slowdown(&self, pcpu: PcpuId) -> Picos {
        let costs = &self.hardware.costs;
        let mut more = Picos::ZERO;
        for sibling in self.hardware.topology.siblings_of(pcpu.0) {
            more += match self.load_of(PcpuId(sibling)) {
                Load::Nothing => Picos::ZERO,
                Load::Pausing => costs.smt_pausing,
                Load::Computing => costs.smt_computing,
            };
        }
        more
    }

    fn load_of(&self, pcpu: PcpuId) -> Load {
        match self.pcpus[pcpu].activity {
            Activity::Idle => Load::Nothing,
            Activity::Poll => Load::Pausing,
            Activity::Guest(vcpu) if self.vcpus[vcpu].spin.asleep.is_some() => Load::Nothing,
            Activity::Guest(vcpu) if self.vcpus[vcpu].spin.waiting => Load::Pausing,
            Activity::Guest(_) | Activity::Host | Activity::Task(_) => Load::Computing,
        }
    }
}

/// The time by which `span` of computing takes longer, if each microsecond takes `more` longer.
pub fn stretch(span: Picos, more: Picos) -> Picos {
    // A wide division takes longer than all the rest of a short computation.
    if let Some(product) = span.0.checked_mul(more.0) {
        return Picos(product / MICROSECOND as u64);
    }
    let picos = u128::from(span.0) * u128::from(more.0) / MICROSECOND;
    Picos(u64::try_from(picos).unwrap_or(u64::MAX))
}

/// The computing that was done in `span`, if each microsecond took `more` longer. Rounded up.
pub fn computed(span: Picos, more: Picos) -> Picos {
    let picos = (u128::from(span.0) * MICROSECOND).div_ceil(MICROSECOND + u128::from(more.0));
    Picos(picos as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretching_and_its_inverse_agree() {
        for more in [0, 1, 120_000, 739_000, 5_000_000] {
            for span in [0, 1, 999, 1_000_000, 123_456_789_012] {
                let (span, more) = (Picos(span), Picos(more));
                assert_eq!(computed(span + stretch(span, more), more), span, "{span:?} {more:?}");
            }
        }
        assert_eq!(stretch(Picos(2_000_000), Picos(739_000)), Picos(1_478_000));
        assert_eq!(stretch(Picos(u64::MAX), Picos(u64::MAX)), Picos(u64::MAX));
    }
}
