//! `holdfast record`.

use std::time::Duration;

use holdfast_real_host::record::{self, Machine, RecordError, Report, Settings};

use crate::Done;
use crate::args::{Format, RecordArgs};
use crate::error::{Error, Result};
use crate::output::{self, note, say};
use crate::refused::{Refused, Skipped};
use crate::signal;

/// Records this host into a folder.
pub fn record(args: &RecordArgs) -> Result<Done> {
    if args.out.symlink_metadata().is_ok() {
        let found = format!("{:?}, which exists", args.out.display().to_string());
        return Err(Refused::instead(found, "--out to be a new folder").into());
    }
    let settings = Settings {
        length: Duration::from_secs(args.seconds),
        bytes_max: args.size << 20,
    };
    signal::call_off_by_all()?;
    let begun = |abandon: record::Abandon| {
        note!("recording {} s; Ctrl-C ends it early", args.seconds);
        signal::at_exit(move || abandon.now());
    };
    let report = record::run(Machine::here(), &args.out, &settings, signal::call_off()?, begun);
    signal::forget_at_exit();
    let report = report.map_err(|error| match error {
        RecordError::Lacks(lack) => Error::Skipped(Skipped {
            what: "a recording of this host".to_owned(),
            lack: format!("it needs {lack}"),
        }),
        failed => Error::Failed(failed.to_string()),
    })?;
    remarks(&report);
    match args.format {
        Format::Json => output::json(&report)?,
        Format::Table => show(&report)?,
    }
    note!("recording: {}; to read it: holdfast import {0}", args.out.display());
    Ok(if report.interrupted {
        Done::Interrupted
    } else {
        Done::Whole
    })
}

/// Says what is missing in the recording.
fn remarks(report: &Report) {
    for left in &report.left_over {
        say!("warning: {left}");
    }
    for unreadable in &report.unreadable {
        say!("not copied: {unreadable}");
    }
    let kvm = |event: &&String| event.starts_with("kvm/");
    let (of_kvm, others): (Vec<&String>, Vec<&String>) = report.missing.iter().partition(kvm);
    if of_kvm.iter().any(|event| *event == "kvm/kvm_exit") {
        say!("without events of KVM: its module is not loaded, or has no tracepoints");
    } else if !of_kvm.is_empty() {
        say!("this kernel lacks {}", words(&of_kvm));
    }
    if !others.is_empty() {
        say!("this kernel lacks {}", words(&others));
    }
    let lost = report.sum(|cpu| cpu.lost);
    if lost > 0 {
        say!("warning: the kernel lost {lost} events, since its buffers were full: the trace marks the places");
    }
    let replaced: Vec<u32> = report
        .cpus
        .iter()
        .filter(|cpu| cpu.pages_replaced > 0)
        .map(|cpu| cpu.cpu)
        .collect();
    if !replaced.is_empty() {
        say!(
            "of {} CPUs only the newest events fit --size, so their events begin later",
            replaced.len()
        );
    }
}

fn words(events: &[&String]) -> String {
    let names: Vec<&str> = events.iter().map(|event| event.as_str()).collect();
    names.join(", ")
}

/// Prints the figures of a recording.
fn show(report: &Report) -> Result<()> {
    let seconds = report.length_ns as f64 / 1e9;
    let own = report.own_cpu_ns as f64 / 1e9;
    output::line(&format!(
        "recorded {seconds:.1} s of {} CPUs, Linux {}, clock {}\n\
         events: {}, lost {}, trace {:.1} MB\n\
         VMs: {}\n\
         CPU time of this program: {own:.2} s, {:.2} % of one CPU",
        report.cpus.len(),
        report.kernel,
        report.clock,
        report.sum(|cpu| cpu.events),
        report.sum(|cpu| cpu.lost),
        report.bytes as f64 / 1e6,
        report.vms.len(),
        100.0 * own / seconds,
    ))
}
