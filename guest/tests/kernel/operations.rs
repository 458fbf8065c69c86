//! What each operation of the kernel costs on a CPU that nothing disturbs, and which spinlocks it takes.

use std::rc::Rc;

use holdfast_guest::{Config, Executable, FileId, Fork, Format, Limits, Os, Start, Touch};
use holdfast_sim::{Outcome, SimMachine};

use crate::machine::{Setup, counter, run};

/// A call of the kernel, or several that belong together.
pub type Operation = Rc<dyn Fn(&Os<SimMachine>)>;

pub fn operation(calls: impl Fn(&Os<SimMachine>) + 'static) -> Operation {
    Rc::new(calls)
}

/// The rounds in which an operation is executed: so many in a first run, and as many more in a second one.
const ROUNDS: u32 = 1_120;

/// A machine of one CPU whose own operations take no time, with few ticks.
pub fn setup(format: Format) -> Setup {
    Setup {
        pcpus: 1,
        vcpus: 1,
        is_free: true,
        kernel: Config {
            hz: 100,
            ..Config::default()
        },
        limits: Limits {
            tasks: 4,
            files: 16,
            pipes: 2,
            sockets: 4,
            streams: 2,
            epolls: 1,
            semaphore_arrays: 1,
            semaphores: 1,
            drivers: 1,
            format,
            ..Limits::default()
        },
        ..Setup::default()
    }
}

/// Two runs of an operation, of which one has [`ROUNDS`] more.
pub struct Runs([Outcome; 2]);

impl Runs {
    fn of(format: Format, calls: &Operation) -> Runs {
        Runs::on(&setup(format), calls)
    }

    pub fn on(setup: &Setup, calls: &Operation) -> Runs {
        Runs([ROUNDS, 2 * ROUNDS].map(|rounds| {
            let calls = calls.clone();
            run(setup, move |os, start| {
                if start.role != 0 {
                    return;
                }
                os.wait_for_cpus();
                os.begin();
                (0..rounds).for_each(|_| calls(os));
                os.done(None);
            })
        }))
    }

    /// Returns the difference per round.
    fn per_round(&self, value: impl Fn(&Outcome) -> u64) -> f64 {
        let [few, many] = self.0.each_ref().map(value);
        (many - few) as f64 / f64::from(ROUNDS)
    }

    /// Returns the nanoseconds of a round.
    pub fn ns(&self) -> f64 {
        self.per_round(|outcome| outcome.vms[0].elapsed_ns.expect("a measured guest ends"))
    }

    /// Returns how often a round adds one to a counter.
    pub fn count(&self, name: &str) -> f64 {
        self.per_round(|outcome| counter(outcome, name))
    }

    /// Returns how often a round takes spinlocks of `class`.
    pub fn locks(&self, class: &str) -> f64 {
        self.count(&format!("lock.{class}.acquired"))
    }
}

const FILE: FileId = FileId(3);
const FOLDER: FileId = FileId(0);

/// Nanoseconds of parts that many operations have (`guest/src/costs.rs`).
const SYSCALL: f64 = 80.0;
const NAME: f64 = 130.0;
const PATH: f64 = 400.0;
const OBJECT: f64 = 45.0;
/// A refill of a CPU's kernel objects from the memory node.
const REFILL: f64 = 250.0;
/// A page from a CPU's list, and the part of a batch from the zone that brings it there.
const PAGE: f64 = 40.0 + 30.0;
const LRU: f64 = 35.0;
const ENTRY: f64 = 80.0;

/// Linking or unlinking a name, without journal and objects: the file system's work, and three locks.
const RELINK: f64 = 8_000.0 + 80.0 + 70.0 + 50.0;
/// A directory operation's four objects, and the refills for them.
const FOUR_OBJECTS: f64 = 4.0 * OBJECT + REFILL / 4.0;

/// An operation, the sum of its parts in nanoseconds, and all spinlocks that it takes.
struct Row {
    name: &'static str,
    format: Format,
    calls: Operation,
    ns: f64,
    locks: &'static [(&'static str, f64)],
}

impl Row {
    /// Checks costs and locks. A tick in 10 ms adds 2 µs and three locks.
    fn check(&self) {
        let (name, runs) = (self.name, Runs::of(self.format, &self.calls));
        let ns = runs.ns();
        assert!(
            (ns - self.ns).abs() < 1.5 + self.ns / 2_500.0,
            "{name} on {:?}: {ns} ns, its parts are {}",
            self.format,
            self.ns
        );
        for &(class, times) in self.locks {
            let found = runs.locks(class);
            assert!(
                (found - times).abs() < 0.02,
                "{name} on {:?}: {class} {found} times",
                self.format
            );
        }
        let (all, listed) = (
            runs.count("lock.acquired"),
            self.locks.iter().map(|lock| lock.1).sum::<f64>(),
        );
        assert!(
            (all - listed).abs() < 0.02 + self.ns / 3e6,
            "{name} on {:?}: {all} locks, {listed} are listed",
            self.format
        );
    }
}

/// Makes rows. Each is: name, parts, locks, calls.
macro_rules! rows {
    ($format:ident: $($name:literal, $ns:expr, [$($class:ident $times:expr),*], $calls:expr;)+) => {
        [$(Row {
            name: $name,
            format: Format::$format,
            calls: operation($calls),
            ns: $ns,
            locks: &[$((stringify!($class), $times)),*],
        }),+]
    };
}

#[test]
fn files_cost_the_sum_of_their_parts() {
    let close = SYSCALL + 50.0 + 450.0 + 30.0 + OBJECT;
    let rows = rows! { Plain:
        "fstat", SYSCALL + 120.0, [], |os| os.status();
        "stat", SYSCALL + PATH + 3.0 * NAME + 250.0 + OBJECT + REFILL / 16.0 + 2.0 * 30.0,
            [dentry 2.0, slab 1.0 / 16.0], |os| os.stat(FILE, 3);
        "stat of a long path", SYSCALL + PATH + 8.0 * NAME + 250.0 + OBJECT + REFILL / 16.0 + 2.0 * 30.0,
            [dentry 2.0, slab 1.0 / 16.0], |os| os.stat(FILE, 8);
        "open of a missing file", SYSCALL + PATH + 3.0 * NAME + OBJECT + REFILL / 16.0,
            [slab 1.0 / 16.0], |os| os.open_missing(3);
        // Two objects and one: 17 are taken until the next refill, in 11 steps.
        "open and close",
            close + SYSCALL + PATH + 3.0 * NAME + 700.0 + 2.0 * OBJECT + 30.0 + 50.0 + REFILL * 2.0 / 11.0,
            [dentry 2.0, files 2.0, slab 2.0 / 11.0], |os| { os.open(FILE, 3); os.close(FILE); };
        "read", SYSCALL + 300.0 + 3.0 * 800.0, [], |os| os.read(3);
        "write", SYSCALL + 3.0 * (1_600.0 + PAGE + 120.0 + LRU) + 300.0 + 50.0,
            [tree_lock 3.0, zone 3.0 / 31.0, lru 3.0 / 14.0, journal 1.0, inode 1.0], |os| os.write(FILE, 3);
        "overwrite", SYSCALL + 3.0 * 1_600.0 + 300.0 + 50.0, [journal 1.0, inode 1.0], |os| os.overwrite(FILE, 3);
        "extend", SYSCALL + 1_600.0 + 300.0 + 50.0, [journal 1.0, inode 1.0], |os| os.extend(FILE);
        "direct", SYSCALL + 4_000.0, [], |os| os.direct(FILE);
        "sync", SYSCALL + 3.0 * (2.0 * 120.0 + 1_800.0) + 300.0, [tree_lock 6.0, journal 1.0], |os| os.sync(FILE, 3);
        "create and unlink",
            2.0 * (SYSCALL + PATH + 2.0 * NAME + RELINK + 300.0 + FOUR_OBJECTS) + 700.0 + 50.0 + 60.0,
            [dentry 4.0, inode 2.0, inode_sb_list 2.0, journal 2.0, files 1.0, dcache_lru 1.0, tree_lock 1.0, slab 0.5],
            |os| { os.create(FOLDER, FILE, 2); os.unlink(FOLDER, FILE, 2); };
        // The pages go back to the list that they came from, in batches of 14.
        "unlink with pages",
            3.0 * SYSCALL + 2.0 * (PATH + 2.0 * NAME + RELINK + 300.0 + FOUR_OBJECTS) + 700.0 + 50.0 + 60.0
                + 28.0 * (1_600.0 + 40.0 + 120.0 + LRU) + 300.0 + 50.0 + 28.0 * (120.0 + LRU + 40.0),
            [dentry 4.0, inode 3.0, inode_sb_list 2.0, journal 3.0, files 1.0, dcache_lru 1.0, tree_lock 31.0, lru 4.0,
                slab 0.5],
            |os| { os.create(FOLDER, FILE, 2); os.write(FILE, 28); os.unlink(FOLDER, FILE, 2); };
        "rename", SYSCALL + 2.0 * PATH + 2.0 * 4.0 * NAME + RELINK + 300.0 + FOUR_OBJECTS,
            [dentry 2.0, inode 1.0, inode_sb_list 1.0, journal 1.0, slab 0.25], |os| os.rename(FOLDER, FILE, 4);
    };
    rows.iter().for_each(Row::check);
}

#[test]
fn journals_cost_the_sum_of_their_parts() {
    // A handle of ext4 with some blocks, filing one, a commit of one, its search for blocks, a place among the orphans.
    let handle = |blocks: f64| 450.0 + blocks * 350.0;
    let (filed, committed, search, orphan) = (35.0 + 42.0, 379.0 + 2_500.0, 1_500.0, 50.0);
    let relink = SYSCALL + PATH + 2.0 * NAME + RELINK + FOUR_OBJECTS;
    // A renamed file stays on the list of inodes.
    let rename = relink - 70.0 + PATH + 2.0 * NAME;
    // Locks of names and inodes by creation and removal.
    let links = 2.0 * relink + 700.0 + 50.0 + 60.0 + (4.0 + 2.0 + 3.0 + 6.0) * 10.0;
    let append = SYSCALL + 1_600.0 + PAGE + 2.0 * 120.0 + 2.0 * 15.0 + LRU + 50.0;
    // In each millisecond one write changes the inode's times.
    let timed = |ns: f64, change: f64| ns / (1.0 - change / 1e6);
    let (commit, flush) = (60.0 + 8_000.0 + 60.0, 2.0 * 120.0 + 1_800.0);
    let cached = SYSCALL + 1_600.0 + 15.0 + 50.0;
    let ext4 = rows! { Ext4:
        "overwrite", timed(cached + handle(0.0), handle(1.0)), [inode 1.0, private_lock 1.0, wait_queue 1.0],
            |os| os.overwrite(FILE, 1);
        "extend", timed(cached + handle(1.0), handle(1.0)), [inode 1.0, private_lock 1.0, wait_queue 1.0],
            |os| os.extend(FILE);
        // The page gets its block, and is written, before the first of the two.
        "write and direct",
            timed(append + 2.0 * 35.0 + handle(1.0) + 2.0 * (SYSCALL + 4_000.0) + search + 234.0 + handle(3.0) + flush, handle(1.0)),
            [tree_lock 4.0, zone 1.0 / 31.0, lru 1.0 / 14.0, inode 2.0, private_lock 2.0, i_block_reservation_lock 1.0,
                wait_queue 2.01, bgl_lock 1.0],
            |os| { os.write(FILE, 1); os.direct(FILE); os.direct(FILE); };
        "write", timed(append + 2.0 * 35.0 + handle(1.0), handle(1.0)),
            [tree_lock 2.0, zone 1.0 / 31.0, lru 1.0 / 14.0, inode 2.0, private_lock 2.0, i_block_reservation_lock 1.0,
                wait_queue 1.01],
            |os| os.write(FILE, 1);
        // The commit looks at the one block that it has, writes it, and moves it from list to list.
        "sync", SYSCALL + handle(1.0) + filed + flush + commit + committed,
            [j_list_lock 9.0, j_state_lock 3.0, tree_lock 2.0, wait_queue 3.0], |os| os.sync(FILE, 1);
        "create and unlink",
            links + 2.0 * 13.0 + 2.0 * search + 2.0 * 108.0 + 190.0 + 2.0 * handle(5.0) + handle(4.0) + 2.0 * orphan,
            [dentry 11.0, inode 10.0, inode_sb_list 2.0, inode_hash_lock 2.0, files 1.0, dcache_lru 1.0, tree_lock 1.0,
                slab 0.5, bgl_lock 3.0, wait_queue 3.0],
            |os| { os.create(FOLDER, FILE, 2); os.unlink(FOLDER, FILE, 2); };
        "rename", rename + handle(3.0), [dentry 2.0, inode 1.0, wait_queue 1.0, slab 0.25],
            |os| os.rename(FOLDER, FILE, 2);
        // Changes concern the same two blocks: names, and inodes of folder and file.
        "many changes and one sync",
            12.0 * (rename + handle(3.0)) + SYSCALL + handle(1.0) + commit + 2.0 * (filed + committed),
            [dentry 24.0, inode 12.0, slab 3.0, j_list_lock 17.0, j_state_lock 3.0, wait_queue 15.0],
            |os| { (0..12).for_each(|_| os.rename(FOLDER, FILE, 2)); os.sync(FILE, 0); };
    };
    // A transaction of XFS, what the header of an allocation group adds, and another buffer.
    let (transaction, buffer) = (900.0 + 1_800.0 + 150.0, 120.0 + 2.0 * 40.0);
    let header = 2_500.0 + buffer;
    let xfs = rows! { Xfs:
        "write", timed(append, transaction),
            [tree_lock 2.0, zone 1.0 / 31.0, lru 1.0 / 14.0, inode 1.0, private_lock 2.0], |os| os.write(FILE, 1);
        "sync", SYSCALL + transaction + flush + commit + 60.0 + 400.0 + 173.0 + 370.0 + 600.0,
            [tree_lock 2.0, xc_cil_lock 1.0, l_icloglock 12.0, xc_push_lock 8.0, xa_lock 1.0, wait_queue 1.0],
            |os| os.sync(FILE, 1);
        "create and unlink", links + 6.0 * 10.0 + 3.0 * (transaction + header) + 10.0 * buffer + 3.0 * 45.0,
            [dentry 11.0, inode 10.0, inode_sb_list 2.0, i_flags_lock 6.0, files 1.0, dcache_lru 1.0, tree_lock 1.0,
                slab 0.5, semaphore 26.0, pag_buf_lock 13.0, pag_ici_lock 3.0, xc_cil_lock 3.0],
            |os| { os.create(FOLDER, FILE, 2); os.unlink(FOLDER, FILE, 2); };
        "rename", rename + transaction + buffer,
            [dentry 2.0, inode 1.0, semaphore 2.0, pag_buf_lock 1.0, xc_cil_lock 1.0, slab 0.25],
            |os| os.rename(FOLDER, FILE, 2);
    };
    ext4.iter().chain(&xfs).for_each(Row::check);
}

#[test]
fn memory_costs_the_sum_of_its_parts() {
    // Of a mapping's page: what a fault costs without the zone, and what freeing it costs.
    let (touch, free) = (650.0 + 350.0 + 40.0 + ENTRY, 25.0 + LRU + 40.0);
    let rows = rows! { Plain:
        "no fault", 7_000.0, [], |os| os.user_touching(7_000, Touch::default());
        "faults at even intervals", 7_000.0 + 2.0 * (650.0 + ENTRY), [page_table 2.0],
            |os| os.user_touching(7_000, Touch::file(2));
        "fault", 650.0 + 350.0 + PAGE + ENTRY + LRU, [page_table 1.0, zone 1.0 / 31.0, lru 1.0 / 14.0],
            |os| os.user_touching(0, Touch::anonymous(1));
        "fault of a file", 650.0 + ENTRY, [page_table 1.0], |os| os.user_touching(0, Touch::file(1));
        "copy on write", 650.0 + 600.0 + PAGE + ENTRY + LRU, [page_table 1.0, zone 1.0 / 31.0, lru 1.0 / 14.0],
            |os| os.user_touching(0, Touch { copied: 1, anonymous: 0, file: 0 });
        "map and unmap", 2.0 * (SYSCALL + 500.0 + OBJECT) + REFILL / 8.0 + 100.0, [slab 0.125],
            |os| { os.map(28); os.unmap(28); };
        // Unmapping takes 128 entries, and frees 14 pages, under one hold. A page table for 128 entries is not freed.
        "map, touch and unmap",
            2.0 * (SYSCALL + 500.0 + OBJECT) + REFILL / 8.0 + 100.0 + 140.0 * (touch + LRU + free) + PAGE,
            [slab 0.125, page_table 142.0, lru 20.0, zone 1.0 / 31.0],
            |os| { os.map(140); os.user_touching(0, Touch::anonymous(140)); os.unmap(140); };
        "discard", SYSCALL + 150.0 + 100.0 + 28.0 * (touch + LRU + free), [page_table 29.0, lru 4.0],
            |os| { os.user_touching(0, Touch::anonymous(28)); os.discard(28); };
    };
    rows.iter().for_each(Row::check);
}

#[test]
fn communication_costs_the_sum_of_its_parts() {
    // Sending and receiving a message where no task sleeps: four critical sections, and refills for four objects.
    let message = 2.0 * SYSCALL + 640.0 + 565.0 + 2.0 * (25.0 + 8.0) + REFILL / 4.0;
    let rows = rows! { Plain:
        "pipe", 3.0 * SYSCALL + 2.0 * (250.0 + 3.0 * 700.0) + 3.0 * PAGE, [wait_queue 1.0, zone 3.0 / 31.0],
            |os| { os.open_pipe(0, 1); os.write_pipe(0, 3 * 4096); os.read_pipe(0, 3 * 4096); };
        "pipe with less than a page", 3.0 * SYSCALL + 2.0 * (250.0 + 350.0), [wait_queue 1.0],
            |os| { os.open_pipe(0, 1); os.write_pipe(0, 2_048); os.read_pipe(0, 2_048); };
        "socket", message, [unix_state 2.0, sk_receive_queue 2.0, slab 0.25],
            |os| { os.send(0, 1); os.receive(1); };
        "receive now", SYSCALL + 25.0 + 8.0, [unix_state 1.0, sk_receive_queue 1.0],
            |os| { os.receive_now(1); };
        "null call", SYSCALL, [], |os| { os.null_call(); };
        "poll", message + SYSCALL + 500.0 + 2.0 * 40.0,
            [unix_state 2.0, sk_receive_queue 3.0, wait_queue 2.0, slab 0.25],
            |os| { os.send(0, 1); os.poll(1); os.receive(1); };
        "stream", message + 2.0 * 30.0 + 2.0 * 1_000.0 * 0.18,
            [unix_state 2.0, sk_receive_queue 4.0, wait_queue 2.0, slab 0.25],
            |os| { os.write_stream(0, &[1], 1_000); os.read_stream(1, 1_000, &mut Vec::new()); };
        "semaphore", 2.0 * (SYSCALL + 250.0 + 150.0), [ipc_sem 2.0],
            |os| { os.semaphore_up(0, 0); os.semaphore_down(0, 0); };
        "driver", SYSCALL + 700.0, [driver 1.0], |os| { os.call_driver(0, 700); };
    };
    rows.iter().for_each(Row::check);
}

#[test]
fn a_program_costs_the_sum_of_its_parts() {
    // A program with two libraries: four mappings of each of three files. The address space before has the same, with
    // ten pages, which go back to the lists that the new ones come from.
    let (mappings, pages) = (12.0, 10.0);
    let (link, walk) = (250.0, PATH + 3.0 * NAME + 700.0 + 2.0 * OBJECT + 2.0 * 30.0);
    let program = Executable {
        file: FileId(2),
        library_first: FileId(4),
        libraries: 2,
        pages: 10,
    };
    let rows = rows! { Plain:
        "exec",
            SYSCALL + 20.0 + walk + 140_000.0 + 12.0 * OBJECT + mappings * (OBJECT + link)
                + pages * (25.0 + LRU + 40.0) + 100.0 + mappings * (1_500.0 + OBJECT + link)
                + pages * (650.0 + 350.0 + 40.0 + ENTRY + LRU) + 2.0 * REFILL,
            [dentry 2.0, page_table 11.0, lru 1.0 + 10.0 / 14.0, slab 2.0], move |os| os.exec(&program);
    };
    rows.iter().for_each(Row::check);
}

fn fork(how: Fork) -> Operation {
    operation(move |os| {
        os.fork(how, Start::new(1, 0));
        os.wait();
    })
}

#[test]
fn operations_take_as_long_as_published() {
    // Nanoseconds of lmbench on CPUs of this class (`guest/src/costs.rs`, [L]).
    let program = Executable {
        file: FileId(2),
        library_first: FileId(4),
        libraries: 2,
        pages: 10,
    };
    let spawn = operation(move |os| {
        os.fork(Fork::Copy { vmas: 50 }, Start::new(1, 0));
        os.wait();
        os.exec(&program);
    });
    for (name, least, most, calls) in [
        ("stat", 800.0, 1_300.0, operation(|os| os.stat(FILE, 3))),
        (
            "open and close",
            1_500.0,
            2_500.0,
            operation(|os| {
                os.open(FILE, 3);
                os.close(FILE);
            }),
        ),
        (
            "fault",
            500.0,
            1_200.0,
            operation(|os| os.user_touching(0, Touch::anonymous(1))),
        ),
        ("fork and exit", 90_000.0, 170_000.0, fork(Fork::Copy { vmas: 25 })),
        ("fork and exec", 300_000.0, 500_000.0, spawn),
        (
            "create and delete",
            10_000.0,
            30_000.0,
            operation(|os| {
                os.create(FOLDER, FILE, 2);
                os.unlink(FOLDER, FILE, 2);
            }),
        ),
    ] {
        let ns = Runs::of(Format::Plain, &calls).ns();
        assert!((least..most).contains(&ns), "{name}: {ns} ns");
    }
}

#[test]
fn a_new_task_costs_by_what_is_copied() {
    let [few, many] = [25, 50].map(|vmas| Runs::of(Format::Plain, &fork(Fork::Copy { vmas })));
    let per_vma = (many.ns() - few.ns()) / 25.0;
    assert!(
        (per_vma - 945.0).abs() < 1.0,
        "{per_vma} ns for a mapping and its object"
    );
    let [borrowed, shared] = [Fork::Borrow, Fork::Share].map(|how| Runs::of(Format::Plain, &fork(how)));
    for (runs, name) in [(&few, "fork"), (&borrowed, "vfork"), (&shared, "thread")] {
        // Into the list of tasks and out of it, by two tasks. Each of two switches takes the run queue.
        for (class, times) in [
            ("tasklist", 4.0),
            ("pi_lock", 2.0),
            ("siglock", 2.0),
            ("rq", 4.0),
            ("files", 1.0),
        ] {
            let found = runs.locks(class);
            assert!((found - times).abs() < 0.02, "{name}: {class} {found} times");
        }
        assert_eq!(runs.count("guest.forks"), 1.0, "{name}");
    }
    // A thread is what a fork is without the copies, and vfork saves 5 µs but waits in a queue of its own.
    let copies = few.ns() - shared.ns();
    assert!(
        (25.0 * 945.0..25.0 * 945.0 + 700.0).contains(&copies),
        "{copies} ns for copies"
    );
    let saved = shared.ns() - borrowed.ns();
    assert!((5_000.0..6_000.0).contains(&saved), "vfork saves {saved} ns");
    assert_eq!(borrowed.locks("wait_queue") - shared.locks("wait_queue"), 2.0);
}

#[test]
fn a_tick_and_a_sleep_cost_what_their_parts_cost() {
    // Interrupt handler, timer queue, run queue, time keeping, the rest.
    let runs = Runs::of(Format::Plain, &operation(|os| os.user(1_000_000)));
    let tick = (runs.ns() - 1e6) / runs.count("guest.ticks");
    let parts = 150.0 + 120.0 + 300.0 + 500.0 + 1_000.0;
    assert!(
        (tick - parts).abs() < 20.0,
        "{tick} ns for a tick, its parts are {parts}"
    );
    for class in ["rq", "xtime", "hrtimer_base"] {
        assert_eq!(runs.locks(class), runs.count("guest.ticks"), "{class}");
    }
    let runs = Runs::of(Format::Plain, &operation(|os| os.sleep(1_000_000)));
    assert!((1_001_000.0..1_003_000.0).contains(&runs.ns()), "{} ns", runs.ns());
    for (name, times) in [
        ("guest.wakeups", 1.0),
        ("guest.idle_halts", 1.0),
        ("guest.context_switches", 2.0),
    ] {
        assert_eq!(runs.count(name), times, "{name}");
    }
}
