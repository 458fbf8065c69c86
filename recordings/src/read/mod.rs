//! Readers of recordings: each yields the events of a file in the order of their times, in bounded memory.
//!
//! `open` finds out which format a file has. `perf.rs` reads perf.data, `dat.rs` trace.dat, and `text.rs` what
//! `perf script` and `trace-cmd report` print. `decode.rs` reads an event of the kernel by its format.
//! `recording.rs` is what they have in common. `exits.rs` has the names of exit reasons, which text has instead of
//! numbers. `foreign.rs` knows events of other architectures, to name these.
//!
//! **Order**: the times of events never decrease. Where a file's times go back, [`Fault::Backwards`] marks the place.
//! The next events have the time before the jump until the file has caught up.
//!
//! **Nothing is guessed**: an error marks a place where something could not be read. The events after it are what could
//! still be read. Lost events are `What::Lost`.
//!
//! **Bounded**: no allocation is as large as a number in the file says.

mod dat;
mod decode;
mod exits;
mod foreign;
mod perf;
mod recording;
mod text;

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

pub use exits::{exit_name, exit_reason};
pub use recording::{Fault, Format, GuestThreads, Header, Input, ReadError, Recording};

/// Opens a recording.
///
/// # Errors
///
/// The file cannot be read, is no recording, or begins with damage that hides the rest.
pub fn open(path: &Path) -> Result<Recording, ReadError> {
    let file = File::open(path).map_err(|error| ReadError::new(0, Fault::Io(error)))?;
    if file.metadata().is_ok_and(|metadata| metadata.is_dir()) {
        return Err(ReadError::new(0, Fault::Foreign("a folder")));
    }
    read(file)
}

/// Reads a recording. Text and perf's pipes are read without a seek.
///
/// # Errors
///
/// See [`open`].
pub fn read(input: impl Input + 'static) -> Result<Recording, ReadError> {
    let mut input = BufReader::with_capacity(1 << 16, input);
    let begin = loop {
        match input.fill_buf() {
            Ok(begin) => break begin,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(ReadError::new(0, Fault::Io(error))),
        }
    };
    let foreign = |what| Err(ReadError::new(0, Fault::Foreign(what)));
    match begin {
        [] => foreign("an empty file"),
        [b'P', b'E', b'R', b'F', b'I', b'L', b'E', b'2', ..] | [b'2', b'E', b'L', b'I', b'F', b'R', b'E', b'P', ..] => {
            perf::read(input)
        }
        [0x17, 0x08, 0x44, b't', b'r', b'a', b'c', b'i', b'n', b'g', ..] => dat::read(input),
        [b'P', b'E', b'R', b'F', b'F', b'I', b'L', b'E', ..] => foreign("perf.data of a perf older than 2010"),
        [0x1f, 0x8b, ..] => foreign("compressed by gzip: decompress it first"),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => foreign("compressed by zstd: decompress it first"),
        [0xfd, b'7', b'z', b'X', b'Z', ..] => foreign("compressed by xz: decompress it first"),
        [0x7f, b'E', b'L', b'F', ..] => foreign("a program"),
        begin if begin.iter().take(4096).any(|&byte| byte == 0) => foreign("binary data of an unknown format"),
        _ => text::read(input),
    }
}
