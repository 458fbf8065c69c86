//! Where the time of each VM went.
//!
//! `books.rs` adds up the steps of `timeline/`, `tally.rs` has the sums, `figures.rs` makes figures of them, each
//! known, inferred or unknown (`figure.rs`). `document.rs` is the account. `sentence.rs` says the most important
//! thing, and `metrics.rs` writes all figures for Prometheus. `pace.rs` is what two accounts are compared by.

mod books;
mod document;
mod figure;
mod figures;
mod metrics;
mod pace;
mod sentence;
mod tally;

use std::collections::BTreeMap;

use crate::event::{Event, Tid};
use crate::hosts::names::Role;
use crate::hosts::{Beside, VmFiles};
use crate::timeline::{Faults, Follower, How, Occupant, Seen, Sink, State, VcpuIndex, reasons};

pub use books::{Book, Books, CpuBook};
pub use document::{Account, CpuAccount, Named, OtherThread, SCHEMA, Sent, VcpuAccount, VmAccount, Worst, release};
pub use figure::{Basis, Figure};
pub use figures::percent;
pub use metrics::metrics;
pub use pace::{Lengths, Pace};
pub use tally::{Capped, HostThread, Tally};

use figures::{Context, figures};

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
        others: Vec::new(),
        idle_exit_ns: idle_exit(books, beside),
        cpus: books.cpus.iter().map(|(cpu, book)| of_cpu(*cpu, book)).collect(),
        places: beside.places.clone(),
        worst,
        names_without_entry: (books.vcpus.len() - counted) as u64,
        file_faults: beside.faults.clone(),
    };
    account.sentence = sentence::sentence(&account);
    account
}

/// Fewest wakeups of vCPUs on idle pCPUs that say something of the way out of idle.
const IDLE_EXITS_MIN: u64 = 20;

/// Returns the mean time from wakeups on idle pCPUs until these are used, in ns. Where a quota may throttle, long waits
/// are no ways out of idle.
fn idle_exit(books: &Books, beside: &Beside) -> Option<u64> {
    let sums = books.vcpus.iter().flat_map(|book| {
        let files = book.process.and_then(|process| beside.vms.get(&process));
        let throttles = files.is_none_or(|files| files.quota != Some(None));
        let [short, long] = book.tally.idle_exits;
        [short].into_iter().chain((!throttles).then_some(long))
    });
    let (count, ns) = sums.fold((0, 0_u64), |sum, (count, ns)| (sum.0 + count, sum.1.saturating_add(ns)));
    (count >= IDLE_EXITS_MIN).then(|| ns / count)
}

fn of_cpu(cpu: u32, book: &CpuBook) -> CpuAccount {
    // A pCPU's spans follow each other: their sum is a time.
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
        tally::add(sum, count, ns);
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

    /// Returns whether `vcpu` is one: it had an event, and where entries are recorded, it has entered a guest.
    fn counts(&self, vcpu: VcpuIndex) -> bool {
        let book = self.book(vcpu);
        let entries_are_recorded = self.seen.entries > 0 && self.seen.exits > 0;
        let has_entered = book.entered || book.tally.of(State::Guest) > 0;
        book.tally.recorded() > 0 && (has_entered || !entries_are_recorded)
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
            behind[at] = u64::saturating_add(behind[at], ns);
        }
        behind
    }

    fn figures(&self, process: Option<Tid>, tally: &Tally, vcpus: &[VcpuIndex]) -> Vec<Figure> {
        let files: Option<&VmFiles> = process.and_then(|process| self.beside.vms.get(&process));
        let mut delays = vcpus
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
            run_delay: delays.try_fold(0, |sum: u64, delay| Some(sum.saturating_add(delay?))),
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
            features: process
                .and_then(|process| self.beside.vms.get(&process))
                .map_or_else(Vec::new, |files| files.features.clone()),
            groups: process.and_then(|process| self.beside.groups.get(&process).cloned()),
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
            pace: book.tally.pace.clone(),
        }
    }
}
