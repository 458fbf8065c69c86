//! Neither skipping spins nor recording a timeline changes a history.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::Ordering::*;

use holdfast_guest::Cpu;
use holdfast_host::{PauseControls, PauseHandling};
use holdfast_locks::{BootLock, Budget, Interrupts, LockKind, Platform, Word};
use holdfast_machine::PauseHardware;
use holdfast_sim::{Config, Outcome, SimCpu, SimWord};

use crate::image::{Program, Random, coarsen, config, profile, run_program};

/// Shared state of a random program.
struct Shared {
    locks: Vec<BootLock<SimWord>>,
    words: Vec<SimWord>,
    inside: Vec<Cell<bool>>,
}

fn critical(shared: &Shared, cpu: &SimCpu, kind: LockKind, index: usize, ns: u64) {
    let lock = &shared.locks[index];
    let enabled = cpu.irq_save();
    lock.lock(kind, cpu);
    cpu.lock_acquired(lock.word());
    assert!(!shared.inside[index].replace(true), "two are inside lock {index}");
    cpu.compute(ns);
    assert!(shared.inside[index].replace(false));
    cpu.lock_released(lock.word());
    lock.unlock(kind, cpu);
    cpu.irq_restore(enabled);
}

fn step(shared: &Shared, cpu: &SimCpu, kind: LockKind, random: &mut Random) {
    let word = &shared.words[random.next(shared.words.len() as u64) as usize];
    match random.next(8) {
        0 => cpu.compute(random.next(2_000) * 10),
        1 => cpu.compute(random.next(30) * 10),
        2 | 3 => critical(
            shared,
            cpu,
            kind,
            random.next(shared.locks.len() as u64) as usize,
            random.next(3_000),
        ),
        4 => {
            cpu.fetch_add(word, 1, AcqRel);
        }
        5 => {
            let budget = Budget(random.next(600) as u32);
            let divisor = 2 + random.next(4) as u32;
            let _ = cpu.wait_until(word, budget, Acquire, |value| value.is_multiple_of(divisor));
        }
        6 => {
            let _ = cpu.load(word, Acquire);
            cpu.relax();
        }
        _ => cpu.store(word, random.next(100) as u32, Release),
    }
}

pub fn program(kind: LockKind, seed: u64, steps: u32) -> (Program, Program) {
    let shared = Rc::new(Shared {
        locks: (0..2).map(|_| BootLock::new()).collect(),
        words: (0..3).map(|_| SimWord::new(0)).collect(),
        inside: (0..2).map(|_| Cell::new(false)).collect(),
    });
    // One of the words has a line of its own. The others share a line with a lock.
    let line = Word::<u32>::line(shared.locks[1].word());
    shared.words[..2].iter().for_each(|word| word.place(line));
    let in_timer = shared.clone();
    let run = move |cpu: &SimCpu| {
        let mut random = Random(seed ^ u64::from(cpu.cpu().0) << 40);
        for _ in 0..steps {
            step(&shared, cpu, kind, &mut random);
        }
    };
    let on_timer = move |cpu: &SimCpu| critical(&in_timer, cpu, kind, 0, 500);
    (Rc::new(run), Rc::new(on_timer))
}

/// Pause detection of either vendor, and the policies of hosts. The windows are short, so that they are often exceeded.
fn watch_pauses(config: &mut Config, pauses: Option<PauseHardware>, random: &mut Random) {
    let presets = PauseHandling::PRESETS;
    config.host.pause = presets[random.next(presets.len() as u64) as usize].1;
    config.host.pause_controls = match pauses {
        Some(PauseHardware::Filter) => PauseControls::Filter {
            count: 20 + random.next(200) as u32,
            threshold: 128,
        },
        _ => PauseControls::Ple {
            gap: 128,
            window: 500 + random.next(4_000) as u32,
        },
    };
}

fn play(kind: LockKind, seed: u64, pauses: Option<PauseHardware>, execute_spins: bool) -> Outcome {
    let mut random = Random(seed);
    let pcpus = 1 + random.next(4) as u32;
    let vcpus = 1 + random.next(6) as u32;
    let mut config = config(pcpus, vcpus, random.next(4) as u32, seed);
    config.machine = profile(pcpus, pauses);
    watch_pauses(&mut config, pauses, &mut Random(seed ^ 0x9a));
    if seed % 4 > 1 {
        // Pairs of pCPUs share a core.
        config.machine.topology.threads = 2;
    }
    if seed % 2 == 1 {
        // Events of equal times can hide faults: make many.
        coarsen(&mut config.machine.costs);
    }
    config.execute_spins = execute_spins;
    config.vms[0].boot.spin_threshold = 50 + random.next(1000) as u32;
    let (program, on_timer) = program(kind, seed, 400);
    let timer_ns = [0, 700_000, 1_500_000][random.next(3) as usize];
    run_program(&config, &program, &on_timer, timer_ns)
        .unwrap_or_else(|failure| panic!("{kind} seed {seed}: {failure}"))
}

fn assert_same(one: &Outcome, other: &Outcome, what: &str) {
    assert_eq!(one.history_hash, other.history_hash, "{what}: histories differ");
    assert_eq!(one.end_ns, other.end_ns, "{what}");
    for (one, other) in one.vms.iter().zip(&other.vms) {
        assert_eq!(one.lost_time_ps, other.lost_time_ps, "{what}: ledgers differ");
        assert_eq!(one.counters, other.counters, "{what}");
    }
}

#[test]
fn skipped_spins_are_executed_spins_bit_for_bit() {
    let mut exits = [0; 3];
    for kind in crate::all_locks() {
        for seed in 0..12 {
            let vendor = seed as usize % 3;
            let pauses = [None, Some(PauseHardware::Ple), Some(PauseHardware::Filter)][vendor];
            let skipped = play(kind, seed, pauses, false);
            let executed = play(kind, seed, pauses, true);
            assert_same(&skipped, &executed, &format!("{kind} seed {seed} {pauses:?}"));
            exits[vendor] += skipped.vms[0].counters["pause_exits"];
        }
    }
    assert!(exits[0] == 0 && exits[1] > 1_000 && exits[2] > 1_000, "{exits:?}");
}

#[test]
fn equal_seeds_give_equal_histories() {
    for seed in 0..5 {
        let once = play(LockKind::PvTicket, seed, None, false);
        let twice = play(LockKind::PvTicket, seed, None, false);
        assert_same(&once, &twice, "same seed");
        let other = play(LockKind::PvTicket, seed + 1000, None, false);
        assert_ne!(once.history_hash, other.history_hash);
    }
}

#[test]
fn parts_of_lost_time_sum_to_the_whole() {
    for kind in crate::all_locks() {
        for seed in 100..110 {
            for vm in play(kind, seed, Some(PauseHardware::Ple), false).vms {
                assert_eq!(
                    vm.lost_time_ps.values().sum::<u64>(),
                    vm.vcpu_time_ps,
                    "{kind} seed {seed}"
                );
            }
        }
    }
}
