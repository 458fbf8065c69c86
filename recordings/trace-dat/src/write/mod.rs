//! Writes trace.dat of version 6, which every trace-cmd and kernelshark reads.
//!
//! The layout is that of the manual page trace-cmd.dat.v6(5): the kernel's own descriptions of pages and events, then a
//! table with the place of each CPU's data, then the pages of each CPU as the kernel's ring buffer has them. [`Writer`]
//! takes the pages as `trace_pipe_raw` yields them. [`Pages`] makes pages from events.

mod pages;

use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};

pub use pages::{Pages, mark_missed};

/// Option of the clock: the text of the file `trace_clock`, in which brackets mark the clock.
pub const TRACE_CLOCK: u16 = 4;
/// Option of the kernel: sysname, nodename, release and machine with a space between two.
pub const UNAME: u16 = 5;
/// Option of the program that wrote the file, as a text.
pub const VERSION: u16 = 9;
/// Option of the trace's identity, 8 bytes.
pub const TRACE_ID: u16 = 11;

/// The parts of the file before the events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// Bytes of a `long` of the recorded machine: 4 or 8.
    pub long_size: u8,
    /// Bytes of a page of the recorded machine.
    pub page_size: u32,
    /// Content of the file `events/header_page`.
    pub header_page: Vec<u8>,
    /// Content of the file `events/header_event`.
    pub header_event: Vec<u8>,
    /// Contents of the files `events/ftrace/EVENT/format`.
    pub ftrace_formats: Vec<Vec<u8>>,
    /// Name of each event system, with the contents of its files `events/SYSTEM/EVENT/format`.
    pub systems: Vec<(String, Vec<Vec<u8>>)>,
    /// Content of `/proc/kallsyms`. May be empty.
    pub symbols: Vec<u8>,
    /// Content of the file `printk_formats`. May be empty.
    pub printk_formats: Vec<u8>,
    /// Names of threads as the file `saved_cmdlines` has them: a line with ID and name for each. May be empty.
    pub command_names: Vec<u8>,
    /// Options with their content: [`TRACE_CLOCK`] and others. 0 is no option.
    pub options: Vec<(u16, Vec<u8>)>,
}

/// Writes a file of version 6: first the metadata, then the pages of each CPU in turn.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    page_size: u64,
    /// Position of the table of CPUs in the file.
    table_at: u64,
    /// Position and length of each CPU's data, once they are written.
    table: Vec<(u64, u64)>,
    cpus: u32,
    /// Length of the file so far.
    at: u64,
}

impl<W: Write + Seek> Writer<W> {
    /// Begins a file at the position 0 of `out`, with data of the CPUs 0 to `cpus` - 1.
    ///
    /// # Errors
    /// If `out` fails, or if `metadata` has a size or a name that the format cannot express.
    pub fn new(mut out: W, metadata: &Metadata, cpus: u32) -> io::Result<Writer<W>> {
        let head = head(metadata, cpus)?;
        out.seek(SeekFrom::Start(0))?;
        out.write_all(&head)?;
        let mut writer = Writer {
            out,
            page_size: u64::from(metadata.page_size),
            table_at: head.len() as u64,
            table: Vec::new(),
            cpus,
            at: head.len() as u64,
        };
        // The places are known later.
        for _ in 0..cpus {
            writer.out.write_all(&[0; 16])?;
            writer.at += 16;
        }
        Ok(writer)
    }

    /// Writes the pages of the next CPU, to the end of `pages`. Returns their length in bytes. A CPU without events has
    /// no pages.
    ///
    /// # Errors
    /// If `pages` or the output fails, or if all CPUs have their data.
    pub fn cpu(&mut self, pages: &mut impl Read) -> io::Result<u64> {
        if self.table.len() == self.cpus as usize {
            return Err(invalid(format!("data of more than {} CPUs", self.cpus)));
        }
        let padding = self.at.next_multiple_of(self.page_size) - self.at;
        io::copy(&mut io::repeat(0).take(padding), &mut self.out)?;
        self.at += padding;
        let length = io::copy(pages, &mut self.out)?;
        self.table.push((self.at, length));
        self.at += length;
        Ok(length)
    }

    /// Ends the file. CPUs without a call of [`Writer::cpu`] have no events. Returns the output, at its end.
    ///
    /// # Errors
    /// If the output fails.
    pub fn finish(mut self) -> io::Result<W> {
        self.table.resize(self.cpus as usize, (self.at, 0));
        self.out.seek(SeekFrom::Start(self.table_at))?;
        for (place, length) in &self.table {
            self.out.write_all(&place.to_le_bytes())?;
            self.out.write_all(&length.to_le_bytes())?;
        }
        self.out.seek(SeekFrom::Start(self.at))?;
        self.out.flush()?;
        Ok(self.out)
    }
}

/// Returns the bytes before the table of CPUs.
fn head(metadata: &Metadata, cpus: u32) -> io::Result<Vec<u8>> {
    if !metadata.page_size.is_power_of_two() || !matches!(metadata.long_size, 4 | 8) {
        let sizes = (metadata.page_size, metadata.long_size);
        return Err(invalid(format!("pages and longs of {sizes:?} bytes")));
    }
    let mut head = Vec::new();
    head.extend(b"\x17\x08\x44tracing6\0");
    // Little endian.
    head.extend([0, metadata.long_size]);
    head.extend(metadata.page_size.to_le_bytes());
    for (name, content) in [
        (&b"header_page\0"[..], &metadata.header_page),
        (b"header_event\0", &metadata.header_event),
    ] {
        head.extend(name);
        long(&mut head, content);
    }
    head.extend(counted(metadata.ftrace_formats.len())?);
    for format in &metadata.ftrace_formats {
        long(&mut head, format);
    }
    head.extend(counted(metadata.systems.len())?);
    for (name, formats) in &metadata.systems {
        if name.contains('\0') {
            return Err(invalid(format!("a null byte in the event system {name:?}")));
        }
        head.extend(name.as_bytes());
        head.push(0);
        head.extend(counted(formats.len())?);
        for format in formats {
            long(&mut head, format);
        }
    }
    short(&mut head, &metadata.symbols)?;
    short(&mut head, &metadata.printk_formats)?;
    long(&mut head, &metadata.command_names);
    head.extend(cpus.to_le_bytes());
    head.extend(b"options  \0");
    for (option, content) in &metadata.options {
        if *option == 0 {
            return Err(invalid("option 0, which ends the options".to_owned()));
        }
        head.extend(option.to_le_bytes());
        short(&mut head, content)?;
    }
    head.extend([0, 0]);
    head.extend(b"flyrecord\0");
    Ok(head)
}

/// Appends `content` after its length in 8 bytes.
fn long(head: &mut Vec<u8>, content: &[u8]) {
    head.extend((content.len() as u64).to_le_bytes());
    head.extend(content);
}

/// Appends `content` after its length in 4 bytes.
fn short(head: &mut Vec<u8>, content: &[u8]) -> io::Result<()> {
    head.extend(counted(content.len())?);
    head.extend(content);
    Ok(())
}

fn counted(number: usize) -> io::Result<[u8; 4]> {
    let number = u32::try_from(number).map_err(|_| invalid(format!("{number} bytes or entries")))?;
    Ok(number.to_le_bytes())
}

fn invalid(what: String) -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, format!("trace.dat cannot hold {what}"))
}
