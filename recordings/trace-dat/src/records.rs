//! The events of all CPUs, in the order of their times.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{Read, Seek};
use std::ops::Range;

use crate::error::Error;
use crate::file::File;
use crate::page::{Layout, Missed, Page};

/// So much is read at once, in bytes, if pages are not longer.
const READ_BYTES: usize = 1 << 16;
/// Longest chunk that is decompressed at once, in bytes.
const CHUNK_BYTES_MAX: u32 = 16 << 20;
/// All chunks in memory are not longer, in bytes.
const CHUNKS_BYTES_MAX: usize = 256 << 20;

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Its time, in ns. If the clock does not count time, in its units.
    pub at: u64,
    /// The CPU that wrote it, by Linux's number.
    pub cpu: u32,
    /// Index of its buffer in [`File::buffers`](crate::File::buffers).
    pub buffer: usize,
    /// Events of this CPU before this one are missing.
    pub missed: Option<Missed>,
    /// Its data: see [`Formats::of`](crate::format::Formats::of).
    pub data: &'a [u8],
    /// Place of its page in the file. If the file is compressed, of the chunk.
    pub offset: u64,
}

/// One CPU of one buffer.
#[derive(Debug)]
struct Stream {
    cpu: u32,
    buffer: usize,
    layout: Layout,
    /// Where the next data is read, and the end.
    next: u64,
    end: u64,
    /// Chunks that are left. `None`: the data is not compressed.
    chunks: Option<u32>,
    /// Data that was read, with its place.
    data: Vec<u8>,
    data_at: u64,
    /// The page in `data`.
    page_at: usize,
    /// There is a page at `page_at`, which could be damaged.
    on_page: bool,
    page: Option<Page>,
    /// The next event in `data`, and events that are missing before it.
    event: Range<usize>,
    missed: Option<Missed>,
}

impl Stream {
    /// Returns the place of the page, for errors.
    fn offset(&self) -> u64 {
        match self.chunks {
            None => self.data_at + self.page_at as u64,
            Some(_) => self.data_at,
        }
    }

    /// Reads the next page. `false`: there is none.
    fn fill<R: Read + Seek>(&mut self, file: &mut File<R>, chunks_bytes: &mut usize) -> Result<bool, Error> {
        self.page = None;
        if std::mem::take(&mut self.on_page) {
            self.page_at += self.layout.size;
        }
        if self.page_at >= self.data.len() {
            *chunks_bytes -= self.data.len();
            self.data.clear();
            self.page_at = 0;
            let read = match self.chunks {
                None => self.read_pages(file),
                Some(left) => self.read_chunk(file, left, *chunks_bytes),
            };
            *chunks_bytes += self.data.len();
            match read {
                Ok(true) => {}
                Ok(false) => return Ok(false),
                Err(error) => {
                    // What follows cannot be found.
                    self.end = self.next;
                    self.chunks = self.chunks.and(Some(0));
                    return Err(error);
                }
            }
        }
        self.on_page = true;
        let offset = self.offset();
        let end = (self.page_at + self.layout.size).min(self.data.len());
        let page = Page::new(&self.data[self.page_at..end], &self.layout, offset);
        let page = page.inspect_err(|_| self.missed = Some(Missed { events: None }))?;
        self.missed = self.missed.or(page.missed);
        self.page = Some(page);
        Ok(true)
    }

    fn read_pages<R: Read + Seek>(&mut self, file: &mut File<R>) -> Result<bool, Error> {
        let bytes = (self.end - self.next).min(READ_BYTES.next_multiple_of(self.layout.size) as u64);
        self.data_at = self.next;
        if bytes == 0 {
            return Ok(false);
        }
        file.input.seek(self.next, "the data of a CPU")?;
        // A file that was cut off: what it has of this CPU is read.
        let there = bytes.min(file.input.length() - self.next);
        file.input.append(there, &mut self.data, "the data of a CPU")?;
        self.next += there;
        if there == 0 {
            return Err(Error::truncated(file.input.length(), "the data of a CPU"));
        }
        Ok(true)
    }

    fn read_chunk<R: Read + Seek>(&mut self, file: &mut File<R>, left: u32, used: usize) -> Result<bool, Error> {
        // An empty chunk is allowed, and has no page.
        for left in (0..left).rev() {
            self.data_at = self.next;
            file.input.seek(self.next, "a chunk")?;
            let (packed, unpacked) = (file.input.u32("a chunk")?, file.input.u32("a chunk")?);
            if unpacked > CHUNK_BYTES_MAX || u64::from(packed) > self.end.saturating_sub(self.next) {
                let what = format!("a chunk of {packed} bytes, decompressed {unpacked}");
                return Err(Error::damaged(self.next, what));
            }
            if used + unpacked as usize > CHUNKS_BYTES_MAX {
                let what = format!("more than {CHUNKS_BYTES_MAX} bytes of chunks at a time");
                return Err(Error::unsupported(self.next, what));
            }
            let data = file
                .input
                .take(u64::from(packed), u64::from(CHUNK_BYTES_MAX), "a chunk")?;
            self.data = file.unpacker.unpack(&data, unpacked as usize, self.next)?;
            self.next = file.input.at();
            self.chunks = Some(left);
            if !self.data.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Finds the next event. Returns its time, in units of the clock.
    fn advance<R: Read + Seek>(&mut self, file: &mut File<R>, bytes: &mut usize) -> Result<Option<u64>, Error> {
        loop {
            let offset = self.offset();
            if let Some(page) = &mut self.page {
                let end = (self.page_at + self.layout.size).min(self.data.len());
                let data = &self.data[self.page_at..end];
                let event = page.next(data, offset);
                if let Some(event) = event.inspect_err(|_| self.missed = Some(Missed { events: None }))? {
                    let begin = event.data.as_ptr() as usize - data.as_ptr() as usize + self.page_at;
                    self.event = begin..begin + event.data.len();
                    return Ok(Some(event.at));
                }
            }
            if !self.fill(file, bytes)? {
                return Ok(None);
            }
        }
    }
}

/// A reader of the events of all buffers and CPUs, in the order of their times.
///
/// It keeps one read of each CPU in memory: 64 KiB, or a chunk.
#[derive(Debug)]
pub struct Records<R> {
    file: File<R>,
    streams: Vec<Stream>,
    /// Time and index of each stream that has an event, the earliest first.
    queue: BinaryHeap<Reverse<(u64, usize)>>,
    /// The stream of the last record, which is to be advanced.
    last: Option<usize>,
    /// Streams that have not begun.
    begun: usize,
    chunks_bytes: usize,
    in_tsc: bool,
}

impl<R: Read + Seek> Records<R> {
    /// Takes a file whose metadata has been read.
    #[must_use]
    pub fn new(file: File<R>) -> Self {
        let mut streams = Vec::new();
        for (index, buffer) in file.buffers.iter().enumerate() {
            let layout = Layout {
                size: buffer.page_size as usize,
                ..file.layout
            };
            for data in buffer.cpus.iter().filter(|data| data.bytes > 0) {
                streams.push(Stream {
                    cpu: data.cpu,
                    buffer: index,
                    layout,
                    next: data.at,
                    end: data.at.saturating_add(data.bytes),
                    chunks: buffer.packed.then_some(u32::MAX),
                    data: Vec::new(),
                    data_at: data.at,
                    page_at: 0,
                    on_page: false,
                    page: None,
                    event: 0..0,
                    missed: None,
                });
            }
        }
        let clock = file
            .buffers
            .first()
            .and_then(|buffer| buffer.clock.clone())
            .or_else(|| file.clock.clone());
        let in_tsc = clock.is_some_and(|clock| clock.ends_with("tsc"));
        Self {
            file,
            streams,
            queue: BinaryHeap::new(),
            last: None,
            begun: 0,
            chunks_bytes: 0,
            in_tsc,
        }
    }

    /// Returns the file.
    pub fn file(&self) -> &File<R> {
        &self.file
    }

    /// Returns a time in ns.
    fn ns(&self, cpu: u32, at: u64) -> u64 {
        let at = match &self.file.time_shift {
            Some(shift) => shift.apply(cpu, at),
            None => at,
        };
        let at = match self.file.tsc.filter(|_| self.in_tsc) {
            Some(tsc) => tsc.ns(at),
            None => at,
        };
        at.wrapping_add_signed(self.file.offset)
    }

    /// Finds the next event of a stream. After an error it goes on with the next page.
    fn advance(&mut self, index: usize) -> Result<(), Error> {
        let stream = &mut self.streams[index];
        match stream.advance(&mut self.file, &mut self.chunks_bytes) {
            Ok(Some(at)) => {
                self.queue.push(Reverse((self.ns(self.streams[index].cpu, at), index)));
                Ok(())
            }
            Ok(None) => Ok(()),
            Err(error) => {
                // The next page, if there is one, is read by the next call.
                self.last = Some(index);
                Err(error)
            }
        }
    }

    /// Begins a stream: reads how many chunks it has.
    fn begin(&mut self, index: usize) -> Result<(), Error> {
        let stream = &mut self.streams[index];
        if stream.chunks.is_some() {
            stream.chunks = Some(0);
            self.file.input.seek(stream.next, "the chunks of a CPU")?;
            stream.chunks = Some(self.file.input.u32("the chunks of a CPU")?);
            stream.next += 4;
        }
        self.advance(index)
    }

    /// Reads the next event, or `None` at the end.
    ///
    /// After an error the events of the other CPUs still follow.
    #[allow(clippy::should_implement_trait, reason = "what it returns borrows from it")]
    pub fn next(&mut self) -> Option<Result<Record<'_>, Error>> {
        loop {
            let done = match self.last.take() {
                Some(last) => self.advance(last),
                None if self.begun < self.streams.len() => {
                    self.begun += 1;
                    self.begin(self.begun - 1)
                }
                None => break,
            };
            if let Err(error) = done {
                return Some(Err(error));
            }
        }
        let Reverse((at, index)) = self.queue.pop()?;
        self.last = Some(index);
        let stream = &mut self.streams[index];
        let missed = stream.missed.take();
        Some(Ok(Record {
            at,
            cpu: stream.cpu,
            buffer: stream.buffer,
            missed,
            data: &stream.data[stream.event.clone()],
            offset: stream.offset(),
        }))
    }
}
