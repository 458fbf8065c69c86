//! Weakens every ordering in the locks' source by one step: loom must find each fault.
//!
//! Faults that no trial finds are listed in [`UNFOUND`] with the reason, and orderings that no trial reaches in
//! [`UNREACHED`]. The lists are complete and exact: a test fails if a fault is neither found nor listed, or if a listed
//! one is found. A file whose orderings no test weakens fails, too.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use holdfast_history::{
    AheadPvQspin, CnaQspin, EarlyPvQspin, ExchangeQspin, NumerousQspin, OpportunisticTicket, TailPvTicket,
};
use holdfast_locks::*;
use holdfast_model::fault::Site;

use crate::faults::exceptions::{UNFOUND, UNREACHED};
use crate::faults::trials::*;
use crate::faults::weaker::{Probe, in_source, weaker};
use crate::support::apart;

/// The folders with the locks' source.
const ROOMS: [&str; 6] = ["src", "src/cpu", "src/spin", "src/rw", "src/sleep", "history/src"];

fn rooms() -> impl Iterator<Item = PathBuf> {
    let locks = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../locks");
    ROOMS.iter().map(move |room| locks.join(room))
}

/// Returns the path of a file of the locks' source, or `None` if no folder has it.
fn path(file: &str) -> Option<PathBuf> {
    let file = file.rsplit('/').next().expect("a path has a last part");
    rooms().map(|room| room.join(file)).find(|path| path.exists())
}

/// Returns the lines of a file without comments and tests.
fn code(file: &str) -> Vec<String> {
    let text =
        std::fs::read_to_string(path(file).expect("a file of the locks")).expect("the source of the locks is there");
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
    let without_a_fault = |(number, trial)| {
        let probe = Probe::default();
        let explored = Trial::run(trial, probe.orderings());
        let explored =
            explored.unwrap_or_else(|failure| panic!("{files:?}, trial {number} without a fault: {failure}"));
        (explored.executions, trial, probe.sites())
    };
    let mut trials: Vec<(u64, &Trial, Vec<Site>)> = trials.iter().enumerate().map(without_a_fault).collect();
    // A trial that does not find a fault takes all its executions: the short ones first.
    trials.sort_by_key(|&(executions, ..)| executions);
    let owned = |file: &str| {
        (file.contains("locks/src/") || file.contains("history/src/"))
            && files.iter().any(|owned| file.ends_with(&format!("/{owned}")))
    };
    let mut sites: Vec<Site> = Vec::new();
    for site in trials
        .iter()
        .flat_map(|(.., reached)| reached)
        .filter(|site| owned(site.file))
    {
        if !sites.contains(site) {
            sites.push(*site);
        }
    }
    sites.sort_by_key(in_source);
    let mut mistakes = String::new();
    for file in files {
        write_unreached(&mut mistakes, file, &sites);
    }
    for fault in sites.iter().copied().flat_map(weaker) {
        let line = &code(fault.site.file)[fault.site.line as usize - 1];
        let excuse = UNFOUND.iter().find(|each| {
            let same = fault.site.role == each.role && fault.to == each.to;
            same && fault.site.file.ends_with(each.file) && line.contains(each.line)
        });
        // The others execute what they have executed without the fault.
        let mut reaching = trials.iter().filter(|(.., reached)| reached.contains(&fault.site));
        let found = reaching.find_map(|(_, trial, _)| trial.run(fault.orderings()).err());
        let found = found.map(|failure| failure.message);
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
            Some((_, _, reason)) => println!("loom     locks: {file}:{number} unreached: {reason}"),
            None => {
                writeln!(mistakes, "no trial reaches locks: {file}:{number}\n    {line}").expect("a string takes all")
            }
        }
    }
}

/// Defines the tests, and the list of the files whose orderings they weaken.
macro_rules! orderings {
    ($($test:ident: $files:expr => $trials:expr;)+) => {
        const CHECKED: &[&[&str]] = &[$(&$files),+];
        $(#[test]
        fn $test() {
            apart(|| check(&$files, &$trials));
        })+
    };
}

orderings! {
    of_test_and_set: ["tas.rs"] => [
        twice::<Tas>(3), try_lock::<Tas>(), queue::<Tas>(3, 2), twice::<Ttas>(3), try_lock::<Ttas>(), queue::<Ttas>(3, 2),
    ];
    of_pv_ticket: ["pv_ticket.rs", "paravirt.rs"] => [
        once::<PvTicket>(6), twice::<PvTicket>(2), try_lock::<PvTicket>(), equal_tickets::<PvTicket>(),
    ];
    of_opportunistic_ticket: ["opportunistic_ticket.rs"] => [
        once::<OpportunisticTicket<AllSteps, 0, 1>>(6), twice::<OpportunisticTicket<AllSteps, 0, 1>>(2),
        try_lock::<OpportunisticTicket>(),
    ];
    of_tail_pv_ticket: ["tail_pv_ticket.rs"] => [
        once::<TailPvTicket>(6), twice::<TailPvTicket>(2), try_lock::<TailPvTicket>(),
    ];
    of_qspin: ["qspin.rs", "queue.rs"] => [
        once::<Qspin>(6), try_lock::<Qspin>(), queue::<Qspin>(3, 2), queue::<Qspin>(4, 1), queue::<Qspin>(4, 2),
    ];
    of_layouts: ["layout.rs"] => [
        queue::<Qspin>(3, 2), queue::<Qspin<Wide>>(3, 2),
        twice::<PvQspin>(3), twice::<PvQspin<Wide>>(3),
    ];
    of_exchange_qspin: ["exchange_qspin.rs"] => [
        once::<ExchangeQspin>(6), queue::<ExchangeQspin>(3, 2), queue::<ExchangeQspin>(4, 2),
    ];
    of_numerous_qspin: ["numerous_qspin.rs"] => [once::<NumerousQspin>(6), queue::<NumerousQspin>(3, 2)];
    of_pv_qspin: ["pv_qspin.rs", "pv_wait.rs", "hash.rs"] => [
        twice::<PvQspin>(3), queue::<PvQspin>(3, 2), shared_entry::<PvQspin>(), patient::<PvQspin>(),
        compare_stores::<PvQspin>(),
    ];
    of_pv_fair: ["pv_fair.rs", "pv_fair_wait.rs"] => [
        twice::<EarlyPvQspin>(3), queue::<EarlyPvQspin>(3, 2), once::<AheadPvQspin>(6), shared_entry::<EarlyPvQspin>(),
        patient::<EarlyPvQspin>(), compare_stores::<EarlyPvQspin>(), larger::<AheadPvQspin>(8, 4, 1),
        twice::<AheadPvQspin>(3), queue::<AheadPvQspin>(3, 2), shared_entry::<AheadPvQspin>(), patient::<AheadPvQspin>(),
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
    of_requeue: ["requeue.rs"] => [requeued_broadcast(2, 3), requeued_broadcast(3, 2)];
    of_qrwlock: ["qrwlock.rs"] => [
        readers_and_writers(1), readers_and_writers(2), queue_behind(false), queue_behind(true), downgraded_writer(false),
        downgraded_writer(true),
    ];
    of_biased_rwlock: ["biased_rwlock.rs"] => [
        biased(1, 1), biased(2, 1), biased(1, 2), biased_tries(1), biased_tries(2), biased_coming_reader(),
        biased_writer_that_reads(),
    ];
    of_unqueued_rwlock: ["unqueued_rwlock.rs"] => [unqueued(1), unqueued(2)];
    of_osq: ["osq.rs"] => [spinners::<0>(2, 2, 2), spinners::<0b10>(3, 1, 2)];
}

/// Returns the files of the kinds that have no trials above, with trials that suit any lock.
fn plain_kinds() -> Vec<(String, Vec<Trial>)> {
    let mut plain = Vec::new();
    macro_rules! trials {
        ([$from:ident] $($module:ident: $kind:ident = $name:literal,)+) => {$(
            let file = concat!(stringify!($module), ".rs");
            if path(file).is_some() && !CHECKED.iter().any(|files| files.contains(&file)) {
                let trials = vec![
                    twice::<$from::$kind>(3),
                    try_lock::<$from::$kind>(),
                    queue::<$from::$kind>(3, 2),
                ];
                plain.push((file.to_owned(), trials));
            }
        )+};
    }
    for_each_lock_kind!(trials holdfast_locks);
    holdfast_history::for_each_historic_lock!(trials holdfast_history);
    plain
}

#[test]
fn of_other_kinds() {
    apart(|| {
        for (file, trials) in plain_kinds() {
            check(&[&file], &trials);
        }
    });
}

#[test]
fn every_file_with_orderings_is_checked() {
    let plain = plain_kinds();
    let files = rooms().flat_map(|room| std::fs::read_dir(room).expect("the source of the locks is there"));
    for file in files {
        let file = file.expect("an entry").file_name().into_string().expect("a plain name");
        // The conformance suite has no lock. The halt of threads needs a futex, which no checker has. Folders hold that
        // suite's parts and tests.
        if !file.ends_with(".rs")
            || matches!(file.as_str(), "conformance.rs" | "thread.rs")
            || !code(&file).iter().any(|line| has_ordering(line))
        {
            continue;
        }
        let checked = CHECKED.iter().any(|files| files.contains(&file.as_str()));
        let checked = checked || plain.iter().any(|(of, _)| *of == file);
        assert!(checked, "no test weakens the orderings of {file} of the locks");
    }
}
