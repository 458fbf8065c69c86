//! Reads trace.dat, the file that trace-cmd writes: versions 6 and 7.
//!
//! [`File`] reads what the file says of the recorded machine, [`Records`] the events of all CPUs in the order of their
//! times, [`mod@format`] what an event consists of, and [`Page`] one page of the kernel's ring buffer, as tracefs'
//! `trace_pipe_raw` yields it. The layout is that of the manual pages trace-cmd.dat.v6(5) and trace-cmd.dat.v7(5), and
//! of the kernel's `ring-buffer-design.rst`.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let file = holdfast_trace_dat::File::open(std::fs::File::open("trace.dat")?)?;
//! let formats = file.formats.clone();
//! let mut records = holdfast_trace_dat::Records::new(file);
//! while let Some(record) = records.next() {
//!     let record = record?;
//!     let format = formats.of(record.data);
//!     println!("{} {} {:?}", record.at, record.cpu, format.map(|format| &format.name));
//! }
//! # Ok(())
//! # }
//! ```
//!
//! **Bounded**: no allocation is as large as a number in the file says. Each has a limit, and what the file says must
//! be in the file.
//!
//! **Nothing is guessed**: an error names its place. The other CPUs of a damaged file are still read.

mod clock;
mod error;
mod file;
pub mod format;
mod input;
mod options;
mod page;
mod records;
mod unpack;

pub use clock::{Correction, TimeShift, TscScale};
pub use error::{Error, ErrorKind};
pub use file::{Compression, File, Symbols};
pub use options::{Buffer, CpuData, Guest};
pub use page::{Event, Layout, Missed, Page};
pub use records::{Record, Records};
pub use unpack::Unpacker;

pub mod write;
