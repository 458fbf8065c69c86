//! Hostile guests: whatever they do, the VMM ends them, keeps nothing, and what it reports stays small and harmless.
//!
//! `HOLDFAST_HOSTILE_SECONDS` sets for how long guests are run, with other random numbers in each run of the tests.
//! Without it a few fixed ones run.

use std::fs;
use std::time::{Duration, Instant, SystemTime};

use holdfast_kvm::{Error, Fault, Options, Report, Task, Vm, run};

use crate::faults::left;

/// Memory of a hostile guest in bytes.
const MEMORY: u64 = 16 << 20;
/// Most memory in bytes that this process may take for a guest besides the guest's own. Reports have at most 2 MiB.
const BESIDES: u64 = 24 << 20;
/// Largest number of bytes of a report or an error.
const SHOWN_MAX: usize = 4 << 20;
/// Largest number of lines and of counters of a report, those of the host included.
const KEPT_MAX: usize = 1200;
/// Guests of a run without `HOLDFAST_HOSTILE_SECONDS`.
const GUESTS: u64 = 8;

/// Returns a size of this process in bytes, a line of its status file.
fn memory(name: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("Linux has it");
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.expect("a number of KiB") << 10
}

/// Makes the kernel forget the largest size of this process so far.
fn forget_peak() {
    fs::write("/proc/self/clear_refs", "5").expect("a process may forget its own peak");
}

/// Returns whether a terminal shows `text` as text.
fn is_harmless(text: &str) -> bool {
    !text.chars().any(|c| c.is_control() && c != '\n')
}

fn report_is_small(report: &Report) {
    for vm in &report.vms {
        assert!(vm.log.len() <= KEPT_MAX, "{} lines", vm.log.len());
        assert!(vm.counters.len() <= KEPT_MAX, "{} counters", vm.counters.len());
        assert!(vm.log.iter().chain(vm.counters.keys()).all(|text| is_harmless(text)));
        let bytes: usize = vm.log.iter().chain(vm.counters.keys()).map(String::len).sum();
        assert!(bytes <= SHOWN_MAX, "{bytes} bytes");
    }
}

/// Runs the guest that `seed` makes. Returns a word for its end.
fn survive(seed: u64) -> &'static str {
    let vm = Vm::new("hostile", 2, Task::Fault(Fault::Hostile { seed })).memory(MEMORY);
    let options = Options {
        limit: Duration::from_secs(3),
        ..Options::default()
    };
    forget_peak();
    let before = memory("VmRSS:");
    let ended = run(&[vm], &options);
    let peak = memory("VmHWM:");
    assert!(
        peak <= before + MEMORY + BESIDES,
        "seed {seed}: {before} bytes before the guest, at most {peak} with it"
    );
    assert_eq!(left(), (0, 0), "seed {seed}: threads and vms are left");
    match ended {
        Ok(report) => {
            report_is_small(&report);
            "done"
        }
        Err(error) => {
            let shown = error.to_string();
            assert!(shown.len() <= SHOWN_MAX, "seed {seed}: {} bytes", shown.len());
            assert!(is_harmless(&shown), "seed {seed}: {shown:?}");
            match error {
                Error::GuestPanic { .. } => "panic",
                Error::TripleFault { .. } => "triple fault",
                Error::UnexpectedExit { .. } => "unexpected exit",
                Error::Corrupt { .. } => "corrupt ring",
                Error::Hang { .. } => "hang",
                Error::Refused { .. } => "refused",
                other => panic!("seed {seed}: not the guest's fault: {other}"),
            }
        }
    }
}

#[test]
#[ignore = "needs a real KVM"]
fn a_hostile_guest_harms_nothing_but_itself() {
    let seconds = std::env::var("HOLDFAST_HOSTILE_SECONDS").ok();
    let seconds = seconds.map(|seconds| Duration::from_secs(seconds.parse().expect("a number of seconds")));
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .expect("after 1970");
    // A multiple of 4: every fourth guest, the first one included, only reports.
    let first = seconds.map_or(0, |_| now.as_nanos() as u64 & !3);
    let mut ends = std::collections::BTreeMap::new();
    let begun = Instant::now();
    for guest in 0.. {
        if seconds.map_or(guest >= GUESTS, |seconds| begun.elapsed() >= seconds) {
            break;
        }
        let seed = first.wrapping_add(guest << 32 | guest);
        let end = survive(seed);
        if seconds.is_some() {
            println!("seed {seed}: {end}, {:.1} s", begun.elapsed().as_secs_f64());
        }
        *ends.entry(end).or_insert(0u32) += 1;
    }
    println!("hostile guests: {ends:?}");
    assert!(ends.keys().any(|&end| end != "hang"), "no guest did anything: {ends:?}");
}
