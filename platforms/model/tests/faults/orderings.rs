//! Every ordering in the locks' source, made weaker by one step: loom must find each.
//!
//! What it does not find is listed with the reason. An entry that is found after all is a mistake as well: the list is
//! true.

use std::fmt::Write as _;
use std::path::Path;

use holdfast_locks::*;
use holdfast_model::fault::{Fault, Orderings, Probe, Role};
use holdfast_model::{Bounds, Checker, Loom, Setup, scenario};

use crate::faults::{Body, Lock};

/// A search that may find a fault.
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

fn equal_tickets<L: Lock<Loom>>() -> Trial {
    Trial::new(3, 2, |setup| Box::new(scenario::equal_tickets::<Loom, L>(setup)))
}

/// An ordering that loom does not miss.
struct Unfound {
    file: &'static str,
    /// A part of the source line.
    line: &'static str,
    role: Role,
    reason: &'static str,
}

/// Weakens every ordering of `files` that `trials` reach.
fn check(files: &[&str], trials: &[Trial], unfound: &[Unfound]) {
    let probe = Probe::default();
    for (number, trial) in trials.iter().enumerate() {
        let failure = trial.run(Orderings::Probed(probe.clone()));
        assert_eq!(failure, None, "{files:?}, trial {number} fails without a fault");
    }
    let owned = |file: &str| files.iter().any(|owned| file.ends_with(&format!("locks/src/{owned}")));
    let sites = probe.sites().into_iter().filter(|site| owned(site.file));
    let faults: Vec<Fault> = sites.flat_map(|site| site.weaker()).collect();
    assert!(!faults.is_empty(), "no ordering of {files:?} was reached");
    let mut mistakes = String::new();
    for fault in faults {
        let line = source(fault);
        let excuse = unfound.iter().find(|each| {
            fault.site.file.ends_with(each.file) && line.contains(each.line) && fault.site.role == each.role
        });
        let found = trials.iter().find_map(|trial| trial.run(Orderings::Weakened(fault)));
        let verdict = found
            .as_deref()
            .or(excuse.map(|each| each.reason))
            .unwrap_or("NOT FOUND");
        println!("loom     {fault:62} {verdict:.100}");
        match (found, excuse) {
            (None, None) => writeln!(mistakes, "nobody misses {fault}\n    {line}"),
            (Some(_), Some(_)) => writeln!(mistakes, "found, though listed as not to be found: {fault}\n    {line}"),
            _ => Ok(()),
        }
        .expect("a string takes all");
    }
    assert!(mistakes.is_empty(), "\n{mistakes}");
}

/// The line of the source.
fn source(fault: Fault) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = std::fs::read_to_string(root.join(fault.site.file)).expect("the source of the locks is there");
    let line = text
        .lines()
        .nth(fault.site.line as usize - 1)
        .expect("the site is a line of it");
    line.trim().to_owned()
}

#[test]
fn of_test_and_set() {
    check(&["tas.rs", "ttas.rs"], &[twice::<Tas>(3), twice::<Ttas>(3)], &[]);
}

#[test]
fn of_ticket_locks() {
    type L = Ticket;
    check(&["ticket.rs"], &[twice::<L>(2), try_lock::<L>()], &[]);
    type M = PreemptableTicket;
    check(&["preemptable_ticket.rs"], &[twice::<M>(2), try_lock::<M>()], &[]);
}

#[test]
fn of_pv_ticket() {
    type L = PvTicket;
    let trials = [once::<L>(6), twice::<L>(2), try_lock::<L>(), equal_tickets::<L>()];
    let unfound = [Unfound {
        file: "paravirt.rs",
        line: "cpu.fence(Release);",
        role: Role::Fence,
        reason: "a record's lock is withdrawn before its CPU releases that lock: no unlocker sees it with a later ticket",
    }];
    check(&["pv_ticket.rs", "paravirt.rs"], &trials, &unfound);
}

#[test]
fn of_qspin() {
    type L = Qspin;
    let trials = [
        once::<L>(6),
        try_lock::<L>(),
        queue::<L>(3, 2),
        queue::<L>(4, 1),
        queue::<L>(4, 2),
    ];
    check(&["qspin.rs", "queue.rs"], &trials, &[]);
}

#[test]
fn of_exchange_qspin() {
    type L = ExchangeQspin;
    check(
        &["exchange_qspin.rs"],
        &[once::<L>(6), queue::<L>(3, 2), queue::<L>(4, 1)],
        &[],
    );
}

#[test]
fn of_numerous_qspin() {
    type L = NumerousQspin;
    let unfound = [Unfound {
        file: "numerous_qspin.rs",
        line: "cpu.store_low8(word, 0, Release);",
        role: Role::Rmw,
        reason: "a byte store is a read-modify-write here, which passes on an earlier release by itself",
    }];
    check(&["numerous_qspin.rs"], &[once::<L>(6), queue::<L>(3, 2)], &unfound);
}
