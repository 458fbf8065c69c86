use core::arch::asm;
use std::thread;

use holdfast_locks::thread::Thread;
use holdfast_words::Word;

use super::*;
use crate::cpu::{ThisThread, ThreadWord};
use crate::word::CompareStore;

fn area() -> Option<isize> {
    let state = state();
    (state & NO_AREA == 0).then_some(state & !NOT_IN_USE)
}

/// Changes over to exchanges, after a return to sequences if unlocks are exchanges.
pub(in crate::word) fn change_over() {
    return_to_sequences();
    let state = state();
    if state & NOT_IN_USE == 0 {
        leave(state);
    }
}

/// Increments `count` in a restartable sequence, as another library may do it. Returns the address of its
/// descriptor.
fn increment(area: isize, count: &mut u64) -> usize {
    let descriptor;
    // SAFETY: the area belongs to this thread. The descriptor is static, and its abort handler has the signature
    // before it. `count` is borrowed.
    unsafe {
        asm!(
            ".pushsection .data.rel.ro.holdfast_other, \"aw\"",
            ".balign 32",
            "7:",
            ".long 0, 0",
            ".quad 3f, 4f - 3f, 6f",
            ".popsection",
            ".pushsection .text.unlikely.holdfast_other, \"ax\"",
            ".byte 0x0f, 0xb9, 0x3d",
            ".long 0x53053053",
            "6:",
            "jmp 2f",
            ".popsection",
            "2:",
            "lea {t}, [rip + 7b]",
            "mov qword ptr fs:[{area} + 8], {t}",
            "3:",
            "inc qword ptr [{count}]",
            "4:",
            t = out(reg) descriptor,
            area = in(reg) area,
            count = in(reg) count,
            options(nostack),
        );
    }
    descriptor
}

/// Returns the address of the sequence that this thread has announced, or 0.
fn announced(area: isize) -> usize {
    let descriptor;
    // SAFETY: the area belongs to this thread.
    unsafe {
        asm!("mov {t}, qword ptr fs:[{area} + 8]", t = out(reg) descriptor, area = in(reg) area, options(nostack));
    }
    descriptor
}

#[test]
fn a_thread_that_sleeps_or_yields_has_announced_nothing() {
    let Some(area) = area() else {
        println!("SKIPPED: the C library has registered no area");
        return;
    };
    let (word, this) = (ThreadWord::ZERO, ThisThread::new());
    let sleep = || this.futex_wait(&word, 1);
    let give_way = || this.give_way();
    for (name, call) in [("sleep", &sleep as &dyn Fn()), ("yield", &give_way)] {
        // The kernel clears an announcement, too, but not in each round.
        for round in 0..200 {
            assert_eq!(Word::new(1).compare_store_low8(1, 0, Release), Ok(()));
            call();
            assert_eq!(announced(area), 0, "{name}, round {round}");
        }
    }
}

#[test]
fn a_sequence_of_another_library_is_neither_kept_nor_broken() {
    let Some(area) = area() else {
        println!("SKIPPED: the C library has registered no area");
        return;
    };
    const ROUNDS: u64 = 20_000;
    let work = || {
        let (word, mut count) = (Word::new(0), 0);
        for round in 1..=ROUNDS {
            let other = increment(area, &mut count);
            // The kernel restarts the other sequence before its last instruction, or not at all.
            assert_eq!(count, round);
            word.store(1, Relaxed);
            // Other tests may have changed over to exchanges, which leave the other sequence announced.
            return_to_sequences();
            let before = AREA.load(Relaxed);
            assert_eq!(word.compare_store_low8(1, 0, Release), Ok(()));
            // 0 if the kernel has interrupted the thread since.
            let relied = announced(area) == other;
            let in_use = [before, AREA.load(Relaxed)] == [area; 2];
            assert!(!(relied && in_use), "the store relied on another library's sequence");
        }
    };
    thread::scope(|scope| (0..2).for_each(|_| drop(scope.spawn(work))));
}
