//! kernbench: a parallel build of the Linux kernel from scratch, with the sources in the page cache or, as in the first
//! run of `kernbench -f`, on a disk.
//!
//! A top make starts one make for each directory, which compiles the directory's units and then links them. The top
//! make links everything. Job slots are tokens: one comes with each make, and the others go through a pipe, GNU make's
//! job server.

mod make;
mod mix;
mod unit;

use alloc::boxed::Box;
use alloc::vec::Vec;

use holdfast_guest::{Format, Limits, Machine, Os, Program, Start, UserLock};

use mix::{Mix, files};
use serde::{Deserialize, Serialize};

use crate::workload::Load;

/// Parameters of kernbench.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Kernbench {
    /// Job slots (`make -j`).
    ///
    /// Default 20 (`kernbench -o 20`).
    pub jobs: u32,
    /// Fraction of the full build's compile units, in (0, 1]. Default 1. The mix of operations does not depend on it.
    pub scale: f64,
    /// CPU time of user work in a full build, on an undisturbed CPU of the x5570's class. Calibrated.
    ///
    /// Default: with ticket locks, alone on the x5570 profile, the full build takes 38.1 s.
    pub user_cpu_seconds: f64,
    /// Compile units of a full build.
    ///
    /// Default 1900: x86-64 defconfig of 3.3, an estimate.
    pub units: u32,
    /// Share of the user work that is serial: preparations, linking and compressing the kernel.
    ///
    /// Default 0.018, of a defconfig build, an estimate; where most units are modules it is less.
    pub serial_share: f64,
    /// Page faults of the processes that build one unit. Newer compilers have more.
    ///
    /// Default 4800: about half of those of a 4.13 build with a compiler of 2017, an estimate for 2012 (see `mix.rs`).
    pub unit_faults: u32,
    /// Small programs for each unit in addition to compiler and assembler. Newer kernel build rules run more.
    ///
    /// Default 3: fixdep, rm and mv in the rules of 3.3. Later rules also run objtool, recordmcount and the programs
    /// for symbol versions. All of them together take the time of the three.
    pub unit_tools: u32,
    /// The guest builds again and again, so that the other guests stay loaded. The first build is the result.
    pub repeat: bool,
    /// The first build finds sources, headers and makefiles on the guest's disk only, as after the guest's boot.
    ///
    /// Default off. Programs and libraries are in the page cache. Each file takes one request of the disk: what finds
    /// it there, directories and inodes, takes none.
    pub cold: bool,
    /// File system of the disk with sources and results.
    ///
    /// Default plain, with which the user times of the published builds were calibrated.
    pub format: Format,
}

impl Default for Kernbench {
    fn default() -> Self {
        Kernbench {
            jobs: 20,
            scale: 1.0,
            user_cpu_seconds: 224.0,
            units: 1_900,
            serial_share: mix::SERIAL,
            unit_faults: mix::UNIT_FAULTS,
            unit_tools: mix::TOOLS_MIN,
            repeat: false,
            cold: false,
            format: Format::Plain,
        }
    }
}

/// The roles of tasks, in the low byte of [`Start::role`]. The pipe of a compilation is above it.
mod role {
    pub(super) const TOP: u32 = 0;
    pub(super) const DIRECTORY: u32 = 1;
    pub(super) const SHELL: u32 = 2;
    pub(super) const DRIVER: u32 = 3;
    pub(super) const COMPILER: u32 = 4;
    pub(super) const ASSEMBLER: u32 = 5;
    pub(super) const TOOL: u32 = 6;
    pub(super) const LINKER: u32 = 7;
}

/// The job server's pipe. The others are for compilations.
const JOB_SERVER: u32 = 0;

/// A build.
pub(crate) struct Build<M: Machine> {
    mix: Mix,
    jobs: u32,
    repeat: bool,
    cold: bool,
    format: Format,
    /// Pipes that no compilation uses.
    pipes: UserLock<Vec<u32>, M>,
}

impl Load for Kernbench {
    fn scale_work(&mut self, share: f64) {
        self.scale = share;
    }

    fn program<M: Machine>(&self, _: u32) -> Box<dyn Program<M>> {
        let jobs = self.jobs.max(1);
        Box::new(Build {
            mix: Mix::new(self),
            jobs,
            repeat: self.repeat,
            cold: self.cold,
            format: self.format,
            pipes: UserLock::new((1..=jobs).rev().collect()),
        })
    }
}

impl<M: Machine> Program<M> for Build<M> {
    fn limits(&self) -> Limits {
        // A job is at most a directory's make, a shell, a driver, a compiler and an assembler.
        let tasks = 8 + 8 * self.jobs;
        Limits {
            tasks,
            files: files::COUNT,
            format: self.format,
            pipes: self.jobs + 1,
            ..Limits::default()
        }
    }

    fn run(&self, os: &Os<M>, start: Start) {
        let pipe = start.role >> 8;
        match start.role & 0xff {
            role::TOP => self.top(os),
            role::DIRECTORY => self.directory(os, start.argument),
            role::SHELL => self.shell(os, start.argument),
            role::DRIVER => self.driver(os, start.argument),
            role::COMPILER => self.compiler(os, start.argument, pipe),
            role::ASSEMBLER => self.assembler(os, start.argument, pipe),
            role::TOOL => self.tool(os, start.argument),
            role::LINKER => self.linker(os, start.argument),
            other => unreachable!("a task of kernbench has the unknown role {other}"),
        }
    }
}
