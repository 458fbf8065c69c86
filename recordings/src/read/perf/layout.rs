//! Where the fields of a record are: perf_event_open(2), sections on `PERF_RECORD_SAMPLE` and `sample_id`.

use std::collections::BTreeMap;

use super::super::recording::{Fault, ReadError};
use super::header::Attribute;

/// Bits of `sample_type`.
const IP: u64 = 1;
const TID: u64 = 1 << 1;
const TIME: u64 = 1 << 2;
const ADDR: u64 = 1 << 3;
const READ: u64 = 1 << 4;
const CALLCHAIN: u64 = 1 << 5;
const ID: u64 = 1 << 6;
const CPU: u64 = 1 << 7;
const PERIOD: u64 = 1 << 8;
const STREAM_ID: u64 = 1 << 9;
const RAW: u64 = 1 << 10;
const IDENTIFIER: u64 = 1 << 16;

/// Bits of `read_format`.
const TIMES: [u64; 2] = [1, 1 << 1];
const READ_ID: u64 = 1 << 2;
const READ_GROUP: u64 = 1 << 3;
const READ_LOST: u64 = 1 << 4;

/// Fields of a record that are of use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Fields<'a> {
    pub(super) thread: Option<u32>,
    pub(super) time: Option<u64>,
    pub(super) cpu: Option<u32>,
    /// The event as the kernel's tracing writes it.
    pub(super) raw: Option<&'a [u8]>,
}

/// How the records of all events are read.
#[derive(Default)]
pub(super) struct Layouts {
    all: Vec<Layout>,
    /// Index of the layout by the ID of a counter. Empty: there is one layout.
    by_id: BTreeMap<u64, usize>,
}

/// How the records of one event are read.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Layout {
    sample_type: u64,
    read_format: u64,
    with_trailer: bool,
    is_tracepoint: bool,
}

/// The longs of a record, from its begin or from its end.
struct Longs<'a>(&'a [u8]);

impl<'a> Longs<'a> {
    fn first(&mut self) -> Option<u64> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*first))
    }

    fn last(&mut self) -> Option<u64> {
        let (rest, last) = self.0.split_last_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*last))
    }

    fn skip(&mut self, longs: u64) -> Option<()> {
        self.0 = self.0.get(usize::try_from(longs).ok()?.checked_mul(8)?..)?;
        Some(())
    }
}

impl Layouts {
    /// Finds how the records of all events are read.
    pub(super) fn new(attributes: &[Attribute]) -> Result<Self, ReadError> {
        let mut layouts = Self::default();
        for attribute in attributes {
            let layout = Layout {
                sample_type: attribute.sample_type,
                read_format: attribute.read_format,
                with_trailer: attribute.with_trailer,
                is_tracepoint: attribute.is_tracepoint,
            };
            let known = layouts.all.iter().position(|known| *known == layout);
            let index = known.unwrap_or(layouts.all.len());
            if known.is_none() {
                layouts.all.push(layout);
            }
            layouts.by_id.extend(attribute.ids.iter().map(|&id| (id, index)));
            if layout.is_tracepoint && layout.sample_type & (TIME | CPU) != TIME | CPU {
                let what = "a recording without times or CPUs (perf record needs `-a` or `-T --sample-cpu`)";
                return Err(ReadError::new(0, Fault::Unsupported(what.into())));
            }
        }
        if layouts.all.len() == 1 {
            layouts.by_id.clear();
        } else if layouts.all.iter().any(|layout| layout.sample_type & IDENTIFIER == 0) {
            let what = "a recording of events with different fields and without identifiers";
            return Err(ReadError::new(0, Fault::Unsupported(what.into())));
        }
        Ok(layouts)
    }

    /// Whether there are no events.
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    fn find(&self, id: Option<u64>) -> Option<&Layout> {
        match self.by_id.is_empty() {
            true => self.all.first(),
            false => self.all.get(*self.by_id.get(&id?)?),
        }
    }

    /// Reads a sample. `None`: it is shorter than its fields, or of an unknown event.
    pub(super) fn sample<'a>(&self, record: &'a [u8]) -> Option<Fields<'a>> {
        let layout = self.find(Longs(record).first())?;
        let mut longs = Longs(record);
        let mut fields = Fields::default();
        let has = |bit: u64| layout.sample_type & bit != 0;
        for bit in [IDENTIFIER, IP, TID, TIME, ADDR, ID, STREAM_ID, CPU, PERIOD] {
            if !has(bit) {
                continue;
            }
            let value = longs.first()?;
            match bit {
                TID => fields.thread = Some((value >> 32) as u32),
                TIME => fields.time = Some(value),
                CPU => fields.cpu = Some(value as u32),
                _ => {}
            }
        }
        if !layout.is_tracepoint || !has(RAW) {
            return Some(fields);
        }
        if has(READ) {
            layout.skip_counters(&mut longs)?;
        }
        if has(CALLCHAIN) {
            let count = longs.first()?;
            longs.skip(count)?;
        }
        let (bytes, rest) = longs.0.split_first_chunk()?;
        fields.raw = Some(rest.get(..u32::from_le_bytes(*bytes) as usize)?);
        Some(fields)
    }

    /// Reads the trailer of another record. Without one, or if it is too short, nothing is known.
    pub(super) fn trailer<'a>(&self, record: &'a [u8]) -> Fields<'a> {
        let Some(layout) = self.find(Longs(record).last()).filter(|layout| layout.with_trailer) else {
            return Fields::default();
        };
        let (mut longs, mut fields) = (Longs(record), Fields::default());
        for bit in [IDENTIFIER, CPU, STREAM_ID, ID, TIME, TID] {
            if layout.sample_type & bit == 0 {
                continue;
            }
            let Some(value) = longs.last() else { break };
            match bit {
                TID => fields.thread = Some((value >> 32) as u32),
                TIME => fields.time = Some(value),
                CPU => fields.cpu = Some(value as u32),
                _ => {}
            }
        }
        fields
    }
}

impl Layout {
    /// Passes over the values of counters.
    fn skip_counters(self, longs: &mut Longs<'_>) -> Option<()> {
        let has = |bit: u64| u64::from(self.read_format & bit != 0);
        let of_each = 1 + has(READ_ID) + has(READ_LOST);
        let times = has(TIMES[0]) + has(TIMES[1]);
        match has(READ_GROUP) {
            0 => longs.skip(of_each + times),
            _ => {
                let count = longs.first()?;
                longs.skip(times.checked_add(count.checked_mul(of_each)?)?)
            }
        }
    }
}
