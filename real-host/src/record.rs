//! `holdfast record`: events of this host's scheduler and KVM from tracefs, and the files that explain them.
//!
//! A recording is a folder. `trace.dat` has the events, as trace-cmd writes them. Copies of system files stand at their
//! own paths below it (`proc/...`, `sys/...`), as they were after the events; `before/` has those of before.
//! `recording.json` says how the recording went.
//!
//! `instance.rs` uses the kernel's buffers, `spool.rs` keeps pages on disk, `snapshot.rs` copies system files, and
//! `metadata.rs` reads what trace.dat says of the kernel.

mod instance;
mod machine;
mod metadata;
mod report;
mod snapshot;
mod spool;
#[cfg(test)]
mod tests;

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use holdfast_sim::CallOff;
use holdfast_trace_dat::write::{Metadata, Writer};

use instance::Instance;
pub use machine::{Machine, RecordError};
pub use report::{Cpu, Report};
use snapshot::Snapshot;
use spool::Spool;

/// Events without which there is no account of a host.
const REQUIRED: [&str; 2] = ["sched/sched_switch", "sched/sched_waking"];
/// Events that are recorded if the kernel has them.
const WANTED: [&str; 17] = [
    "sched/sched_migrate_task",
    "sched/sched_process_exit",
    "sched/sched_process_fork",
    "sched/sched_wakeup_new",
    "task/task_rename",
    "kvm/kvm_apic_accept_irq",
    "kvm/kvm_apic_ipi",
    "kvm/kvm_apicv_inhibit_changed",
    "kvm/kvm_entry",
    "kvm/kvm_exit",
    "kvm/kvm_halt_poll_ns",
    "kvm/kvm_hypercall",
    "kvm/kvm_inj_virq",
    "kvm/kvm_msr",
    "kvm/kvm_ple_window_update",
    "kvm/kvm_userspace_exit",
    "kvm/kvm_vcpu_wakeup",
];
/// Clocks in the order of preference. All of them count nanoseconds.
const CLOCKS: [&str; 3] = ["mono", "boot", "global"];
/// Interval between two reads of the kernel's buffers.
const INTERVAL: Duration = Duration::from_millis(100);
/// Longest time between a reading of the run delays, which are compared with the trace, and its begin or end. On a busy
/// host other threads run in between: then they are read again.
const NEAR: Duration = Duration::from_millis(10);
/// Readings of the run delays before any distance is taken.
const TRIES: u32 = 50;
/// Name of the file of events in the folder.
const TRACE: &str = "trace.dat";
/// Name of the file with the [`Report`] in the folder.
const REPORT: &str = "recording.json";

/// What to record.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Length of the recording.
    pub length: Duration,
    /// Limit on the events of each CPU, in bytes. The newest are kept.
    pub bytes_max: u64,
}

/// Removes a recording's tracing instance from the kernel, and its files, for a program that ends at once.
#[derive(Clone, Debug)]
pub struct Abandon {
    instance: Weak<Instance>,
    /// The folder of the files.
    work: PathBuf,
}

impl Abandon {
    /// Removes the instance and the files. Does nothing if they are removed already, or if the recording is complete.
    pub fn now(&self) {
        if let Some(instance) = self.instance.upgrade() {
            // The program ends: no reader is left for the errors.
            let _ = instance.close();
            let _ = fs::remove_dir_all(&self.work);
        }
    }
}

/// Records `machine` into `folder`, which is made. Ends early, and keeps what there is, if `call_off` is called. Gives
/// `begun` what removes the tracing instance, before it takes events.
///
/// # Errors
/// If the machine lacks something, or an access fails. Then neither the folder nor the instance is left.
pub fn run(
    machine: Machine<'_>,
    folder: &Path,
    settings: &Settings,
    call_off: &CallOff,
    begun: impl FnOnce(Abandon),
) -> Result<Report, RecordError> {
    if folder.symlink_metadata().is_ok() {
        return Err(RecordError::of(folder)(ErrorKind::AlreadyExists.into()));
    }
    let parent = match folder.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let tracefs = instance::tracefs(machine.root)?;
    // The folder has its name only when it is complete.
    let work = tempfile::Builder::new()
        .prefix(".recording-")
        .tempdir_in(parent)
        .map_err(RecordError::of(parent))?;
    let left_over = instance::left_over(machine.root, &tracefs);
    let instance = Arc::new(Instance::create(machine, &tracefs)?);
    begun(Abandon {
        instance: Arc::downgrade(&instance),
        work: work.path().to_owned(),
    });
    let mut report = recorded(machine, &instance, work.path(), settings, call_off)?;
    report.left_over = left_over;
    report.write(&work.path().join(REPORT))?;
    fs::rename(work.path(), folder).map_err(RecordError::of(folder))?;
    // The folder of that name is gone.
    let _ = work.keep();
    Ok(report)
}

/// Records with `instance` into the folder `work`.
fn recorded(
    machine: Machine<'_>,
    instance: &Instance,
    work: &Path,
    settings: &Settings,
    call_off: &CallOff,
) -> Result<Report, RecordError> {
    let clock = instance.set_clock(&CLOCKS)?;
    instance.size(machine.root)?;
    let missing = instance.enable(&REQUIRED, &WANTED)?;
    let mut metadata = metadata::read(machine.root, instance, REQUIRED.iter().chain(&WANTED))?;
    let page = metadata::bytes_of_page(&metadata.header_page)
        .ok_or_else(|| RecordError::Lacks("a known layout of events/header_page".to_owned()))?;
    let cpus = instance.open()?;
    let mut spools = Vec::new();
    for cpu in &cpus {
        let file = tempfile::tempfile_in(work).map_err(RecordError::of(work))?;
        spools.push((*cpu, Spool::new(file, page, settings.bytes_max)));
    }
    let mut taken = Snapshot::new(machine.root);
    taken.all(&work.join("before"));
    let own_before = own_cpu_ns(machine.root);
    let mut buffer = vec![0; page * spool::PAGES_AT_ONCE];
    let mut tries = 0;
    let (start, delays, begin_off) = loop {
        let read = Instant::now();
        let delays = taken.run_delays();
        instance.set("tracing_on", "1")?;
        let start = Instant::now();
        tries += 1;
        if start - read < NEAR || tries == TRIES {
            break (start, delays, start - read);
        }
        instance.set("tracing_on", "0")?;
        for index in 0..cpus.len() {
            while instance.read(index, page, &mut buffer)? > 0 {}
        }
    };
    taken.keep(&delays, &work.join("before"));
    let end = start + settings.length;
    let interrupted = loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() || call_off.is_called() {
            break call_off.is_called();
        }
        thread::sleep(left.min(INTERVAL));
        drain(instance, &mut spools, &mut buffer, work)?;
    };
    tries = 0;
    let (mut delays, read) = loop {
        let read = Instant::now();
        let delays = taken.run_delays();
        tries += 1;
        if read.elapsed() < NEAR || tries == TRIES {
            break (delays, read);
        }
    };
    instance.set("tracing_on", "0")?;
    let (end, length, mut end_off) = (Instant::now(), start.elapsed(), read.elapsed());
    if end_off >= NEAR {
        let later = taken.run_delays();
        if end.elapsed() < end_off {
            (delays, end_off) = (later, end.elapsed());
        }
    }
    taken.keep(&delays, work);
    drain(instance, &mut spools, &mut buffer, work)?;
    let own_cpu_ns = own_cpu_ns(machine.root).saturating_sub(own_before);
    let counts = spools.iter().map(|(cpu, spool)| {
        let (events, lost) = instance.counts(*cpu);
        Cpu {
            cpu: *cpu,
            events,
            lost,
            pages_replaced: spool.replaced(),
            pages: spool.pages(),
        }
    });
    let counts = counts.collect();
    let names = instance.command_names();
    // A reader of the instance that is no part of this program keeps the kernel from removing it.
    instance.close()?;
    taken.all(work);
    metadata.command_names = metadata::command_names(machine.root, names);
    let bytes = write(&work.join(TRACE), &metadata, &spools)?;
    Ok(Report {
        kernel: metadata::release(machine.root),
        clock,
        length_ns: nanos(length),
        delays_off_ns: [begin_off, end_off].map(nanos),
        interrupted,
        missing,
        unreadable: taken.unreadable(),
        cpus: counts,
        vms: taken.vms(),
        own_cpu_ns,
        bytes,
        left_over: Vec::new(),
    })
}

/// Moves all pages of the kernel to `spools`.
fn drain(instance: &Instance, spools: &mut [(u32, Spool)], buffer: &mut [u8], work: &Path) -> Result<(), RecordError> {
    for (index, (_, spool)) in spools.iter_mut().enumerate() {
        loop {
            let read = instance.read(index, spool.page(), buffer)?;
            spool.push(&mut buffer[..read]).map_err(RecordError::of(work))?;
            // A full buffer: there are more.
            if read < buffer.len() {
                break;
            }
        }
    }
    Ok(())
}

/// Writes trace.dat at `path`. Returns its length in bytes.
fn write(path: &Path, metadata: &Metadata, spools: &[(u32, Spool)]) -> Result<u64, RecordError> {
    let write = || -> io::Result<u64> {
        let cpus = spools.iter().map(|(cpu, _)| cpu + 1).max().unwrap_or(0);
        let mut writer = Writer::new(io::BufWriter::new(File::create(path)?), metadata, cpus)?;
        for cpu in 0..cpus {
            match spools.iter().find(|(number, _)| *number == cpu) {
                Some((_, spool)) => writer.cpu(&mut spool.read())?,
                None => writer.cpu(&mut io::empty())?,
            };
        }
        let file = writer.finish()?.into_inner()?;
        Ok(file.metadata()?.len())
    };
    write().map_err(RecordError::of(path))
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the CPU time in ns that this process has used, or 0 if the kernel does not count it.
fn own_cpu_ns(root: &Path) -> u64 {
    let threads = fs::read_dir(root.join("proc/self/task"))
        .into_iter()
        .flatten()
        .flatten();
    let times = threads.filter_map(|thread| {
        let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    });
    times.fold(0, u64::saturating_add)
}
