//! Where the time of each VM went.
//!
//! `books.rs` adds up the steps of `timeline/`, `tally.rs` has the sums, `figures.rs` makes figures of them, each known,
//! inferred or unknown (`figure.rs`). `sentence.rs` says the most important one, `metrics.rs` writes all for Prometheus.

mod books;
mod figure;
mod figures;
mod metrics;
mod sentence;
mod tally;

use std::collections::BTreeMap;

use serde::Serialize;

use crate::event::{Event, Tid};
use crate::hosts::names::Role;
use crate::hosts::{Beside, Place, VmFiles};
use crate::timeline::{Faults, Follower, How, Occupant, Seen, Sink, State, VcpuIndex, reasons};

pub use books::{Book, Books, CpuBook};
pub use figure::{Basis, Figure};
pub use figures::percent;
pub use metrics::metrics;
pub use tally::{Capped, HostThread, Tally};

use figures::{Context, figures};

/// Schema of an account.
pub const SCHEMA: &str = "holdfast.account/1";

/// A time by a name.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Named {
    /// The name.
    pub name: String,
    /// How often.
    pub count: u64,
    /// The time, in ns.
    pub ns: u64,
}

/// What one vCPU sent to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Sent {
    /// Number of the sender in its VM.
    pub from: Option<u32>,
    /// Destination, as the guest wrote it: an APIC ID, or a set of them.
    pub to: u32,
    /// How often.
    pub count: u64,
}

/// The account of one vCPU.
#[derive(Clone, Debug, Serialize)]
pub struct VcpuAccount {
    /// Its number in its VM, if known.
    pub number: Option<u32>,
    /// Its thread.
    pub thread: Tid,
    /// The name of its thread.
    pub name: String,
    /// The time at which it was found, in ns from the begin of the recording.
    pub from_ns: u64,
    /// The time at which its thread ended, in ns from the begin of the recording; null if it did not.
    pub gone_ns: Option<u64>,
    /// pCPUs that its thread may use, as Linux lists them, if a file says it.
    pub allowed: Option<String>,
    /// Its figures.
    pub figures: Vec<Figure>,
}

/// The account of one VM.
#[derive(Clone, Debug, Serialize)]
pub struct VmAccount {
    /// Its name: that of its domain, or of its process.
    pub name: String,
    /// Its process; null for vCPUs whose process is not known.
    pub process: Option<Tid>,
    /// Its quota in pCPUs, if files say that it has one.
    pub quota: Option<f64>,
    /// Figures of all its vCPUs together. Shares are of their whole time.
    pub figures: Vec<Figure>,
    /// What its vCPUs waited behind, longest first.
    pub behind: Vec<Named>,
    /// Exits by reason, with the time that the host had the pCPU for them, longest first.
    pub exits: Vec<Named>,
    /// What woke its vCPUs, with the time until they ran, most often first.
    pub wakers: Vec<Named>,
    /// IPIs that the host saw.
    pub ipis: Vec<Sent>,
    /// Kick hypercalls.
    pub kicks: Vec<Sent>,
    /// Counters of KVM between the two copies of its files, if there are any.
    pub counters: BTreeMap<String, u64>,
    /// Its vCPUs by number.
    pub vcpus: Vec<VcpuAccount>,
}

/// A pCPU's time, in percent of what is recorded of it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CpuAccount {
    /// Its number in Linux.
    pub cpu: u32,
    /// vCPUs had it.
    pub vcpus_percent: f64,
    /// Other threads had it.
    pub threads_percent: f64,
    /// No thread had it.
    pub idle_percent: f64,
    /// Not known.
    pub unknown_percent: f64,
}

/// The longest wait of all.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Worst {
    /// Name of the VM.
    pub vm: String,
    /// Number of the vCPU.
    pub vcpu: Option<u32>,
    /// Its begin, in ns from the begin of the recording.
    pub from_ns: u64,
    /// Its length in ns.
    pub ns: u64,
}

/// The account of a recording.
#[derive(Clone, Debug, Serialize)]
pub struct Account {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// The most important thing, in one sentence.
    pub sentence: String,
    /// The first time of the recording, on its clock, in ns.
    pub begin_ns: u64,
    /// Its length in ns.
    pub length_ns: u64,
    /// Release of the kernel, if known.
    pub kernel: Option<String>,
    /// Its model of preemption, if known.
    pub preemption: Option<String>,
    /// Longest time for which a halted vCPU polls, in ns, if known.
    pub halt_poll_ns: Option<u64>,
    /// What was wrong with the recording.
    pub faults: Faults,
    /// How many events of each kind there were.
    pub seen: Seen,
    /// The VMs, longest waiting first.
    pub vms: Vec<VmAccount>,
    /// Threads other than vCPUs by the time that they had pCPUs, longest first.
    pub threads: Vec<Named>,
    /// The pCPUs.
    pub cpus: Vec<CpuAccount>,
    /// Places of the pCPUs, if known.
    pub places: Vec<Place>,
    /// The longest wait of all.
    pub worst: Option<Worst>,
    /// Threads that have the name of a vCPU and never entered a guest, while others did. They are not counted.
    pub names_without_entry: u64,
    /// Files beside the recording that could not be understood.
    pub file_faults: Vec<String>,
}

/// Most rows of a list of names.
const ROWS_MAX: usize = 20;

/// Returns the follower for a recording with these files beside it.
pub fn follower(beside: &Beside) -> Follower {
    Follower::new(beside.processes.clone(), beside.kernel_threads.clone())
}

/// Follows all `events` into `sink`. Returns the follower, at the end.
pub fn follow(events: impl IntoIterator<Item = Event>, beside: &Beside, sink: &mut impl Sink) -> Follower {
    let mut follower = follower(beside);
    for event in events {
        follower.follow(&event, sink);
    }
    follower.end(None, sink);
    follower
}

/// Adds up all `events`.
pub fn account(events: impl IntoIterator<Item = Event>, beside: &Beside) -> Account {
    let mut books = Books::default();
    let follower = follow(events, beside, &mut books);
    of(&books, &follower, beside)
}

/// Returns the account that `books` give at the end of a recording, which `follower` has followed.
pub fn of(books: &Books, follower: &Follower, beside: &Beside) -> Account {
    let maker = Maker::new(books, follower, beside);
    let mut vms: Vec<VmAccount> = maker.groups.keys().map(|process| maker.vm(*process)).collect();
    let waited = |vm: &VmAccount| {
        let of = |name: &str| vm.figures.iter().find(|figure| figure.name == name)?.value;
        of("ready_percent").unwrap_or(0.0) * of("recorded_s").unwrap_or(0.0)
    };
    vms.sort_by(|a, b| waited(b).total_cmp(&waited(a)).then_with(|| a.process.cmp(&b.process)));
    let (begin, end) = follower.time().unwrap_or((0, 0));
    let worst = books
        .worst
        .filter(|(vcpu, ..)| maker.counts(*vcpu))
        .map(|(vcpu, ns, from)| {
            let book = &books.vcpus[vcpu.0 as usize];
            Worst {
                vm: maker.name(book.process),
                vcpu: book.number,
                from_ns: from - begin,
                ns,
            }
        });
    let counted = maker.groups.values().map(Vec::len).sum::<usize>();
    let mut account = Account {
        schema: SCHEMA,
        sentence: String::new(),
        begin_ns: begin,
        length_ns: end - begin,
        kernel: beside.kernel.clone(),
        preemption: beside.preemption.clone(),
        halt_poll_ns: beside.halt_poll_ns,
        faults: follower.faults(),
        seen: follower.seen(),
        vms,
        threads: largest(
            books
                .threads
                .iter()
                .map(|(thread, count, ns)| (maker.thread(&thread), count, ns)),
        ),
        cpus: books.cpus.iter().map(|(cpu, book)| of_cpu(*cpu, book)).collect(),
        places: beside.places.clone(),
        worst,
        names_without_entry: (books.vcpus.len() - counted) as u64,
        file_faults: beside.faults.clone(),
    };
    account.sentence = sentence::sentence(&account);
    account
}

fn of_cpu(cpu: u32, book: &CpuBook) -> CpuAccount {
    let whole = book.vcpus + book.threads + book.idle + book.unknown;
    CpuAccount {
        cpu,
        vcpus_percent: percent(book.vcpus, whole),
        threads_percent: percent(book.threads, whole),
        idle_percent: percent(book.idle, whole),
        unknown_percent: percent(book.unknown, whole),
    }
}

/// Returns the sums by name, longest first, of at most so many rows.
fn largest(rows: impl Iterator<Item = (String, u64, u64)>) -> Vec<Named> {
    let mut sums: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for (name, count, ns) in rows {
        let sum = sums.entry(name).or_default();
        *sum = (sum.0 + count, sum.1 + ns);
    }
    let named = |(name, (count, ns)): (String, (u64, u64))| Named { name, count, ns };
    let mut rows: Vec<Named> = sums.into_iter().map(named).collect();
    rows.sort_by(|a, b| (b.ns, b.count).cmp(&(a.ns, a.count)).then_with(|| a.name.cmp(&b.name)));
    rows.truncate(ROWS_MAX);
    rows
}

/// Makes an account of books.
struct Maker<'m> {
    books: &'m Books,
    beside: &'m Beside,
    faults: Faults,
    seen: Seen,
    /// The vCPUs of each VM, by its process.
    groups: BTreeMap<Option<Tid>, Vec<VcpuIndex>>,
    /// The first time of the recording.
    begin: u64,
}

impl<'m> Maker<'m> {
    fn new(books: &'m Books, follower: &Follower, beside: &'m Beside) -> Maker<'m> {
        let mut maker = Maker {
            books,
            beside,
            faults: follower.faults(),
            seen: follower.seen(),
            groups: BTreeMap::new(),
            begin: follower.time().map_or(0, |(begin, _)| begin),
        };
        for index in (0..books.vcpus.len() as u32).map(VcpuIndex) {
            if maker.counts(index) {
                let process = books.vcpus[index.0 as usize].process;
                maker.groups.entry(process).or_default().push(index);
            }
        }
        maker
    }

    fn book(&self, vcpu: VcpuIndex) -> &'m Book {
        &self.books.vcpus[vcpu.0 as usize]
    }

    /// Returns whether `vcpu` is one: where entries are recorded, it has entered a guest if it ran.
    fn counts(&self, vcpu: VcpuIndex) -> bool {
        let book = self.book(vcpu);
        let entries_are_recorded = self.seen.entries > 0 && self.seen.exits > 0;
        !entries_are_recorded || book.entered || book.tally.of(State::Guest) > 0
    }

    /// Returns the name of the VM with `process`.
    fn name(&self, process: Option<Tid>) -> String {
        self.beside.vm_name(process)
    }

    fn thread(&self, thread: &HostThread) -> String {
        let name = thread.name.as_str();
        match (thread.role, thread.process) {
            (Role::Kernel, _) => format!("kernel: {name}"),
            (Role::Vhost(Some(owner)), _) => format!("vhost of {}", self.name(Some(owner))),
            (_, Some(process)) if self.groups.contains_key(&Some(process)) => {
                format!("{name} of {}", self.name(Some(process)))
            }
            _ if name.is_empty() => "a thread without a name".to_owned(),
            _ => name.to_owned(),
        }
    }

    fn occupant(&self, of: Option<Tid>, occupant: Occupant) -> String {
        match occupant {
            Occupant::Idle => "idle".to_owned(),
            Occupant::Unknown => "unknown".to_owned(),
            Occupant::Vcpu(vcpu) => self.vcpus_of(of, vcpu),
            Occupant::Thread { role, process, name } => self.thread(&HostThread { role, process, name }),
        }
    }

    /// Returns how a vCPU of the VM with process `of` calls `vcpu`.
    fn vcpus_of(&self, of: Option<Tid>, vcpu: VcpuIndex) -> String {
        let process = self.book(vcpu).process;
        match process {
            None => "vCPUs of VMs not known".to_owned(),
            _ if process == of => "its own vCPUs".to_owned(),
            _ => self.name(process),
        }
    }

    /// Returns for how long `tally` of a VM waited behind vCPUs: of the same VM, of others, of unknown ones. In ns.
    fn behind_vcpus(&self, process: Option<Tid>, tally: &Tally) -> [u64; 3] {
        let mut behind = [0, 0, tally.behind_vcpus.rest().1];
        for (vcpu, _, ns) in tally.behind_vcpus.iter() {
            let other = self.book(vcpu).process;
            let at = match (process, other) {
                (Some(own), Some(other)) if own == other => 0,
                (Some(_), Some(_)) => 1,
                _ => 2,
            };
            behind[at] += ns;
        }
        behind
    }

    fn figures(&self, process: Option<Tid>, tally: &Tally, vcpus: &[VcpuIndex]) -> Vec<Figure> {
        let files: Option<&VmFiles> = process.and_then(|process| self.beside.vms.get(&process));
        let delays = vcpus
            .iter()
            .map(|vcpu| self.beside.run_delays.get(&self.book(*vcpu).thread).copied());
        let context = Context {
            faults: &self.faults,
            seen: &self.seen,
            behind_vcpus: self.behind_vcpus(process, tally),
            process,
            // A group is throttled as a whole.
            files: files.filter(|files| vcpus.len() > 1 || files.throttled.is_none()),
            knows_kernel: !self.beside.kernel_threads.is_empty(),
            run_delay: delays.sum(),
            vcpus: vcpus.len() as u64,
        };
        figures(tally, &context)
    }

    fn vm(&self, process: Option<Tid>) -> VmAccount {
        let members = &self.groups[&process];
        let mut sum = Tally::default();
        for vcpu in members {
            sum.merge(&self.book(*vcpu).tally);
        }
        let sent = |of: fn(&Tally) -> &Capped<u32>| -> Vec<Sent> {
            let mut sent: Vec<Sent> = Vec::new();
            for vcpu in members {
                let book = self.book(*vcpu);
                sent.extend(of(&book.tally).iter().map(|(to, count, _)| Sent {
                    from: book.number,
                    to,
                    count,
                }));
            }
            sent.sort_by_key(|sent| (std::cmp::Reverse(sent.count), sent.from, sent.to));
            sent.truncate(ROWS_MAX * ROWS_MAX);
            sent
        };
        let behind_vcpus = sum.behind_vcpus.iter();
        let behind = behind_vcpus.map(|(vcpu, count, ns)| (self.vcpus_of(process, vcpu), count, ns));
        let threads = sum.behind_threads.iter();
        let behind = behind.chain(threads.map(|(thread, count, ns)| (self.thread(&thread), count, ns)));
        let others = [("idle", sum.behind_idle), ("unknown", sum.behind_unknown)];
        let others = others.map(|(name, ns)| (name.to_owned(), 0, ns));
        let mut wakers = largest(sum.wakers.iter().map(|((how, who), count, ns)| {
            let name = match (how, who) {
                (How::Interrupt, _) => "an interrupt".to_owned(),
                (How::Kick, who) => format!("a kick of {}", self.occupant(process, who)),
                (How::Ipi, who) => format!("an IPI of {}", self.occupant(process, who)),
                (How::Thread, who) => self.occupant(process, who),
            };
            (name, count, ns)
        }));
        wakers.sort_by_key(|waker| std::cmp::Reverse(waker.count));
        let mut vcpus: Vec<VcpuAccount> = members.iter().map(|vcpu| self.vcpu(*vcpu)).collect();
        vcpus.sort_by_key(|vcpu| (vcpu.number, vcpu.thread, vcpu.from_ns));
        VmAccount {
            name: self.name(process),
            process,
            quota: process.and_then(|process| self.beside.vms.get(&process)?.quota?),
            figures: self.figures(process, &sum, members),
            behind: largest(behind.chain(others))
                .into_iter()
                .filter(|row| row.ns > 0)
                .collect(),
            exits: largest(
                sum.exits
                    .iter()
                    .map(|((isa, reason), count, ns)| (reasons::name(reason, isa), count, ns)),
            ),
            wakers,
            ipis: sent(|tally| &tally.ipis),
            kicks: sent(|tally| &tally.kicks),
            counters: process
                .and_then(|process| self.beside.counters.get(&process).cloned())
                .unwrap_or_default(),
            vcpus,
        }
    }

    fn vcpu(&self, vcpu: VcpuIndex) -> VcpuAccount {
        let book = self.book(vcpu);
        let begin = self.begin;
        VcpuAccount {
            number: book.number,
            thread: book.thread,
            name: book.name.as_str().to_owned(),
            from_ns: book.since.saturating_sub(begin),
            gone_ns: book.gone.map(|gone| gone.saturating_sub(begin)),
            allowed: self.beside.allowed.get(&book.thread).cloned(),
            figures: self.figures(book.process, &book.tally, &[vcpu]),
        }
    }
}

impl Account {
    /// Returns the figure `name` of `figures`.
    pub fn figure<'f>(figures: &'f [Figure], name: &str) -> Option<&'f Figure> {
        figures.iter().find(|figure| figure.name == name)
    }
}
