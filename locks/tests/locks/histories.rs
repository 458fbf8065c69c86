//! Pinned histories: what each lock does in a few machines, under random schedules. A lock that takes one step more or
//! less, spins for longer, or halts or kicks at another time has another history.
//!
//! `histories.txt` has a row for each lock and machine: the steps of all CPUs, their halts, and a hash of the rest. If
//! they are meant to differ, write the table again:
//! `HOLDFAST_WRITE_HISTORIES=1 cargo test -p holdfast-locks --test locks histories`

use std::fmt::Write as _;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use holdfast_locks::conformance::Job;
use holdfast_locks::{CpuId, Platform, RawLock};

use crate::explore::{Random, RandomWalk};
use crate::scenes::{Checked, for_each_lock, job};
use crate::steps::{Machine, Setup, StepCpu};

const CPUS: u32 = 4;
const ROUNDS: u32 = 6;
const SEEDS: u64 = 8;

/// FNV-1a of 64 bits.
struct Hash(u64);

impl Hash {
    fn add(&mut self, value: u64) {
        for byte in value.to_le_bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

/// The machines, by name.
fn setups() -> [(&'static str, Setup); 5] {
    let patient = Setup {
        threshold: 600,
        ..Setup::new(CPUS)
    };
    [
        ("impatient", Setup::new(CPUS)),
        ("patient", patient),
        (
            "two-nodes",
            Setup {
                numa_nodes: 2,
                ..patient
            },
        ),
        (
            "preempted",
            Setup {
                preempted: true,
                halts_behind: true,
                ..patient
            },
        ),
        ("threads", Setup::hosted(CPUS)),
    ]
}

/// Each CPU looks at the lock, and takes it by `lock` or `try_lock`. `seen` notes the order and the answers.
fn jobs<L: RawLock<StepCpu> + 'static>(seen: &Arc<Mutex<Vec<u64>>>) -> Vec<(CpuId, Job<StepCpu>)> {
    let lock = Checked::new(0);
    let each = |number: u32| {
        let (lock, seen) = (Arc::clone(&lock), Arc::clone(seen));
        let body = move |cpu: &StepCpu| {
            for round in 0..ROUNDS {
                let answers = [L::is_locked(cpu, &lock.word), L::is_contended(cpu, &lock.word)];
                let tried = (round + number).is_multiple_of(3) && L::try_lock(cpu, &lock.word);
                let note = |word| {
                    let bits = [tried, answers[0], answers[1]]
                        .into_iter()
                        .fold(number, |bits, bit| bits << 1 | u32::from(bit));
                    seen.lock()
                        .expect("no panic")
                        .push(u64::from(bits) << 32 | u64::from(word));
                };
                if tried {
                    note(cpu.load(&lock.word, std::sync::atomic::Ordering::Relaxed));
                    L::unlock(cpu, &lock.word);
                } else {
                    lock.with::<L>(cpu, || note(cpu.load(&lock.word, std::sync::atomic::Ordering::Relaxed)));
                }
            }
        };
        (CpuId(number), job(body))
    };
    (0..CPUS).map(each).collect()
}

/// Runs a lock on the machine of `setup` with all seeds. Returns the steps, the halts and the hash.
fn history<L: RawLock<StepCpu> + 'static>(name: &str, setup: Setup) -> (u64, u64, u64) {
    let (mut steps, mut halts, mut hash) = (0, 0, Hash(0xcbf2_9ce4_8422_2325));
    for seed in 0..SEEDS {
        let walk = RandomWalk {
            random: Random(seed),
            stride: 2 + seed,
        };
        let seen = Arc::new(Mutex::new(Vec::new()));
        let machine: Rc<Machine> = Machine::new(setup, Box::new(walk));
        machine.run(jobs::<L>(&seen)).expect(name);
        steps += machine.steps();
        hash.add(machine.steps());
        seen.lock().expect("no panic").iter().for_each(|&entry| hash.add(entry));
        for cpu in 0..CPUS {
            halts += u64::from(machine.halts(cpu));
            let waits = machine.halted_after(cpu).into_iter().chain([machine.waits(cpu)]);
            waits.flatten().for_each(|iterations| hash.add(iterations.into()));
        }
        machine.stats.iter().for_each(|(_, count)| hash.add(count));
    }
    (steps, halts, hash.0)
}

#[test]
fn each_lock_takes_its_pinned_steps() {
    let mut table = String::from("lock | machine | steps | halts | hash\n");
    let mut add = |name: &str, machine: &str, (steps, halts, hash): (u64, u64, u64)| {
        writeln!(table, "{name} | {machine} | {steps} | {halts} | {hash:016x}").expect("a string grows");
    };
    for (machine, setup) in setups() {
        macro_rules! rows {
            ([] $($module:ident: $kind:ident = $name:literal,)+) => {
                $({
                    #[allow(unused_imports, reason = "a lock is in one of them")]
                    use {holdfast_history::*, holdfast_locks::*};
                    add($name, machine, history::<$kind>($name, setup));
                })+
            };
        }
        for_each_lock!(rows);
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/locks/histories.txt");
    if std::env::var_os("HOLDFAST_WRITE_HISTORIES").is_some() {
        std::fs::write(path, &table).expect("the table can be written");
    }
    let pinned = std::fs::read_to_string(path).unwrap_or_default();
    let lacks = |row: &&str| !pinned.lines().any(|known| known == *row);
    let other: Vec<&str> = table.lines().filter(lacks).collect();
    assert!(
        other.is_empty() && pinned.lines().count() == table.lines().count(),
        "these rows differ from {path}: {other:#?}"
    );
}
