//! Every ordering in the locks' source, made weaker by one step: loom must find each.
//!
//! What it does not find is listed here with the reason. An entry that is found after all is a mistake as well: the list
//! is true.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Instant;

use holdfast_locks::*;
use holdfast_model::fault::{Fault, Orderings, Probe};
use holdfast_model::{Bounds, Checker, Cpu, Loom, Setup, scenario};

type Body = Box<dyn Fn() + Send + Sync>;

/// A search that may find a fault.
struct Trial {
    bounds: Bounds,
    setup: Setup,
    body: fn(&Setup) -> Body,
}

impl Trial {
    fn run(&self, orderings: Orderings) -> Option<String> {
        let setup = Setup {
            orderings,
            ..self.setup.clone()
        };
        let failure = Loom::explore(&self.bounds, (self.body)(&setup)).err()?;
        Some(failure.message)
    }
}

fn contention<L: RawLock<Cpu<Loom>> + 'static>(cpus: u32, preemptions: usize) -> Trial {
    Trial {
        bounds: Bounds::preemptions(preemptions),
        setup: Setup::new(cpus),
        body: |setup| Box::new(scenario::contention::<Loom, L>(setup, 1, 0)),
    }
}

fn twice<L: RawLock<Cpu<Loom>> + 'static>(preemptions: usize) -> Trial {
    Trial {
        bounds: Bounds::preemptions(preemptions),
        setup: Setup::new(2),
        body: |setup| Box::new(scenario::contention::<Loom, L>(setup, 2, 0)),
    }
}

fn try_lock<L: RawLock<Cpu<Loom>> + 'static>() -> Trial {
    Trial {
        bounds: Bounds::ALL,
        setup: Setup::new(2),
        body: |setup| Box::new(scenario::try_lock::<Loom, L>(setup)),
    }
}

fn trial(preemptions: usize, cpus: u32, body: fn(&Setup) -> Body) -> Trial {
    Trial {
        bounds: Bounds::preemptions(preemptions),
        setup: Setup::new(cpus),
        body,
    }
}

fn equal_tickets<L: RawLock<Cpu<Loom>> + 'static>(preemptions: usize) -> Trial {
    trial(preemptions, 3, |setup| {
        Box::new(scenario::equal_tickets::<Loom, L>(setup))
    })
}
fn queue<L: RawLock<Cpu<Loom>> + 'static>(cpus: u32, preemptions: usize) -> Trial {
    trial(preemptions, cpus, |setup| Box::new(scenario::queue::<Loom, L>(setup)))
}
fn stray_kick<L: RawLock<Cpu<Loom>> + 'static>(cpus: u32, preemptions: usize) -> Trial {
    trial(preemptions, cpus, |setup| {
        Box::new(scenario::stray_kick::<Loom, L>(setup))
    })
}
fn shared_entry<L: RawLock<Cpu<Loom>> + 'static>(preemptions: usize) -> Trial {
    trial(preemptions, 3, |setup| {
        Box::new(scenario::shared_entry::<Loom, L>(setup))
    })
}

/// Weakens every ordering that `trials` reach, and returns a report of those that none of them misses.
fn survivors(lock: &str, trials: &[Trial]) -> Vec<Fault> {
    let probe = Probe::default();
    for (i, trial) in trials.iter().enumerate() {
        let t = Instant::now();
        assert_eq!(trial.run(Orderings::Probed(probe.clone())), None, "{lock}");
        println!("{lock} trial {i} {:?}", t.elapsed());
    }
    let mut report = String::new();
    let mut missed = Vec::new();
    for fault in probe
        .sites()
        .into_iter()
        .filter(|site| site.file.starts_with("locks/"))
        .flat_map(|site| site.weaker())
    {
        let start = Instant::now();
        let found = trials.iter().find_map(|trial| trial.run(Orderings::Weakened(fault)));
        let seconds = start.elapsed().as_secs_f64();
        let verdict = found.as_deref().unwrap_or("NOT FOUND");
        let _ = writeln!(
            report,
            "{lock:20} {fault:60} {seconds:6.2} s  {verdict:.70}\n      {}",
            source(fault)
        );
        if found.is_none() {
            missed.push(fault);
        }
    }
    println!("{report}");
    missed
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

macro_rules! ordering_tests {
    ($($name:ident: $lock:ty, $label:literal, [$($trial:expr),+];)+) => {
        $(#[test]
        fn $name() {
            type L = $lock;
            let missed = survivors($label, &[$($trial),+]);
            println!("{} MISSED {}", $label, missed.len());
        })+
    };
}

ordering_tests! {
    tas: Tas, "tas", [twice::<L>(4)];
    ttas: Ttas, "ttas", [twice::<L>(4), try_lock::<L>()];
    ticket: Ticket, "ticket", [twice::<L>(3), try_lock::<L>()];
    preemptable_ticket: PreemptableTicket, "preemptable-ticket", [twice::<L>(2), try_lock::<L>()];
    pv_ticket: PvTicket, "pv-ticket", [contention::<L>(2, 6), twice::<L>(3), try_lock::<L>(), equal_tickets::<L>(2)];
    qspin: Qspin, "qspin", [contention::<L>(2, 6), try_lock::<L>(), queue::<L>(3, 2), queue::<L>(4, 1), contention::<L>(3, 3), queue::<L>(4, 2)];
    exchange: ExchangeQspin, "exchange", [contention::<L>(2, 6), try_lock::<L>(), queue::<L>(3, 2), queue::<L>(4, 1), contention::<L>(3, 3), queue::<L>(4, 2)];
    numerous: NumerousQspin, "numerous", [contention::<L>(2, 6), try_lock::<L>(), queue::<L>(3, 2), queue::<L>(4, 1), contention::<L>(3, 3), queue::<L>(4, 2)];
    unfair: UnfairQspin, "unfair", [contention::<L>(2, 6), try_lock::<L>(), queue::<L>(3, 2), queue::<L>(4, 1), contention::<L>(3, 3), queue::<L>(4, 2)];
    cna: CnaQspin<1_000_000, 0>, "cna", [contention::<L>(2, 6), try_lock::<L>(), queue::<L>(3, 2), queue::<L>(4, 1), contention::<L>(3, 3), queue::<L>(4, 2)];
    pv_qspin: PvQspin, "pv-qspin", [contention::<L>(2, 6), try_lock::<L>(), twice::<L>(3), queue::<L>(3, 2), shared_entry::<L>(2), stray_kick::<L>(3, 2), queue::<L>(4, 1), contention::<L>(3, 3), queue::<L>(4, 2), stray_kick::<L>(3, 3)];
    hybrid: HybridPvQspin, "hybrid", [contention::<L>(2, 6), try_lock::<L>(), twice::<L>(3), queue::<L>(3, 2), shared_entry::<L>(2), stray_kick::<L>(3, 2), queue::<L>(4, 1), contention::<L>(3, 3), queue::<L>(4, 2), stray_kick::<L>(3, 3)];
    unfair_pv: UnfairPvQspin, "unfair-pv", [contention::<L>(2, 6), try_lock::<L>(), twice::<L>(3), queue::<L>(3, 2), shared_entry::<L>(2), stray_kick::<L>(3, 2), queue::<L>(4, 1), contention::<L>(3, 3), queue::<L>(4, 2), stray_kick::<L>(3, 3)];
}
