//! What a file says of the recorded machine, and where the events of each CPU are.

use std::collections::BTreeMap;
use std::io::{Read, Seek};

use crate::clock::{TimeShift, TscScale};
use crate::error::{Error, ErrorKind};
use crate::format::{Format, Formats};
use crate::input::{Bytes, Input};
use crate::options::{Buffer, CpuData, Guest, Options, chosen_clock, cpu_count};
use crate::page::Layout;
use crate::unpack::Unpacker;

/// Limits of what is kept in memory, in bytes.
const HEADER_BYTES_MAX: u64 = 1 << 16;
const FORMAT_BYTES_MAX: u64 = 1 << 20;
const FORMATS_BYTES_MAX: u64 = 64 << 20;
const SYMBOLS_BYTES_MAX: u64 = 64 << 20;
const CMDLINES_BYTES_MAX: u64 = 64 << 20;
const OPTION_BYTES_MAX: u64 = 16 << 20;
/// Options of a file, at most.
const OPTIONS_MAX: u32 = 1 << 16;
/// Systems and events of a file, at most.
const EVENTS_MAX: u32 = 1 << 17;

/// How the data of a file is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// It is not.
    None,
    /// By zstd.
    Zstd,
}

/// Which names of addresses [`File::symbols`] reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Symbols {
    /// Functions: `/proc/kallsyms`.
    Functions,
    /// Formats of `trace_printk`: `printk_formats` of tracefs.
    Printk,
}

/// A trace.dat whose metadata has been read.
#[derive(Debug)]
pub struct File<R> {
    /// Version of the file: 6 or 7.
    pub version: u32,
    /// Length of a `long` of the recorded machine's programs, in bytes.
    pub long_size: u8,
    /// Length of a page of the recorded machine, in bytes.
    pub page_size: u32,
    /// How its data is compressed.
    pub compression: Compression,
    /// Where the parts of a page are. Each buffer has its own length of a page.
    pub layout: Layout,
    /// What the events consist of.
    pub formats: Formats,
    /// Names of threads when the recording ended.
    pub cmdlines: BTreeMap<u32, String>,
    /// The clock of the times, for instance `local` or `x86-tsc`.
    pub clock: Option<String>,
    /// Kind, release and architecture of the recorded kernel, with the name of its machine between.
    pub uname: Option<String>,
    /// Number of CPUs of the recorded machine.
    pub cpus: Option<u32>,
    /// Identity of this recording.
    pub id: Option<u64>,
    /// Is added to each time, in ns.
    pub offset: i64,
    /// How cycles become ns.
    pub tsc: Option<TscScale>,
    /// How the times become those of another recording.
    pub time_shift: Option<TimeShift>,
    /// The guests that were recorded at the same time.
    pub guests: Vec<Guest>,
    /// The buffers with their data.
    pub buffers: Vec<Buffer>,
    pub(crate) input: Input<R>,
    pub(crate) unpacker: Unpacker,
    functions: Option<u64>,
    printk: Option<u64>,
}

impl<R: Read + Seek> File<R> {
    /// Reads the metadata of a file.
    ///
    /// # Errors
    ///
    /// The file is no trace.dat, is damaged before its events, or is of a kind that is not supported: big endian, text
    /// (`latency`), compressed by another algorithm than zstd.
    pub fn open(from: R) -> Result<Self, Error> {
        let mut file = Self::begin(from, |version| matches!(version, "6" | "7"))?;
        match file.version {
            6 => {
                file.formats_first()?;
                file.rest_6()?;
            }
            _ => file.read_7()?,
        }
        Ok(file)
    }

    /// Reads the formats of events from the tracing data of perf.data, which begin as a trace.dat of another
    /// version.
    ///
    /// # Errors
    ///
    /// They are damaged, or of a big-endian machine.
    pub fn perf_formats(from: R) -> Result<Formats, Error> {
        let mut file = Self::begin(from, |version| version.starts_with("0."))?;
        file.formats_first()?;
        Ok(file.formats)
    }

    /// Reads the part before the first difference between the versions.
    fn begin(from: R, is_known: impl Fn(&str) -> bool) -> Result<Self, Error> {
        let mut input = Input::new(from)?;
        let magic = input.take(10.min(input.length()), 10, "the header")?;
        if magic != *b"\x17\x08\x44tracing" {
            return Err(Error::new(0, ErrorKind::Foreign));
        }
        let version = input.text(16, "the version")?;
        if !is_known(&version) {
            return Err(Error::unsupported(
                10,
                format!("trace.dat of version `{}`", version.escape_debug()),
            ));
        }
        let version = version.parse().unwrap_or(0);
        match input.u8("the header")? {
            0 => {}
            1 => return Err(Error::unsupported(input.at() - 1, "a trace of a big-endian machine")),
            other => return Err(Error::damaged(input.at() - 1, format!("{other} as the order of bytes"))),
        }
        let long_size = input.u8("the header")?;
        if !matches!(long_size, 4 | 8) {
            return Err(Error::damaged(input.at() - 1, format!("a `long` of {long_size} bytes")));
        }
        let page_size = input.u32("the header")?;
        Ok(Self {
            version,
            long_size,
            page_size,
            compression: Compression::None,
            layout: Layout::of_64_bits(page_size as usize),
            formats: Formats::default(),
            cmdlines: BTreeMap::new(),
            clock: None,
            uname: None,
            cpus: None,
            id: None,
            offset: 0,
            tsc: None,
            time_shift: None,
            guests: Vec::new(),
            buffers: Vec::new(),
            input,
            unpacker: Unpacker::default(),
            functions: None,
            printk: None,
        })
    }

    /// Reads names of addresses, as tracefs has them. Empty if the file has none.
    ///
    /// # Errors
    ///
    /// They cannot be read, are damaged, or longer than 64 MiB.
    pub fn symbols(&mut self, which: Symbols) -> Result<Vec<u8>, Error> {
        let place = match which {
            Symbols::Functions => self.functions,
            Symbols::Printk => self.printk,
        };
        let Some(at) = place else { return Ok(Vec::new()) };
        if self.version >= 7 {
            let (section, at) = self.section(at, which as u16 + 19, SYMBOLS_BYTES_MAX)?;
            let mut section = Bytes::new(&section, at, "names of addresses");
            let bytes = section.u32()?;
            return Ok(section.take(u64::from(bytes))?.to_vec());
        }
        self.input.seek(at, "names of addresses")?;
        let bytes = self.input.u32("names of addresses")?;
        self.input
            .take(u64::from(bytes), SYMBOLS_BYTES_MAX, "names of addresses")
    }

    /// Version 6, and perf.data: the description of pages, and the formats.
    fn formats_first(&mut self) -> Result<(), Error> {
        let input = &mut self.input;
        let at = input.at();
        expect(input, b"header_page\0")?;
        let bytes = input.u64("the description of pages")?;
        let page = input.take(bytes, HEADER_BYTES_MAX, "the description of pages")?;
        expect(input, b"header_event\0")?;
        let bytes = input.u64("the description of events")?;
        input.take(bytes, HEADER_BYTES_MAX, "the description of events")?;
        self.set_layout(&page, at)?;

        let mut budget = FORMATS_BYTES_MAX;
        let count = self.input.u32("formats")?;
        self.formats_6("ftrace", count, &mut budget)?;
        let systems = self.input.u32("formats")?;
        for _ in 0..systems.min(EVENTS_MAX) {
            let system = self.input.text(256, "the name of a system")?;
            let count = self.input.u32("formats")?;
            self.formats_6(&system, count, &mut budget)?;
        }
        Ok(())
    }

    /// Version 6: what follows the formats.
    fn rest_6(&mut self) -> Result<(), Error> {
        let input = &mut self.input;
        for place in [&mut self.functions, &mut self.printk] {
            let at = input.at();
            *place = Some(at);
            let bytes = u64::from(input.u32("names of addresses")?);
            input.seek(at + 4 + bytes, "names of addresses")?;
        }
        let bytes = input.u64("names of threads")?;
        let names = input.take(bytes, CMDLINES_BYTES_MAX, "names of threads")?;
        self.cmdlines = cmdlines(&names);

        let at = input.at();
        let cpus = cpu_count(input.u32("the number of CPUs")?, at)?;
        let mut options = Options::default();
        let mut kind = input.take(10, 10, "the kind of data")?;
        if kind == *b"options  \0" {
            for _ in 0..OPTIONS_MAX {
                let id = input.u16("an option")?;
                if id == 0 {
                    break;
                }
                let bytes = u64::from(input.u32("an option")?);
                let at = input.at();
                let data = input.take(bytes, OPTION_BYTES_MAX, "an option")?;
                options.add(id, &data, at, 6)?;
            }
            kind = input.take(10, 10, "the kind of data")?;
        }
        let page_size = self.layout.size as u32;
        let at = input.at();
        let mut instances = std::mem::take(&mut options.buffers);
        self.set_options(options);
        self.cpus = self.cpus.or(Some(cpus));
        self.flyrecord_6(
            Buffer {
                page_size,
                ..Buffer::default()
            },
            &kind,
            at - 10,
            cpus,
        )?;
        for mut instance in instances.drain(..) {
            let at = instance.at;
            self.input.seek(at, "a buffer")?;
            let kind = self.input.take(10, 10, "the kind of data")?;
            instance.page_size = page_size;
            self.flyrecord_6(instance, &kind, at, cpus)?;
        }
        self.check_buffers()
    }

    /// Version 6: the places of the CPUs' data, and the clock.
    fn flyrecord_6(&mut self, mut buffer: Buffer, kind: &[u8], at: u64, cpus: u32) -> Result<(), Error> {
        match kind {
            b"flyrecord\0" => {}
            b"latency  \0" => return Err(Error::unsupported(at, "a trace as text (`latency`)")),
            _ => return Err(Error::damaged(at, "data of an unknown kind")),
        }
        for cpu in 0..cpus {
            let at = self.input.u64("the place of a CPU's data")?;
            let bytes = self.input.u64("the place of a CPU's data")?;
            buffer.cpus.push(CpuData { cpu, at, bytes });
        }
        // Early versions have no clock here.
        let clock = self
            .input
            .u64("the clock")
            .and_then(|bytes| self.input.take(bytes, 256, "the clock"));
        let clock = clock.ok().and_then(|clock| String::from_utf8(clock).ok());
        if let Some(clock) = clock.filter(|clock| clock.contains('[')) {
            buffer.clock = Some(chosen_clock(&clock).to_owned());
        }
        self.buffers.push(buffer);
        Ok(())
    }

    fn formats_6(&mut self, system: &str, count: u32, budget: &mut u64) -> Result<(), Error> {
        for _ in 0..count.min(EVENTS_MAX) {
            let bytes = self.input.u64("a format")?;
            let text = self.input.take(bytes, FORMAT_BYTES_MAX.min(*budget), "a format")?;
            *budget -= bytes;
            if let Some(format) = Format::parse(system, &text) {
                self.formats.add(format);
            }
        }
        Ok(())
    }

    /// Version 7: sections, whose places the options have.
    fn read_7(&mut self) -> Result<(), Error> {
        let at = self.input.at();
        let name = self.input.text(64, "the name of the compression")?;
        self.input.text(256, "the version of the compression")?;
        self.compression = match &*name {
            "none" => Compression::None,
            "zstd" => Compression::Zstd,
            name => {
                return Err(Error::unsupported(
                    at,
                    format!("compression by {}", name.escape_debug()),
                ));
            }
        };
        let first = self.input.u64("the place of the options")?;
        let mut options = self.options_7(first)?;
        self.buffers = std::mem::take(&mut options.buffers);
        let places = options.places.clone();
        self.set_options(options);
        (self.functions, self.printk) = (places.symbols, places.printk);

        if let Some(at) = places.header_info {
            let (section, at) = self.section(at, 16, HEADER_BYTES_MAX)?;
            let mut section = Bytes::new(&section, at, "the description of pages");
            if section.take(12)? != b"header_page\0" {
                return Err(Error::damaged(at, "no description of pages"));
            }
            let bytes = section.u64()?;
            let page = section.take(bytes)?;
            self.set_layout(page, at)?;
        }
        if let Some(at) = places.ftrace_formats {
            let (section, at) = self.section(at, 17, FORMATS_BYTES_MAX)?;
            let mut section = Bytes::new(&section, at, "formats");
            let count = section.u32()?;
            formats_7(&mut section, "ftrace", count, &mut self.formats)?;
        }
        if let Some(at) = places.formats {
            let (section, at) = self.section(at, 18, FORMATS_BYTES_MAX)?;
            let mut section = Bytes::new(&section, at, "formats");
            for _ in 0..section.u32()? {
                let system = section.text()?;
                let count = section.u32()?;
                formats_7(&mut section, &system, count, &mut self.formats)?;
            }
        }
        if let Some(at) = places.cmdlines {
            let (section, at) = self.section(at, 21, CMDLINES_BYTES_MAX)?;
            let mut section = Bytes::new(&section, at, "names of threads");
            let bytes = section.u64()?;
            self.cmdlines = cmdlines(section.take(bytes)?);
        }
        for index in 0..self.buffers.len() {
            let at = self.buffers[index].at;
            self.input.seek(at, "a buffer")?;
            let (id, flags) = (self.input.u16("a buffer")?, self.input.u16("a buffer")?);
            if id != 3 {
                return Err(Error::damaged(at, format!("section {id} where a buffer should be")));
            }
            self.buffers[index].packed = flags & 1 != 0;
        }
        self.check_buffers()
    }

    /// Reads all sections of options.
    fn options_7(&mut self, first: u64) -> Result<Options, Error> {
        let mut options = Options::default();
        let (mut next, mut count) = (first, 0);
        while next != 0 {
            let (section, at) = self.section(next, 0, OPTION_BYTES_MAX)?;
            let mut section = Bytes::new(&section, at, "options");
            next = 0;
            while !section.is_empty() {
                count += 1;
                if count > OPTIONS_MAX {
                    return Err(Error::damaged(at, format!("more than {OPTIONS_MAX} options")));
                }
                let (id, bytes, at) = (section.u16()?, section.u32()?, section.at());
                let data = section.take(u64::from(bytes))?;
                if id == 0 {
                    next = Bytes::new(data, at, "options").u64()?;
                    break;
                }
                options.add(id, data, at, 7)?;
            }
            // Counts empty sections too, so that a circle of them ends.
            count += 1;
        }
        Ok(options)
    }

    /// Reads a section, decompressed, and returns it with the place of its contents.
    fn section(&mut self, at: u64, id: u16, limit: u64) -> Result<(Vec<u8>, u64), Error> {
        self.input.seek(at, "a section")?;
        let (found, flags) = (self.input.u16("a section")?, self.input.u16("a section")?);
        self.input.u32("a section")?;
        let bytes = self.input.u64("a section")?;
        if found != id {
            return Err(Error::damaged(
                at,
                format!("section {found} where section {id} should be"),
            ));
        }
        let begin = self.input.at();
        if flags & 1 == 0 {
            return Ok((self.input.take(bytes, limit, "a section")?, begin));
        }
        let (packed, unpacked) = (self.input.u32("a section")?, self.input.u32("a section")?);
        if u64::from(unpacked) > limit {
            return Err(Error::damaged(begin, format!("a section of {unpacked} bytes")));
        }
        let data = self.input.take(u64::from(packed), limit, "a section")?;
        Ok((self.unpacker.unpack(&data, unpacked as usize, begin)?, begin))
    }

    fn set_layout(&mut self, text: &[u8], at: u64) -> Result<(), Error> {
        let layout = Layout::parse(text).ok_or_else(|| Error::damaged(at, "no description of pages"))?;
        self.layout = layout;
        Ok(())
    }

    fn set_options(&mut self, options: Options) {
        self.clock = options.clock;
        self.uname = options.uname;
        self.cpus = options.cpus;
        self.id = options.id;
        self.offset = options.offset;
        self.tsc = options.tsc;
        self.time_shift = options.time_shift;
        self.guests = options.guests;
    }

    /// What buffers say to have, as far as the file goes, is not longer than the file. So memory for them is bounded.
    fn check_buffers(&mut self) -> Result<(), Error> {
        let length = self.input.length();
        let mut left = length;
        for buffer in &self.buffers {
            for data in buffer.cpus.iter().filter(|data| data.bytes > 0) {
                let what = || format!("{} bytes of CPU {} at byte {}", data.bytes, data.cpu, data.at);
                left = left
                    .checked_sub(data.bytes.min(length.saturating_sub(data.at)))
                    .ok_or_else(|| Error::damaged(buffer.at, format!("more data than the file has: {}", what())))?;
            }
            let layout = Layout {
                size: buffer.page_size as usize,
                ..self.layout
            };
            let readable = layout.is_possible() && layout.size <= PAGE_BYTES_MAX;
            if !buffer.cpus.is_empty() && !readable {
                return Err(Error::damaged(
                    buffer.at,
                    format!("pages of {} bytes", buffer.page_size),
                ));
            }
        }
        Ok(())
    }
}

/// Longest page, in bytes.
const PAGE_BYTES_MAX: usize = 4 << 20;

fn expect<R: Read + Seek>(input: &mut Input<R>, text: &[u8]) -> Result<(), Error> {
    let at = input.at();
    match input.take(text.len() as u64, 64, "the header")? == text {
        true => Ok(()),
        false => Err(Error::damaged(
            at,
            format!("no `{}`", String::from_utf8_lossy(text).trim_end_matches('\0')),
        )),
    }
}

fn formats_7(section: &mut Bytes<'_>, system: &str, count: u32, formats: &mut Formats) -> Result<(), Error> {
    for _ in 0..count {
        let bytes = section.u64()?;
        if let Some(format) = Format::parse(system, section.take(bytes)?) {
            formats.add(format);
        }
    }
    Ok(())
}

/// Reads lines with a thread and its name.
fn cmdlines(text: &[u8]) -> BTreeMap<u32, String> {
    let lines = text.split(|&byte| byte == b'\n');
    let names = lines.filter_map(|line| {
        let line = String::from_utf8_lossy(line);
        let (thread, name) = line.split_once(' ')?;
        Some((thread.parse().ok()?, name.trim_end_matches('\0').to_owned()))
    });
    names.collect()
}
