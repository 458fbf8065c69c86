//! Compiling one unit: shell, compiler driver, compiler, assembler, small tools.

use holdfast_guest::{FileId, Fork, Machine, Os, Start, Touch};

use super::mix::{AFTER_FORK_NS, DEPTH, SHELL_VMAS, TOOLS_MAX, UnitWork, executable, faults, files};
use super::{Build, role};
use crate::stream::Stream;

/// Bytes that the compiler writes to its pipe at a time: stdio's buffer.
const PIPE_WRITE: u32 = 4_096;

/// Pages of a unit's source. The sources of Linux 3.3 have 15 KB on average. [E]
const SOURCE_PAGES: u32 = 4;

/// Returns a unit's object file. Its number is the source's, too.
fn object_of(unit: u32) -> FileId {
    FileId(files::UNITS + unit % files::UNIT_COUNT)
}

/// Returns the file of a unit's dependencies, which become the command file. No unit that is built at the same time
/// uses it.
fn temporary_of(unit: u32) -> FileId {
    object_of(unit + files::UNIT_COUNT / 2)
}

fn directory_of(unit: u32) -> FileId {
    FileId(files::DIRECTORIES + unit / 6 % files::DIRECTORY_COUNT)
}

impl<M: Machine> Build<M> {
    fn work(&self, os: &Os<M>, unit: u32) -> UnitWork {
        self.mix.unit(unit, |purpose| os.seed(purpose))
    }

    /// Runs the rule's shell, which compiles, and then runs fixdep, rm and mv.
    pub(super) fn shell(&self, os: &Os<M>, unit: u32) {
        os.exec(&executable(files::SHELL));
        let work = self.work(os, unit);
        os.user_touching(work.shell_ns, self.mix.touch(faults::SHELL));
        fork_and_wait(os, Start::new(role::DRIVER, unit));
        for tool in 0..self.mix.tools {
            fork_and_wait(os, Start::new(role::TOOL, unit * TOOLS_MAX + tool));
        }
    }

    /// Runs gcc, which starts compiler and assembler with a pipe between them.
    pub(super) fn driver(&self, os: &Os<M>, unit: u32) {
        exec_after_fork(os, files::DRIVER);
        os.user_touching(self.work(os, unit).driver_ns, self.mix.touch(faults::DRIVER));
        for _ in 0..12 {
            os.open_missing(DEPTH);
        }
        let pipe = self.pipes.lock(os).pop().expect("one pipe per job slot");
        os.open_pipe(pipe, 1);
        os.fork(Fork::Borrow, Start::new(role::COMPILER | pipe << 8, unit));
        os.fork(Fork::Borrow, Start::new(role::ASSEMBLER | pipe << 8, unit));
        os.wait();
        os.wait();
        self.pipes.lock(os).push(pipe);
    }

    /// Runs cc1, which reads the source and its headers, compiles, and writes assembler source.
    pub(super) fn compiler(&self, os: &Os<M>, unit: u32, pipe: u32) {
        os.exec(&executable(files::COMPILER));
        let work = self.work(os, unit);
        if self.cold {
            os.read_file(object_of(unit), SOURCE_PAGES);
        }
        let start = self.mix.touch(faults::COMPILER).file;
        // Starting touches the program. A third of the rest is reading headers, two thirds are compiling. [E]
        let (start_ns, read_ns) = (work.compiler_ns / 20, work.compiler_ns * 3 / 10);
        os.user_touching(start_ns, Touch::file(start));
        let read_pages = work.compiler_pages / 3;
        self.read_headers(os, unit, &work, read_ns, read_pages);
        let compile_ns = work.compiler_ns - start_ns - read_ns;
        let writes = work.assembly_pages;
        let pages = work.compiler_pages - read_pages;
        for write in 0..writes {
            let touch = Touch::anonymous(part(pages, write, writes));
            os.user_touching(compile_ns / u64::from(writes), touch);
            os.write_pipe(pipe, PIPE_WRITE);
        }
        os.close_pipe_writer(pipe);
    }

    fn read_headers(&self, os: &Os<M>, unit: u32, work: &UnitWork, ns: u64, pages: u32) {
        let mut choice = Stream::new(os.seed("kernbench.headers"), unit);
        let (headers, rare) = (work.headers.max(1), files::HEADER_COUNT - files::COMMON_HEADERS);
        for index in 0..headers {
            let number = if index < files::COMMON_HEADERS {
                index
            } else {
                files::COMMON_HEADERS + choice.below(rare)
            };
            let header = FileId(files::HEADERS + number);
            for _ in 0..part(work.misses, index, headers) {
                os.open_missing(DEPTH);
            }
            os.open(header, DEPTH);
            os.status();
            os.read_file(header, 2);
            os.close(header);
            let touch = Touch::anonymous(part(pages, index, headers));
            os.user_touching(ns / u64::from(headers), touch);
        }
    }

    /// Runs as, which reads the pipe and writes the object.
    pub(super) fn assembler(&self, os: &Os<M>, unit: u32, pipe: u32) {
        os.exec(&executable(files::ASSEMBLER));
        let work = self.work(os, unit);
        let (time, pages) = (work.assembler_ns, work.assembly_pages);
        let touch = self.mix.touch(faults::ASSEMBLER);
        os.user_touching(time / 4, Touch::file(touch.file));
        let mut read = 0;
        while let Some(bytes @ 1..) = os.read_pipe(pipe, PIPE_WRITE) {
            let anonymous = part(touch.anonymous, read.min(pages - 1), pages);
            os.user_touching(
                time / 2 * u64::from(bytes) / u64::from(pages * PIPE_WRITE),
                Touch {
                    anonymous,
                    ..Touch::default()
                },
            );
            read += 1;
        }
        os.user(time / 4);
        let (directory, object) = (directory_of(unit), object_of(unit));
        os.create(directory, object, DEPTH);
        os.write(object, work.object_pages);
        os.close(object);
    }

    /// Runs fixdep, rm, mv, or a program that reads the object file.
    pub(super) fn tool(&self, os: &Os<M>, argument: u32) {
        let (unit, tool) = (argument / TOOLS_MAX, argument % TOOLS_MAX);
        exec_after_fork(os, files::TOOLS + tool);
        let work = self.work(os, unit);
        os.user_touching(work.tool_ns, self.mix.touch(faults::TOOL));
        let (directory, file) = (directory_of(unit), temporary_of(unit));
        match tool {
            0 => {
                // Reads the dependencies, writes the command file.
                os.open(file, DEPTH);
                os.read(6);
                os.close(file);
                os.create(directory, file, DEPTH);
                os.write(file, 6);
                os.close(file);
            }
            1 => os.unlink(directory, file, DEPTH),
            2 => os.rename(directory, file, DEPTH),
            _ => {
                os.open(object_of(unit), DEPTH);
                os.read(work.object_pages);
                os.close(object_of(unit));
            }
        }
    }
}

/// Runs a command from a shell.
fn fork_and_wait<M: Machine>(os: &Os<M>, start: Start) {
    os.fork(Fork::Copy { vmas: SHELL_VMAS }, start);
    os.user_touching(AFTER_FORK_NS, faults::AFTER_FORK);
    os.wait();
}

/// Executes the command in a shell's child.
fn exec_after_fork<M: Machine>(os: &Os<M>, file: u32) {
    os.user_touching(AFTER_FORK_NS, faults::AFTER_FORK);
    os.exec(&executable(file));
}

/// Returns the share of `total` for step `index` of `steps`. The sum of all shares is `total`.
fn part(total: u32, index: u32, steps: u32) -> u32 {
    let upto = |step: u32| (u64::from(total) * u64::from(step) / u64::from(steps)) as u32;
    upto(index + 1) - upto(index)
}

#[cfg(test)]
mod tests {
    use super::part;

    #[test]
    fn parts_are_the_whole() {
        for (total, steps) in [(0, 1), (7, 3), (2_200, 40), (5, 400)] {
            assert_eq!((0..steps).map(|index| part(total, index, steps)).sum::<u32>(), total);
        }
    }
}
