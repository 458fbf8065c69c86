//! `holdfast import`.

use std::path::{Path, PathBuf};

use holdfast_lab::recorded::{self, NOTE};
use holdfast_lab::replay::{Check, Replay};
use holdfast_lab::run::CallOff;
use holdfast_lab::sheet::Sheet;
use holdfast_lab::{file, trace};
use holdfast_recordings::account::{Account, metrics};
use holdfast_recordings::import::{Import, ImportError, Imported, Source};
use holdfast_recordings::read::Fault;
use holdfast_recordings::repeat::Reading;
use serde::Serialize;

use crate::Done;
use crate::args::{Format, ImportArgs, VERSION};
use crate::error::{Error, Result};
use crate::output::{self, note, say};
use crate::progress::Bar;
use crate::refused::Refused;
use crate::signal;

/// Length of the window that is drawn, in ns, unless the user names one.
const WINDOW_NS: u64 = 1_000_000_000;
/// Most vCPUs that are shown without `--all`.
const VCPUS_MAX: usize = 16;
/// Most rows of each VM in a table of names.
const ROWS: usize = 4;
const ROWS_ALL: usize = 20;
/// Most VMs that are columns of a table.
const COLUMNS_MAX: usize = 8;

/// What `--format json` prints.
#[derive(Debug, Serialize)]
struct Said<'s> {
    source: &'s Source,
    #[serde(flatten)]
    account: &'s Account,
}

/// Reads a recording, and says where the time of its VMs went.
pub fn import(args: &ImportArgs) -> Result<Done> {
    let import = sorted(&args.files)?;
    let stem = import.recording().file_stem().unwrap_or_default().to_os_string();
    let named = |place: &Option<PathBuf>, extension: &str| {
        let name = Path::new(&stem).with_extension(extension);
        place.as_ref().map(|place| file::placed(place, &name))
    };
    let page = named(&args.out, "html");
    let metrics_path = named(&args.metrics, "prom");
    let timeline = named(&args.timeline, "pftrace");
    let experiment = named(&args.experiment, "toml");
    let window = Wanted::new(args)?;
    for path in [&page, &metrics_path, &timeline, &experiment] {
        output::check(path.as_deref())?;
    }
    let (call_off, bar) = (signal::call_off()?, Bar::uncounted("reading"));
    let imported = read(&import, &bar, call_off)?;
    let interrupted = call_off.is_called();
    let account = &imported.account;
    if !interrupted && (page.is_some() || timeline.is_some()) {
        let (from, to) = window.of(account);
        let picture = bar
            .while_beating(call_off, || import.picture(account.begin_ns, from, to))
            .map_err(refused)?;
        if let Some(path) = &timeline {
            file::write(path, &recorded::perfetto(&picture))?;
            note!("timeline: {}", path.display());
        }
        if let Some(path) = &page {
            let name = stem.to_string_lossy();
            file::write(path, recorded::page(&name, account, Some(&picture), VERSION).as_bytes())?;
            note!(
                "report: {} (open it in any browser; it needs no network)",
                path.display()
            );
        }
    }
    if let Some(path) = experiment.as_ref().filter(|_| !interrupted) {
        repeat(&import, &imported, path)?;
    }
    if let Some(path) = &metrics_path {
        file::write(path, metrics(account).as_bytes())?;
        note!("metrics: {}", path.display());
    }
    match args.format {
        Format::Json => output::json(&Said {
            source: &imported.source,
            account,
        })?,
        Format::Table => tables(account, args.all)?,
    }
    Ok(if interrupted { Done::Interrupted } else { Done::Whole })
}

/// Returns the recording among `files`, with what explains it.
pub fn sorted(files: &[PathBuf]) -> Result<Import> {
    for path in files {
        if let Err(error) = std::fs::metadata(path) {
            return Err(Refused::Unreadable(path.display().to_string(), error).into());
        }
    }
    Import::new(files).map_err(refused)
}

/// Reads the recording until its end, or until `call_off` is called, and says what could not be read.
pub fn read(import: &Import, bar: &Bar, call_off: &CallOff) -> Result<Imported> {
    bar.at(0, 0, import.recording().display().to_string());
    let imported = bar.while_beating(call_off, || import.account(|_| call_off.is_called()));
    let imported = imported.map_err(refused)?;
    said(&imported, call_off.is_called());
    Ok(imported)
}

/// Writes the experiment that repeats the recorded vCPUs to `path`, and what they did next to it; before that says
/// whether a replay gives the recording back.
fn repeat(import: &Import, imported: &Imported, path: &Path) -> Result<()> {
    let repeated = import.repeats(imported).map_err(refused)?;
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let (call_off, bar) = (signal::call_off()?, Bar::uncounted("replaying"));
    let checked = bar.while_beating(call_off, || {
        Replay::checked(&stem, &imported.account, &repeated, call_off)
    });
    let replay = match checked {
        Ok((replay, check)) => {
            compared(&check);
            replay
        }
        Err(error) => {
            say!("warning: the replay is not compared with the recording: {error}");
            Replay::new(&stem, &imported.account, &repeated, &Reading::default())
        }
    };
    file::write(&path.with_file_name(&replay.threads_file), replay.threads.as_bytes())?;
    file::write(path, replay.text.as_bytes())?;
    let waits = repeated.waits;
    note!(
        "experiment: {} ({} waits ended by siblings, {} by timers, {} by devices; {} keep their recorded length)",
        path.display(),
        waits.by_threads,
        waits.by_timers,
        waits.by_devices,
        waits.unknown
    );
    if replay.reading.spins {
        note!("vCPUs spin until those that they have woken go on: of their recorded length, ready time differs more");
    }
    if replay.reading.answers {
        note!(
            "devices end waits as long after their begin as was recorded: at the recorded times, ready time differs more"
        );
    }
    for guest in &replay.reading.timed {
        note!(
            "{guest}: waits that siblings ended keep their recorded length too: tied to these, ready time differs more"
        );
    }
    Ok(())
}

/// Says how a replay compares with the recording.
fn compared(check: &Check) {
    for guest in &check.guests {
        let distance = |distance: Option<f64>| distance.map_or("?".to_owned(), |distance| format!("{distance:.2}"));
        note!(
            "replay of {}: ready {:.3} s, recorded {:.3} s; {:.0} switches/s, recorded {:.0}; \
             {:.1} moves/s, recorded {:.1}; distance of runs {}, of waits {}{}",
            guest.name,
            guest.ready_s.replayed,
            guest.ready_s.recorded,
            guest.switches_per_s.replayed,
            guest.switches_per_s.recorded,
            guest.moves_per_s.replayed,
            guest.moves_per_s.recorded,
            distance(guest.runs_distance),
            distance(guest.waits_distance),
            if guest.passes() { "" } else { "; not within 5 %" }
        );
    }
    for guest in &check.missing {
        note!("replay of {guest}: it did not run");
    }
    if check.passes() {
        note!("the replay gives the recorded ready time back, within 5 %");
    } else {
        say!(
            "warning: the replay does not give the recording back: believe the account, not what the experiment answers"
        );
    }
}

/// Returns the refusal of files that cannot be imported.
pub fn refused(error: ImportError) -> Error {
    match error {
        ImportError::Recording(path, error) => match error.fault {
            Fault::Io(error) => Refused::Unreadable(path.display().to_string(), error).into(),
            _ => Refused::Unusable(format!("{}: {error}", path.display())).into(),
        },
        error => Refused::Unusable(error.to_string()).into(),
    }
}

/// The window of the timeline.
struct Wanted {
    from: Option<u64>,
    span: u64,
}

impl Wanted {
    fn new(args: &ImportArgs) -> Result<Wanted> {
        let nanos = |option: &str, text: &Option<String>| -> Result<Option<u64>> {
            let read = |text: &String| trace::nanos(option, text).map_err(Error::from);
            text.as_ref().map(read).transpose()
        };
        let span = nanos("--for", &args.span)?.unwrap_or(WINDOW_NS);
        if span == 0 {
            return Err(Refused::instead("--for 0", "a time longer than nothing").into());
        }
        Ok(Wanted {
            from: nanos("--from", &args.from)?,
            span,
        })
    }

    /// Returns begin and end, in ns from the begin of the recording.
    fn of(&self, account: &Account) -> (u64, u64) {
        let worst = account.worst.as_ref();
        // Half of the window before the middle of the wait.
        let middle = worst.map_or(0, |worst| worst.from_ns + worst.ns / 2);
        let last = account.length_ns.saturating_sub(self.span);
        let around = middle.saturating_sub(self.span / 2).min(last);
        let from = self.from.unwrap_or(around);
        (from, from.saturating_add(self.span))
    }
}

/// Says on standard error what could not be read.
fn said(imported: &Imported, interrupted: bool) {
    let source = &imported.source;
    for error in &source.errors {
        say!("warning: {}: {error}", source.file);
    }
    let more = source.error_count - source.errors.len() as u64;
    if more > 0 {
        say!("warning: {}: {more} further errors", source.file);
    }
    for warning in recorded::warnings(&imported.account) {
        say!("warning: {warning}");
    }
    if interrupted {
        say!("incomplete: interrupted before the recording's end; what was read until then is shown");
    }
}

fn titled(title: &str, sheet: &Sheet) -> Result<()> {
    if sheet.rows.is_empty() {
        return Ok(());
    }
    output::line(&format!("\n{title}\n\n{}", output::sheet(sheet)))
}

fn tables(account: &Account, all: bool) -> Result<()> {
    output::line(&output::wrapped(&account.sentence))?;
    if account.vms.is_empty() {
        return titled("pCPUs", &recorded::host(account));
    }
    titled(
        "CPU ready, its share of the wanted CPU time, and what it was behind",
        &recorded::summary(account),
    )?;
    let rows = if all { ROWS_ALL } else { ROWS };
    titled(
        "What each VM waited behind",
        &recorded::behind(account, rows).without_one("VM"),
    )?;
    let vcpus: usize = account.vms.iter().map(|vm| vm.vcpus.len()).sum();
    if all || vcpus <= VCPUS_MAX {
        titled("Each vCPU", &recorded::vcpus(account).without_one("VM"))?;
    }
    if let Some(worst) = &account.worst {
        let vcpu = worst.vcpu.map_or_else(String::new, |vcpu| format!(", vCPU {vcpu}"));
        output::line(&format!(
            "\nLongest wait: {}{vcpu}, {:.3} ms, {:.3} s after the begin.",
            worst.vm,
            worst.ns as f64 / 1e6,
            worst.from_ns as f64 / 1e9
        ))?;
    }
    if all {
        let mut figures = recorded::figures(account);
        if account.vms.len() > COLUMNS_MAX {
            let kept: Vec<bool> = (0..figures.heads.len()).map(|column| column <= COLUMNS_MAX).collect();
            figures = figures.only(&kept);
        }
        titled("All figures", &figures)?;
        titled("Exits", &recorded::exits(account, rows).without_one("VM"))?;
        titled("What woke vCPUs", &recorded::wakers(account, rows).without_one("VM"))?;
        titled("pCPUs", &recorded::host(account))?;
    }
    output::line(&output::wrapped(&format!("\n{NOTE}")))?;
    if !all {
        output::line("`--all` shows each vCPU, all figures, exits, wakeups and the pCPUs.")?;
    }
    Ok(())
}
