//! perf.data of `perf record`, `perf kvm stat record` and `perf sched record`: a file, or a pipe (`-o -`).
//!
//! The layout is that of `perf.data-file-format.txt` in the kernel's tools and of perf_event_open(2). The published
//! readers `linux-perf-data` and `tracepoint_perf` allocate what the file says; the first also decompresses without a
//! limit, with a library in C. So this one is ours, and the formats of events are those of `holdfast-trace-dat`.
//!
//! `header.rs` reads what is before and behind the records, `layout.rs` finds the fields of a record, `order.rs` puts
//! events in order, `unpack.rs` decompresses records.
//!
//! Threads are the kernel's numbers in the event itself: those of a record are of the PID namespace of perf.

mod header;
mod layout;
mod order;
mod unpack;

use std::io::{self, BufRead, BufReader, Read, SeekFrom};

use crate::event::{Event, Name, What};

use super::decode::Decoder;
use super::recording::{Fault, Format, Header, Input, ReadError, Recording, Source};
use header::Metadata;
use layout::{Fields, Layouts};
use order::Order;
use unpack::Unpacker;

/// Types of records: perf_event_open(2), and from 64 on those of perf itself.
const LOST: u32 = 2;
const COMM: u32 = 3;
const EXIT: u32 = 4;
const FORK: u32 = 7;
const SAMPLE: u32 = 9;
const LOST_SAMPLES: u32 = 13;
const HEADER_ATTR: u32 = 64;
const TRACING_DATA: u32 = 66;
const FINISHED_ROUND: u32 = 68;
const AUXTRACE: u32 = 71;
const HEADER_FEATURE: u32 = 80;
const COMPRESSED: u32 = 81;
const COMPRESSED_2: u32 = 83;

/// The CPU of a record that says none.
const NO_CPU: u32 = u32::MAX;

/// Reads the records.
struct Records<R: Read> {
    input: BufReader<R>,
    /// Place of the next record, and the end of all. `None`: as far as the file goes.
    at: u64,
    end: Option<u64>,
    metadata: Metadata,
    layouts: Layouts,
    decoder: Decoder,
    order: Order,
    unpacker: Unpacker,
    record: Vec<u8>,
    errors: Vec<ReadError>,
    /// The metadata has said something that `learn` has not taken.
    is_stale: bool,
    ended: bool,
}

pub(super) fn read(mut input: BufReader<impl Input + 'static>) -> Result<Recording, ReadError> {
    let mut metadata = Metadata::default();
    let mut magic = [0; 16];
    let begin = input.read_exact(&mut magic);
    begin.map_err(|error| broken(0, "the header of perf.data", error))?;
    if magic.starts_with(b"2ELIFREP") {
        return Err(ReadError::new(
            0,
            Fault::Unsupported("perf.data of a big-endian machine".into()),
        ));
    }
    let size = u64::from_le_bytes(*magic.last_chunk().expect("of 16 bytes"));
    let (mut at, mut end) = (16, None);
    if size > 16 {
        let mut file = input.into_inner();
        let data = metadata.read_file(&mut file)?;
        (at, end) = (data.at, Some(data.at.saturating_add(data.bytes)));
        file.seek(SeekFrom::Start(at))
            .map_err(|error| ReadError::new(at, Fault::Io(error)))?;
        input = BufReader::with_capacity(1 << 18, file);
    }
    let mut records = Records {
        input,
        at,
        end,
        layouts: Layouts::default(),
        metadata,
        decoder: Decoder::default(),
        order: Order::default(),
        unpacker: Unpacker::default(),
        record: Vec::new(),
        errors: Vec::new(),
        is_stale: true,
        ended: false,
    };
    if size <= 16 {
        // A pipe says first what it has.
        while !records.order.has_begun() && !records.ended {
            match records.step() {
                Err(error) if records.ended || records.layouts.is_empty() => return Err(error),
                Err(error) => records.errors.push(error),
                Ok(()) => {}
            }
        }
        if records.metadata.attributes.is_empty() {
            return Err(ReadError::new(records.at, Fault::Truncated("a pipe of perf")));
        }
    }
    if records.is_stale {
        records.learn()?;
    }
    let header = records
        .metadata
        .header
        .clone()
        .unwrap_or_else(|| Header::new(Format::Perf));
    Ok(Recording::new(header, records))
}

/// Returns an error of reading: an end is a truncation.
fn broken(at: u64, what: &'static str, error: io::Error) -> ReadError {
    let fault = match error.kind() {
        io::ErrorKind::UnexpectedEof => Fault::Truncated(what),
        _ => Fault::Io(error),
    };
    ReadError::new(at, fault)
}

impl<R: Read> Records<R> {
    /// Takes what the metadata has said.
    fn learn(&mut self) -> Result<(), ReadError> {
        self.is_stale = false;
        self.layouts = Layouts::new(&self.metadata.attributes)?;
        let (decoder, wrong) = Decoder::new(&self.metadata.formats);
        self.decoder = decoder;
        self.errors.extend(
            wrong
                .into_iter()
                .map(|wrong| ReadError::new(0, Fault::Unsupported(wrong))),
        );
        self.metadata.fill_header();
        Ok(())
    }

    /// Reads `bytes` into the record.
    fn fill(&mut self, bytes: u64, what: &'static str) -> Result<(), ReadError> {
        self.record.clear();
        let read = (&mut self.input).take(bytes).read_to_end(&mut self.record);
        let read = read.map_err(|error| ReadError::new(self.at, Fault::Io(error)))? as u64;
        self.at += read;
        match read == bytes {
            true => Ok(()),
            false => Err(ReadError::new(self.at, Fault::Truncated(what))),
        }
    }

    /// Reads one record.
    fn step(&mut self) -> Result<(), ReadError> {
        let offset = self.at;
        if self.end.is_some_and(|end| offset >= end) {
            return self.finish();
        }
        let mut header = [0; 8];
        match self.input.fill_buf() {
            Ok([]) if self.end.is_none() => return self.finish(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            Ok(_) | Err(_) => {}
        }
        if let Err(error) = self.input.read_exact(&mut header) {
            return Err(self.fatal(broken(offset, "a record", error)));
        }
        self.at += 8;
        let kind = u32::from_le_bytes(*header.first_chunk().expect("of 8 bytes"));
        let size = u16::from_le_bytes([header[6], header[7]]);
        let Some(size) = size.checked_sub(8) else {
            // The next record cannot be found.
            return Err(self.fatal(ReadError::new(
                offset,
                Fault::Damaged(format!("a record of {size} bytes")),
            )));
        };
        if let Err(error) = self.fill(u64::from(size), "a record") {
            return Err(self.fatal(error));
        }
        let record = std::mem::take(&mut self.record);
        let done = match kind {
            COMPRESSED | COMPRESSED_2 => self.feed(kind, &record, offset),
            _ => self.take(kind, &record, offset),
        };
        self.record = record;
        done
    }

    /// Nothing can be read after this error. What was read is made ready.
    fn fatal(&mut self, error: ReadError) -> ReadError {
        self.ended = true;
        self.order.finish();
        error
    }

    /// Everything has been read.
    fn finish(&mut self) -> Result<(), ReadError> {
        self.unpacker.close();
        while self.unpack()? {}
        self.ended = true;
        self.order.finish();
        match self.unpacker.is_done() {
            true => Ok(()),
            false => Err(ReadError::new(self.at, Fault::Truncated("a compressed record"))),
        }
    }

    /// Takes a record that has compressed ones.
    fn feed(&mut self, kind: u32, record: &[u8], offset: u64) -> Result<(), ReadError> {
        // Rounds are not compressed, and would overtake what is. Only the bound of `Order` remains.
        self.order.ignore_rounds();
        if self.unpacker.is_broken() {
            return Ok(());
        }
        let mut packed = record;
        if kind == COMPRESSED_2 {
            let (bytes, rest) = record.split_first_chunk().unwrap_or((&[0; 8], &[]));
            let bytes = usize::try_from(u64::from_le_bytes(*bytes)).unwrap_or(usize::MAX);
            let damaged = || ReadError::new(offset, Fault::Damaged(format!("a compressed record of {bytes} bytes")));
            packed = rest.get(..bytes).ok_or_else(damaged)?;
        }
        self.unpacker.feed(packed);
        Ok(())
    }

    /// Decompresses a block and reads the records in it. `false`: there is none.
    fn unpack(&mut self) -> Result<bool, ReadError> {
        if self.unpacker.is_broken() || !self.unpacker.step(self.at)? {
            return Ok(false);
        }
        let mut unpacker = std::mem::take(&mut self.unpacker);
        let mut done = Ok(());
        while done.is_ok() {
            done = match unpacker.next_record(self.at) {
                Ok(Some((kind, record))) => self.take(kind, record, self.at),
                Ok(None) => break,
                Err(error) => Err(error),
            };
        }
        self.unpacker = unpacker;
        done.map(|()| true)
    }

    /// Reads one record that is not compressed.
    fn take(&mut self, kind: u32, record: &[u8], offset: u64) -> Result<(), ReadError> {
        let is_event = matches!(kind, SAMPLE | LOST | LOST_SAMPLES | COMM | EXIT | FORK);
        if is_event && self.is_stale {
            self.learn()?;
        }
        match kind {
            FINISHED_ROUND => self.order.round(),
            HEADER_ATTR => {
                self.metadata.add_attribute(record, offset)?;
                self.is_stale = true;
            }
            HEADER_FEATURE => {
                if let Some((feature, data)) = record.split_first_chunk() {
                    self.metadata.add_feature(u64::from_le_bytes(*feature), data);
                    self.is_stale = true;
                }
            }
            TRACING_DATA => {
                let bytes = record.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
                let at = self.at;
                let mut data = Vec::new();
                // Its pages end at a multiple of 8 bytes.
                let padded = u64::from(bytes).next_multiple_of(8);
                if let Err(error) = header::limited(&mut self.input, padded, at, &mut data) {
                    return Err(self.fatal(error));
                }
                self.at += padded;
                self.metadata.add_formats(data, at)?;
                self.is_stale = true;
            }
            AUXTRACE => {
                let bytes = record.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
                let skipped = io::copy(&mut (&mut self.input).take(bytes), &mut io::sink());
                self.at += skipped.map_err(|error| ReadError::new(self.at, Fault::Io(error)))?;
            }
            SAMPLE => self.sample(record, offset)?,
            LOST | LOST_SAMPLES | COMM | EXIT | FORK => self.note(kind, record, offset),
            _ => {}
        }
        Ok(())
    }

    /// Reads a sample: an event of a tracepoint.
    fn sample(&mut self, record: &[u8], offset: u64) -> Result<(), ReadError> {
        let Some(fields) = self.layouts.sample(record) else {
            let what = format!("a sample of {} bytes", record.len());
            return Err(ReadError::new(offset, Fault::Damaged(what)));
        };
        let Fields {
            time: Some(at),
            cpu: Some(cpu),
            raw: Some(raw),
            ..
        } = fields
        else {
            return Ok(());
        };
        match self.decoder.read(raw) {
            Ok(None) => {}
            Ok(Some(what)) => {
                let thread = self.decoder.thread(raw);
                self.order.push(Event { at, cpu, thread, what }, offset);
            }
            Err(undecoded) => return Err(ReadError::new(offset, Fault::Damaged(undecoded.0))),
        }
        Ok(())
    }

    /// Reads a record of another kind, if it is as long as its kind needs.
    fn note(&mut self, kind: u32, record: &[u8], offset: u64) {
        let fields = self.layouts.trailer(record);
        let word = |at: usize| Some(u32::from_le_bytes(*record.get(at..)?.first_chunk()?));
        let long = |at: usize| Some(u64::from_le_bytes(*record.get(at..)?.first_chunk()?));
        let what = || {
            Some(match kind {
                LOST => What::Lost { events: Some(long(8)?) },
                LOST_SAMPLES => What::Lost { events: Some(long(0)?) },
                COMM => What::Named {
                    named: word(4)?,
                    process: Some(word(0)?),
                    name: Name::new(record.get(8..)?),
                },
                EXIT => What::Ended { ended: word(8)? },
                // For threads that are there already perf makes such records, without a time.
                _ if fields.time.unwrap_or(0) == 0 => return None,
                _ => What::Forked {
                    parent: word(12)?,
                    child: word(8)?,
                    name: Name::default(),
                },
            })
        };
        let Some(what) = what() else { return };
        let (mut at, mut cpu) = (fields.time.unwrap_or(0), fields.cpu.unwrap_or(NO_CPU));
        if at == 0 && matches!(what, What::Lost { .. }) {
            // perf's own count at the end, with a trailer of zeros.
            (at, cpu) = (self.order.latest(), NO_CPU);
        }
        let event = Event {
            at,
            cpu,
            thread: fields.thread.unwrap_or(0),
            what,
        };
        self.order.push(event, offset);
    }
}

impl<R: Read + Send> Source for Records<R> {
    fn next(&mut self) -> Option<Result<(Event, u64), ReadError>> {
        loop {
            if let Some(error) = self.errors.pop() {
                return Some(Err(error));
            }
            if let Some(event) = self.order.next() {
                return Some(Ok(event));
            }
            if self.ended {
                return None;
            }
            let done = match self.unpack() {
                Ok(true) => Ok(()),
                Ok(false) => self.step(),
                Err(error) => Err(error),
            };
            if let Err(error) = done {
                return Some(Err(error));
            }
        }
    }
}
