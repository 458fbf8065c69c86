//! trace.dat of both versions, against what `trace-cmd report -t` prints of the same file.

use std::io::{self, Cursor, Read, Seek, SeekFrom};

use holdfast_recordings::event::{Event, What};
use holdfast_recordings::read::{Fault, Format, Recording, read};
use proptest::prelude::{ProptestConfig, proptest};

use crate::damage::{edits, mutated, read_all};

/// Recordings of `perf bench sched pipe` by trace-cmd 3.1.6 on Linux 6.18, with what it prints of them.
pub const FILES: [(&[u8], &str); 5] = [
    (include_bytes!("files/v6.dat"), include_str!("files/v6.txt")),
    (include_bytes!("files/v7-zstd.dat"), include_str!("files/v7-zstd.txt")),
    (
        include_bytes!("files/v6-instances.dat"),
        include_str!("files/v6-instances.txt"),
    ),
    (
        include_bytes!("files/v7-instances.dat"),
        include_str!("files/v7-instances.txt"),
    ),
    (include_bytes!("files/v6-lost.dat"), include_str!("files/v6-lost.txt")),
];

fn recording(bytes: &[u8]) -> Recording {
    read(Cursor::new(bytes.to_vec())).expect("a recording")
}

/// The events without names, which the text has not.
fn events(bytes: &[u8]) -> Vec<Event> {
    let events = recording(bytes).map(|event| event.expect("no damage"));
    events
        .filter(|event| !matches!(event.what, What::Named { .. }))
        .collect()
}

#[test]
fn each_file_has_the_events_that_trace_cmd_prints() {
    let mut lost = 0;
    for (file, text) in FILES {
        let (found, printed) = (events(file), events(text.as_bytes()));
        assert!(printed.len() > 50, "{} events", printed.len());
        for (found, printed) in found.iter().zip(&printed) {
            assert_eq!(found, printed);
        }
        assert_eq!(found.len(), printed.len());
        lost += found
            .iter()
            .filter(|event| matches!(event.what, What::Lost { events: Some(_) }))
            .count();
    }
    assert!(lost > 0, "no file has lost events");
}

#[test]
fn the_header_says_what_was_recorded() {
    for (file, _) in FILES {
        let recording = recording(file);
        let header = recording.header();
        assert_eq!(header.format, Format::TraceCmd);
        assert_eq!(header.machine.as_deref(), Some("x86_64"));
        assert!(
            header
                .kernel
                .as_deref()
                .is_some_and(|kernel| kernel.starts_with("6.18."))
        );
        assert_eq!((header.clock.as_deref(), header.cpus), (Some("local"), Some(2)));
        let tracepoints = header.tracepoints.as_ref().expect("formats");
        assert!(tracepoints.contains("sched:sched_switch"), "{tracepoints:?}");
        assert!(!tracepoints.contains("kvm:kvm_exit"), "{tracepoints:?}");
    }
}

#[test]
fn names_come_with_the_first_event() {
    let first = recording(FILES[0].0).next().expect("an event").expect("no damage");
    let What::Named {
        named: 1,
        process: None,
        name,
    } = first.what
    else {
        panic!("{first:?}")
    };
    assert_eq!(&*name, "init");
    assert!(first.at > 0);
}

#[test]
fn a_file_that_was_cut_off_keeps_what_it_has() {
    for (file, _) in FILES {
        let whole = events(file).len();
        let mut last = 0;
        for length in (0..file.len()).step_by(97) {
            let (events, errors) = read_all(file[..length].to_vec());
            assert!(events <= whole + 2, "{events} of {whole} events");
            assert!(
                events == 0 || !errors.is_empty() || events >= whole,
                "{length} bytes: no error"
            );
            last = events;
        }
        // Of version 6 the events are at the end of the file. Version 7 has the places of all there.
        assert!(last > whole / 2 || file[10] == b'7', "{last} of {whole}");
    }
}

#[test]
fn a_damaged_page_loses_its_events_and_no_others() {
    let (file, _) = FILES[0];
    let whole = events(file);
    let mut damaged = file.to_vec();
    // The second word of the last page's first event: `commit` says more than a page holds.
    let at = damaged.len() - 4096 + 8;
    damaged[at..at + 4].copy_from_slice(&5000u32.to_le_bytes());
    let (events, errors) = read_all(damaged);
    assert!(events > 0 && events < whole.len(), "{events}");
    assert_eq!(errors.len(), 1);
    assert!(
        errors[0].starts_with(&format!("at byte {}: damaged: a page of 4096", at - 8)),
        "{errors:?}"
    );
}

#[test]
fn what_is_not_supported_is_named() {
    let mut file = FILES[1].0.to_vec();
    let refused = |file: &[u8]| read(Cursor::new(file.to_vec())).expect_err("not supported").to_string();
    file[18..22].copy_from_slice(b"zlib");
    assert_eq!(refused(&file), "at byte 18: compression by zlib cannot be read");
    file[12] = 1;
    assert_eq!(
        refused(&file),
        "at byte 12: a trace of a big-endian machine cannot be read"
    );
    file[10] = b'5';
    assert_eq!(refused(&file), "at byte 10: trace.dat of version `5` cannot be read");
    let error = read(Cursor::new(FILES[0].0[..11].to_vec())).expect_err("cut off");
    assert!(matches!(error.fault, Fault::Truncated(_)), "{error}");
}

/// A file of a tebibyte: some bytes, and then zeros.
struct Sparse(Vec<u8>, u64);

impl Read for Sparse {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let there = self.0.get(self.1 as usize..).unwrap_or_default();
        let bytes = there.len().min(to.len());
        to[..bytes].copy_from_slice(&there[..bytes]);
        to[bytes..].fill(0);
        self.1 += to.len() as u64;
        Ok(to.len())
    }
}

impl Seek for Sparse {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.1 = match to {
            SeekFrom::Start(at) => at,
            SeekFrom::End(back) => (1u64 << 40).saturating_add_signed(back),
            SeekFrom::Current(by) => self.1.saturating_add_signed(by),
        };
        Ok(self.1)
    }
}

#[test]
fn a_part_is_not_as_long_as_a_huge_file_allows() {
    let mut file = b"\x17\x08\x44tracing6\0\x00\x08\x00\x10\0\0header_page\0".to_vec();
    let at = file.len() + 8;
    file.extend((1u64 << 36).to_le_bytes());
    let error = read(Sparse(file, 0)).expect_err("too long").to_string();
    assert_eq!(
        error,
        format!("at byte {at}: damaged: the description of pages of 68719476736 bytes")
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn mutated_files_never_panic(file in 0..FILES.len(), edits in edits()) {
        read_all(mutated(FILES[file].0, &edits));
    }
}
