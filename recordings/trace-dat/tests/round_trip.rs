//! The reader reads what the writer writes.

use std::io::Cursor;

use holdfast_trace_dat::write::{Metadata, Pages, TRACE_CLOCK, TRACE_ID, UNAME, Writer, mark_missed};
use holdfast_trace_dat::{File, Records};
use proptest::prelude::*;

const PAGE: usize = 4096;

fn metadata() -> Metadata {
    let header_page = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
                       \tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n\
                       \tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n\
                       \tfield: char data;\toffset:16;\tsize:4080;\tsigned:0;\n";
    let format = "name: sched_waking\nID: 7\nformat:\n\
                  \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n\
                  \tfield:int pid;\toffset:4;\tsize:4;\tsigned:1;\n\nprint fmt: \"%d\", REC->pid\n";
    Metadata {
        long_size: 8,
        page_size: PAGE as u32,
        header_page: header_page.into(),
        header_event: b"# compressed entry header\n".to_vec(),
        ftrace_formats: Vec::new(),
        systems: vec![("sched".to_owned(), vec![format.into()])],
        symbols: Vec::new(),
        printk_formats: Vec::new(),
        command_names: b"1 init\n22 CPU 0/KVM\n".to_vec(),
        options: vec![
            (TRACE_CLOCK, b"local [mono] x86-tsc\n".to_vec()),
            (UNAME, b"Linux localhost 6.1.0 x86_64".to_vec()),
            (TRACE_ID, 99_u64.to_le_bytes().to_vec()),
        ],
    }
}

fn written(cpus: &[Vec<u8>]) -> File<Cursor<Vec<u8>>> {
    let mut writer = Writer::new(Cursor::new(Vec::new()), &metadata(), cpus.len() as u32).expect("begun");
    for pages in cpus {
        writer.cpu(&mut &pages[..]).expect("written");
    }
    let bytes = writer.finish().expect("finished").into_inner();
    File::open(Cursor::new(bytes)).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn the_reader_finds_what_the_writer_says_of_the_machine() {
    let file = written(&[]);
    assert_eq!((file.version, file.long_size, file.page_size as usize), (6, 8, PAGE));
    assert_eq!(file.clock.as_deref(), Some("mono"));
    assert_eq!(file.uname.as_deref(), Some("Linux localhost 6.1.0 x86_64"));
    assert_eq!(file.id, Some(99));
    assert_eq!(file.cmdlines.get(&22).map(String::as_str), Some("CPU 0/KVM"));
    let format = file.formats.get(7).expect("a format");
    assert_eq!(
        (format.system.as_str(), format.name.as_str()),
        ("sched", "sched_waking")
    );
}

proptest! {
    #[test]
    fn each_event_comes_back_in_the_order_of_times(
        events in prop::collection::vec((0u32..3, prop_oneof![0u64..5000, 0u64..1 << 40], 4usize..400), 0..200),
        cut in any::<bool>(),
    ) {
        let mut cpus = [const { Vec::<(u64, Vec<u8>)>::new() }; 3];
        let mut pages = [Pages::new(PAGE), Pages::new(PAGE), Pages::new(PAGE)];
        let mut at = 1;
        for (number, (cpu, step, length)) in events.into_iter().enumerate() {
            at += step;
            let mut data = vec![number as u8; length.next_multiple_of(4)];
            data[..2].copy_from_slice(&7_u16.to_le_bytes());
            prop_assert!(pages[cpu as usize].push(at, &data));
            cpus[cpu as usize].push((at, data));
        }
        let mut pages = pages.map(Pages::finish);
        let lost = cut && !pages[1].is_empty();
        if lost {
            mark_missed(&mut pages[1][..PAGE]);
        }
        let mut records = Records::new(written(&pages));
        let mut read = [const { Vec::new() }; 3];
        let mut last = 0;
        while let Some(record) = records.next() {
            let record = record.unwrap_or_else(|error| panic!("{error}"));
            prop_assert!(record.at >= last);
            last = record.at;
            let first_of_cut = lost && record.cpu == 1 && read[1].is_empty();
            prop_assert_eq!(record.missed.is_some(), first_of_cut);
            read[record.cpu as usize].push((record.at, record.data.to_vec()));
        }
        prop_assert_eq!(read, cpus);
    }
}
