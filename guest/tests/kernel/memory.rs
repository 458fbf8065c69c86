//! The lock of an address space, and the locks of page tables: which threads wait when others touch, map and free
//! memory.

use holdfast_guest::{Config, Fork, MmapLock, OwnerSpinning, Start, Touch};
use holdfast_locks::LockKind;
use holdfast_sim::Outcome;

use crate::machine::{Setup, counter, lead, lead_forked, run};

const ALL: [MmapLock; 4] = [
    MmapLock::Sleeping,
    MmapLock::Spinning,
    MmapLock::Downgrading,
    MmapLock::PerVma,
];
const ROUNDS: u32 = 40;
const PAGES: u32 = 16;

/// Runs four threads of one address space. Each maps, touches and unmaps memory, or touches its heap and frees that.
fn threads(setup: &Setup, maps: bool) -> Outcome {
    threads_with(setup, maps, PAGES)
}

/// As [`threads`], with mappings of `pages` pages.
fn threads_with(setup: &Setup, maps: bool, pages: u32) -> Outcome {
    run(setup, move |os, start| {
        if start.role == 0 {
            return lead_forked(os, 4, Fork::Share);
        }
        for _ in 0..ROUNDS {
            if maps {
                os.map(pages);
            }
            os.user_touching(20_000, Touch::anonymous(PAGES));
            if maps {
                os.unmap(pages);
            } else {
                os.discard(PAGES);
            }
        }
    })
}

fn with(mmap_lock: MmapLock) -> Setup {
    Setup {
        kernel: Config {
            mmap_lock,
            owner_spinning: OwnerSpinning::Queued,
            ..Config::default()
        },
        ..Setup::default()
    }
}

/// Returns the time until all threads were done, in nanoseconds.
fn elapsed(outcome: &Outcome) -> u64 {
    outcome.vms[0].elapsed_ns.expect("a measured guest ends")
}

#[test]
fn every_thread_gets_its_turn_whatever_the_lock_keeps_out() {
    // The kernel itself asserts that no task changes mappings while others use them.
    for mmap_lock in ALL {
        for (hogs, vcpus) in [(0, 4), (4, 4), (8, 2)] {
            for (maps, steals) in [(false, false), (true, false), (true, true)] {
                let mut setup = Setup {
                    hogs,
                    vcpus,
                    ..with(mmap_lock)
                };
                setup.kernel.rwsem_stealing = steals;
                setup.kernel.lock = LockKind::PvQspin;
                let faults = counter(&threads(&setup, maps), "guest.page_faults");
                assert!(
                    faults >= u64::from(4 * ROUNDS * PAGES),
                    "{faults} page faults with {mmap_lock:?}"
                );
            }
        }
    }
}

#[test]
fn threads_that_only_fault_and_give_back_never_sleep_for_each_other() {
    for mmap_lock in ALL {
        let waits = counter(&threads(&with(mmap_lock), false), "lock.rwsem_wait.acquired");
        assert_eq!(waits, 0, "{mmap_lock:?}");
    }
    let waits = counter(&threads(&with(MmapLock::Sleeping), true), "lock.rwsem_wait.acquired");
    assert!(
        waits > u64::from(ROUNDS),
        "{waits} looks at the queue while four threads map and unmap"
    );
}

#[test]
fn page_faults_wait_for_unmapping_less_with_each_generation() {
    let [sleeping, _, downgrading, per_vma] = ALL.map(|mmap_lock| elapsed(&threads(&with(mmap_lock), true)));
    assert!(downgrading < sleeping, "{downgrading} ns against {sleeping} ns");
    assert!(per_vma * 5 < downgrading * 4, "{per_vma} ns against {downgrading} ns");
}

#[test]
fn threads_share_page_tables_only_where_their_mappings_are_adjacent() {
    let contended = |maps| counter(&threads(&with(MmapLock::PerVma), maps), "lock.page_table.contended");
    assert_eq!(contended(false), 0, "each thread's heap has a table of its own");
    assert!(contended(true) > 0, "four mappings of 16 pages lie in one table");
    // A table has 512 entries.
    let apart = threads_with(&with(MmapLock::PerVma), true, 512);
    assert_eq!(
        counter(&apart, "lock.page_table.contended"),
        0,
        "each mapping has a table of its own"
    );
}

#[test]
fn the_main_threads_mapping_is_beside_those_of_the_threads() {
    let contended = |pages| {
        let outcome = run(&with(MmapLock::PerVma), move |os, start| {
            let work = || {
                for _ in 0..ROUNDS {
                    os.map(pages);
                    os.user_touching(10_000, Touch::anonymous(PAGES));
                    os.unmap(pages);
                }
            };
            if start.role == 1 {
                return work();
            }
            os.wait_for_cpus();
            os.begin();
            os.fork(Fork::Share, Start::new(1, 0));
            work();
            os.wait();
            os.done(None);
        });
        counter(&outcome, "lock.page_table.contended")
    };
    assert!(contended(PAGES) > 0, "both mappings lie in one table");
    assert_eq!(contended(512), 0, "each mapping has a table of its own");
}

#[test]
fn a_cpu_that_uses_other_tables_is_not_called_for_old_ones() {
    // Three processes move between two CPUs, where each runs in turn with the others.
    let (processes, unmaps) = (3, 100);
    let setup = Setup {
        vcpus: 2,
        ..Setup::default()
    };
    let outcome = run(&setup, move |os, start| {
        if start.role == 0 {
            return lead(os, processes);
        }
        for _ in 0..unmaps {
            os.map(PAGES);
            os.user_touching(500_000, Touch::anonymous(PAGES));
            os.unmap(PAGES);
        }
    });
    let shootdowns = counter(&outcome, "guest.shootdowns");
    assert!(
        shootdowns < u64::from(processes * unmaps) / 10,
        "{shootdowns} shootdowns of single-threaded processes"
    );
}

/// Runs three threads that fault, next to one that maps and unmaps for a while. Returns how often a thread looked
/// at the queue of the address space's lock. `tail`: rounds of faults after the last change.
fn looks(tail: u32) -> u64 {
    let outcome = run(&with(MmapLock::Sleeping), move |os, start| {
        if start.role == 0 {
            return lead_forked(os, 4, Fork::Share);
        }
        let changes = start.argument == 0;
        for _ in 0..if changes { ROUNDS } else { ROUNDS + tail } {
            if changes {
                os.map(PAGES);
            }
            os.user_touching(5_000, Touch::anonymous(PAGES));
            if changes {
                os.unmap(PAGES);
            }
        }
    });
    counter(&outcome, "lock.rwsem_wait.acquired")
}

#[test]
fn readers_do_not_look_at_a_queue_that_has_become_empty() {
    let (short, long) = (looks(40), looks(400));
    assert!(short > u64::from(ROUNDS), "{short} looks: too little contention");
    assert_eq!(long, short, "faults after the last change wait for nothing");
}

#[test]
fn pages_that_were_freed_are_used_again() {
    // The host gives a page of memory at its first use only.
    let faults = |rounds| {
        let setup = Setup {
            kernel: Config {
                fresh_memory: true,
                ..Config::default()
            },
            ..Setup::default()
        };
        let outcome = run(&setup, move |os, start| {
            if start.role == 0 {
                return lead(os, 2);
            }
            for _ in 0..rounds {
                os.map(PAGES);
                os.user_touching(1_000, Touch::anonymous(PAGES));
                os.unmap(PAGES);
            }
        });
        let touched = counter(&outcome, "guest.page_faults");
        assert!(touched >= u64::from(2 * rounds * PAGES), "{touched} page faults");
        counter(&outcome, "measured_exits.exit_nested_fault")
    };
    let (few, many) = (faults(3), faults(30));
    assert!(few >= u64::from(PAGES), "{few} faults of the host");
    assert!(
        many <= few + u64::from(PAGES),
        "{many} faults of the host, {few} in a tenth of the time"
    );
}

#[test]
fn a_thread_alone_never_looks_at_the_queue() {
    for mmap_lock in ALL {
        let outcome = run(&with(mmap_lock), |os, _| {
            os.wait_for_cpus();
            os.begin();
            for _ in 0..ROUNDS {
                os.map(PAGES);
                os.user_touching(20_000, Touch::anonymous(PAGES));
                os.unmap(PAGES);
            }
            os.done(None);
        });
        assert_eq!(counter(&outcome, "lock.rwsem_wait.acquired"), 0, "{mmap_lock:?}");
    }
}

#[test]
fn writers_that_spin_seldom_sleep() {
    let looks = |mmap_lock| {
        let outcome = run(&with(mmap_lock), |os, start| {
            if start.role == 0 {
                return lead_forked(os, 3, Fork::Share);
            }
            (0..200).for_each(|_| os.map(1));
        });
        counter(&outcome, "lock.rwsem_wait.acquired")
    };
    let (sleeping, spinning) = (looks(MmapLock::Sleeping), looks(MmapLock::Spinning));
    assert!(sleeping > 100, "{sleeping} looks: too little contention");
    assert!(
        spinning * 4 < sleeping,
        "{spinning} looks of writers that spin, {sleeping} of others"
    );
}

#[test]
fn readers_that_steal_and_writers_that_spin_for_them_seldom_sleep() {
    let sleeps = |steals| {
        let mut setup = with(MmapLock::Downgrading);
        setup.kernel.rwsem_stealing = steals;
        counter(&threads(&setup, true), "guest.wakeups")
    };
    let (queued, stealing) = (sleeps(false), sleeps(true));
    assert!(
        stealing * 4 < queued * 3,
        "{stealing} wakeups with stealing, {queued} without"
    );
}
