//! Long recordings that are made while they are read: order, count, memory, and speed.

use std::fmt::Write as _;
use std::io::{self, Read, Seek, SeekFrom};
use std::time::Instant;

use holdfast_recordings::event::{Event, What};
use holdfast_recordings::read::{ReadError, read};

use crate::{dat, perf};

const PAGE: usize = 4096;

/// A trace.dat of any length: the metadata of a real file, and for each CPU its fullest page again and again, later
/// each time.
struct Endless {
    metadata: Vec<u8>,
    page: Vec<u8>,
    pages_of_cpu: u64,
    cpus: u64,
    /// From the begin of a page to that of the next, in ns.
    span: u64,
    at: u64,
}

impl Endless {
    fn new(cpus: u32, pages_of_cpu: u64, span: u64) -> Self {
        let file = dat::FILES[0].0;
        let find = |text: &[u8]| {
            file.windows(text.len())
                .position(|window| window == text)
                .expect("there")
        };
        let rest = find(b"options  \0");
        let commit = |page: &[u8]| u16::from_le_bytes([page[8], page[9]]);
        let pages = file.chunks_exact(PAGE).skip(rest / PAGE + 1);
        let page = pages.max_by_key(|page| commit(page)).expect("a page").to_vec();
        let mut metadata = [&file[..rest - 4], &cpus.to_le_bytes(), b"flyrecord\0"].concat();
        let begin = (metadata.len() + 16 * cpus as usize + 64).next_multiple_of(PAGE);
        for cpu in 0..u64::from(cpus) {
            let bytes = pages_of_cpu * PAGE as u64;
            metadata.extend((begin as u64 + cpu * bytes).to_le_bytes());
            metadata.extend(bytes.to_le_bytes());
        }
        metadata.resize(begin, 0);
        Self {
            metadata,
            page,
            pages_of_cpu,
            cpus: u64::from(cpus),
            span,
            at: 0,
        }
    }

    /// Returns the number of events of a page.
    fn events_of_page(&self) -> u64 {
        let mut whole = Self::new(1, 1, 0);
        let mut bytes = Vec::new();
        whole.read_to_end(&mut bytes).expect("memory");
        read(io::Cursor::new(bytes))
            .expect("a recording")
            .filter(is_of_kernel)
            .count() as u64
    }
}

fn is_of_kernel(event: &Result<Event, ReadError>) -> bool {
    !matches!(event.as_ref().expect("no damage").what, What::Named { .. })
}

impl Read for Endless {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let metadata = self.metadata.len() as u64;
        let from = if self.at < metadata {
            &self.metadata[self.at as usize..]
        } else {
            let (page, offset) = ((self.at - metadata) / PAGE as u64, (self.at - metadata) as usize % PAGE);
            if page >= self.pages_of_cpu * self.cpus {
                return Ok(0);
            }
            let (cpu, index) = (page / self.pages_of_cpu, page % self.pages_of_cpu);
            let time = 1_000_000_000 + index * self.span + cpu;
            self.page[..8].copy_from_slice(&time.to_le_bytes());
            &self.page[offset..]
        };
        let bytes = from.len().min(to.len());
        to[..bytes].copy_from_slice(&from[..bytes]);
        self.at += bytes as u64;
        Ok(bytes)
    }
}

impl Seek for Endless {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let length = self.metadata.len() as u64 + self.pages_of_cpu * self.cpus * PAGE as u64;
        self.at = match to {
            SeekFrom::Start(at) => at,
            SeekFrom::End(back) => length.saturating_add_signed(back),
            SeekFrom::Current(by) => self.at.saturating_add_signed(by),
        };
        Ok(self.at)
    }
}

/// A pipe of perf of any length: the records of a real one again and again, later each time.
struct Pipe {
    metadata: Vec<u8>,
    /// Samples and ends of rounds, and the places of their times.
    records: Vec<u8>,
    times: Vec<usize>,
    span: u64,
    left: u64,
    next: Vec<u8>,
    at: usize,
}

impl Pipe {
    fn new(count: u64) -> Self {
        let file = perf::FILES[2].0;
        let (mut metadata, mut records, mut times) = (file[..16].to_vec(), Vec::new(), Vec::new());
        let mut at = 16;
        while at < file.len() {
            let size = usize::from(u16::from_le_bytes([file[at + 6], file[at + 7]]));
            let kind = u32::from_le_bytes(*file[at..].first_chunk().expect("a record"));
            let data = match kind {
                66 => u32::from_le_bytes(*file[at + 8..].first_chunk().expect("a size")) as usize,
                _ => 0,
            };
            let record = &file[at..at + size + data];
            match kind {
                // The header, address and thread are before the time.
                9 => {
                    times.push(records.len() + 24);
                    records.extend(record);
                }
                68 => records.extend(record),
                64.. => metadata.extend(record),
                _ => {}
            }
            at += record.len();
        }
        let time = |place: &usize| u64::from_le_bytes(*records[*place..].first_chunk().expect("a time"));
        let (first, last) = (times.iter().map(time).min(), times.iter().map(time).max());
        let span = last.expect("samples") - first.expect("samples") + 1;
        Self {
            metadata: metadata.clone(),
            records,
            times,
            span,
            left: count,
            next: metadata,
            at: 0,
        }
    }
}

impl Read for Pipe {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if self.at == self.next.len() && self.left > 0 {
            if self.next.len() == self.metadata.len() {
                self.next.clone_from(&self.records);
            } else {
                for place in &self.times {
                    let time: &mut [u8; 8] = self.next[*place..].first_chunk_mut().expect("a time");
                    *time = (u64::from_le_bytes(*time) + self.span).to_le_bytes();
                }
            }
            (self.at, self.left) = (0, self.left - 1);
        }
        let bytes = (self.next.len() - self.at).min(to.len());
        to[..bytes].copy_from_slice(&self.next[self.at..self.at + bytes]);
        self.at += bytes;
        Ok(bytes)
    }
}

impl Seek for Pipe {
    fn seek(&mut self, _: SeekFrom) -> io::Result<u64> {
        Err(io::ErrorKind::NotSeekable.into())
    }
}

/// Text of any length: the lines of a real one again and again, later each time.
struct Lines {
    /// What is before the time, the time in ns, and what is behind it.
    lines: Vec<(&'static str, u64, &'static str)>,
    span: u64,
    left: u64,
    next: String,
    at: usize,
}

impl Lines {
    fn new(count: u64) -> Self {
        let lines = dat::FILES[0].1.lines().filter_map(|line| {
            let (before, rest) = line.split_once("]  ")?;
            let (time, after) = rest.trim_start().split_once(':')?;
            let (seconds, ns) = time.split_once('.')?;
            let time = seconds.parse::<u64>().ok()? * 1_000_000_000 + ns.parse::<u64>().ok()?;
            Some((before, time, after))
        });
        let lines: Vec<_> = lines.collect();
        let span = lines[lines.len() - 1].1 - lines[0].1 + 1;
        Self {
            lines,
            span,
            left: count,
            next: String::new(),
            at: 0,
        }
    }
}

impl Read for Lines {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if self.at == self.next.len() && self.left > 0 {
            self.next.clear();
            for (before, time, after) in &mut self.lines {
                let (seconds, ns) = (*time / 1_000_000_000, *time % 1_000_000_000);
                let _ = writeln!(self.next, "{before}]  {seconds}.{ns:09}:{after}");
                *time += self.span;
            }
            (self.at, self.left) = (0, self.left - 1);
        }
        let bytes = (self.next.len() - self.at).min(to.len());
        to[..bytes].copy_from_slice(&self.next.as_bytes()[self.at..self.at + bytes]);
        self.at += bytes;
        Ok(bytes)
    }
}

impl Seek for Lines {
    fn seek(&mut self, _: SeekFrom) -> io::Result<u64> {
        Err(io::ErrorKind::NotSeekable.into())
    }
}

/// Returns the most memory that was in use, in KiB.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux has it");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok())
        .expect("a number of kB")
}

/// Reads all events in order, and returns how many.
fn count(input: impl Read + Seek + Send + 'static) -> u64 {
    let (mut events, mut now, mut cpus) = (0, 0, [0u64; 64]);
    for event in read(input).expect("a recording").filter(is_of_kernel) {
        let event = event.expect("no damage");
        assert!(event.at >= now);
        now = event.at;
        if let Some(of_cpu) = cpus.get_mut(event.cpu as usize) {
            *of_cpu += 1;
        }
        events += 1;
    }
    events
}

fn measured(what: &str, events: u64, begin: Instant) {
    let (seconds, mib) = (begin.elapsed().as_secs_f64(), peak() / 1024);
    println!(
        "{what}: {events} events in {seconds:.2} s, {:.2} million a second, {mib} MiB",
        events as f64 / seconds / 1e6
    );
    assert!(mib < 500, "{mib} MiB");
}

#[test]
fn the_events_of_64_cpus_come_in_order() {
    // Pages of one CPU follow each other without a gap, and those of all CPUs are at the same time.
    let file = Endless::new(64, 50, 50_000_000);
    let expected = file.events_of_page() * 64 * 50;
    assert_eq!(count(file), expected);
}

#[test]
fn the_rounds_of_a_long_pipe_come_in_order() {
    let pipe = Pipe::new(30);
    let of_each = pipe.times.len() as u64;
    assert!(of_each > 100);
    assert_eq!(count(pipe), 30 * of_each);
}

#[test]
fn the_lines_of_a_long_text_come_in_order() {
    let lines = Lines::new(30);
    let of_each = lines.lines.len() as u64;
    assert!(of_each > 100);
    assert_eq!(count(lines), 30 * of_each);
}

/// An hour of 64 CPUs: `HOLDFAST_EVENTS` million events, and less than 500 MiB.
#[test]
#[ignore = "takes a minute: HOLDFAST_EVENTS=40 in a release build"]
fn an_hour_of_64_cpus_is_read_in_bounded_memory() {
    let millions: u64 = std::env::var("HOLDFAST_EVENTS").map_or(10, |text| text.parse().expect("a number"));
    let of_page = Endless::new(1, 1, 0).events_of_page();
    let pages = millions * 1_000_000 / of_page / 64;
    let begin = Instant::now();
    let events = count(Endless::new(64, pages, 3_600_000_000_000 / pages));
    measured("trace.dat", events, begin);
    let of_each = Pipe::new(0).times.len() as u64;
    let begin = Instant::now();
    let events = count(Pipe::new(millions * 1_000_000 / of_each));
    measured("perf.data", events, begin);
    let of_each = Lines::new(0).lines.len() as u64;
    let begin = Instant::now();
    let events = count(Lines::new(millions * 1_000_000 / of_each));
    measured("text", events, begin);
}
