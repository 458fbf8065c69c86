//! Weakens every ordering in the locks' source by one step: loom must find each fault.
//!
//! Faults that no trial finds are listed in [`UNFOUND`] with the reason, and orderings that no trial reaches in
//! [`UNREACHED`]. The lists are complete and exact: a test fails if a fault is neither found nor listed, or if a listed
//! one is found. A file whose orderings no test weakens fails, too.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::{self, *};

use holdfast_locks::*;
use holdfast_model::fault::{Orderings, Probe, Role, Site};
use holdfast_model::{Bounds, Checker, Loom, Setup, scenario};

use crate::faults::{Body, Lock};

/// A search that may find a weakened ordering.
struct Trial {
    bounds: Bounds,
    setup: Setup,
    body: fn(&Setup) -> Body,
}

impl Trial {
    fn new(cpus: u32, preemptions: usize, body: fn(&Setup) -> Body) -> Self {
        Trial {
            bounds: Bounds::preemptions(preemptions),
            setup: Setup::new(cpus),
            body,
        }
    }

    fn run(&self, orderings: Orderings) -> Option<String> {
        let setup = Setup {
            orderings,
            ..self.setup.clone()
        };
        let failure = Loom::explore(&self.bounds, (self.body)(&setup)).err()?;
        Some(failure.message)
    }
}

fn once<L: Lock<Loom>>(preemptions: usize) -> Trial {
    Trial::new(2, preemptions, |setup| {
        Box::new(scenario::contention::<Loom, L>(setup, 1, 0))
    })
}
fn twice<L: Lock<Loom>>(preemptions: usize) -> Trial {
    Trial::new(2, preemptions, |setup| {
        Box::new(scenario::contention::<Loom, L>(setup, 2, 0))
    })
}
fn try_lock<L: Lock<Loom>>() -> Trial {
    Trial::new(2, 3, |setup| Box::new(scenario::try_lock::<Loom, L>(setup)))
}
fn queue<L: Lock<Loom>>(cpus: u32, preemptions: usize) -> Trial {
    Trial::new(cpus, preemptions, |setup| Box::new(scenario::queue::<Loom, L>(setup)))
}

/// A queue on two NUMA nodes.
fn nodes<L: Lock<Loom>>(cpus: u32, preemptions: usize) -> Trial {
    let mut trial = queue::<L>(cpus, preemptions);
    trial.setup.numa_nodes = 2;
    trial
}

/// A queue whose waiters look twice before they halt.
fn patient<L: Lock<Loom>>() -> Trial {
    let mut trial = queue::<L>(3, 2);
    trial.setup.spin_threshold = 1;
    trial.setup.looks_max = 1;
    trial
}

/// A queue in a guest of `possible` CPUs.
fn larger<L: Lock<Loom>>(possible: u32, cpus: u32, preemptions: usize) -> Trial {
    let mut trial = queue::<L>(cpus, preemptions);
    trial.setup.cpus_possible = possible;
    trial
}

/// Contention on a machine whose compare-stores are two steps.
fn compare_stores<L: Lock<Loom>>() -> Trial {
    let mut trial = once::<L>(3);
    trial.setup.compare_stores = true;
    trial
}

fn shared_entry<L: Lock<Loom>>() -> Trial {
    Trial::new(3, 2, |setup| Box::new(scenario::shared_entry::<Loom, L>(setup)))
}

fn spinners<const IMPATIENT: u32>(cpus: u32, rounds: u32, preemptions: usize) -> Trial {
    let mut trial = Trial::new(cpus, preemptions, |setup| {
        Box::new(scenario::optimistic_spinners::<Loom, AllSteps>(
            setup,
            setup.rounds,
            IMPATIENT,
        ))
    });
    trial.setup.rounds = rounds;
    trial
}

fn broadcast(cpus: u32, preemptions: usize) -> Trial {
    Trial::new(cpus, preemptions, |setup| {
        Box::new(scenario::broadcast::<Loom, Tas, AllSteps>(setup))
    })
}

fn requeued_broadcast(cpus: u32, preemptions: usize) -> Trial {
    Trial::new(cpus, preemptions, |setup| {
        Box::new(scenario::requeued_broadcast::<Loom, Tas, AllSteps>(setup, true))
    })
}
fn impatient_waiter() -> Trial {
    Trial::new(3, 2, |setup| {
        Box::new(scenario::impatient_waiter::<Loom, Tas, AllSteps>(setup))
    })
}

/// Two CPUs, of which the first `rounds` write.
fn readers_and_writers(writers: u32) -> Trial {
    let mut trial = Trial::new(2, 3, |setup| {
        Box::new(scenario::readers_and_writers::<Loom, Tas, AllSteps>(
            setup,
            setup.rounds,
            1,
        ))
    });
    trial.setup.rounds = writers;
    trial
}

fn queue_behind(writer: bool) -> Trial {
    let body: fn(&Setup) -> Body = if writer {
        |setup| Box::new(scenario::queue_behind::<Loom, Tas, AllSteps>(setup, true, 1))
    } else {
        |setup| Box::new(scenario::queue_behind::<Loom, Tas, AllSteps>(setup, false, 1))
    };
    Trial::new(3, 2, body)
}

fn downgraded_writer(others_write: bool) -> Trial {
    let body: fn(&Setup) -> Body = if others_write {
        |setup| Box::new(scenario::downgraded_writer::<Loom, Tas, AllSteps>(setup, true))
    } else {
        |setup| Box::new(scenario::downgraded_writer::<Loom, Tas, AllSteps>(setup, false))
    };
    Trial::new(2, 3, body)
}

fn equal_tickets<L: Lock<Loom>>() -> Trial {
    Trial::new(3, 2, |setup| Box::new(scenario::equal_tickets::<Loom, L>(setup)))
}

/// An ordering whose weakening no trial finds.
struct Unfound {
    file: &'static str,
    /// A fragment of the source line.
    line: &'static str,
    role: Role,
    /// The weaker ordering, or `None` if a fence is left out.
    to: Option<Ordering>,
    reason: &'static str,
}

/// Loom orders racing plain stores in the order in which it executes them.
const RACING_STORES: &str =
    "keeps two plain stores to one node in order; loom takes racing stores in the order of execution";
/// This differs from `qspin`, whose head stores to the locked byte.
const HEAD_EXCHANGES: &str =
    "not for exclusion: the head takes the lock by an exchange, which acquires; kept as in Linux";

/// See `unlock_kick`.
const HALF_A_RECORD: &str =
    "only avoids needless kicks: the search continues after a match that is half of two records";

static UNFOUND: &[Unfound] = &[
    Unfound {
        file: "paravirt.rs",
        line: "cpu.store_address(&record.lock, key, Release);",
        role: Role::Store,
        to: Some(Relaxed),
        reason: HALF_A_RECORD,
    },
    Unfound {
        file: "paravirt.rs",
        line: "cpu.fence(Acquire);",
        role: Role::Fence,
        to: None,
        reason: HALF_A_RECORD,
    },
    Unfound {
        file: "paravirt.rs",
        line: "cpu.fence(Release);",
        role: Role::Fence,
        to: None,
        reason: "a CPU clears its record before it releases that lock: no unlocker sees the lock with a later ticket",
    },
    Unfound {
        file: "numerous_qspin.rs",
        line: "cpu.store_low8(word, 0, Release);",
        role: Role::Rmw,
        to: Some(Relaxed),
        reason: "a byte store is a read-modify-write here, which passes on an earlier release by itself",
    },
    Unfound {
        file: "pv_qspin.rs",
        line: "cpu.store(&cpu.nodes().at::<L>(node).state, RUNNING, Release);",
        role: Role::Store,
        to: Some(Relaxed),
        reason: "needs a head that the owner lists while it looks: four preemptions of three CPUs, too many to search",
    },
    Unfound {
        file: "pv_qspin.rs",
        line: "last = cpu.load(&cpu.nodes().at::<L>(last).next, Acquire);",
        role: Role::Load,
        to: Some(Relaxed),
        reason: "an older link costs a needless kick only: the waiter to which it leads spins and halts again",
    },
    Unfound {
        file: "pv_wait.rs",
        line: "let is_listed = ",
        role: Role::Load,
        to: Some(Relaxed),
        reason: "the other side of the unlocker's RUNNING: four preemptions of three CPUs, too many to search",
    },
    Unfound {
        file: "pv_qspin.rs",
        line: "cpu.store(&node.locked, 1, Release);",
        role: Role::Store,
        to: Some(Relaxed),
        reason: HEAD_EXCHANGES,
    },
    Unfound {
        file: "pv_wait.rs",
        line: "if cpu.load(&me.locked, Acquire) != 0",
        role: Role::Load,
        to: Some(Relaxed),
        reason: HEAD_EXCHANGES,
    },
    Unfound {
        file: "pv_wait.rs",
        line: "cpu.wait_until(&me.locked, chunk, Acquire",
        role: Role::Wait,
        to: Some(Relaxed),
        reason: HEAD_EXCHANGES,
    },
    Unfound {
        file: "pv_qspin.rs",
        line: ".compare_exchange(&node.state, HALTED, HASHED, Release, Relaxed)",
        role: Role::Rmw,
        to: Some(Relaxed),
        reason: "the fence before it releases, too; kept for a build whose fence is of another kind",
    },
    Unfound {
        file: "pv_wait.rs",
        line: "cpu.compare_exchange(&me.state, HALTED, RUNNING, Relaxed, Acquire)",
        role: Role::Failure,
        to: Some(Relaxed),
        reason: "needs a handover between the last two looks before a halt: three preemptions of three CPUs, too many",
    },
    Unfound {
        file: "unfair_qspin.rs",
        line: ".wait_until(&me.node.locked, iterations, Acquire",
        role: Role::Wait,
        to: Some(Relaxed),
        reason: HEAD_EXCHANGES,
    },
    Unfound {
        file: "unfair_qspin.rs",
        line: ".compare_exchange(word, me.code | LOCKED, previous_code | LOCKED, AcqRel, Relaxed)",
        role: Role::Rmw,
        to: Some(Acquire),
        reason: RACING_STORES,
    },
    Unfound {
        file: "unfair_qspin.rs",
        line: ".compare_exchange(word, me.code | LOCKED, previous_code | LOCKED, AcqRel, Relaxed)",
        role: Role::Rmw,
        to: Some(Release),
        reason: "what follows depends on its success; Acquire says so to a compiler, and costs nothing",
    },
    Unfound {
        file: "cna_qspin.rs",
        line: "let next_code = cpu.load(&me.node.next, Acquire);",
        role: Role::Load,
        to: Some(Relaxed),
        reason: "an old NUMA node costs time only; where the node is written to, racing stores as below",
    },
    Unfound {
        file: "cna_qspin.rs",
        line: "let after = cpu.load(&next.next, Acquire);",
        role: Role::Load,
        to: Some(Relaxed),
        reason: RACING_STORES,
    },
    Unfound {
        file: "watching_qspin.rs",
        line: "let next = cpu.load(&me.node.next, Acquire);",
        role: Role::Load,
        to: Some(Relaxed),
        reason: "a question that a new waiter overwrites costs a kick only; and racing stores as below",
    },
    Unfound {
        file: "osq.rs",
        line: "let previous = cpu.load(&me.prev, Acquire);",
        role: Role::Load,
        to: Some(Relaxed),
        reason: "the predecessor's node is only exchanged, and an exchange finds the newest value; kept with its pair",
    },
    Unfound {
        file: "osq.rs",
        line: "cpu.store(&table.at(next).prev, previous, Release);",
        role: Role::Store,
        to: Some(Relaxed),
        reason: RACING_STORES,
    },
    Unfound {
        file: "osq.rs",
        line: ".compare_exchange(&self.tail, code, previous, AcqRel, Relaxed)",
        role: Role::Rmw,
        to: Some(Release),
        reason: RACING_STORES,
    },
];

/// Orderings that no trial comes to: file, a part of the line, reason.
static UNREACHED: &[(&str, &str, &str)] = &[
    (
        "layout.rs",
        "subword::swap(cpu, word, Self::TAIL_MASK, code, AcqRel)",
        "`NumerousQspin` joins its queue by an exchange of the whole word",
    ),
    (
        "unfair_qspin.rs",
        "cpu.store(&previous.next, next, Release);",
        "a waiter leaves from the middle: two preemptions of four CPUs, which is minutes of search",
    ),
    (
        "cna_qspin.rs",
        ".compare_exchange(word, seen, last_code | LOCKED, Release, Relaxed)",
        RACING_STORES,
    ),
];

/// Returns the path of a file of the locks' source.
fn path(file: &str) -> PathBuf {
    let file = file.rsplit('/').next().expect("a path has a last part");
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../locks/src").join(file)
}

/// Returns the lines of a file without comments and tests.
fn code(file: &str) -> Vec<String> {
    let text = std::fs::read_to_string(path(file)).expect("the source of the locks is there");
    let code = text.split("#[cfg(test)]").next().expect("a part before the tests");
    let without_comment = |line: &str| line.split("//").next().unwrap_or("").to_owned();
    code.lines().map(without_comment).collect()
}

fn has_ordering(line: &str) -> bool {
    let words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
    !line.trim_start().starts_with("use ")
        && words
            .into_iter()
            .any(|word| matches!(word, "Acquire" | "Release" | "AcqRel"))
}

/// Weakens every ordering of `files` that `trials` reach.
fn check(files: &[&str], trials: &[Trial]) {
    let probe = Probe::default();
    for (number, trial) in trials.iter().enumerate() {
        let failure = trial.run(Orderings::Probed(probe.clone()));
        assert_eq!(failure, None, "{files:?}, trial {number} fails without a fault");
    }
    let owned = |file: &str| files.iter().any(|owned| file.ends_with(&format!("locks/src/{owned}")));
    let sites: Vec<Site> = probe.sites().into_iter().filter(|site| owned(site.file)).collect();
    let mut mistakes = String::new();
    for file in files {
        write_unreached(&mut mistakes, file, &sites);
    }
    for fault in sites.iter().flat_map(|site| site.weaker()) {
        let line = &code(fault.site.file)[fault.site.line as usize - 1];
        let excuse = UNFOUND.iter().find(|each| {
            let same = fault.site.role == each.role && fault.to == each.to;
            same && fault.site.file.ends_with(each.file) && line.contains(each.line)
        });
        let found = trials.iter().find_map(|trial| trial.run(Orderings::Weakened(fault)));
        let reason = excuse.map(|each| each.reason);
        let verdict = found.as_deref().or(reason).unwrap_or("NOT FOUND");
        println!("loom     {fault:62} {verdict:.100}");
        match (found, excuse) {
            (None, None) => writeln!(mistakes, "no trial finds {fault}\n    {line}"),
            (Some(_), Some(_)) => writeln!(mistakes, "found, although listed as unfound: {fault}\n    {line}"),
            _ => Ok(()),
        }
        .expect("a string takes all");
    }
    assert!(mistakes.is_empty(), "\n{mistakes}");
}

/// How many lines an ordering may be below its call, or above it if it is bound to a name first.
const NEAR: u32 = 12;

/// Reports the lines of `file` with an ordering that belongs to none of `sites` and is not listed.
fn write_unreached(mistakes: &mut String, file: &str, sites: &[Site]) {
    let reached = |number: u32, is_bound: bool| {
        sites.iter().filter(|site| site.file.ends_with(file)).any(|site| {
            if is_bound {
                (number..number + NEAR).contains(&site.line)
            } else {
                number.saturating_sub(6) <= site.line && site.line <= number
            }
        })
    };
    for (number, line) in (1..).zip(code(file)) {
        if !has_ordering(&line) || reached(number, line.contains("let ") && !line.contains("cpu.")) {
            continue;
        }
        let listed = UNREACHED
            .iter()
            .find(|(of, part, _)| *of == file && line.contains(part));
        match listed {
            Some((_, _, reason)) => println!("loom     locks/src/{file}:{number} unreached: {reason}"),
            None => writeln!(mistakes, "no trial reaches locks/src/{file}:{number}\n    {line}")
                .expect("a string takes all"),
        }
    }
}

/// Defines the tests, and the list of the files whose orderings they weaken.
macro_rules! orderings {
    ($($test:ident: $files:expr => $trials:expr;)+) => {
        const CHECKED: &[&[&str]] = &[$(&$files),+];
        $(#[test]
        fn $test() {
            check(&$files, &$trials);
        })+
    };
}

orderings! {
    of_pv_ticket: ["pv_ticket.rs", "paravirt.rs"] => [
        once::<PvTicket>(6), twice::<PvTicket>(2), try_lock::<PvTicket>(), equal_tickets::<PvTicket>(),
    ];
    of_tail_pv_ticket: ["tail_pv_ticket.rs"] => [
        once::<TailPvTicket>(6), twice::<TailPvTicket>(2), try_lock::<TailPvTicket>(),
    ];
    of_qspin: ["qspin.rs", "queue.rs"] => [
        once::<Qspin>(6), try_lock::<Qspin>(), queue::<Qspin>(3, 2), queue::<Qspin>(4, 1), queue::<Qspin>(4, 2),
    ];
    of_layouts: ["layout.rs"] => [
        queue::<Qspin>(3, 2), queue::<Qspin<Wide>>(3, 2), queue::<NumerousQspin>(3, 2),
        twice::<PvQspin>(3), twice::<PvQspin<Wide>>(3),
    ];
    of_exchange_qspin: ["exchange_qspin.rs"] => [
        once::<ExchangeQspin>(6), queue::<ExchangeQspin>(3, 2), queue::<ExchangeQspin>(4, 2),
    ];
    of_numerous_qspin: ["numerous_qspin.rs"] => [once::<NumerousQspin>(6), queue::<NumerousQspin>(3, 2)];
    of_pv_qspin: ["pv_qspin.rs", "pv_wait.rs", "hash.rs"] => [
        twice::<PvQspin>(3), queue::<PvQspin>(3, 2), shared_entry::<PvQspin>(), patient::<PvQspin>(),
        compare_stores::<PvQspin>(), larger::<AheadPvQspin>(8, 4, 1),
    ];
    of_stealing: ["steal.rs"] => [
        twice::<PvQspin>(3), twice::<HybridPvQspin>(3), twice::<UnfairPvQspin>(3),
    ];
    of_unfair_qspin: ["unfair_qspin.rs"] => [
        once::<UnfairQspin>(6), queue::<UnfairQspin>(3, 2), queue::<UnfairQspin>(4, 1),
    ];
    of_cna_qspin: ["cna_qspin.rs"] => [
        once::<CnaQspin<1_000_000, 0>>(6), nodes::<CnaQspin<1_000_000, 0>>(4, 1), nodes::<CnaQspin<0, 0>>(4, 1),
    ];
    of_condvar: ["condvar.rs"] => [
        broadcast(2, 3), broadcast(3, 2), impatient_waiter(),
    ];
    of_requeue: ["requeue.rs"] => [requeued_broadcast(2, 3), requeued_broadcast(3, 2)];
    of_qrwlock: ["qrwlock.rs"] => [
        readers_and_writers(1), readers_and_writers(2), queue_behind(false), queue_behind(true), downgraded_writer(false),
        downgraded_writer(true),
    ];
    of_osq: ["osq.rs"] => [spinners::<0>(2, 2, 2), spinners::<0b10>(3, 1, 2)];
}

/// Returns the files of the kinds that have no trials above, with trials that suit any lock.
fn plain_kinds() -> Vec<(String, Vec<Trial>)> {
    let mut plain = Vec::new();
    macro_rules! trials {
        ([] $($module:ident: $kind:ident = $name:literal,)+) => {$(
            let file = concat!(stringify!($module), ".rs");
            if path(file).exists() && !CHECKED.iter().any(|files| files.contains(&file)) {
                let trials = vec![twice::<$kind>(3), try_lock::<$kind>(), queue::<$kind>(3, 2)];
                plain.push((file.to_owned(), trials));
            }
        )+};
    }
    for_each_lock_kind!(trials);
    plain
}

#[test]
fn of_other_kinds() {
    for (file, trials) in plain_kinds() {
        check(&[&file], &trials);
    }
}

#[test]
fn every_file_with_orderings_is_checked() {
    let plain = plain_kinds();
    let files =
        std::fs::read_dir(path("lib.rs").parent().expect("a folder")).expect("the source of the locks is there");
    for file in files {
        let file = file.expect("an entry").file_name().into_string().expect("a plain name");
        // The conformance suite has no lock. The halt of threads needs a futex, which no checker has.
        if matches!(file.as_str(), "conformance" | "conformance.rs" | "thread.rs")
            || !code(&file).iter().any(|line| has_ordering(line))
        {
            continue;
        }
        let checked = CHECKED.iter().any(|files| files.contains(&file.as_str()));
        let checked = checked || plain.iter().any(|(of, _)| *of == file);
        assert!(checked, "no test weakens the orderings of locks/src/{file}");
    }
}
