//! The amounts of work in a build, and the sources of the numbers.
//!
//! # Sources
//! - **[P]** Phoronix build-linux-kernel (4.13 defconfig), measured by M. Vermeulen
//!   (perf.mvermeulen.com/workloads/phoronix/ build-linux-kernel): 29 135 processes, 31.49 M minor faults, 1079 s user,
//!   41 s system time. That is 1081 faults a process, and 29 000 faults a second of user time.
//! - **[K]** the kernel's build rules in 3.3 (scripts/Makefile.build, Kbuild.include). For each object: a shell, the
//!   compiler driver with `-pipe` (compiler and assembler at once), fixdep, rm, mv. For each directory: one make and
//!   one `ld -r`.
//! - **[E]** estimates, to be compared with a trace if one is available.

use holdfast_guest::{Executable, FileId, Touch};

use super::Kernbench;
use crate::stream::Stream;

/// Units per directory. [E] about 330 directories have objects of their own.
const UNITS_PER_DIRECTORY: u32 = 6;
/// The serial part of a defconfig build: `share::PREPARE` and `share::FINAL`.
pub(super) const SERIAL: f64 = share::PREPARE + share::FINAL;
/// Spread of a unit's user time (sigma of the logarithm). [E]
const TIME_SPREAD: f64 = 0.6;
/// Spread of counts (sigma of the logarithm). [E]
const COUNT_SPREAD: f64 = 0.3;

/// Shares of a build's user time. [E] for all of them. cc1 dominates every published profile of kernel builds.
mod share {
    /// The compiler, cc1.
    pub(super) const COMPILER: f64 = 0.845;
    /// The assembler, as.
    pub(super) const ASSEMBLER: f64 = 0.055;
    /// The compiler driver, gcc.
    pub(super) const DRIVER: f64 = 0.012;
    /// The shell of a unit's rule.
    pub(super) const SHELL: f64 = 0.012;
    /// fixdep, rm, mv and other small programs, together.
    pub(super) const TOOLS: f64 = 0.012;
    /// Each directory's make.
    pub(super) const DIRECTORY: f64 = 0.034;
    /// Each directory's `ld -r`.
    pub(super) const LINKER: f64 = 0.012;
    /// The top make's preparations, which are serial.
    pub(super) const PREPARE: f64 = 0.006;
    /// Linking vmlinux three times (kallsyms) and compressing it, which is serial.
    pub(super) const FINAL: f64 = 0.012;
}

/// Headers read by a unit. [E] dependency files of 3.x units name 300 to 500.
const HEADERS: u32 = 400;
/// Failed lookups for ten headers: directories on the include path before the right one. [E]
const MISSES_PER_TEN_HEADERS: u32 = 12;
/// The fewest small programs: fixdep, rm, mv.
pub(super) const TOOLS_MIN: u32 = 3;
/// The most small programs: [`files`] has room for this many.
pub(super) const TOOLS_MAX: u32 = 7;
/// The default page faults of a unit's processes, which [`faults`] divides among them.
pub(super) const UNIT_FAULTS: u32 = 4_800;

/// Pages of assembler source that go through the pipe. [E] 160 KB.
const ASSEMBLY_PAGES: u32 = 40;
/// Pages of an object file. [E] 60 KB without debug information.
const OBJECT_PAGES: u32 = 15;

/// Page faults of each process: anonymous, file and copied pages. Their sum over a unit's seven processes is about
/// [`UNIT_FAULTS`]. [P] has 1 081 for each of eleven processes of a unit, with a compiler five years younger and units
/// about twice as large. That halving and the division among the processes are [E]. If the parameters have another sum,
/// all faults but those of forks are scaled.
pub(super) mod faults {
    use holdfast_guest::Touch;

    const fn touch(anonymous: u32, file: u32, copied: u32) -> Touch {
        Touch {
            anonymous,
            file,
            copied,
        }
    }

    pub(in super::super) const SHELL: Touch = touch(60, 130, 0);
    pub(in super::super) const DRIVER: Touch = touch(90, 160, 0);
    pub(in super::super) const COMPILER: Touch = touch(2_400, 800, 0);
    pub(in super::super) const ASSEMBLER: Touch = touch(220, 180, 0);
    pub(in super::super) const TOOL: Touch = touch(50, 90, 0);
    pub(in super::super) const DIRECTORY: Touch = touch(700, 170, 0);
    /// Each side of a fork, until the child executes a program: stack and data are written.
    pub(in super::super) const AFTER_FORK: Touch = touch(0, 0, 12);
    pub(in super::super) const LINKER: Touch = touch(900, 250, 0);
}

/// The files of a build, by number.
pub(super) mod files {
    /// libc and the loader, mapped by every program.
    pub(in super::super) const LIBRARIES: u32 = 0;
    pub(in super::super) const LIBRARY_COUNT: u32 = 2;
    /// sh, gcc, cc1, as, ld, make, fixdep, rm, mv.
    pub(in super::super) const PROGRAMS: u32 = 2;
    pub(in super::super) const SHELL: u32 = PROGRAMS;
    pub(in super::super) const DRIVER: u32 = PROGRAMS + 1;
    pub(in super::super) const COMPILER: u32 = PROGRAMS + 2;
    pub(in super::super) const ASSEMBLER: u32 = PROGRAMS + 3;
    pub(in super::super) const LINKER: u32 = PROGRAMS + 4;
    pub(in super::super) const MAKE: u32 = PROGRAMS + 5;
    pub(in super::super) const TOOLS: u32 = PROGRAMS + 6;
    /// The build's own scripts, read by every make.
    pub(in super::super) const SCRIPTS: u32 = 16;
    pub(in super::super) const SCRIPT_COUNT: u32 = 8;
    /// Headers. Every unit reads the first ones, in the same order.
    pub(in super::super) const HEADERS: u32 = 32;
    pub(in super::super) const COMMON_HEADERS: u32 = 150;
    pub(in super::super) const HEADER_COUNT: u32 = 1_200;
    /// Directories in which units are built.
    pub(in super::super) const DIRECTORIES: u32 = HEADERS + HEADER_COUNT;
    pub(in super::super) const DIRECTORY_COUNT: u32 = 512;
    /// Sources and objects of units, each used by one unit at a time.
    pub(in super::super) const UNITS: u32 = DIRECTORIES + DIRECTORY_COUNT;
    pub(in super::super) const UNIT_COUNT: u32 = 2_048;
    pub(in super::super) const COUNT: u32 = UNITS + UNIT_COUNT;
}

/// Path components from the start of a lookup to a file of the kernel tree. [E]
pub(super) const DEPTH: u32 = 4;
/// User time of each side between fork and exec, nanoseconds. [E]
pub(super) const AFTER_FORK_NS: u64 = 30_000;
/// Mappings of a shell, which fork copies. [E]
pub(super) const SHELL_VMAS: u32 = 22;

/// The mix for one build.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Mix {
    /// Compile units of this build.
    pub(super) units: u32,
    /// Compile units of a full build.
    full: u32,
    /// Directories of this build.
    pub(super) directories: u32,
    /// User time of a full build divided by its units, in nanoseconds, scaled so that its share outside [`SERIAL`] is
    /// the parallel time.
    unit_ns: f64,
    /// The same, scaled so that its share in [`SERIAL`] is the serial time.
    serial_unit_ns: f64,
    /// Page faults of a unit's processes.
    unit_faults: u32,
    /// Small programs for each unit.
    pub(super) tools: u32,
}

/// One unit's work. Times are nanoseconds of user time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UnitWork {
    pub(super) shell_ns: u64,
    pub(super) driver_ns: u64,
    pub(super) compiler_ns: u64,
    pub(super) assembler_ns: u64,
    pub(super) tool_ns: u64,
    pub(super) headers: u32,
    pub(super) misses: u32,
    pub(super) assembly_pages: u32,
    pub(super) object_pages: u32,
    pub(super) compiler_pages: u32,
}

impl Mix {
    pub(super) fn new(parameters: &Kernbench) -> Self {
        let scale = if parameters.scale > 0.0 {
            parameters.scale.min(1.0)
        } else {
            1.0
        };
        let full = f64::from(parameters.units.max(1));
        let units = (libm::round(full * scale) as u32).max(1);
        let unit_ns = parameters.user_cpu_seconds.max(0.0) * 1e9 / full;
        let serial = parameters.serial_share.clamp(0.0, 1.0);
        Mix {
            units,
            full: parameters.units.max(1),
            directories: units.div_ceil(UNITS_PER_DIRECTORY),
            unit_ns: unit_ns * ((1.0 - serial) / (1.0 - SERIAL)),
            serial_unit_ns: unit_ns * (serial / SERIAL),
            unit_faults: parameters.unit_faults,
            tools: parameters.unit_tools.clamp(TOOLS_MIN, TOOLS_MAX),
        }
    }

    fn scaled(&self, faults: u32) -> u32 {
        (u64::from(faults) * u64::from(self.unit_faults) / u64::from(UNIT_FAULTS)) as u32
    }

    /// Scales `touch` of a unit's process to this build's page faults.
    pub(super) fn touch(&self, touch: Touch) -> Touch {
        Touch {
            anonymous: self.scaled(touch.anonymous),
            file: self.scaled(touch.file),
            copied: self.scaled(touch.copied),
        }
    }

    /// The units of `directory`.
    pub(super) fn units_of(&self, directory: u32) -> core::ops::Range<u32> {
        let first = directory * UNITS_PER_DIRECTORY;
        first..(first + UNITS_PER_DIRECTORY).min(self.units)
    }

    fn ns(&self, share: f64) -> u64 {
        (self.unit_ns * share) as u64
    }

    /// The files that a cold build finds on the disk: the units' sources, and of makefiles and headers, which units
    /// share, as large a part as this build is of a full one.
    pub(super) fn on_disk(&self) -> impl Iterator<Item = FileId> + use<> {
        let (units, full) = (self.units, self.full);
        let scripts = files::SCRIPTS..files::SCRIPTS + files::SCRIPT_COUNT;
        let shared = scripts.chain(files::HEADERS..files::HEADERS + files::HEADER_COUNT);
        let upto = move |count: u32| u64::from(count) * u64::from(units) / u64::from(full);
        let shared = (0..).zip(shared).filter(move |(at, _)| upto(at + 1) > upto(*at));
        let sources = (0..units.min(files::UNIT_COUNT)).map(|unit| files::UNITS + unit);
        shared.map(|(_, file)| file).chain(sources).map(FileId)
    }

    /// User time of a directory's make.
    pub(super) fn directory_ns(&self, directory: u32) -> u64 {
        self.ns(share::DIRECTORY) * u64::from(self.units_of(directory).len() as u32)
    }

    /// User time of a directory's link.
    pub(super) fn linker_ns(&self, directory: u32) -> u64 {
        self.ns(share::LINKER) * u64::from(self.units_of(directory).len() as u32)
    }

    /// User time before the first directory.
    pub(super) fn prepare_ns(&self) -> u64 {
        (self.serial_unit_ns * share::PREPARE) as u64 * u64::from(self.units)
    }

    /// User time after the last directory.
    pub(super) fn final_ns(&self) -> u64 {
        (self.serial_unit_ns * share::FINAL) as u64 * u64::from(self.units)
    }

    /// Returns the work of `unit`, which is the same in every run with these seeds. `seed` returns the seed for a
    /// purpose.
    pub(super) fn unit(&self, unit: u32, seed: impl Fn(&str) -> u64) -> UnitWork {
        let mut times = Stream::new(seed("kernbench.user-time"), unit);
        let mut counts = Stream::new(seed("kernbench.counts"), unit);
        let size = times.log_normal(TIME_SPREAD);
        let headers = counts.count(HEADERS, COUNT_SPREAD);
        let compiler_pages = self.scaled(faults::COMPILER.anonymous);
        let sized = |mean: u32| libm::round(f64::from(mean) * size) as u32;
        UnitWork {
            shell_ns: times.time(self.ns(share::SHELL), 0.1),
            driver_ns: times.time(self.ns(share::DRIVER), 0.1),
            compiler_ns: (self.unit_ns * share::COMPILER * size) as u64,
            assembler_ns: (self.unit_ns * share::ASSEMBLER * size) as u64,
            tool_ns: times.time(self.ns(share::TOOLS / f64::from(self.tools)), 0.1),
            headers,
            misses: headers * MISSES_PER_TEN_HEADERS / 10,
            assembly_pages: sized(ASSEMBLY_PAGES).max(1),
            object_pages: sized(OBJECT_PAGES).max(1),
            // Half of the compiler's pages are the same for all units, half depend on the unit's size.
            compiler_pages: (compiler_pages + sized(compiler_pages)) / 2,
        }
    }
}

/// Returns the executable of program file `file`.
pub(super) fn executable(file: u32) -> Executable {
    let (library_first, libraries) = (FileId(files::LIBRARIES), files::LIBRARY_COUNT);
    Executable {
        file: FileId(file),
        library_first,
        libraries,
        pages: 12,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seed(purpose: &str) -> u64 {
        purpose
            .bytes()
            .fold(1, |seed: u64, byte| seed.wrapping_mul(31).wrapping_add(u64::from(byte)))
    }

    #[test]
    fn shares_are_the_whole() {
        let sum = share::COMPILER + share::ASSEMBLER + share::DRIVER + share::SHELL + share::TOOLS + share::DIRECTORY;
        let sum = sum + share::LINKER + share::PREPARE + share::FINAL;
        assert!((sum - 1.0).abs() < 1e-9, "{sum}");
    }

    #[test]
    fn user_time_adds_up_to_the_parameter() {
        let parameters = Kernbench::default();
        let mix = Mix::new(&parameters);
        let units = (0..mix.units).map(|unit| {
            let work = mix.unit(unit, seed);
            work.shell_ns + work.driver_ns + work.compiler_ns + work.assembler_ns + 3 * work.tool_ns
        });
        let directories = (0..mix.directories).map(|directory| mix.directory_ns(directory) + mix.linker_ns(directory));
        let total = units.sum::<u64>() + directories.sum::<u64>() + mix.prepare_ns() + mix.final_ns();
        let ratio = total as f64 / (parameters.user_cpu_seconds * 1e9);
        assert!((0.97..1.03).contains(&ratio), "{ratio}");
    }

    #[test]
    fn faults_and_tools_are_those_asked_for_and_change_nothing_else() {
        let usual = Mix::new(&Kernbench::default());
        assert_eq!(usual.touch(faults::LINKER), faults::LINKER);
        let grown = Mix::new(&Kernbench {
            unit_faults: 2 * UNIT_FAULTS,
            unit_tools: 6,
            ..Kernbench::default()
        });
        assert_eq!(grown.touch(Touch::file(90)), Touch::file(180));
        let (before, after) = (usual.unit(7, seed), grown.unit(7, seed));
        assert!(after.compiler_pages.abs_diff(2 * before.compiler_pages) <= 2);
        assert!((6 * after.tool_ns).abs_diff(3 * before.tool_ns) <= 6);
        let ns = |work: UnitWork| [work.shell_ns, work.driver_ns, work.compiler_ns, work.assembler_ns];
        assert_eq!((ns(before), before.headers), (ns(after), after.headers));
    }

    #[test]
    fn processes_of_a_unit_have_the_faults_that_the_default_says() {
        let Touch { anonymous, file, .. } = [faults::SHELL, faults::DRIVER, faults::COMPILER, faults::ASSEMBLER]
            .into_iter()
            .chain([faults::TOOL; TOOLS_MIN as usize])
            .fold(Touch::default(), |sum, touch| Touch {
                anonymous: sum.anonymous + touch.anonymous,
                file: sum.file + touch.file,
                copied: 0,
            });
        // Each of four forks copies on both sides, and each of seven execs maps arguments and stack.
        let all = anonymous + file + 4 * 2 * faults::AFTER_FORK.copied + 7 * executable(0).pages;
        assert!(all.abs_diff(UNIT_FAULTS) < UNIT_FAULTS / 20, "{all}");
    }

    #[test]
    fn serial_work_is_taken_from_the_rest() {
        let parameters = |serial_share| Kernbench {
            serial_share,
            ..Kernbench::default()
        };
        let (usual, less) = (Mix::new(&parameters(SERIAL)), Mix::new(&parameters(SERIAL / 2.0)));
        assert_eq!(usual.unit(7, seed), Mix::new(&Kernbench::default()).unit(7, seed));
        let serial = |mix: &Mix| (mix.prepare_ns() + mix.final_ns()) as f64;
        assert!((serial(&usual) / serial(&less) - 2.0).abs() < 1e-3);
        assert!(less.directory_ns(0) > usual.directory_ns(0));
    }

    #[test]
    fn the_mix_does_not_depend_on_the_scale() {
        let full = Mix::new(&Kernbench::default());
        let tenth = Mix::new(&Kernbench {
            scale: 0.1,
            ..Kernbench::default()
        });
        assert_eq!(tenth.units, 190);
        assert_eq!(full.unit(7, seed), tenth.unit(7, seed));
        assert_eq!(full.directory_ns(3), tenth.directory_ns(3));
        let ratio = full.final_ns() as f64 / tenth.final_ns() as f64;
        assert!((ratio - 10.0).abs() < 1e-6, "{ratio}");
    }

    #[test]
    fn a_cold_build_finds_its_share_of_the_tree_on_the_disk() {
        for (scale, files) in [(1.0, 1_900 + 1_208), (0.1, 190 + 120), (0.01, 19 + 12)] {
            let mix = Mix::new(&Kernbench {
                scale,
                ..Kernbench::default()
            });
            assert_eq!(mix.on_disk().count(), files, "{scale}");
        }
    }

    #[test]
    fn every_unit_is_in_one_directory() {
        for scale in [0.0005, 0.01, 0.37, 1.0] {
            let mix = Mix::new(&Kernbench {
                scale,
                ..Kernbench::default()
            });
            let count: usize = (0..mix.directories)
                .map(|directory| mix.units_of(directory).len())
                .sum();
            assert_eq!(count, mix.units as usize);
            assert!(!mix.units_of(mix.directories - 1).is_empty());
        }
    }
}
