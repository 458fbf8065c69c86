//! `holdfast bench`.

use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

use holdfast_lab::bench::{self, Settings};
use indicatif::{ProgressBar, ProgressStyle};

use crate::Done;
use crate::args::{BenchArgs, Format};
use crate::experiment::Unknown;
use crate::output;
use crate::signal;

/// Measures the locks on this machine.
pub fn bench(args: &BenchArgs) -> anyhow::Result<Done> {
    let settings = settings(args)?;
    let call_off = signal::call_off()?;
    let bar = ProgressBar::new(0);
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} measurements  {elapsed} (about {eta} left)  {msg}");
    bar.set_style(style.expect("a valid template").progress_chars("=> "));
    let report = bench::run(&settings, |progress| {
        bar.set_length(progress.total);
        bar.set_position(progress.done);
        bar.set_message(progress.what.to_owned());
        if call_off.load(Ordering::Relaxed) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    bar.finish_and_clear();
    match args.format {
        Format::Json => output::json(&report)?,
        Format::Table => {
            for table in bench::tables(&report) {
                let mut shown = output::table(&table.header, 1);
                shown.add_rows(table.rows);
                output::line(&format!("{}\n\n{shown}\n", table.title))?;
            }
        }
    }
    if call_off.load(Ordering::Relaxed) {
        eprintln!("incomplete: interrupted before all was measured");
        return Ok(Done::Failed);
    }
    Ok(Done::Whole)
}

fn settings(args: &BenchArgs) -> anyhow::Result<Settings> {
    if let Some(name) = args
        .locks
        .iter()
        .find(|name| bench::names().all(|known| known != name.as_str()))
    {
        let known: Vec<&str> = bench::names().collect();
        return Err(Unknown::among(name, known.into_iter()).into());
    }
    let mut settings = if args.quick {
        Settings::quick()
    } else {
        Settings::full()
    };
    if !args.threads.is_empty() {
        settings.threads.clone_from(&args.threads);
    }
    if !args.sections.is_empty() {
        settings.sections_ns.clone_from(&args.sections);
    }
    settings.rounds = args.rounds.unwrap_or(settings.rounds);
    settings.locks.clone_from(&args.locks);
    Ok(settings)
}
