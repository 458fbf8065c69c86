//! Files of an operator, sorted out: a recording, and what explains it.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::account::{self, Account, Books, OtherThread};
use crate::event::{Event, Tid, What};
use crate::hosts::Beside;
use crate::picture::{Picture, Window};
use crate::read::{self, Header, ReadError};
use crate::repeat::{HOST, Repeated, Repeats};
use crate::timeline::{Follower, Sink};

/// Names of a recording in a folder, the first that is there.
const NAMES: [&str; 4] = ["trace.dat", "perf.data", "trace.txt", "perf.txt"];
/// Most errors of one recording that are kept. Further ones are counted.
const ERRORS_MAX: usize = 20;

/// Why files cannot be imported.
#[derive(Debug)]
pub enum ImportError {
    /// None of them is a recording.
    NoRecording,
    /// Two of them are.
    TwoRecordings(PathBuf, PathBuf),
    /// A recording cannot be read at all.
    Recording(PathBuf, ReadError),
    /// The recording has no event.
    NoEvent(PathBuf),
    /// The recording has no vCPU.
    NoVcpu(PathBuf),
    /// It is not known which vCPUs are of one VM.
    UnknownVms(PathBuf),
    /// A file that should explain the recording cannot be understood, for this reason.
    Beside(PathBuf, String),
}

impl fmt::Display for ImportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ImportError::NoRecording => write!(
                f,
                "found no recording, expected a file of `perf record`, `trace-cmd record` or `perf script`, or a folder of \
                 `holdfast record` with {}",
                NAMES.join(" or ")
            ),
            ImportError::TwoRecordings(one, other) => write!(
                f,
                "found two recordings, {} and {}, expected one",
                one.display(),
                other.display()
            ),
            ImportError::Beside(path, why) => write!(f, "{}: {why}", path.display()),
            ImportError::Recording(path, error) => write!(f, "{}: {error}", path.display()),
            ImportError::NoVcpu(path) => write!(f, "{}: no vCPU in it", path.display()),
            ImportError::UnknownVms(path) => write!(
                f,
                "{}: it is not known which vCPUs are of one VM; give a folder with a copy of /proc, or a recording of perf",
                path.display()
            ),
            ImportError::NoEvent(path) => write!(
                f,
                "{}: no event of the scheduler or of KVM in it; record sched_switch, sched_waking and kvm",
                path.display()
            ),
        }
    }
}

impl std::error::Error for ImportError {}

/// What a recording says of itself, and how well it could be read.
#[derive(Clone, Debug, Serialize)]
pub struct Source {
    /// Its file.
    pub file: String,
    /// Its format.
    pub format: String,
    /// The clock of its times, if known.
    pub clock: Option<String>,
    /// The architecture, if known.
    pub machine: Option<String>,
    /// The number of CPUs, if known.
    pub cpus: Option<u32>,
    /// Errors while reading. What could be read is in the account.
    pub errors: Vec<String>,
    /// How many errors there were.
    pub error_count: u64,
}

/// The files of a recording.
#[derive(Debug)]
pub struct Import {
    recording: PathBuf,
    beside: Beside,
}

/// A recording that was read to its end.
#[derive(Debug)]
pub struct Imported {
    /// What it says of itself.
    pub source: Source,
    /// Where the time went.
    pub account: Account,
    /// Threads other than vCPUs that had the most time on pCPUs.
    pub busiest: Vec<Tid>,
}

/// Returns whether the file at `path` is one that explains a recording: XML of libvirt, JSON of lscpu.
fn explains(path: &Path) -> bool {
    let mut begin = Vec::new();
    let read = File::open(path).map(|file| file.take(64).read_to_end(&mut begin));
    let begin = begin.trim_ascii_start();
    // Lines of a trace can begin with the name of a thread.
    let names_thread = begin.starts_with(b"<...>") || begin.starts_with(b"<idle>");
    read.is_ok() && matches!(begin.first(), Some(b'<' | b'{')) && !names_thread
}

impl Import {
    /// Sorts out `paths`: one recording or folder with a recording, and files and folders that explain it.
    ///
    /// # Errors
    /// [`ImportError::NoRecording`], [`ImportError::TwoRecordings`], [`ImportError::Beside`],
    /// [`ImportError::Recording`].
    pub fn new(paths: &[PathBuf]) -> Result<Import, ImportError> {
        let mut beside = Beside::default();
        let mut recording: Option<PathBuf> = None;
        for path in paths {
            let mut found = None;
            if path.is_dir() {
                beside.add_folder(path);
                found = NAMES.iter().map(|name| path.join(name)).find(|path| path.is_file());
            } else if explains(path) {
                beside
                    .add_file(path)
                    .map_err(|why| ImportError::Beside(path.clone(), why))?;
            } else {
                found = Some(path.clone());
            }
            match (recording.take(), found) {
                (Some(one), Some(other)) => return Err(ImportError::TwoRecordings(one, other)),
                (one, other) => recording = one.or(other),
            }
        }
        beside.complete();
        let recording = recording.ok_or(ImportError::NoRecording)?;
        let opened = read::open(&recording).map_err(|error| ImportError::Recording(recording.clone(), error))?;
        for guest in &opened.header().guests {
            beside.add_guest(&guest.name, guest.vcpus.iter().map(|(_, thread)| *thread));
        }
        Ok(Import { recording, beside })
    }

    /// Returns the path of the recording.
    pub fn recording(&self) -> &Path {
        &self.recording
    }

    /// Follows the whole recording into `sink`.
    fn follow(&self, sink: &mut impl Sink, stop: &mut impl FnMut(&Event) -> bool) -> Result<Read, ImportError> {
        let failed = |error| ImportError::Recording(self.recording.clone(), error);
        let mut recording = read::open(&self.recording).map_err(failed)?;
        let mut follower = account::follower(&self.beside);
        let (mut errors, mut error_count) = (Vec::new(), 0);
        let mut whole = true;
        for event in &mut recording {
            match event {
                Ok(event) if stop(&event) => {
                    whole = false;
                    break;
                }
                Ok(event) => follower.follow(&event, sink),
                Err(error) => {
                    error_count += 1;
                    if errors.len() < ERRORS_MAX {
                        errors.push(error.to_string());
                    }
                }
            }
        }
        if follower.seen().events == 0 && whole {
            return Err(ImportError::NoEvent(self.recording.clone()));
        }
        follower.end(None, sink);
        Ok(Read {
            follower,
            header: recording.header().clone(),
            errors,
            error_count,
        })
    }

    /// Reads the recording, and adds up where the time went. `stop` is asked before each event whether to end there.
    ///
    /// # Errors
    /// [`ImportError::Recording`], [`ImportError::NoEvent`].
    pub fn account(&self, mut stop: impl FnMut(&Event) -> bool) -> Result<Imported, ImportError> {
        let mut books = Books::default();
        let mut times = Times::default();
        let read = self.follow(&mut books, &mut |event| {
            let stops = stop(event);
            if !stops {
                times.take(event);
            }
            stops
        })?;
        let mut account = account::of(&books, &read.follower, &self.beside);
        account.kernel = account.kernel.or_else(|| read.header.kernel.clone());
        let source = Source {
            file: self.recording.display().to_string(),
            format: read.header.format.to_string(),
            clock: read.header.clock,
            machine: read.header.machine,
            cpus: read.header.cpus,
            errors: read.errors,
            error_count: read.error_count,
        };
        let busiest = times.largest(&account);
        account.others = (busiest.iter())
            .map(|thread| OtherThread {
                thread: *thread,
                process: self.beside.processes.get(thread).copied(),
                allowed: self.beside.allowed.get(thread).cloned(),
            })
            .collect();
        Ok(Imported {
            source,
            account,
            busiest,
        })
    }

    /// Reads the recording again, and returns what is between `from` and `to`, in ns from its begin `begin` on.
    ///
    /// # Errors
    /// As [`Import::account`].
    pub fn picture(&self, begin: u64, from: u64, to: u64) -> Result<Picture, ImportError> {
        let (from, to) = (begin.saturating_add(from), begin.saturating_add(to));
        let mut sink = (Books::default(), Window::new(from, to));
        // A wait or a halt that begins in the window is known when it ends: some time later than the window.
        let until = to.saturating_add(to - from).saturating_add(LATE);
        self.follow(&mut sink, &mut |event| event.at > until)?;
        let (books, window) = sink;
        Ok(window.picture(begin, &books, &self.beside))
    }
}

impl Import {
    /// Reads the recording again, and returns what its vCPUs did, and the threads of the host that had most time.
    ///
    /// # Errors
    /// As [`Import::account`]; [`ImportError::NoVcpu`] if there is none; and [`ImportError::UnknownVms`] if it is not
    /// known which vCPUs are of one VM.
    pub fn repeats(&self, imported: &Imported) -> Result<Repeated, ImportError> {
        let account = &imported.account;
        if account.vms.is_empty() {
            return Err(ImportError::NoVcpu(self.recording.clone()));
        }
        if account.vms.iter().any(|vm| vm.process.is_none()) {
            return Err(ImportError::UnknownVms(self.recording.clone()));
        }
        let guests: Vec<(String, Vec<Tid>)> = (guest_names(account).into_iter().zip(&account.vms))
            .map(|(name, vm)| (name, vm.vcpus.iter().map(|vcpu| vcpu.thread).collect()))
            .collect();
        let mut repeats = Repeats::new(&guests, &imported.busiest).with_exits(account.is_lazy());
        self.each(|event| repeats.take(event))?;
        Ok(repeats.finish())
    }

    /// Gives all events to `take`. Errors are those that [`Import::account`] has named.
    fn each(&self, mut take: impl FnMut(&Event)) -> Result<(), ImportError> {
        let failed = |error| ImportError::Recording(self.recording.clone(), error);
        let recording = read::open(&self.recording).map_err(failed)?;
        recording.flatten().for_each(|event| take(&event));
        Ok(())
    }
}

/// Returns names of the VMs of `account` that experiments take: letters, digits, `-` and `_`, each once.
pub fn guest_names(account: &Account) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for vm in &account.vms {
        let plain = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' };
        let mut name: String = vm.name.chars().map(plain).collect();
        let has_letter = name.chars().any(|c| c.is_ascii_alphabetic());
        if !has_letter || name == HOST || names.contains(&name) {
            name = format!("vm-{name}-{}", names.len());
        }
        names.push(name);
    }
    names
}

/// Threads of the host that are repeated, at most.
const OTHERS_MAX: usize = 64;
/// Share of a pCPU from which on a thread of the host is repeated.
const OTHERS_SHARE: u64 = 1_000;

/// Time on pCPUs of each thread.
#[derive(Debug, Default)]
struct Times {
    ns: HashMap<Tid, u64>,
    since: HashMap<u32, (Tid, u64)>,
}

impl Times {
    fn take(&mut self, event: &Event) {
        let What::Switch { next, .. } = event.what else { return };
        if let Some((thread, since)) = self.since.insert(event.cpu, (next, event.at)) {
            *self.ns.entry(thread).or_default() += event.at.saturating_sub(since);
        }
    }

    /// Returns the threads other than the vCPUs of `account` with the largest times.
    fn largest(self, account: &Account) -> Vec<Tid> {
        let vcpus = account.vms.iter().flat_map(|vm| &vm.vcpus);
        let vcpus: BTreeSet<Tid> = vcpus.map(|vcpu| vcpu.thread).collect();
        let length_ns = account.length_ns;
        let counts =
            |(tid, ns): &(Tid, u64)| *tid != 0 && !vcpus.contains(tid) && ns.saturating_mul(OTHERS_SHARE) >= length_ns;
        let mut times: Vec<(Tid, u64)> = self.ns.into_iter().filter(counts).collect();
        times.sort_by_key(|(tid, ns)| (std::cmp::Reverse(*ns), *tid));
        times.into_iter().take(OTHERS_MAX).map(|(tid, _)| tid).collect()
    }
}

/// How long after a window its events are read, at least, in ns.
const LATE: u64 = 2_000_000_000;

/// A recording that was read.
struct Read {
    follower: Follower,
    header: Header,
    errors: Vec<String>,
    error_count: u64,
}
