//! What a file on a disk has: blocks, times, and its part in transactions.

use std::cell::Cell;
use std::rc::Rc;

use holdfast_guest::{FileId, Format, Limits, Os};
use holdfast_sim::{Outcome, SimMachine};

use crate::machine::{Setup, counter, lead, run};

/// A millisecond in nanoseconds.
const MS: u64 = 1_000_000;

/// Runs one task on one CPU with one disk.
fn alone(format: Format, calls: impl Fn(&Os<SimMachine>) + 'static) -> Outcome {
    let mut setup = Setup {
        pcpus: 1,
        vcpus: 1,
        limits: Limits {
            tasks: 2,
            files: 16 * 20,
            format,
            ..Limits::default()
        },
        ..Setup::default()
    };
    setup.kernel.hz = 100;
    run(&setup, move |os, start| match start.role {
        0 => lead(os, 1),
        _ => calls(os),
    })
}

/// Returns how many locks of `class` the calls take more with `true` than with `false`.
fn acquired_by(format: Format, class: &str, calls: impl Fn(&Os<SimMachine>, bool) + 'static) -> u64 {
    let calls = Rc::new(calls);
    let [without, with] = [false, true].map(|all| {
        let calls = calls.clone();
        let outcome = alone(format, move |os| calls(os, all));
        counter(&outcome, &format!("lock.{class}.acquired"))
    });
    with - without
}

#[test]
fn xfs_allocates_as_many_blocks_ahead_as_a_file_has_and_ext4_as_many_as_it_needs() {
    // An allocation takes a group's header and two other buffers, each twice (XFS), or the group's lock (ext4).
    for (format, class, of_allocation) in [(Format::Xfs, "semaphore", 6), (Format::Ext4, "bgl_lock", 1)] {
        let (mut blocks, mut allocations) = (0_u32, 0);
        for pages in 1..=72 {
            if pages > blocks {
                allocations += of_allocation;
                blocks = if format == Format::Xfs {
                    (2 * pages).max(16)
                } else {
                    pages
                };
            }
            if !matches!(pages, 1 | 15..=18 | 34..=36 | 70..=72) {
                continue;
            }
            let found = acquired_by(format, class, move |os, syncs| {
                for _ in 0..pages {
                    os.write(FileId(1), 1);
                    if syncs {
                        os.sync(FileId(1), 1);
                    }
                }
            });
            assert_eq!(found, allocations, "{format:?}, {pages} pages");
        }
    }
}

#[test]
fn a_removed_file_gives_back_the_blocks_that_it_had() {
    // Pages that were never written to the disk have none.
    for (format, class, of_blocks) in [(Format::Xfs, "semaphore", 6), (Format::Ext4, "bgl_lock", 1)] {
        let removal = |syncs| {
            acquired_by(format, class, move |os, removes| {
                os.create(FileId(0), FileId(1), 2);
                os.write(FileId(1), 3);
                if syncs {
                    os.sync(FileId(1), 3);
                }
                if removes {
                    os.unlink(FileId(0), FileId(1), 2);
                }
            })
        };
        assert_eq!(removal(true) - removal(false), of_blocks, "{format:?}");
    }
}

#[test]
fn a_files_times_change_once_in_a_millisecond() {
    // Each change of XFS is one section of the log's list.
    let changes = |writes_at: &'static [u64]| {
        acquired_by(Format::Xfs, "xc_cil_lock", move |os, writes| {
            os.sleep(50 * MS - os.now());
            os.create(FileId(0), FileId(1), 2);
            for at in writes_at {
                os.sleep((50 * MS + at).saturating_sub(os.now()));
                if writes {
                    os.write(FileId(1), 1);
                }
            }
        })
    };
    assert_eq!(changes(&[300_000, 600_000]), 0, "the new file has this time already");
    assert_eq!(changes(&[300_000, MS + 100_000]), 1);
    assert_eq!(
        changes(&[MS + 100_000, MS + 300_000, 2 * MS + 100_000, 2 * MS + 800_000]),
        2
    );
}

#[test]
fn a_commit_looks_at_the_blocks_of_all_past_transactions() {
    // Each file's inode is in a block of its own, and each sync is a transaction. A look is one load.
    const LOOK_NS: u64 = 1;
    let last_sync = |blocks: u32| {
        let took = Rc::new(Cell::new(0));
        let noted = took.clone();
        alone(Format::Ext4, move |os| {
            for block in 0..blocks {
                os.sync(FileId(16 * block), 0);
            }
            // Far from a tick.
            os.sleep(61 * MS - os.now());
            let begun = os.now();
            os.sync(FileId(0), 0);
            noted.set(os.now() - begun);
        });
        took.get()
    };
    let one = last_sync(1);
    for blocks in [2, 5, 20] {
        assert_eq!(
            last_sync(blocks),
            one + u64::from(blocks - 1) * LOOK_NS,
            "{blocks} blocks"
        );
    }
}

#[test]
fn each_page_of_a_removed_file_leaves_its_buffers_and_the_cache() {
    for format in [Format::Ext4, Format::Xfs] {
        for pages in [1, 20] {
            let removal = |class| {
                acquired_by(format, class, move |os, removes| {
                    os.create(FileId(0), FileId(1), 2);
                    os.write(FileId(1), pages);
                    if removes {
                        os.unlink(FileId(0), FileId(1), 2);
                    }
                })
            };
            assert_eq!(removal("private_lock"), u64::from(pages), "{format:?}");
            // Once more for the number of pages.
            assert_eq!(removal("tree_lock"), 1 + u64::from(pages), "{format:?}");
        }
    }
}
