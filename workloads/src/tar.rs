//! `tar xf` of a compressed source tree: one process decompresses (`xz -d`) into a pipe, the other (`tar`) reads the
//! archive from it and creates directories and files.
//!
//! Decompression takes longest, and is the work of one task. The other task sleeps and wakes up every few pages. So the
//! run takes the time of one CPU's work, and of the wakeups.
//!
//! **Conserved**: tar asserts that it reads exactly the bytes of the archive from the pipe.

use alloc::boxed::Box;

use holdfast_guest::{Executable, FileId, Fork, Format, Limits, Machine, Os, Program, Start, Touch};
use serde::{Deserialize, Serialize};

use crate::stream::Stream;
use crate::workload::{Load, share_of};

/// Parameters of the extraction. Defaults: linux-4.3.3.tar.xz.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tar {
    /// Files in the archive, at scale 1.
    ///
    /// Default 52 000, from memory, rounded.
    pub files: u32,
    /// File system of the disk.
    ///
    /// Default ext4: the published run does not say.
    pub format: Format,
}

impl Default for Tar {
    fn default() -> Self {
        Tar {
            files: 52_000,
            format: Format::Ext4,
        }
    }
}

/// Mean size of a file: about 600 MB in all, from memory.
const FILE_BYTES: u32 = 11_500;
/// User time of tar for a file, in nanoseconds: header, checksum, path. An estimate.
const FILE_NS: u64 = 5_000;
/// Mean user time to decompress a piece of 8 KiB, for an undisturbed CPU of the costs' class. Calibrated: with the
/// emulated local APIC on the carrizo-4 profile, 4 vCPUs take 10.26 s.
const DECOMPRESS_NS: u64 = 123_200;
/// Bytes that xz writes at a time (`IO_BUFFER_SIZE`).
const OUTPUT_BYTES: u32 = 8_192;
/// xz reads that many bytes once for this many writes: 87 MB become about 600 MB.
const OUTPUTS_PER_READ: u64 = 7;
/// Bytes that tar reads at a time: 20 blocks.
const RECORD_BYTES: u32 = 10_240;
const BLOCK_BYTES: u32 = 512;
const PAGE_BYTES: u32 = 4_096;
/// Spread of the sizes, and of the times to decompress a piece: standard deviations of the logarithms. [E]
const SIZE_SIGMA: f64 = 1.3;
const TIME_SIGMA: f64 = 0.3;
/// Files of a directory, on average.
const DIRECTORY_FILES: u32 = 15;
/// Components of a path.
const DEPTH: u32 = 5;
/// Mappings of a shell. [E]
const VMAS: u32 = 25;
const PIPE: u32 = 0;

/// Files: two programs with their library, the directory to unpack in, then directories and files, whose numbers are
/// reused.
mod files {
    pub(super) const TAR: u32 = 0;
    pub(super) const XZ: u32 = 1;
    pub(super) const LIBRARY: u32 = 2;
    /// The directory that contains all others.
    pub(super) const TOP: u32 = 3;
    pub(super) const DIRECTORIES: u32 = 8;
    pub(super) const DIRECTORY_COUNT: u32 = 512;
    pub(super) const FILES: u32 = DIRECTORIES + DIRECTORY_COUNT;
    pub(super) const FILE_COUNT: u32 = 4_096;
}

mod role {
    pub(super) const FIRST: u32 = 0;
    pub(super) const TAR: u32 = 1;
    pub(super) const XZ: u32 = 2;
}

/// Sizes of the archive's members, in its order.
struct Members {
    sizes: Stream,
    left: u32,
    mean: u32,
}

impl Iterator for Members {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        self.left = self.left.checked_sub(1)?;
        Some(self.sizes.count(self.mean, SIZE_SIGMA))
    }
}

/// Bytes of a member of `size` in the archive: a header, and its contents in whole blocks.
fn archived(size: u32) -> u64 {
    u64::from(BLOCK_BYTES) * (1 + u64::from(size.div_ceil(BLOCK_BYTES)))
}

/// Data that tar has read and not used yet.
#[derive(Default)]
struct Buffer {
    bytes: u32,
    read: u64,
}

impl Buffer {
    /// Reads a record if the buffer is empty. Returns `false` at the end of the archive.
    fn fill<M: Machine>(&mut self, os: &Os<M>) -> bool {
        if self.bytes > 0 {
            return true;
        }
        // A record may come in parts.
        while self.bytes < RECORD_BYTES {
            match os.read_pipe(PIPE, RECORD_BYTES - self.bytes) {
                Some(0) => break,
                Some(got) => self.bytes += got,
                None => {}
            }
        }
        self.read += u64::from(self.bytes);
        self.bytes > 0
    }

    /// Takes up to `want` bytes out of the buffer, which is filled if it is empty.
    fn take<M: Machine>(&mut self, os: &Os<M>, want: u32) -> u32 {
        assert!(self.fill(os), "the archive ends before its last member");
        let part = want.min(self.bytes);
        self.bytes -= part;
        part
    }
}

impl Tar {
    fn members<M: Machine>(&self, os: &Os<M>) -> Members {
        Members {
            sizes: Stream::new(os.seed("tar.sizes"), 0),
            left: self.files,
            mean: FILE_BYTES,
        }
    }

    fn first<M: Machine>(&self, os: &Os<M>) {
        os.wait_for_cpus();
        os.begin();
        os.open_pipe(PIPE, 1);
        os.fork(Fork::Copy { vmas: VMAS }, Start::new(role::TAR, 0));
        while os.wait().is_some() {}
        os.done(None);
    }

    fn execute<M: Machine>(os: &Os<M>, file: u32) {
        os.exec(&Executable {
            file: FileId(file),
            library_first: FileId(files::LIBRARY),
            libraries: 1,
            pages: 20,
        });
        os.user_touching(300_000, Touch::file(40));
    }

    /// Runs xz, which decompresses into the pipe.
    fn xz<M: Machine>(&self, os: &Os<M>) {
        Self::execute(os, files::XZ);
        let mut times = Stream::new(os.seed("tar.decompress"), 0);
        let (mut left, mut outputs) = (0, 0u64);
        for size in self.members(os) {
            left += archived(size);
            while left >= u64::from(OUTPUT_BYTES) {
                left -= u64::from(OUTPUT_BYTES);
                if outputs.is_multiple_of(OUTPUTS_PER_READ) {
                    os.read(OUTPUT_BYTES / PAGE_BYTES);
                }
                outputs += 1;
                os.user(times.time(DECOMPRESS_NS, TIME_SIGMA));
                os.write_pipe(PIPE, OUTPUT_BYTES);
            }
        }
        os.write_pipe(PIPE, left as u32);
        os.close_pipe_writer(PIPE);
    }

    /// Runs tar, which creates the files that it finds in the pipe.
    fn tar<M: Machine>(&self, os: &Os<M>) {
        os.fork(Fork::Copy { vmas: VMAS }, Start::new(role::XZ, 0));
        Self::execute(os, files::TAR);
        let (mut buffer, mut expected) = (Buffer::default(), 0);
        for (number, size) in (0..).zip(self.members(os)) {
            expected += archived(size);
            self.extract(os, &mut buffer, number, size);
        }
        assert!(!buffer.fill(os), "the pipe contains more than the archive");
        assert_eq!(buffer.read, expected, "bytes read and bytes of the archive");
        os.wait();
        os.report("tar.files", u64::from(self.files));
        os.report("tar.bytes", buffer.read);
    }

    fn extract<M: Machine>(&self, os: &Os<M>, buffer: &mut Buffer, number: u32, size: u32) {
        let directory = FileId(files::DIRECTORIES + number / DIRECTORY_FILES % files::DIRECTORY_COUNT);
        let file = FileId(files::FILES + number % files::FILE_COUNT);
        if number.is_multiple_of(DIRECTORY_FILES) {
            os.create(FileId(files::TOP), directory, DEPTH - 1);
            os.close(directory);
        }
        buffer.take(os, BLOCK_BYTES);
        os.user(FILE_NS);
        os.create(directory, file, DEPTH);
        let (mut left, mut written) = (size.next_multiple_of(BLOCK_BYTES), 0);
        while left > 0 {
            let part = buffer.take(os, left);
            left -= part;
            // Pages that this write begins. It may also write the rest of a page that the last write began.
            let pages = (written + part).div_ceil(PAGE_BYTES) - written.div_ceil(PAGE_BYTES);
            written += part;
            if pages > 0 {
                os.write(file, pages);
            } else {
                os.overwrite(file, 1);
            }
        }
        // Times and mode, then close.
        os.status();
        os.status();
        os.close(file);
    }
}

impl Load for Tar {
    fn scale_work(&mut self, share: f64) {
        self.files = share_of(u64::from(self.files), share, 10) as u32;
    }

    fn program<M: Machine>(&self, _: u32) -> Box<dyn Program<M>> {
        Box::new(self.clone())
    }
}

impl<M: Machine> Program<M> for Tar {
    fn limits(&self) -> Limits {
        Limits {
            tasks: 3,
            files: files::FILES + files::FILE_COUNT,
            format: self.format,
            pipes: 1,
            ..Limits::default()
        }
    }

    fn run(&self, os: &Os<M>, start: Start) {
        match start.role {
            role::FIRST => self.first(os),
            role::TAR => self.tar(os),
            role::XZ => self.xz(os),
            other => unreachable!("a task of tar has the unknown role {other}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_has_a_header_and_whole_blocks_for_each_member() {
        assert_eq!(archived(0), 512);
        assert_eq!(archived(1), 1_024);
        assert_eq!(archived(512), 1_024);
        assert_eq!(archived(513), 1_536);
        let members = Members {
            sizes: Stream::new(3, 0),
            left: 50_000,
            mean: 11_500,
        };
        let total: u64 = members.map(archived).sum();
        let expected = 50_000 * (11_500 + 512 + 256);
        assert!(total.abs_diff(expected) < expected / 20, "{total}");
    }
}
