//! perf.data, against what `perf script` prints of the same file.

use std::io::Cursor;

use holdfast_recordings::event::{Event, What};
use holdfast_recordings::read::{Fault, Format, Recording, read};
use proptest::prelude::{ProptestConfig, proptest};

use crate::damage::{edits, mutated, read_all};

/// Recordings of `perf bench sched pipe` by perf 6.1 on Linux 6.18, with what it prints of them.
pub const FILES: [(&[u8], &str); 3] = [
    (include_bytes!("files/perf.data"), include_str!("files/perf.txt")),
    (
        include_bytes!("files/perf-zstd.data"),
        include_str!("files/perf-zstd.txt"),
    ),
    (
        include_bytes!("files/perf-pipe.data"),
        include_str!("files/perf-pipe.txt"),
    ),
];

fn recording(bytes: &[u8]) -> Recording {
    read(Cursor::new(bytes.to_vec())).expect("a recording")
}

/// The events of tracepoints.
fn events(bytes: &[u8]) -> Vec<Event> {
    let events = recording(bytes).map(|event| event.expect("no damage"));
    let of_records = |event: &Event| {
        matches!(
            event.what,
            What::Named { .. } | What::Lost { .. } | What::Ended { .. } | What::Forked { .. }
        )
    };
    events.filter(|event| !of_records(event)).collect()
}

#[test]
fn each_file_has_the_events_that_perf_prints() {
    for (file, text) in FILES {
        let (found, printed) = (events(file), events(text.as_bytes()));
        assert!(printed.len() > 50, "{} events", printed.len());
        for (found, printed) in found.iter().zip(&printed) {
            assert_eq!(found, printed);
        }
        assert_eq!(found.len(), printed.len());
    }
}

#[test]
fn the_header_says_what_was_recorded() {
    for (file, _) in FILES {
        let recording = recording(file);
        let header = recording.header();
        assert_eq!(header.format, Format::Perf);
        let of_features = (header.machine.as_deref(), header.cpus);
        assert_eq!(of_features, (Some("x86_64"), Some(2)));
        assert!(
            header
                .kernel
                .as_deref()
                .is_some_and(|kernel| kernel.starts_with("6.18."))
        );
        let expected = ["sched:sched_migrate_task", "sched:sched_switch", "sched:sched_waking"];
        assert!(
            header.tracepoints.iter().flatten().eq(expected),
            "{:?}",
            header.tracepoints
        );
    }
}

#[test]
fn what_perf_counts_at_the_end_is_lost_anywhere() {
    let lost = recording(FILES[0].0)
        .flatten()
        .filter(|event| matches!(event.what, What::Lost { .. }));
    let lost: Vec<_> = lost.map(|event| (event.cpu, event.what)).collect();
    let at_the_end = |events| (u32::MAX, What::Lost { events: Some(events) });
    assert_eq!(lost, [at_the_end(64), at_the_end(30)]);
}

#[test]
fn threads_are_named_with_their_processes() {
    let named = recording(FILES[0].0).flatten().filter_map(|event| match event.what {
        What::Named {
            process: Some(process),
            name,
            ..
        } if process > 0 => Some(name),
        _ => None,
    });
    assert!(named.into_iter().any(|name| &*name == "sched-pipe"));
}

#[test]
fn a_file_that_was_cut_off_keeps_what_it_has() {
    for (file, _) in FILES {
        let whole = recording(file).count();
        for length in (0..file.len()).step_by(331) {
            let (events, errors) = read_all(file[..length].to_vec());
            assert!(events <= whole, "{events} of {whole} events");
            let is_open = file[8] == 16 && length % 8 == 0;
            assert!(
                events == 0 || !errors.is_empty() || events == whole || is_open,
                "{length} bytes: no error"
            );
        }
    }
    // What follows the records of a file is missing: the formats, without which nothing is known.
    let (file, _) = FILES[0];
    let error = read(Cursor::new(file[..file.len() / 2].to_vec())).expect_err("cut off");
    assert!(matches!(error.fault, Fault::Truncated(_)), "{error}");
    let (pipe, _) = FILES[2];
    let (events, errors) = read_all(pipe[..pipe.len() - 1000].to_vec());
    assert!(events > 100 && errors.len() <= 1, "{events} events, {errors:?}");
}

#[test]
fn what_is_not_supported_is_named() {
    let refused = |file: &[u8]| read(Cursor::new(file.to_vec())).expect_err("not supported").to_string();
    assert_eq!(
        refused(b"2ELIFREP\0\0\0\0\0\0\0\0"),
        "at byte 0: perf.data of a big-endian machine cannot be read"
    );
    assert_eq!(
        refused(b"PERFILE2"),
        "at byte 0: the file ends within the header of perf.data"
    );
    let mut open = FILES[0].0.to_vec();
    open[0x30..0x38].fill(0);
    assert!(refused(&open).starts_with("at byte 48: perf.data that was not closed"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn mutated_files_never_panic(file in 0..FILES.len(), edits in edits()) {
        read_all(mutated(FILES[file].0, &edits));
    }
}
