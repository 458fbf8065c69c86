//! What perf.data says before and behind its records: attributes of events, and features.

use std::io::{Cursor, Read, Seek, SeekFrom};

use holdfast_trace_dat::File;
use holdfast_trace_dat::format::Formats;

use super::super::recording::{Fault, Format, Header, ReadError};

/// Limits of what is kept in memory, in bytes.
const SECTION_BYTES_MAX: u64 = 64 << 20;
/// Attributes of a file, at most, and their IDs.
const ATTRIBUTES_MAX: usize = 1 << 16;
const IDS_MAX: usize = 1 << 20;
/// Longest attribute, in bytes.
const ATTRIBUTE_BYTES_MAX: u64 = 1 << 12;

/// Features by their bits.
const TRACING_DATA: u64 = 1;
const OS_RELEASE: u64 = 4;
const ARCHITECTURE: u64 = 6;
const CPUS: u64 = 7;
const DIRECTORY: u64 = 24;

/// Type of an event: a tracepoint.
const TRACEPOINT: u32 = 2;
/// Clocks of `clock_gettime` by their numbers.
const CLOCKS: [&str; 12] = [
    "realtime",
    "monotonic",
    "process-cputime",
    "thread-cputime",
    "monotonic-raw",
    "realtime-coarse",
    "monotonic-coarse",
    "boottime",
    "realtime-alarm",
    "boottime-alarm",
    "",
    "tai",
];

/// What is recorded of one event: `struct perf_event_attr`.
#[derive(Clone, Debug, Default)]
pub(super) struct Attribute {
    /// It is an event of the kernel's tracing.
    pub(super) is_tracepoint: bool,
    /// The number of the tracepoint.
    config: u64,
    /// Which fields its samples have.
    pub(super) sample_type: u64,
    /// Which fields a counter has.
    pub(super) read_format: u64,
    /// Other records have a trailer.
    pub(super) with_trailer: bool,
    clock: Option<u32>,
    /// IDs of its counters.
    pub(super) ids: Vec<u64>,
}

/// A part of the file.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Section {
    pub(super) at: u64,
    pub(super) bytes: u64,
}

/// What the file says.
#[derive(Default)]
pub(super) struct Metadata {
    pub(super) attributes: Vec<Attribute>,
    pub(super) formats: Formats,
    pub(super) header: Option<Header>,
    kernel: Option<String>,
    machine: Option<String>,
    cpus: Option<u32>,
    /// Number of IDs of all attributes.
    ids: usize,
}

fn word(data: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*data.get(at..)?.first_chunk()?))
}

fn long(data: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*data.get(at..)?.first_chunk()?))
}

/// Reads `bytes` at a place that the caller has gone to, if they are not too many and all there.
pub(super) fn limited(from: &mut impl Read, bytes: u64, at: u64, to: &mut Vec<u8>) -> Result<(), ReadError> {
    if bytes > SECTION_BYTES_MAX {
        return Err(ReadError::new(
            at,
            Fault::Damaged(format!("a section of {bytes} bytes")),
        ));
    }
    let read = from.take(bytes).read_to_end(to);
    match read.map_err(|error| ReadError::new(at, Fault::Io(error)))? as u64 == bytes {
        true => Ok(()),
        false => Err(ReadError::new(at + to.len() as u64, Fault::Truncated("a section"))),
    }
}

fn section(from: &mut (impl Read + Seek), part: Section) -> Result<Vec<u8>, ReadError> {
    let place = from.seek(SeekFrom::Start(part.at));
    place.map_err(|error| ReadError::new(part.at, Fault::Io(error)))?;
    let mut data = Vec::new();
    limited(from, part.bytes, part.at, &mut data)?;
    Ok(data)
}

impl Attribute {
    /// Reads an attribute without its IDs.
    fn parse(data: &[u8]) -> Option<Self> {
        let flags = long(data, 40)?;
        Some(Self {
            is_tracepoint: word(data, 0)? == TRACEPOINT,
            config: long(data, 8)?,
            sample_type: long(data, 24)?,
            read_format: long(data, 32)?,
            with_trailer: flags & 1 << 18 != 0,
            clock: if flags & 1 << 25 != 0 { word(data, 92) } else { None },
            ids: Vec::new(),
        })
    }
}

impl Metadata {
    /// Reads the metadata of a file, and returns the place of its records.
    pub(super) fn read_file(&mut self, file: &mut (impl Read + Seek)) -> Result<Section, ReadError> {
        let header = section(file, Section { at: 16, bytes: 88 })?;
        let part = |at: usize| Section {
            at: long(&header, at).unwrap_or(0),
            bytes: long(&header, at + 8).unwrap_or(0),
        };
        let attribute_bytes = long(&header, 0).unwrap_or(0);
        let (attributes, data) = (part(8), part(24));
        if data.bytes == 0 {
            let what = "perf.data that was not closed: perf was killed, and the formats of its events are missing";
            return Err(ReadError::new(0x30, Fault::Unsupported(what.into())));
        }
        if !(64 + 16..=ATTRIBUTE_BYTES_MAX).contains(&attribute_bytes) {
            return Err(ReadError::new(
                16,
                Fault::Damaged(format!("attributes of {attribute_bytes} bytes")),
            ));
        }
        let rows = section(file, attributes)?;
        for (index, row) in rows.chunks_exact(attribute_bytes as usize).enumerate() {
            let at = attributes.at + index as u64 * attribute_bytes;
            let ids = Section {
                at: long(row, row.len() - 16).unwrap_or(0),
                bytes: long(row, row.len() - 8).unwrap_or(0),
            };
            let ids = section(file, ids)?;
            self.push(row, &ids, at)?;
        }
        let mut place = data.at.saturating_add(data.bytes);
        for bit in 0..256 {
            let byte = header.get(56 + bit / 8).copied().unwrap_or(0);
            if byte & 1 << (bit % 8) == 0 {
                continue;
            }
            let row = section(file, Section { at: place, bytes: 16 })?;
            place += 16;
            let part = Section {
                at: long(&row, 0).unwrap_or(0),
                bytes: long(&row, 8).unwrap_or(0),
            };
            match bit as u64 {
                TRACING_DATA => self.add_formats(section(file, part)?, part.at)?,
                DIRECTORY if part.bytes > 0 => {
                    let what = "a recording in a folder (`perf record --threads`)".into();
                    return Err(ReadError::new(part.at, Fault::Unsupported(what)));
                }
                feature @ (OS_RELEASE | ARCHITECTURE | CPUS) => self.add_feature(feature, &section(file, part)?),
                _ => {}
            }
        }
        Ok(data)
    }

    fn push(&mut self, attribute: &[u8], ids: &[u8], at: u64) -> Result<(), ReadError> {
        self.ids += ids.len() / 8;
        if self.attributes.len() >= ATTRIBUTES_MAX || self.ids > IDS_MAX {
            return Err(ReadError::new(
                at,
                Fault::Damaged("more events than can be recorded".into()),
            ));
        }
        let parsed = Attribute::parse(attribute);
        let mut parsed = parsed.ok_or_else(|| ReadError::new(at, Fault::Truncated("an attribute")))?;
        parsed.ids = ids.chunks_exact(8).filter_map(|id| long(id, 0)).collect();
        self.attributes.push(parsed);
        Ok(())
    }

    /// Reads a record of a pipe with an attribute and its IDs.
    pub(super) fn add_attribute(&mut self, record: &[u8], at: u64) -> Result<(), ReadError> {
        let bytes = word(record, 4).map_or(0, |bytes| bytes as usize);
        let (attribute, ids) = record.split_at_checked(bytes).unwrap_or((record, &[]));
        self.push(attribute, ids, at)
    }

    /// Reads a feature that is of use.
    pub(super) fn add_feature(&mut self, feature: u64, data: &[u8]) {
        let text = || {
            let bytes = word(data, 0)? as usize;
            let text = data.get(4..)?;
            let text = &text[..bytes.min(text.len())];
            let text = String::from_utf8_lossy(text);
            Some(text.split('\0').next().unwrap_or_default().to_owned())
        };
        match feature {
            OS_RELEASE => self.kernel = text(),
            ARCHITECTURE => self.machine = text(),
            // Available, online.
            CPUS => self.cpus = word(data, 4),
            _ => {}
        }
    }

    /// Reads the formats of events.
    pub(super) fn add_formats(&mut self, data: Vec<u8>, at: u64) -> Result<(), ReadError> {
        self.formats = File::perf_formats(Cursor::new(data)).map_err(|mut error| {
            error.offset += at;
            ReadError::from(error)
        })?;
        Ok(())
    }

    /// Writes what is known into the header.
    pub(super) fn fill_header(&mut self) {
        let mut header = Header::new(Format::Perf);
        header.kernel.clone_from(&self.kernel);
        header.machine.clone_from(&self.machine);
        header.cpus = self.cpus;
        let mut clocks = self.attributes.iter().map(|attribute| attribute.clock);
        let clock = clocks.next().flatten().and_then(|clock| CLOCKS.get(clock as usize));
        // Without a choice, perf's clock is the scheduler's, which tracefs calls local.
        header.clock = Some(clock.map_or("local", |clock| clock).to_owned());
        let tracepoints = self.attributes.iter().filter(|attribute| attribute.is_tracepoint);
        let formats = tracepoints.filter_map(|attribute| self.formats.get(u16::try_from(attribute.config).ok()?));
        header.tracepoints = Some(
            formats
                .map(|format| format!("{}:{}", format.system, format.name))
                .collect(),
        );
        self.header = Some(header);
    }
}
