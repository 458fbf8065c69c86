//! The pCPUs of a recording: what runs on each, and which vCPUs wait for it.

use std::collections::HashMap;

use super::step::{Occupant, VcpuIndex};
use crate::event::Tid;

/// Most CPUs that Linux can have (`NR_CPUS`). Events of higher numbers are not from one.
pub const CPUS_MAX: u32 = 8192;

/// A pCPU.
#[derive(Clone, Debug)]
pub struct Cpu {
    /// The thread that runs, and what it is. `None`: not known.
    pub current: Option<(Tid, Occupant)>,
    /// The time since which that is so.
    pub since: u64,
    /// The time of its last event.
    pub last: u64,
    /// The vCPUs that are ready and wait for it.
    pub waiters: Vec<VcpuIndex>,
}

impl Cpu {
    /// What has the pCPU.
    pub fn occupant(&self) -> Occupant {
        self.current.map_or(Occupant::Unknown, |(_, occupant)| occupant)
    }
}

/// All pCPUs.
#[derive(Clone, Debug, Default)]
pub struct Cpus {
    known: HashMap<u32, Cpu>,
}

impl Cpus {
    /// Returns `cpu`, which begins at `now` if it is new.
    pub fn at(&mut self, cpu: u32, now: u64) -> &mut Cpu {
        self.known.entry(cpu).or_insert_with(|| Cpu {
            current: None,
            since: now,
            last: now,
            waiters: Vec::new(),
        })
    }

    /// Returns `cpu`, if there was an event of it or a wait for it.
    pub fn get(&self, cpu: u32) -> Option<&Cpu> {
        self.known.get(&cpu)
    }

    /// Returns `cpu`, if there was an event of it or a wait for it.
    pub fn get_mut(&mut self, cpu: u32) -> Option<&mut Cpu> {
        self.known.get_mut(&cpu)
    }

    /// Returns all pCPUs.
    pub fn all_mut(&mut self) -> impl Iterator<Item = &mut Cpu> {
        self.known.values_mut()
    }

    /// Returns the numbers of all pCPUs, in order.
    pub fn numbers(&self) -> Vec<u32> {
        let mut numbers: Vec<u32> = self.known.keys().copied().collect();
        numbers.sort_unstable();
        numbers
    }
}
