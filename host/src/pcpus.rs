//! What each pCPU does, and its scheduler tick.

use crate::boundary::{PcpuId, Run};
use crate::config::{HostConfig, TickPhase};
use crate::ids::IdVec;

/// A pCPU, apart from the scheduler's record of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pcpu {
    /// Its last `Run` command. `None`: it has not started.
    pub(crate) doing: Option<Run>,
    /// Offset of its ticks. Nanoseconds.
    pub(crate) tick_phase: u64,
    /// Its next tick. `None`: it is idle and the tick is stopped.
    pub(crate) tick_at: Option<u64>,
    /// When its hardware timer is set to interrupt.
    pub(crate) programmed: Option<u64>,
}

/// All pCPUs.
#[derive(Clone, Debug)]
pub(crate) struct Pcpus {
    /// Nanoseconds between two ticks.
    tick_ns: u64,
    pub(crate) rows: IdVec<PcpuId, Pcpu>,
}

impl Pcpus {
    pub(crate) fn new(config: &HostConfig, pcpus: usize) -> Pcpus {
        let tick_ns = 1_000_000_000 / u64::from(config.hz);
        let count = pcpus as u64;
        let phase = |pcpu: u64| match config.tick_phase {
            TickPhase::Aligned => 0,
            TickPhase::HalfSkewed => tick_ns / 2 / count * pcpu,
            TickPhase::Spread => tick_ns * pcpu / count,
        };
        let row = |pcpu| Pcpu {
            tick_phase: phase(pcpu),
            ..Pcpu::default()
        };
        Pcpus {
            tick_ns,
            rows: (0..count).map(row).collect(),
        }
    }

    /// Returns the first tick of `pcpu` after `now`.
    pub(crate) fn next_tick(&self, pcpu: PcpuId, now: u64) -> u64 {
        let phase = self.rows[pcpu].tick_phase;
        if now < phase {
            return phase;
        }
        let passed = (now - phase) / self.tick_ns;
        phase + (passed + 1) * self.tick_ns
    }
}
