//! Text: what `perf script`, `trace-cmd report` and tracefs' file `trace` print.
//!
//! ```text
//! perf script:       CPU 0/KVM  1201/1234 [003] 12345.678901234:   kvm:kvm_entry: vcpu 0, rip 0x...
//! trace-cmd report:  CPU 0/KVM-1234       [003] 12345.678901: kvm_entry:         vcpu 0, rip 0x...
//! tracefs:           CPU 0/KVM-1234       [003] d..2. 12345.678901: kvm_entry: vcpu 0, rip 0x...
//! perf-prof:         CPU 0/KVM   1234 d..2 [003] 12345.678901: kvm:kvm_entry: vcpu 0, rip 0x...
//! ```
//!
//! A name may have spaces and brackets: a line is recognized by its CPU in brackets that a time follows. Lines without
//! one are not events, for instance those of a call chain. Nor are comments, whose first character is `#`.
//!
//! Text has less than the file that it was printed from. `perf script` leaves out events that came while the CPU was
//! in the context of a guest (`PERF_RECORD_MISC_GUEST_KERNEL`), wakeups by interrupts among them. `trace-cmd report`
//! leaves out the vCPU of `kvm_exit`.
//!
//! `what.rs` reads what an event prints.

mod what;

use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead, BufReader, Read};

use crate::event::{Event, Name, Tid, What};

use super::foreign;
use super::recording::{Fault, Format, Header, Input, ReadError, Recording, Source};

/// A line is not longer, in bytes.
const LINE_BYTES_MAX: u64 = 1 << 16;

/// The first event is within this many bytes of the begin.
const PREFACE_BYTES_MAX: u64 = 1 << 20;

/// So many names are remembered. Then the memory begins again, and names are said once more.
const NAMES_MAX: usize = 1 << 16;

/// One line with an event.
struct Line<'a> {
    name: &'a str,
    process: Option<Tid>,
    thread: Tid,
    cpu: u32,
    at: u64,
    /// Name of the event and what it prints.
    rest: &'a str,
}

/// Reads a time in seconds with a fraction and a colon, in ns.
fn time(token: &str) -> Option<u64> {
    let (seconds, fraction) = token.strip_suffix(':')?.split_once('.')?;
    if seconds.is_empty() || fraction.is_empty() || fraction.len() > 9 {
        return None;
    }
    if !seconds
        .bytes()
        .chain(fraction.bytes())
        .all(|byte| byte.is_ascii_digit())
    {
        return None;
    }
    let scale = 10u64.pow(9 - fraction.len() as u32);
    let fraction: u64 = fraction.parse().ok()?;
    seconds
        .parse::<u64>()
        .ok()?
        .checked_mul(1_000_000_000)?
        .checked_add(fraction * scale)
}

/// Takes the first word.
fn word(text: &str) -> (&str, &str) {
    let text = text.trim_start();
    text.split_at(text.find(char::is_whitespace).unwrap_or(text.len()))
}

/// Whether a word has flags as tracefs prints them: `d..2`, `.N..`.
fn are_flags(word: &str) -> bool {
    let known = |byte: u8| byte.is_ascii_digit() || b".#bBdDhHlLnNpsXzZ".contains(&byte);
    (4..=7).contains(&word.len()) && word.bytes().all(known) && !word.bytes().all(|byte| byte.is_ascii_digit())
}

/// Reads what is before the CPU: `NAME-TID`, `NAME TID`, `NAME TID FLAGS`, `NAME PID/TID`, perhaps with a process in
/// parentheses.
fn thread(text: &str) -> Option<(&str, Option<Tid>, Tid)> {
    let mut text = text.trim();
    if let Some((before, flags)) = text.rsplit_once(char::is_whitespace)
        && are_flags(flags)
        && before.ends_with(|last: char| last.is_ascii_digit())
    {
        text = before;
    }
    let mut process = None;
    if let Some((before, group)) = text.strip_suffix(')').and_then(|text| text.rsplit_once('(')) {
        text = before.trim_end();
        process = group.trim().parse().ok();
    }
    // perf has -1 where it does not know the thread.
    let number = |text: &str| match text {
        "-1" => Some(0),
        text => text.parse::<Tid>().ok(),
    };
    let (name, last) = match text.rsplit_once(char::is_whitespace) {
        Some((name, last)) => (name.trim_end(), last),
        None => ("", text),
    };
    if let Some((process, thread)) = last.split_once('/')
        && let (Some(process), Some(thread)) = (number(process), number(thread))
    {
        return Some((name, Some(process), thread));
    }
    if let Some(thread) = number(last) {
        return Some((name, process, thread));
    }
    let (name, thread) = text.rsplit_once('-')?;
    Some((name, process, thread.parse().ok()?))
}

/// Finds the CPU in brackets that a time follows, at most one word of flags between them.
fn line(text: &str) -> Option<Line<'_>> {
    // A name is right-aligned, and shorter than its column.
    if text.starts_with('#') {
        return None;
    }
    for (open, _) in text.match_indices('[') {
        let (cpu, after) = text[open + 1..].split_once(']')?;
        let Ok(cpu) = cpu.trim().parse() else { continue };
        let (first, mut rest) = word(after);
        let at = match time(first) {
            Some(at) => at,
            None => {
                let (second, after) = word(rest);
                let Some(at) = time(second) else { continue };
                rest = after;
                at
            }
        };
        let (name, process, thread) = thread(&text[..open])?;
        return Some(Line {
            name,
            process,
            thread,
            cpu,
            at,
            rest: rest.trim(),
        });
    }
    None
}

/// Whether a line has an event that is read, though not the words that must be before it.
fn is_bare(text: &str) -> bool {
    const EVENTS: [&str; 6] = [
        "sched_switch: ",
        "sched_waking: ",
        "sched_wakeup: ",
        "kvm_entry: ",
        "kvm_exit: ",
        "kvm_msr: ",
    ];
    !text.starts_with('#') && EVENTS.iter().any(|event| text.contains(event))
}

/// Whether a whole number follows the CPU: trace-cmd prints the times of most clocks so.
fn is_without_unit(text: &str) -> bool {
    text.match_indices('[').any(|(open, _)| {
        let Some((cpu, after)) = text[open + 1..].split_once(']') else {
            return false;
        };
        let time = word(after).0.strip_suffix(':').unwrap_or_default();
        let are_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        are_digits(cpu.trim()) && are_digits(time)
    })
}

/// Reads a line that says that events are lost: `CPU:3 [LOST 12 EVENTS]`, `CPU:3 [12 EVENTS DROPPED]`.
fn lost(text: &str) -> Option<(u32, Option<u64>)> {
    let (cpu, what) = text.trim().strip_prefix("CPU:")?.split_once(" [")?;
    let what = what.strip_suffix(']')?;
    if !what.contains("EVENTS") {
        return None;
    }
    let events = what.split_whitespace().find_map(|word| word.parse().ok());
    Some((cpu.trim().parse().ok()?, events))
}

/// A line of the preface of `perf script --header` or of `trace-cmd report`. Returns whether it was one.
fn preface(text: &str, header: &mut Header) -> bool {
    let text = text.trim();
    if let Some(cpus) = text.strip_prefix("cpus=") {
        header.cpus = cpus.parse().ok();
        return header.cpus.is_some();
    }
    let Some(comment) = text.strip_prefix('#') else {
        return false;
    };
    if let Some((key, value)) = comment.split_once(':') {
        let value = value.trim();
        match key.trim() {
            "os release" => header.kernel = Some(value.to_owned()),
            "arch" => header.machine = Some(value.to_owned()),
            "nrcpus online" => header.cpus = value.parse().ok(),
            _ => {}
        }
    }
    true
}

struct Text<R> {
    input: R,
    /// Begin of the next line.
    offset: u64,
    /// The line that was read last, with its end.
    line: Vec<u8>,
    /// The line is the first event, which was read with the preface.
    first: bool,
    ready: VecDeque<(Event, u64)>,
    /// Lost events whose time the next line says.
    lost: Vec<(u32, Option<u64>)>,
    /// What `What::Named` has said last.
    names: BTreeMap<Tid, (Tid, Name)>,
    ended: bool,
}

pub(super) fn read(input: BufReader<impl Input + 'static>) -> Result<Recording, ReadError> {
    let mut text = Text {
        input,
        offset: 0,
        line: Vec::new(),
        first: false,
        ready: VecDeque::new(),
        lost: Vec::new(),
        names: BTreeMap::new(),
        ended: false,
    };
    let mut header = Header::new(Format::Text);
    let (mut with_preface, mut bare) = (false, None);
    while text.offset < PREFACE_BYTES_MAX {
        if !text.fill()? {
            break;
        }
        let found = String::from_utf8_lossy(&text.line);
        if let Some(lost) = lost(&found) {
            text.lost.push(lost);
        } else if line(&found).is_some() {
            text.first = true;
            break;
        } else if is_without_unit(&found) {
            let what = "text with times that have no unit (of the clocks boot, counter, x86-tsc: read the file that it was \
                        printed from)";
            return Err(ReadError::new(text.offset, Fault::Unsupported(what.into())));
        } else if is_bare(&found) {
            bare.get_or_insert(text.offset);
        } else {
            with_preface |= preface(&found, &mut header);
        }
    }
    if let Some(offset) = bare.filter(|_| !text.first) {
        let what = "text whose events have not both a CPU in brackets and a time in seconds, as those of `perf script \
                    -F comm,pid,tid,cpu,time,event,trace` and of `trace-cmd report` have";
        return Err(ReadError::new(offset, Fault::Unsupported(what.into())));
    }
    if !text.first && !with_preface {
        return Err(ReadError::new(0, Fault::Foreign("text without an event")));
    }
    Ok(Recording::new(header, text))
}

impl<R: BufRead> Text<R> {
    /// Reads the next line. `false`: the file has ended.
    fn fill(&mut self) -> Result<bool, ReadError> {
        self.offset += self.line.len() as u64;
        self.line.clear();
        let read = (&mut self.input).take(LINE_BYTES_MAX).read_until(b'\n', &mut self.line);
        if let Err(error) = read {
            return Err(ReadError::new(self.offset, Fault::Io(error)));
        }
        if self.line.len() as u64 == LINE_BYTES_MAX && self.line.last() != Some(&b'\n') {
            let what = format!("a line longer than {LINE_BYTES_MAX} bytes");
            return Err(ReadError::new(self.offset, Fault::Damaged(what)));
        }
        Ok(!self.line.is_empty())
    }

    /// Reads the line that was filled into `ready`.
    fn understand(&mut self) -> Result<(), ReadError> {
        let text = String::from_utf8_lossy(&self.line);
        if let Some(lost) = lost(&text) {
            if self.lost.len() < 1 << 16 {
                self.lost.push(lost);
            }
            return Ok(());
        }
        let Some(line) = line(&text) else {
            return Ok(());
        };
        let mut event = Event {
            at: line.at,
            cpu: line.cpu,
            thread: line.thread,
            what: What::Lost { events: None },
        };
        for (cpu, events) in self.lost.drain(..) {
            let what = What::Lost { events };
            self.ready.push_back((Event { cpu, what, ..event }, self.offset));
        }
        match what::read(line.rest) {
            Ok(None) => {}
            Ok(Some(what)) => {
                event.what = what;
                // perf does not know a thread that ends.
                if let What::Switch { prev, .. } = what {
                    event.thread = prev;
                }
                self.ready.push_back((event, self.offset));
            }
            Err(_) if self.line.last() != Some(&b'\n') => {
                return Err(ReadError::new(self.offset, Fault::Truncated("a line")));
            }
            Err(missing) => {
                let name = word(line.rest).0;
                let plain = name.trim_end_matches(':');
                let kvm = plain.ends_with("kvm_entry") || plain.ends_with("kvm_exit");
                let fault = match foreign::of_text(line.rest).filter(|_| kvm) {
                    Some(architecture) => Fault::Unsupported(foreign::said(plain, architecture)),
                    None => Fault::Damaged(format!("`{name}` without {missing}")),
                };
                return Err(ReadError::new(self.offset, fault));
            }
        }
        // The first column names the thread that ran, and perf's its process.
        if let (Some(process), What::Switch { prev, .. }) = (line.process, event.what)
            && prev == line.thread
            && prev != 0
        {
            let name = Name::from(line.name);
            if self.names.len() >= NAMES_MAX {
                self.names.clear();
            }
            if self.names.insert(prev, (process, name)) != Some((process, name)) {
                let process = Some(process);
                event.what = What::Named {
                    named: prev,
                    process,
                    name,
                };
                self.ready.push_front((event, self.offset));
            }
        }
        Ok(())
    }
}

impl<R: BufRead + Send> Source for Text<R> {
    fn next(&mut self) -> Option<Result<(Event, u64), ReadError>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(Ok(event));
            }
            if self.ended {
                return None;
            }
            if !std::mem::take(&mut self.first) {
                match self.fill() {
                    Ok(true) => {}
                    Ok(false) => {
                        self.ended = true;
                        continue;
                    }
                    Err(error) => {
                        self.ended = true;
                        return Some(Err(error));
                    }
                }
            }
            if let Err(error) = self.understand() {
                return Some(Err(error));
            }
        }
    }
}
