//! `holdfast bench`.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use holdfast_lab::file;
use holdfast_real_host::bench::{self, Report, Settings};

use super::worker;
use crate::Done;
use crate::args::{BenchArgs, Format, given};
use crate::error::Result;
use crate::output::{self, say};
use crate::progress::Bar;
use crate::refused::Refused;

/// Measures the locks on this machine.
pub fn bench(args: &BenchArgs) -> Result<Done> {
    let path = args.out.as_deref();
    let path = path.map(|place| file::placed(place, Path::new("bench.json")));
    output::check(path.as_deref())?;
    let report = Arc::new(Mutex::new(Report::new(settings(args)?)));
    let filled = Arc::clone(&report);
    let bar = Arc::new(Bar::counted("measurements"));
    let shown = Arc::clone(&bar);
    worker::run(move |call_off| {
        bench::run(&filled, |progress| {
            shown.at(progress.done, progress.total, progress.what);
            worker::check(call_off)
        });
    })?;
    bar.finish();
    let report = report.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let written: Result<()> = path.as_deref().map_or(Ok(()), |path| {
        file::write(path, serde_json::to_string_pretty(&report)?.as_bytes())?;
        say!("{}", path.display());
        Ok(())
    });
    match args.format {
        Format::Json => output::json(&report)?,
        Format::Table => {
            for table in bench::tables(&report) {
                let mut shown = output::table(table.header.iter().copied(), 1);
                shown.add_rows(table.rows);
                output::line(&format!("{}\n\n{shown}\n", table.title))?;
            }
        }
    }
    written?;
    if let Some(spread) = bench::noise(&report) {
        let load = report
            .machine
            .load_before
            .map_or_else(String::new, |load| format!(", load average {load} before"));
        say!(
            "warning: the rounds of a typical row differ by {spread:.0} %{load}: other work has probably disturbed the \
             benchmark; repeat it on an idle machine, or with more --rounds"
        );
    }
    if !report.complete {
        let tables = usize::from(report.uncontended.is_some()) + report.contended.len();
        let all = 1 + report.settings.threads.len() * report.settings.sections_ns.len();
        say!("incomplete: interrupted with {tables} of {all} tables measured");
        return Ok(Done::Interrupted);
    }
    Ok(Done::Whole)
}

fn settings(args: &BenchArgs) -> Result<Settings> {
    let known: Vec<&str> = bench::names().collect();
    if let Some(name) = args.locks.iter().find(|name| !known.contains(&name.as_str())) {
        return Err(Refused::among(name, known.into_iter()).into());
    }
    let mut settings = if args.quick {
        Settings::quick()
    } else {
        Settings::full()
    };
    given(&mut settings.threads, &args.threads);
    given(&mut settings.sections_ns, &args.sections);
    settings.rounds = args.rounds.unwrap_or(settings.rounds);
    settings.locks.clone_from(&args.locks);
    Ok(settings)
}
