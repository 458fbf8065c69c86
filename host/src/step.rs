//! One step of the host: its time, the pCPU that executes it, and the buffer for its commands.

use alloc::vec::Vec;

use crate::boundary::{Command, Cost, Nanos, PcpuId};

/// The context of code that runs within one step.
#[derive(Debug)]
pub(crate) struct Step<'a> {
    pub(crate) now: u64,
    /// The pCPU that executes the step.
    pub(crate) pcpu: u32,
    /// What it wakes, it wakes just before it sleeps (`WF_SYNC`).
    pub(crate) sync: bool,
    pub(crate) out: &'a mut Vec<Command>,
}

impl<'a> Step<'a> {
    pub(crate) fn new(now: Nanos, pcpu: PcpuId, out: &'a mut Vec<Command>) -> Step<'a> {
        Step {
            now: now.0,
            pcpu: pcpu.0,
            sync: false,
            out,
        }
    }

    /// Charges the executing pCPU.
    pub(crate) fn charge(&mut self, cost: Cost, count: u32) {
        if count > 0 {
            self.out.push(Command::Charge {
                pcpu: PcpuId(self.pcpu),
                cost,
                count,
            });
        }
    }

    /// Sends `to` a reschedule IPI.
    pub(crate) fn ipi(&mut self, to: u32) {
        self.charge(Cost::IpiSend, 1);
        self.out.push(Command::Ipi {
            from: PcpuId(self.pcpu),
            to: PcpuId(to),
        });
    }
}
