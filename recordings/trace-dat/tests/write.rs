//! What is written stands where the format says.

use std::io::Cursor;

use holdfast_trace_dat::write::{Metadata, Pages, TRACE_CLOCK, Writer, mark_missed};
use proptest::prelude::*;

fn metadata() -> Metadata {
    Metadata {
        long_size: 8,
        page_size: 4096,
        header_page: b"page".to_vec(),
        header_event: b"event".to_vec(),
        ftrace_formats: vec![b"print".to_vec()],
        systems: vec![("sched".to_owned(), vec![b"switch".to_vec(), b"waking".to_vec()])],
        symbols: Vec::new(),
        printk_formats: Vec::new(),
        command_names: b"1 init\n".to_vec(),
        options: vec![(TRACE_CLOCK, b"[mono]".to_vec())],
    }
}

#[test]
fn the_table_says_where_the_pages_of_each_cpu_are() {
    let (first, third) = (vec![1; 8192], vec![3; 4096]);
    let mut writer = Writer::new(Cursor::new(Vec::new()), &metadata(), 4).expect("begun");
    for pages in [&first[..], &[], &third] {
        assert_eq!(writer.cpu(&mut &*pages).expect("written"), pages.len() as u64);
    }
    let bytes = writer.finish().expect("finished").into_inner();
    let end = b"\x04\0\0\0options  \0\x04\0\x06\0\0\0[mono]\0\0flyrecord\0";
    let table = bytes
        .windows(end.len())
        .position(|part| part == end)
        .expect("the end of the head")
        + end.len();
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes")) as usize;
    let entry = |cpu: usize| (word(table + 16 * cpu), word(table + 16 * cpu + 8));
    for (cpu, pages) in [(0, &first[..]), (1, &[]), (2, &third), (3, &[])] {
        let (at, length) = entry(cpu);
        assert_eq!(at % 4096, 0, "{cpu}");
        assert_eq!(&bytes[at..at + length], pages, "{cpu}");
    }
    assert_eq!(bytes.len(), entry(2).0 + 4096);
}

#[test]
fn what_the_format_cannot_express_is_refused() {
    type Change = fn(&mut Metadata);
    let changes: [Change; 4] = [
        |metadata| metadata.page_size = 4095,
        |metadata| metadata.long_size = 7,
        |metadata| metadata.options.push((0, Vec::new())),
        |metadata| metadata.systems[0].0.push('\0'),
    ];
    for change in changes {
        let mut metadata = metadata();
        change(&mut metadata);
        let error = Writer::new(Cursor::new(Vec::new()), &metadata, 1).expect_err("refused");
        assert!(error.to_string().starts_with("trace.dat cannot hold "), "{error}");
    }
    let mut writer = Writer::new(Cursor::new(Vec::new()), &metadata(), 1).expect("begun");
    writer.cpu(&mut &[][..]).expect("the first");
    writer.cpu(&mut &[][..]).expect_err("a second of one CPU");
}

/// Reads pages by the text of `events/header_event`: times and contents of the events.
fn events(pages: &[u8], size: usize) -> Vec<(u64, Vec<u8>)> {
    let mut events = Vec::new();
    for page in pages.chunks(size) {
        let word = |at: usize| u32::from_le_bytes(page[at..at + 4].try_into().expect("4 bytes"));
        let mut time = u64::from(word(0)) | u64::from(word(4)) << 32;
        let end = 16 + word(8) as usize;
        let mut at = 16;
        while at < end {
            let (kind, delta) = (word(at) & 31, u64::from(word(at) >> 5));
            at += 4;
            match kind {
                30 => {
                    time += delta | u64::from(word(at)) << 27;
                    at += 4;
                    continue;
                }
                0 => {
                    time += delta;
                    let length = word(at) as usize - 4;
                    events.push((time, page[at + 4..at + 4 + length].to_vec()));
                    at += 4 + length;
                }
                words => {
                    time += delta;
                    let length = 4 * words as usize;
                    events.push((time, page[at..at + length].to_vec()));
                    at += length;
                }
            }
        }
        assert!(page[end..].iter().all(|byte| *byte == 0));
    }
    events
}

proptest! {
    #[test]
    fn pages_hold_the_events_with_their_times(
        steps in prop::collection::vec((prop_oneof![0u64..1000, Just(1 << 27), 0u64..1 << 50], 0usize..300), 0..60),
    ) {
        const SIZE: usize = 256;
        let mut pages = Pages::new(SIZE);
        let (mut at, mut expected) = (0, Vec::new());
        for (step, length) in steps {
            at += step;
            let mut data = vec![length as u8; length];
            if pages.push(at, &data) {
                data.resize(length.next_multiple_of(4), 0);
                expected.push((at, data));
            } else {
                prop_assert!(length > SIZE - 40);
            }
        }
        let pages = pages.finish();
        prop_assert_eq!(pages.len() % SIZE, 0);
        prop_assert_eq!(events(&pages, SIZE), expected);
    }

    #[test]
    fn the_mark_of_lost_events_changes_nothing_else(page in prop::collection::vec(any::<u8>(), 0..32)) {
        let mut marked = page.clone();
        mark_missed(&mut marked);
        let mut expected = page;
        if expected.len() >= 12 {
            expected[11] |= 0x80;
        }
        prop_assert_eq!(marked, expected);
    }
}
