//! A recording that is being read: what it says of itself, its events, and errors with their place.

use std::collections::BTreeSet;
use std::fmt;
use std::io::{self, Read, Seek};

use crate::event::{Event, Tid, What};

/// The format of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// perf.data, a file or a pipe.
    Perf,
    /// trace.dat of trace-cmd.
    TraceCmd,
    /// Text of `perf script`, of `trace-cmd report`, or of tracefs.
    Text,
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Perf => "perf.data",
            Self::TraceCmd => "trace.dat",
            Self::Text => "text of a trace",
        })
    }
}

/// What a recording says of itself. What it does not say is `None` or empty.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Header {
    /// Its format.
    pub format: Format,
    /// The kernel's release, as `uname -r` prints it.
    pub kernel: Option<String>,
    /// The architecture, as `uname -m` prints it.
    pub machine: Option<String>,
    /// The clock of the times, by its name in tracefs or in `clock_gettime`.
    pub clock: Option<String>,
    /// The number of CPUs.
    pub cpus: Option<u32>,
    /// The tracepoints that were recorded, as `sched:sched_switch`. Text does not say it: see [`Recording::seen`].
    pub tracepoints: Option<BTreeSet<String>>,
    /// Guests that were traced with this host (`trace-cmd record -A`).
    pub guests: Vec<GuestThreads>,
    /// Identity of this recording among those that were made together.
    pub id: Option<u64>,
    /// Identity of the recording whose clock the times have: a guest's times are moved to its host's clock.
    pub clock_of: Option<u64>,
}

impl Header {
    pub(super) fn new(format: Format) -> Self {
        Self {
            format,
            kernel: None,
            machine: None,
            clock: None,
            cpus: None,
            tracepoints: None,
            guests: Vec::new(),
            id: None,
            clock_of: None,
        }
    }
}

/// A guest that was traced together with its host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestThreads {
    /// Its name.
    pub name: String,
    /// Identity of its own recording.
    pub id: u64,
    /// Each vCPU by its number, with the thread of the host that runs it.
    pub vcpus: Vec<(u32, Tid)>,
}

/// What was wrong at a place of a recording.
#[derive(Debug)]
#[non_exhaustive]
pub enum Fault {
    /// It could not be read.
    Io(io::Error),
    /// It is no recording. The text says what it is instead.
    Foreign(&'static str),
    /// It is a recording, with something that is not supported. The text says what.
    Unsupported(String),
    /// It ends in the middle of something. The text says of what.
    Truncated(&'static str),
    /// Its contents contradict themselves. The text says how.
    Damaged(String),
    /// The time goes back.
    Backwards {
        /// From this time, in ns.
        from: u64,
        /// To this time, in ns.
        to: u64,
    },
}

/// An error at a place of a recording.
#[derive(Debug)]
pub struct ReadError {
    /// The place, in bytes from the begin of the file.
    pub offset: u64,
    /// What was wrong there.
    pub fault: Fault,
}

impl ReadError {
    pub(super) fn new(offset: u64, fault: Fault) -> Self {
        Self { offset, fault }
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at byte {}: ", self.offset)?;
        match &self.fault {
            Fault::Io(error) => write!(f, "cannot read: {error}"),
            Fault::Foreign(what) => write!(f, "not a recording that can be read: {what}"),
            Fault::Unsupported(what) => write!(f, "{what} cannot be read"),
            Fault::Truncated(what) => write!(f, "the file ends within {what}"),
            Fault::Damaged(what) => write!(f, "damaged: {what}"),
            Fault::Backwards { from, to } => write!(f, "the time goes back by {} ns, from {from} ns", from - to),
        }
    }
}

impl std::error::Error for ReadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.fault {
            Fault::Io(error) => Some(error),
            _ => None,
        }
    }
}

/// Where a recording is read from.
pub trait Input: Read + Seek + Send {}

impl<T: Read + Seek + Send> Input for T {}

/// A reader of one format: yields events and errors, each with its place in the file.
pub(super) trait Source: Send {
    /// Returns the next event, or `None` at the end. After an error it goes on if it can.
    fn next(&mut self) -> Option<Result<(Event, u64), ReadError>>;
}

/// A recording that is being read: an iterator over its events, in the order of their times.
pub struct Recording {
    header: Header,
    source: Box<dyn Source>,
    /// The last event's time.
    now: u64,
    /// The time in the file is behind `now`, since a jump.
    behind: bool,
    /// An event that waits until the error before it is out.
    held: Option<Event>,
    seen: [u64; TRACEPOINTS.len()],
}

impl Recording {
    /// Returns what the recording says of itself.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns the tracepoints that [`What`] has, each with the number of its events so far.
    pub fn seen(&self) -> impl Iterator<Item = (&'static str, u64)> {
        TRACEPOINTS.iter().copied().zip(self.seen)
    }

    pub(super) fn new(header: Header, source: impl Source + 'static) -> Self {
        Self {
            header,
            source: Box::new(source),
            now: 0,
            behind: false,
            held: None,
            seen: [0; TRACEPOINTS.len()],
        }
    }
}

impl Iterator for Recording {
    type Item = Result<Event, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(event) = self.held.take() {
            return Some(Ok(event));
        }
        let (mut event, offset) = match self.source.next()? {
            Ok(next) => next,
            Err(error) => return Some(Err(error)),
        };
        if let Some(index) = tracepoint(&event.what) {
            self.seen[index] += 1;
        }
        if event.at >= self.now {
            self.now = event.at;
            self.behind = false;
            return Some(Ok(event));
        }
        let to = event.at;
        event.at = self.now;
        if self.behind {
            return Some(Ok(event));
        }
        self.behind = true;
        self.held = Some(event);
        let from = self.now;
        Some(Err(ReadError::new(offset, Fault::Backwards { from, to })))
    }
}

impl fmt::Debug for Recording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recording")
            .field("header", &self.header)
            .field("now", &self.now)
            .finish_non_exhaustive()
    }
}

/// The tracepoints whose events are read.
const TRACEPOINTS: [&str; 19] = [
    "sched:sched_switch",
    "sched:sched_waking",
    "sched:sched_wakeup",
    "sched:sched_migrate_task",
    "sched:sched_process_fork",
    "sched:sched_process_exit",
    "kvm:kvm_entry",
    "kvm:kvm_exit",
    "kvm:kvm_vcpu_wakeup",
    "kvm:kvm_hypercall",
    "kvm:kvm_apic_ipi",
    "kvm:kvm_apic_accept_irq",
    "kvm:kvm_inj_virq",
    "kvm:kvm_msr",
    "kvm:kvm_userspace_exit",
    "kvm:kvm_halt_poll_ns",
    "kvm:kvm_ple_window_update",
    "kvm:kvm_apicv_inhibit_changed",
    "sched:sched_wakeup_new",
];

fn tracepoint(what: &What) -> Option<usize> {
    Some(match what {
        What::Switch { .. } => 0,
        What::Waking { queued: false, .. } => 1,
        What::Waking { queued: true, .. } => 2,
        What::Migrate { .. } => 3,
        What::Forked { .. } => 4,
        What::Ended { .. } => 5,
        What::Entry { .. } => 6,
        What::Exit { .. } => 7,
        What::HaltEnd { .. } => 8,
        What::Hypercall { .. } => 9,
        What::Ipi { .. } => 10,
        What::Interrupt { .. } => 11,
        What::Injected { .. } => 12,
        What::Msr { .. } => 13,
        What::UserExit { .. } => 14,
        What::PollTime { .. } => 15,
        What::PauseWindow { .. } => 16,
        What::ApicInhibit { .. } => 17,
        What::Named { .. } | What::Lost { .. } => return None,
    })
}
