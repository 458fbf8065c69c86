//! Damaged files for as long as `HOLDFAST_FUZZ_SECONDS` says: no panic, no endless reading, no allocation as large as a
//! number in the file says.

use std::time::{Duration, Instant};

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use crate::damage::{edits, mutated, read_all};
use crate::{dat, perf, text};

/// What a damaged file may add to the address space of the tests, in KiB. Chunks in memory are at most 256 MiB, and
/// each thread of the tests reserves 64 MiB.
const GROWTH_KIB_MAX: u64 = 1 << 20;

/// Returns the largest address space so far, in KiB.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux has it");
    let line = status.lines().find_map(|line| line.strip_prefix("VmPeak:"));
    let peak = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    peak.expect("a number of kB")
}

fn number(key: &str, default: u64) -> u64 {
    std::env::var(key).map_or(default, |text| text.parse().expect(key))
}

/// Reads files with the edits of one seed after the other.
fn fuzz(files: &[&[u8]]) {
    let (seconds, first) = (number("HOLDFAST_FUZZ_SECONDS", 10), number("HOLDFAST_FUZZ_SEED", 0));
    let (begin, before) = (Instant::now(), peak());
    let (mut seed, mut events, mut errors) = (first, 0, 0);
    while begin.elapsed() < Duration::from_secs(seconds) {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
        let mut runner = TestRunner::new_with_rng(Config::default(), rng);
        let edits = edits().new_tree(&mut runner).expect("edits").current();
        let file = mutated(files[seed as usize % files.len()], &edits);
        let outcome = std::panic::catch_unwind(|| read_all(file));
        let Ok(outcome) = outcome else {
            panic!("HOLDFAST_FUZZ_SEED={seed} plays it again");
        };
        events += outcome.0;
        errors += outcome.1.len();
        let growth = peak() - before;
        assert!(
            growth < GROWTH_KIB_MAX,
            "{growth} KiB, HOLDFAST_FUZZ_SEED={seed} plays it again"
        );
        seed += 1;
    }
    println!(
        "seeds {first} to {seed}: {events} events, {errors} errors, {} KiB",
        peak() - before
    );
}

#[test]
#[ignore = "runs for as long as HOLDFAST_FUZZ_SECONDS says"]
fn fuzz_trace_dat() {
    fuzz(&dat::FILES.map(|file| file.0));
}

#[test]
#[ignore = "runs for as long as HOLDFAST_FUZZ_SECONDS says"]
fn fuzz_perf_data() {
    fuzz(&perf::FILES.map(|file| file.0));
}

#[test]
#[ignore = "runs for as long as HOLDFAST_FUZZ_SECONDS says"]
fn fuzz_text() {
    let texts = [text::PERF, text::TRACE_CMD, text::TRACEFS].map(str::as_bytes);
    let printed = dat::FILES.map(|file| file.1.as_bytes());
    fuzz(&[&texts[..], &printed[..]].concat());
}

/// Each aligned number of the first kilobytes of each file, and each of what is behind it, becomes huge.
#[test]
fn no_number_in_a_file_is_allocated() {
    let before = peak();
    for file in dat::FILES.iter().chain(&perf::FILES).map(|file| file.0) {
        let places = (0..200).chain((200..file.len().min(40_000) - 8).step_by(151));
        for place in places {
            for number in [u64::MAX >> 1, 0x7fff_ffff, 0xffff_0000_0000] {
                let mut file = file.to_vec();
                file[place..place + 8].copy_from_slice(&number.to_le_bytes());
                read_all(file);
            }
        }
    }
    let growth = peak() - before;
    assert!(growth < GROWTH_KIB_MAX, "{growth} KiB");
}
