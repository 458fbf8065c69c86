use std::fs;
use std::io::{self, Read as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::Duration;

use holdfast_sim::CallOff;
use holdfast_trace_dat::write::Pages;
use proptest::prelude::*;

use super::*;
use crate::scratch;

const HEADER_PAGE: &str = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
                           \tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n\
                           \tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n\
                           \tfield: char data;\toffset:16;\tsize:4080;\tsigned:0;\n";

fn write(path: &Path, content: impl AsRef<[u8]>) {
    fs::create_dir_all(path.parent().expect("a folder above")).expect("writable");
    fs::write(path, content).expect("writable");
}

/// Two pages with an event each.
fn pages() -> Vec<u8> {
    let mut pages = Pages::new(4096);
    assert!(pages.push(1_000, &[1; 2400]));
    assert!(pages.push(2_000, &[2; 2400]));
    pages.finish()
}

/// Makes the files of an instance as the kernel does.
fn make(folder: &Path) -> io::Result<()> {
    fs::create_dir(folder)?;
    for (file, content) in [
        ("tracing_on", "1"),
        ("trace_clock", "[local] global mono"),
        ("buffer_size_kb", "7"),
        ("events/header_page", HEADER_PAGE),
        ("events/header_event", "# compressed entry header\n"),
        ("events/ftrace/print/format", "name: print\n"),
        (
            "per_cpu/cpu3/stats",
            "entries: 0\noverrun: 5\ncommit overrun: 1\nread events: 2\n",
        ),
        ("per_cpu/cpu0/trace_pipe_raw", ""),
        ("per_cpu/cpu999999/trace_pipe_raw", ""),
    ] {
        write(&folder.join(file), content);
    }
    write(&folder.join("per_cpu/cpu3/trace_pipe_raw"), pages());
    for event in REQUIRED.iter().chain(&WANTED[..5]) {
        write(&folder.join(format!("events/{event}/enable")), "0");
        write(
            &folder.join(format!("events/{event}/format")),
            format!("name: {event}\n"),
        );
    }
    Ok(())
}

fn remove(folder: &Path) -> io::Result<()> {
    fs::remove_dir_all(folder)
}

/// A machine's files, with a VM of two vCPUs and an I/O thread, and a folder for recordings.
fn machine() -> tempfile::TempDir {
    let machine = scratch();
    let root = machine.path();
    fs::create_dir_all(root.join("sys/kernel/tracing/instances")).expect("writable");
    fs::create_dir(root.join("out")).expect("writable");
    write(
        &root.join("sys/kernel/tracing/saved_cmdlines"),
        "7 old\nnonsense\n\n8 kept\n",
    );
    write(&root.join("proc/sys/kernel/osrelease"), "6.1.0\n");
    write(&root.join("proc/self/task/5/schedstat"), "70 0 1\n");
    for (thread, name) in [("7", "qemu"), ("9", "CPU 0/KVM\n"), ("10", "CPU 1/KVM\n")] {
        write(&root.join(format!("proc/7/task/{thread}/comm")), name);
        write(&root.join(format!("proc/7/task/{thread}/schedstat")), "1 2 3\n");
        write(
            &root.join(format!("proc/7/task/{thread}/cgroup")),
            "0::/vms/web\n4:cpu,cpuacct:/../..\n",
        );
    }
    write(&root.join("proc/12/task/12/comm"), "CPU x/KVM\n");
    write(&root.join("sys/fs/cgroup/vms/web/cpu.max"), "50000 100000\n");
    write(&root.join("sys/fs/cgroup/vms/cpu.weight"), "100\n");
    machine
}

fn record(root: &Path, make: fn(&Path) -> io::Result<()>) -> Result<Report, RecordError> {
    let machine = Machine { root, make, remove };
    let settings = Settings {
        length: Duration::ZERO,
        bytes_max: 1 << 20,
    };
    run(
        machine,
        &root.join("out/host.recording"),
        &settings,
        &CallOff::new(),
        |_| {},
    )
}

/// Returns how many entries there are in the folders for recordings and instances.
fn left(root: &Path) -> (usize, usize) {
    let count = |folder: &str| fs::read_dir(root.join(folder)).expect("a folder").count();
    (count("out"), count("sys/kernel/tracing/instances"))
}

#[test]
fn a_recording_has_the_events_and_the_files_that_explain_them() {
    let machine = machine();
    let root = machine.path();
    let report = record(root, make).expect("recorded");
    assert_eq!(left(root), (1, 0));
    let folder = root.join("out/host.recording");
    let text = |file: &str| fs::read_to_string(folder.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
    for thread in [7, 9, 10] {
        let file = format!("proc/7/task/{thread}/schedstat");
        assert_eq!(
            (text(&file), text(&format!("before/{file}"))),
            ("1 2 3\n".to_owned(), "1 2 3\n".to_owned())
        );
    }
    assert_eq!(text("sys/fs/cgroup/vms/web/cpu.max"), "50000 100000\n");
    assert_eq!(text("sys/fs/cgroup/vms/cpu.weight"), "100\n");
    assert!(!folder.join("proc/12/task").exists());
    let trace = fs::read(folder.join("trace.dat")).expect("there");
    assert!(trace.ends_with(&pages()), "the pages of CPU 3 end the file");
    let names = b"7 qemu\n8 kept\n9 CPU 0/KVM\n10 CPU 1/KVM\n12 CPU x/KVM\n";
    assert!(trace.windows(names.len()).any(|part| part == names));
    assert_eq!((report.clock.as_str(), report.kernel.as_str()), ("mono", "6.1.0"));
    assert_eq!((report.vms.as_slice(), report.missing.len()), (&[7][..], 12));
    let cpus: Vec<_> = report
        .cpus
        .iter()
        .map(|cpu| (cpu.cpu, cpu.events, cpu.lost, cpu.pages))
        .collect();
    assert_eq!(cpus, [(0, 0, 0, 0), (3, 2, 6, 2)]);
    let said: serde_json::Value = serde_json::from_str(&text("recording.json")).expect("JSON");
    assert_eq!(said["cpus"][1]["lost"], 6);
    // A folder with a recording is not overwritten.
    assert!(record(root, make).is_err());
    assert_eq!(left(root), (1, 0));
}

#[test]
fn run_delays_are_those_next_to_the_events() {
    let machine = machine();
    let (root, folder) = (machine.path(), scratch());
    let delays = |content: &str| write(&root.join("proc/7/task/9/schedstat"), content);
    let copied = || fs::read_to_string(folder.path().join("proc/7/task/9/schedstat")).expect("copied");
    let mut taken = Snapshot::new(root);
    delays("1 1 1\n");
    taken.all(folder.path());
    delays("2 2 2\n");
    let read = taken.run_delays();
    delays("4 4 4\n");
    taken.keep(&read, folder.path());
    assert_eq!(copied(), "2 2 2\n");
    delays("3 3 3\n");
    taken.all(folder.path());
    assert_eq!(copied(), "2 2 2\n");
}

#[test]
fn what_is_lacking_is_said_and_nothing_is_left() {
    let lacks = |root: &Path, make, expected: &str| {
        let error = record(root, make).expect_err(expected);
        assert!(matches!(error, RecordError::Lacks(_)), "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    };
    let empty = scratch();
    lacks(empty.path(), make, "a kernel with tracepoints");
    fs::create_dir_all(empty.path().join("sys/kernel/tracing")).expect("writable");
    lacks(empty.path(), make, "mount -t tracefs");
    let machine = machine();
    let root = machine.path();
    lacks(root, |_| Err(io::ErrorKind::PermissionDenied.into()), "root");
    lacks(root, |_| Err(io::ErrorKind::ReadOnlyFilesystem.into()), "for writing");
    fn with(folder: &Path, change: impl Fn(&Path) -> io::Result<()>) -> io::Result<()> {
        make(folder)?;
        change(folder)
    }
    lacks(
        root,
        |folder| {
            with(folder, |folder| {
                fs::remove_file(folder.join("events/sched/sched_waking/enable"))
            })
        },
        "the kernel's event sched/sched_waking",
    );
    lacks(
        root,
        |folder| {
            with(folder, |folder| {
                fs::write(folder.join("trace_clock"), "[local] x86-tsc")
            })
        },
        "a clock among",
    );
    lacks(
        root,
        |folder| {
            with(folder, |folder| {
                fs::write(folder.join("events/header_page"), [0xff; 99])
            })
        },
        "events/header_page",
    );
    assert_eq!(left(root), (0, 0));
}

#[test]
fn files_of_the_kernel_are_not_trusted() {
    let machine = machine();
    let root = machine.path();
    let hostile = |folder: &Path| {
        make(folder)?;
        // Neither pages nor numbers.
        write(&folder.join("per_cpu/cpu0/trace_pipe_raw"), [0xff; 10_001]);
        write(
            &folder.join("per_cpu/cpu0/stats"),
            "overrun: 99999999999999999999999\nread events: -1\n",
        );
        write(&folder.join("per_cpu/cpuX/stats"), "");
        Ok(())
    };
    write(&root.join("proc/13/task/13/comm"), "a\n14 b");
    write(&root.join("proc/13/task/13/cgroup"), "\u{0}::::\n::/../../../etc\n0::/");
    write(&root.join("proc/meminfo"), "MemAvailable: 18446744073709551615 kB\n");
    let report = record(root, hostile).expect("recorded");
    assert_eq!((report.cpus[0].events, report.cpus[0].lost), (0, 0));
    let trace = fs::read(root.join("out/host.recording/trace.dat")).expect("there");
    assert!(
        trace.windows(10).any(|part| part == b"13 a?14 b\n"),
        "a name ends no line"
    );
    let huge = |folder: &Path| {
        make(folder)?;
        fs::write(folder.join("events/header_event"), vec![b' '; 2 << 20])
    };
    fs::remove_dir_all(root.join("out/host.recording")).expect("ours");
    assert!(
        record(root, huge)
            .expect_err("too large")
            .to_string()
            .contains("header_event")
    );
    assert_eq!(left(root), (0, 0));
}

#[test]
fn a_panic_removes_the_instance() {
    let machine = machine();
    let root = machine.path();
    let settings = Settings {
        length: Duration::ZERO,
        bytes_max: 1,
    };
    let recorded = catch_unwind(AssertUnwindSafe(|| {
        let machine = Machine { root, make, remove };
        run(machine, &root.join("out/x"), &settings, &CallOff::new(), |_| {
            panic!("as planned")
        })
    }));
    assert!(recorded.is_err());
    assert_eq!(left(root), (0, 0));
}

#[test]
fn a_program_that_ends_at_once_removes_instance_and_files_first() {
    let machine = machine();
    let root = machine.path();
    let settings = Settings {
        length: Duration::from_secs(3600),
        bytes_max: 1 << 20,
    };
    let call_off = CallOff::new();
    call_off.call();
    let machine = Machine { root, make, remove };
    let begun = |abandon: Abandon| {
        abandon.now();
        abandon.now();
        assert_eq!(left(root), (0, 0));
    };
    assert!(run(machine, &root.join("out/x"), &settings, &call_off, begun).is_err());
    assert_eq!(left(root), (0, 0));
    // Called off, the recording ends before its hour, and is kept.
    let report = run(machine, &root.join("out/x"), &settings, &call_off, |_| {}).expect("recorded");
    assert!(report.interrupted);
}

#[test]
fn instances_of_dead_programs_are_named_with_what_removes_them() {
    let machine = machine();
    let root = machine.path();
    for name in ["holdfast-7", "holdfast-4711", "holdfast-x", "mine"] {
        fs::create_dir(root.join("sys/kernel/tracing/instances").join(name)).expect("writable");
    }
    let report = record(root, make).expect("recorded");
    assert_eq!(report.left_over.len(), 1, "{:?}", report.left_over);
    assert!(report.left_over[0].contains("rmdir ") && report.left_over[0].ends_with("holdfast-4711"));
}

proptest! {
    #[test]
    fn a_spool_keeps_the_newest_pages(
        limit in 0u64..9,
        pieces in prop::collection::vec(prop::collection::vec(prop::option::weighted(0.8, 1u64..48), 0..9), 0..9),
    ) {
        const PAGE: usize = 64;
        let mut spool = Spool::new(tempfile::tempfile().expect("writable"), PAGE, limit * PAGE as u64);
        let mut expected = Vec::new();
        for (index, piece) in pieces.iter().enumerate() {
            let mut pages = Vec::new();
            for length in piece {
                let mut page = vec![0xee; PAGE];
                page[..8].copy_from_slice(&(index as u64).to_le_bytes());
                page[8..16].copy_from_slice(&length.unwrap_or(0).to_le_bytes());
                pages.extend(&page);
                if let Some(length) = length {
                    page[16 + *length as usize..].fill(0);
                    expected.push(page);
                }
            }
            spool.push(&mut pages).expect("written");
        }
        let kept = expected.len().min(limit.max(1) as usize);
        let replaced = expected.len() - kept;
        prop_assert_eq!((spool.pages(), spool.replaced()), (kept as u64, replaced as u64));
        let mut expected = expected.split_off(replaced).concat();
        if replaced > 0 {
            // The flag of lost events.
            expected[11] |= 0x80;
        }
        let mut read = Vec::new();
        spool.read().read_to_end(&mut read).expect("read");
        prop_assert_eq!(read, expected);
    }

    #[test]
    fn no_page_makes_a_spool_panic(page in prop::collection::vec(any::<u8>(), 64)) {
        let mut spool = Spool::new(tempfile::tempfile().expect("writable"), 64, 64);
        spool.push(&mut page.clone()).expect("written");
        prop_assert!(spool.pages() <= 1);
    }

    #[test]
    fn a_layout_of_pages_is_read_or_refused(text in "[ a-z:;0-9\n\t]{0,80}") {
        let bytes = metadata::bytes_of_page(text.as_bytes());
        prop_assert!(bytes.is_none_or(|bytes| (64..=4 << 20).contains(&bytes)));
    }
}
