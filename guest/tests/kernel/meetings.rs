//! Two tasks meet at a lock or a queue, one of them later by every offset: **no lost wakeup**, wherever the later one
//! meets the earlier one.

use std::rc::Rc;

use holdfast_guest::{Config, FileId, Fork, MmapLock, Os, OwnerSpinning, Touch, UserMutex};
use holdfast_sim::SimMachine;

use crate::idle;
use crate::machine::{Setup, lead_forked, run};

/// When the first task acts, in nanoseconds after boot.
const MEETING_NS: u64 = 2_000_000;
/// A lost wakeup keeps a task asleep for longer than this.
const LATE_NS: u64 = 500_000;
/// Offsets are multiples of this: less than a step of any slow path.
const STEP_NS: u64 = 60;

/// What a task does.
type Act = Rc<dyn Fn(&Os<SimMachine>)>;
/// What the first and the second task do.
type Acts = [Act; 2];

fn acts(first: impl Fn(&Os<SimMachine>) + 'static, second: impl Fn(&Os<SimMachine>) + 'static) -> Acts {
    [Rc::new(first), Rc::new(second)]
}

fn both(act: impl Fn(&Os<SimMachine>) + 'static) -> Acts {
    let act: Act = Rc::new(act);
    [act.clone(), act]
}

fn compute_until(os: &Os<SimMachine>, time: u64) {
    let now = os.now();
    os.user(time.saturating_sub(now));
}

/// Lets two threads meet at all offsets up to `most`. Neither acts again after the meeting, so a wakeup that is lost
/// stays lost.
fn meet(name: &str, kernel: &Config, acts: &Acts, most: u64) {
    let setup = Setup {
        kernel: kernel.clone(),
        ..Setup::default()
    };
    meet_on(name, &setup, acts, most);
}

/// As [`meet`], with this kernel and host.
fn meet_on(name: &str, setup: &Setup, acts: &Acts, most: u64) {
    let setup = Setup {
        pcpus: 3,
        vcpus: 3,
        ..setup.clone()
    };
    for offset in (0..=most).step_by(STEP_NS as usize) {
        let acts = acts.clone();
        let outcome = run(&setup, move |os, start| {
            if start.role == 0 {
                os.open_pipe(0, 1);
                return lead_forked(os, 2, Fork::Share);
            }
            compute_until(os, MEETING_NS + u64::from(start.argument) * offset);
            acts[start.argument as usize](os);
        });
        let elapsed = outcome.vms[0].elapsed_ns.expect("measured");
        assert!(
            elapsed < MEETING_NS + LATE_NS,
            "{name}: a task that came {offset} ns after another one waited: {elapsed} ns"
        );
    }
}

#[test]
fn at_the_lock_of_an_address_space() {
    for mmap_lock in [MmapLock::Sleeping, MmapLock::Spinning, MmapLock::Downgrading] {
        let kernel = Config {
            mmap_lock,
            owner_spinning: OwnerSpinning::Queued,
            ..Config::default()
        };
        let map = |os: &Os<SimMachine>| os.map(16);
        let touch = |os: &Os<SimMachine>| os.user_touching(0, Touch::anonymous(1));
        meet("two writers", &kernel, &both(map), 4_000);
        meet("writer and reader", &kernel, &acts(map, touch), 4_000);
        meet("reader and writer", &kernel, &acts(touch, map), 4_000);
    }
}

#[test]
fn at_the_mutex_of_a_file() {
    for owner_spinning in [
        OwnerSpinning::Everyone,
        OwnerSpinning::Queued,
        OwnerSpinning::PreemptionAware,
    ] {
        let kernel = Config {
            owner_spinning,
            ..Config::default()
        };
        meet("two writers", &kernel, &both(|os| os.write(FileId(3), 1)), 6_000);
    }
}

#[test]
fn at_pipes_sockets_and_semaphores() {
    let kernel = Config::default();
    let write = |os: &Os<SimMachine>| os.write_pipe(0, 100);
    let read = |os: &Os<SimMachine>| assert_eq!(os.read_pipe(0, 100), Some(100));
    meet("writer and reader", &kernel, &acts(write, read), 6_000);
    meet("reader and writer", &kernel, &acts(read, write), 6_000);
    let send = |os: &Os<SimMachine>| os.send(0, 7);
    let receive = |os: &Os<SimMachine>| assert_eq!(os.receive(1), 7);
    meet("sender and receiver", &kernel, &acts(send, receive), 6_000);
    meet("receiver and sender", &kernel, &acts(receive, send), 6_000);
    let down = |os: &Os<SimMachine>| os.semaphore_down(0, 0);
    let up = |os: &Os<SimMachine>| os.semaphore_up(0, 0);
    meet("down and up", &kernel, &acts(down, up), 4_000);
    meet("up and down", &kernel, &acts(up, down), 4_000);
}

#[test]
fn at_a_futex() {
    let mutex: Rc<UserMutex<u32, SimMachine>> = Rc::new(UserMutex::new(0));
    let hold = move |os: &Os<SimMachine>| {
        *mutex.lock(os) += 1;
    };
    meet("two holders", &Config::default(), &both(hold), 4_000);
}

#[test]
fn at_a_semaphore_by_cpus_that_idle_in_any_way() {
    // The waiter's CPU becomes idle while it is woken.
    for (way, setup) in idle::ways() {
        let down = |os: &Os<SimMachine>| os.semaphore_down(0, 0);
        let up = |os: &Os<SimMachine>| os.semaphore_up(0, 0);
        meet_on(way, &setup, &acts(down, up), 4_000);
        meet_on(way, &setup, &acts(up, down), 1_000);
    }
}
