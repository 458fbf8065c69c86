//! A measured kernel: each operation takes as long as its profile says, and takes the spinlocks that are there.

use std::cell::Cell;
use std::rc::Rc;

use holdfast_guest::{
    FileId, Fork, Format, KernelProfile, LineProfile, LockClass, LockProfile, MmapLock, Operation, OperationProfile,
    Os, OwnerSpinning, Scope, Start, Touch,
};
use holdfast_sim::SimMachine;

use crate::machine::{Setup, counter, lead, lead_forked, run};
use crate::operations::{self, Runs, operation, setup};

/// A millisecond in nanoseconds.
const MS: u64 = 1_000_000;
const FILE: FileId = FileId(3);
const FOLDER: FileId = FileId(0);

/// A row: class, scope, acquisitions in a million, nanoseconds of a hold, the row that it is nested in.
type Row = (LockClass, Scope, u64, u64, Option<u32>);

/// The rows of all operations but those below: some taken more than once in an operation, some rarely, some nested.
const ROWS: [Row; 7] = [
    (LockClass::Other, Scope::Process, 2_500_000, 300, None),
    (LockClass::Slab, Scope::Node, 1_250_000, 100, Some(0)),
    (LockClass::Cgroup, Scope::Global, 250_000, 1_000, None),
    (LockClass::Zone, Scope::Node, 1_000_000, 200, None),
    // Of a lower rank than the lock that it is nested in.
    (LockClass::PageList, Scope::Cpu, 3_000_000, 70, Some(3)),
    (LockClass::Rcu, Scope::Shared, 125_000, 500, None),
    // Of the class that it is nested in: another lock, or the CPU would wait for itself.
    (LockClass::Cgroup, Scope::Global, 250_000, 40, Some(2)),
];
/// A fault's row, which is also in the rows of an operation with a fault.
const FAULT: [Row; 1] = [(LockClass::PageTable, Scope::Process, 1_000_000, 80, None)];
const MAP: [Row; 3] = [
    (LockClass::PageTable, Scope::Process, 3_000_000, 400, None),
    (LockClass::PageTable, Scope::Process, 1_500_000, 80, None),
    (LockClass::Pgd, Scope::Global, 500_000, 150, None),
];
/// Beside the process numbers, what the code that makes and ends tasks takes itself.
const FORK: [Row; 5] = [
    (LockClass::RunQueue, Scope::Cpu, 5_000_000, 100, None),
    (LockClass::TaskWake, Scope::Process, 2_250_000, 100, None),
    (LockClass::WaitQueue, Scope::Object, 4_000_000, 100, None),
    (LockClass::Signal, Scope::Process, 2_000_000, 100, None),
    (LockClass::Pid, Scope::Global, 3_500_000, 200, None),
];

fn rows(operation: Operation) -> &'static [Row] {
    match operation {
        Operation::AnonymousFault => &FAULT,
        Operation::MapUnmap => &MAP,
        Operation::Fork => &FORK,
        _ => &ROWS,
    }
}

/// Nanoseconds of work of an operation: another number for each.
fn work(operation: Operation) -> u64 {
    5_000 + 1_100 * operation as u64
}

fn measured() -> Setup {
    let profile = |operation: &Operation| OperationProfile {
        work_ps: 1_000 * work(*operation),
        locks: rows(*operation)
            .iter()
            .map(|&(class, scope, per_million, own_ns, under)| LockProfile {
                class,
                scope,
                per_million,
                own_ps: 1_000 * own_ns,
                under,
                lines: None,
            })
            .collect(),
    };
    let mut setup = setup(Format::Plain);
    setup.kernel.profile = Some(Box::new(KernelProfile {
        name: "test".into(),
        operations: Operation::ALL.iter().map(profile).collect(),
    }));
    setup
}

/// Returns nanoseconds of all holds of an operation, and of those in which others are nested again.
fn held(operation: Operation) -> (f64, f64) {
    let hold = |&&(_, _, per_million, own_ns, _): &&Row| (per_million * own_ns) as f64 / 1e6;
    let all = rows(operation).iter();
    let nested = rows(operation).iter().filter(|row| row.4.is_some());
    (all.map(|row| hold(&row)).sum(), nested.map(|row| hold(&row)).sum())
}

fn all() -> [(Operation, operations::Operation); 10] {
    [
        (
            Operation::AnonymousFault,
            operation(|os| os.user_touching(0, Touch::anonymous(1))),
        ),
        (
            Operation::CopyFault,
            operation(|os| {
                os.user_touching(
                    0,
                    Touch {
                        copied: 1,
                        ..Touch::default()
                    },
                );
            }),
        ),
        (
            Operation::FileFault,
            operation(|os| os.user_touching(0, Touch::file(1))),
        ),
        (
            Operation::MapUnmap,
            operation(|os| {
                os.map(1);
                os.user_touching(0, Touch::anonymous(1));
                os.unmap(1);
            }),
        ),
        (
            Operation::OpenClose,
            operation(|os| {
                os.open(FILE, 3);
                os.close(FILE);
            }),
        ),
        (Operation::Stat, operation(|os| os.stat(FILE, 3))),
        (Operation::ReadPage, operation(|os| os.read(1))),
        (Operation::OverwritePage, operation(|os| os.overwrite(FILE, 1))),
        (
            Operation::CreateUnlink,
            operation(|os| {
                os.create(FOLDER, FILE, 3);
                os.unlink(FOLDER, FILE, 3);
            }),
        ),
        (
            Operation::Fork,
            operation(|os| {
                os.fork(Fork::Copy { vmas: 8 }, Start::new(1, 0));
                os.wait();
            }),
        ),
    ]
}

#[test]
fn an_operation_takes_the_locks_of_its_profile() {
    for (operation, calls) in all() {
        let runs = Runs::on(&measured(), &calls);
        for class in LockClass::ALL {
            let due: u64 = rows(operation)
                .iter()
                .filter(|row| row.0 == *class)
                .map(|row| row.2)
                .sum();
            // In the profile's course of a fork the child ends before the parent waits. Here the parent waits twice.
            let again = f64::from(operation == Operation::Fork && *class == LockClass::WaitQueue);
            let (found, due) = (runs.locks(class.name()), due as f64 / 1e6 + again);
            // The task list is a reader-writer lock in Linux, so no profile has it. The pages of tasks that end go back
            // to the zone in batches.
            let is_own = matches!(class, LockClass::TaskList | LockClass::Zone) && operation == Operation::Fork;
            if !is_own {
                let name = operation.name();
                assert!(
                    (found - due).abs() < 0.01,
                    "{name}: {found} of {}, {due} are due",
                    class.name()
                );
            }
        }
    }
}

#[test]
fn an_operation_takes_the_time_of_its_profile() {
    for (operation, calls) in all() {
        let runs = Runs::on(&measured(), &calls);
        let ((all, nested), name) = (held(operation), operation.name());
        // A page read or written is a part of a system call, whose entry the caller pays.
        let call = match operation {
            Operation::ReadPage | Operation::OverwritePage => 80.0,
            // Switches between parent and child are not a part of the profile.
            Operation::Fork => continue,
            _ => 0.0,
        };
        // An address space is flushed from the TLB, and the touch is a page fault.
        let (flush, touch) = if operation == Operation::MapUnmap {
            let in_profile = work(operation) as f64 * 6_377.0 / 24_136.0;
            (100.0, work(Operation::AnonymousFault) as f64 - in_profile)
        } else {
            (0.0, 0.0)
        };
        let (found, due) = (runs.ns(), work(operation) as f64 + all + call + flush + touch);
        assert!(
            (found - due).abs() < 2.0 + due / 2_000.0,
            "{name}: {found} ns, {due} are due"
        );
        let (found, due) = (runs.count("lock.measured_held_ns"), all + nested);
        assert!(
            (found - due).abs() < 2.0,
            "{name}: locks held for {found} ns, {due} are due"
        );
    }
}

#[test]
fn pages_appended_to_a_file_are_taken_off_one_by_one() {
    // The profile's file system is tmpfs: a removed file's pages are given back as everywhere.
    let append = operation(|os| {
        os.create(FOLDER, FILE, 3);
        os.write(FILE, 2);
        os.unlink(FOLDER, FILE, 3);
    });
    let runs = Runs::on(&measured(), &append);
    let other = ROWS[0].2 as f64 / 1e6;
    assert!(
        (runs.locks("other") - 3.0 * other).abs() < 0.01,
        "{}",
        runs.locks("other")
    );
    assert_eq!(
        runs.locks("tree_lock"),
        2.0,
        "one for the pages' number, one for a batch"
    );
}

/// Runs `calls` as two tasks on a CPU each. Nearly all of the operation's time it holds one lock, of `class`. Returns
/// how often a task waited for it.
fn waits(operation: Operation, class: LockClass, calls: fn(&Os<SimMachine>)) -> u64 {
    let row = LockProfile {
        class,
        scope: Scope::Object,
        per_million: 2_000_000,
        own_ps: 2_000_000,
        under: None,
        lines: None,
    };
    let mut setup = measured();
    (setup.pcpus, setup.vcpus, setup.is_free) = (2, 2, false);
    let profile = setup.kernel.profile.as_mut().expect("a measured kernel");
    profile.operations[operation as usize] = OperationProfile {
        work_ps: 100_000,
        locks: vec![row],
    };
    let outcome = run(&setup, move |os, start| match start.role {
        0 => lead(os, 2),
        _ => (0..100).for_each(|_| calls(os)),
    });
    counter(&outcome, &format!("lock.{}.contended", class.name()))
}

#[test]
fn rows_of_memory_mean_the_locks_of_the_node_and_those_of_a_file_the_files() {
    // The rows' scope is one object: other rows mean a lock of each task.
    let memory = [LockClass::Zone, LockClass::Lru, LockClass::Slab];
    let of_file = [
        LockClass::Dentry,
        LockClass::Inode,
        LockClass::PageCache,
        LockClass::InodeList,
    ];
    for &class in LockClass::ALL {
        let (reads, looks) = (
            waits(Operation::ReadPage, class, |os| os.read(1)),
            waits(Operation::Stat, class, |os| os.stat(FILE, 3)),
        );
        // Classes whose locks the kernel's own mechanisms take are contended there, too.
        let (is_memory, is_file) = (memory.contains(&class), of_file.contains(&class));
        assert_eq!(reads > 50, is_memory, "{}: {reads} waits", class.name());
        assert_eq!(looks > 50, is_memory || is_file, "{}: {looks} waits", class.name());
    }
}

/// Nanoseconds for which one or two CPUs hold a lock of all CPUs 100 times each, each time with `lines`.
fn held_with(vcpus: u32, stayed_milli: u32, moved_milli: u32) -> u64 {
    let mut setup = measured();
    (setup.pcpus, setup.vcpus, setup.is_free) = (vcpus, vcpus, false);
    let profile = setup.kernel.profile.as_mut().expect("a measured kernel");
    profile.operations[Operation::ReadPage as usize] = OperationProfile {
        work_ps: 20_000_000,
        locks: vec![LockProfile {
            class: LockClass::Cgroup,
            scope: Scope::Global,
            per_million: 1_000_000,
            own_ps: 1_000_000,
            under: None,
            lines: Some(LineProfile {
                stayed_milli,
                moved_milli,
                chained: true,
            }),
        }],
    };
    let outcome = run(&setup, move |os, start| match start.role {
        0 if vcpus == 2 => lead(os, 2),
        0 => {
            os.begin();
            (0..200).for_each(|_| os.read(1));
            os.done(None);
        }
        _ => (0..100).for_each(|_| os.read(1)),
    });
    counter(&outcome, "lock.measured_held_ns")
}

#[test]
fn a_section_waits_for_the_lines_of_the_cpu_that_held_its_lock_before() {
    let none = held_with(1, 0, 0);
    assert_eq!(held_with(1, 10_000, 10_000), none, "there is no other CPU");
    let without = held_with(2, 0, 0);
    let (moved, more) = (held_with(2, 0, 10_000), held_with(2, 0, 20_000));
    // 100 sections at least, and not all 200, follow one on the other CPU. A line takes 48 ns on the default machine.
    let lines = |held: u64| (held - without) / 48;
    assert!((300..=2_000).contains(&lines(moved)), "{} lines", lines(moved));
    assert!((600..=4_000).contains(&lines(more)), "{} lines", lines(more));
    let stayed = held_with(2, 10_000, 0);
    assert!(lines(stayed) <= 1_000, "{} lines", lines(stayed));
    // At most all sections but the first: a CPU that has not run yet has no lines.
    let both = held_with(2, 10_000, 10_000);
    assert!((1_500..=1_991).contains(&lines(both)), "{} lines", lines(both));
}

#[test]
fn locks_that_interrupt_handlers_take_are_held_with_interrupts_masked() {
    // Ticks come in each of the ten milliseconds of a hold, or the pending one when it ends.
    let ticks = |class| {
        let mut setup = measured();
        setup.kernel.hz = 1_000;
        let profile = setup.kernel.profile.as_mut().expect("a measured kernel");
        profile.operations[Operation::ReadPage as usize].locks = vec![LockProfile {
            class,
            scope: Scope::Global,
            per_million: 1_000_000,
            own_ps: 10_000_000_000,
            under: None,
            lines: None,
        }];
        let outcome = run(&setup, move |os, _| {
            os.begin();
            os.read(10);
            os.done(None);
        });
        counter(&outcome, "guest.ticks")
    };
    for class in [
        LockClass::RunQueue,
        LockClass::TimerBase,
        LockClass::Zone,
        LockClass::WaitQueue,
    ] {
        let ticks = ticks(class);
        assert!(ticks < 30, "{}: {ticks} ticks", class.name());
    }
    for class in [LockClass::Dentry, LockClass::Cgroup, LockClass::PageTable] {
        let ticks = ticks(class);
        assert!(ticks >= 95, "{}: {ticks} ticks", class.name());
    }
}

#[test]
fn a_writer_that_sleeps_is_not_woken_for_readers() {
    // Unmapping takes 5 ms as a writer, and then frees pages as a reader. A second writer spins until a third task
    // wants its CPU, and sleeps: only the end of reading wakes it.
    let wakeups = |delay_ns: u64| {
        let mut setup = measured();
        (setup.pcpus, setup.vcpus, setup.is_free) = (2, 2, false);
        setup.kernel.mmap_lock = MmapLock::Downgrading;
        setup.kernel.owner_spinning = OwnerSpinning::Queued;
        let profile = setup.kernel.profile.as_mut().expect("a measured kernel");
        profile.operations[Operation::MapUnmap as usize] = OperationProfile {
            work_ps: 16_000_000_000,
            locks: Vec::new(),
        };
        let outcome = run(&setup, move |os, start| {
            let begin = 100 * MS;
            match (start.role, start.argument) {
                (0, _) => lead_forked(os, 3, Fork::Share),
                // It starts on the other CPU, and the next one on this CPU.
                (_, 0) => {
                    os.user(begin + delay_ns - os.now());
                    os.map(1);
                }
                (_, 1) => {
                    os.user_touching(0, Touch::anonymous(500));
                    os.user(begin - os.now());
                    os.unmap(500);
                }
                _ => {
                    os.sleep(begin + 3 * MS - os.now());
                    os.user(MS);
                }
            }
        });
        counter(&outcome, "guest.wakeups")
    };
    assert_eq!(wakeups(MS), wakeups(40 * MS) + 1);
}

#[test]
fn threads_fault_while_another_frees_the_pages_that_it_has_unmapped() {
    // Unmapping takes 13 ms alone and 7 ms together with readers (`TOUCH_OF`, `WHOLE`), without the pages themselves.
    let waited_ms = |mmap_lock| {
        let mut setup = measured();
        (setup.pcpus, setup.vcpus, setup.is_free) = (2, 2, false);
        setup.kernel.mmap_lock = mmap_lock;
        let profile = setup.kernel.profile.as_mut().expect("a measured kernel");
        profile.operations[Operation::MapUnmap as usize] = OperationProfile {
            work_ps: 32_000_000_000 * 24_136 / (24_136 - 6_377),
            locks: Vec::new(),
        };
        let found = Rc::new(Cell::new(0));
        let noted = found.clone();
        run(&setup, move |os, start| {
            let begin = 100 * MS;
            match (start.role, start.argument) {
                (0, _) => lead_forked(os, 2, Fork::Share),
                (_, 0) => {
                    os.user(begin - os.now());
                    os.unmap(1);
                }
                _ => {
                    os.user(begin + MS - os.now());
                    os.user_touching(0, Touch::anonymous(1));
                    noted.set((os.now() - begin) / MS);
                }
            }
        });
        found.get()
    };
    assert_eq!(waited_ms(MmapLock::Downgrading), 13);
    assert_eq!(waited_ms(MmapLock::Spinning), 20);
}
