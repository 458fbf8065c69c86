//! A window of a recording, to be drawn: who had each pCPU, what each vCPU did.

use std::collections::BTreeMap;

use crate::account::Books;
use crate::hosts::Beside;
use crate::timeline::{How, Occupant, Sink, State, Step, VcpuIndex, reasons};

/// Most spans and moments that are kept.
const RECORDS_MAX: usize = 1_500_000;

/// A stretch of time, in ns from the begin of the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span<T> {
    /// Begin of the stretch.
    pub from: u64,
    /// End, after the begin.
    pub to: u64,
    /// What went on.
    pub what: T,
}

/// A pCPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuPicture {
    /// Its number in Linux.
    pub cpu: u32,
    /// Who had it. Without a name: no thread.
    pub spans: Vec<Span<Option<String>>>,
}

/// A vCPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VcpuPicture {
    /// Its VM.
    pub vm: String,
    /// Its name in its VM.
    pub name: String,
    /// What it did, and on which pCPU.
    pub spans: Vec<Span<(State, Option<u32>)>>,
    /// What happened to it, by time.
    pub moments: Vec<(u64, String)>,
}

/// A window of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    /// Begin of the window, in ns from the begin of the recording.
    pub from: u64,
    /// End of the window.
    pub to: u64,
    /// There was too much in it: the end is missing.
    pub truncated: bool,
    /// The pCPUs.
    pub cpus: Vec<CpuPicture>,
    /// The vCPUs, those of a VM next to each other.
    pub vcpus: Vec<VcpuPicture>,
}

/// Collects what is in a window.
#[derive(Clone, Debug)]
pub struct Window {
    from: u64,
    to: u64,
    count: usize,
    cpus: BTreeMap<u32, Vec<Span<Occupant>>>,
    vcpus: BTreeMap<VcpuIndex, VcpuWindow>,
}

#[derive(Clone, Debug, Default)]
struct VcpuWindow {
    spans: Vec<Span<(State, Option<u32>)>>,
    moments: Vec<(u64, Moment)>,
}

#[derive(Clone, Copy, Debug)]
enum Moment {
    Exit(u32, u32),
    Woken(How, Occupant),
    Kick(u64),
    Ipi(u32, u32),
    Gone,
}

impl Window {
    /// Creates an empty window between two times on the recording's clock, in ns.
    pub fn new(from: u64, to: u64) -> Window {
        Window {
            from,
            to,
            count: 0,
            cpus: BTreeMap::new(),
            vcpus: BTreeMap::new(),
        }
    }

    /// Returns the part of a span that is within the window, if there is one and there is room for it.
    fn within<T>(&mut self, from: u64, to: u64, what: T) -> Option<Span<T>> {
        let (from, to) = (from.max(self.from), to.min(self.to));
        if from >= to || self.count >= RECORDS_MAX {
            return None;
        }
        self.count += 1;
        Some(Span { from, to, what })
    }

    fn moment(&mut self, vcpu: VcpuIndex, at: u64, moment: Moment) {
        if (self.from..self.to).contains(&at) && self.count < RECORDS_MAX {
            self.count += 1;
            self.vcpus.entry(vcpu).or_default().moments.push((at, moment));
        }
    }

    /// Returns the picture, in times from `begin` on, with the names that `books` and files know.
    pub fn picture(self, begin: u64, books: &Books, beside: &Beside) -> Picture {
        let names = Names { books, beside };
        let moved = |span: &Span<Occupant>| Span {
            from: span.from.saturating_sub(begin),
            to: span.to.saturating_sub(begin),
            what: names.occupant(span.what),
        };
        let cpus = self.cpus.iter().map(|(cpu, spans)| CpuPicture {
            cpu: *cpu,
            spans: spans.iter().map(moved).collect(),
        });
        let cpus = cpus.collect();
        let vcpus = self.vcpus.into_iter().map(|(vcpu, window)| {
            let mut moments: Vec<(u64, String)> = window
                .moments
                .iter()
                .map(|(at, moment)| (at.saturating_sub(begin), names.moment(*moment)))
                .collect();
            moments.sort();
            let book = &books.vcpus[vcpu.0 as usize];
            let spans = window.spans.iter().map(|span| Span {
                from: span.from.saturating_sub(begin),
                to: span.to.saturating_sub(begin),
                what: span.what,
            });
            let picture = VcpuPicture {
                vm: names.vm(vcpu),
                name: names.vcpu(vcpu),
                spans: spans.collect(),
                moments,
            };
            ((picture.vm.clone(), book.number, vcpu), picture)
        });
        // By VM, then by number.
        let vcpus: BTreeMap<_, _> = vcpus.collect();
        Picture {
            from: self.from.saturating_sub(begin),
            to: self.to.saturating_sub(begin),
            truncated: self.count >= RECORDS_MAX,
            cpus,
            vcpus: vcpus.into_values().collect(),
        }
    }
}

impl Sink for Window {
    fn step(&mut self, step: &Step<'_>) {
        match *step {
            Step::Was {
                vcpu,
                from,
                to,
                state,
                cpu,
            } => {
                if let Some(span) = self.within(from, to, (state, cpu)) {
                    self.vcpus.entry(vcpu).or_default().spans.push(span);
                }
            }
            Step::Had {
                cpu,
                from,
                to,
                occupant,
            } => {
                if let Some(span) = self.within(from, to, occupant) {
                    self.cpus.entry(cpu).or_default().push(span);
                }
            }
            Step::Waited {
                vcpu,
                from,
                waker: Some(waker),
                ..
            } => self.moment(vcpu, from, Moment::Woken(waker.how, waker.who)),
            Step::Exited {
                vcpu, at, reason, isa, ..
            } => self.moment(vcpu, at, Moment::Exit(reason, isa)),
            Step::Kicked { vcpu, at, target } => self.moment(vcpu, at, Moment::Kick(target)),
            Step::Ipi {
                vcpu,
                at,
                icr_low,
                destination,
            } => self.moment(vcpu, at, Moment::Ipi(icr_low, destination)),
            Step::Gone { vcpu, at } => self.moment(vcpu, at, Moment::Gone),
            _ => {}
        }
    }
}

/// Names for pictures.
struct Names<'n> {
    books: &'n Books,
    beside: &'n Beside,
}

impl Names<'_> {
    fn vm(&self, vcpu: VcpuIndex) -> String {
        self.beside.vm_name(self.books.vcpus[vcpu.0 as usize].process)
    }

    fn vcpu(&self, vcpu: VcpuIndex) -> String {
        let book = &self.books.vcpus[vcpu.0 as usize];
        match book.number {
            Some(number) => format!("vCPU {number} (thread {})", book.thread),
            None => format!("thread {}", book.thread),
        }
    }

    fn occupant(&self, occupant: Occupant) -> Option<String> {
        match occupant {
            Occupant::Idle => None,
            Occupant::Unknown => Some("not known".to_owned()),
            Occupant::Vcpu(vcpu) => {
                let number = self.books.vcpus[vcpu.0 as usize].number;
                let number = number.map_or_else(|| "?".to_owned(), |number| number.to_string());
                Some(format!("{} vCPU {number}", self.vm(vcpu)))
            }
            Occupant::Thread { name, .. } if name.is_empty() => Some("a thread without a name".to_owned()),
            Occupant::Thread { name, .. } => Some(name.as_str().to_owned()),
        }
    }

    fn moment(&self, moment: Moment) -> String {
        let who = |occupant| self.occupant(occupant).unwrap_or_else(|| "an interrupt".to_owned());
        match moment {
            Moment::Exit(reason, isa) => format!("exit: {}", reasons::name(reason, isa)),
            Moment::Woken(How::Interrupt, _) => "woken by an interrupt".to_owned(),
            Moment::Woken(How::Kick, by) => format!("kicked by {}", who(by)),
            Moment::Woken(How::Ipi, by) => format!("woken by an IPI of {}", who(by)),
            Moment::Woken(How::Thread, by) => format!("woken by {}", who(by)),
            Moment::Kick(target) => format!("kicks APIC {target}"),
            Moment::Ipi(icr_low, destination) => format!("sends vector {:#x} to {destination:#x}", icr_low & 0xff),
            Moment::Gone => "thread ends".to_owned(),
        }
    }
}
