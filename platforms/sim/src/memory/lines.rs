//! The cache lines of a run, and the spins that are skipped on them.

use std::collections::BTreeMap;

use holdfast_host::PcpuId;
use holdfast_machine::{Access, Charge, LineId, Lines, Picos, Time};

use crate::memory::dirty::DirtyLog;
use crate::memory::park::Spinners;

/// The cache lines of a run, and what is logged of its pages.
#[derive(Debug)]
pub struct Memory {
    /// The run's number, which distinguishes its words from those of other runs. It has no influence on the history.
    pub run: u32,
    /// How the host learns which pages the guests write, while it copies them.
    pub dirty_log: Option<DirtyLog>,
    /// Where each line is cached.
    lines: Lines,
    /// The line of each group of words that share one, by the group's number.
    groups: BTreeMap<u32, LineId>,
    /// The skipped spins on each line; `None` if there never was one.
    spinners: Vec<Option<Box<Spinners>>>,
}

impl Memory {
    /// No lines yet. `run` is a number that no other run in this process has; it is not 0.
    pub fn new(run: u32, lines: Lines) -> Memory {
        Memory {
            run,
            dirty_log: None,
            lines,
            groups: BTreeMap::new(),
            spinners: Vec::new(),
        }
    }

    /// The skipped spins on `line`; `None` if there never was one.
    #[inline(always)]
    pub fn spinners(&mut self, line: LineId) -> &mut Option<Box<Spinners>> {
        &mut self.spinners[line.0 as usize]
    }

    /// `pcpu` accesses `line` at `now`; returns the cost.
    #[inline(always)]
    pub fn access(&mut self, line: LineId, pcpu: PcpuId, access: Access, now: Time) -> Charge {
        self.lines.access(line, pcpu.0, access, now)
    }

    /// The time of a transfer to `pcpu` of a line that `owner` changed last.
    pub fn latency(&self, owner: PcpuId, pcpu: PcpuId) -> Picos {
        self.lines.latency(owner.0, pcpu.0)
    }

    /// The line of the words of `group`. Adds one if the group has none yet, or if `group` is 0, which is no group.
    pub fn line_of_group(&mut self, group: u32) -> LineId {
        if group == 0 {
            return self.add_line();
        }
        if let Some(&line) = self.groups.get(&group) {
            return line;
        }
        let line = self.add_line();
        self.groups.insert(group, line);
        line
    }

    fn add_line(&mut self) -> LineId {
        self.spinners.push(None);
        self.lines.add()
    }
}
