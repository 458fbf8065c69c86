//! Words on one cache line move together.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use holdfast_locks::{Budget, Paravirt, Platform, Word};
use holdfast_sim::{SimCpu, SimWord};

use crate::image::{Program, config, run_program};

/// Time that a CPU takes to read its word a hundred times, between another CPU's writes to a second word.
fn reading_beside_a_writer(share: bool) -> u64 {
    let (mine, other, turn) = (SimWord::new(0), SimWord::new(0), SimWord::new(0));
    if share {
        other.place(Word::<u32>::line(&mine));
    }
    let words = Rc::new((mine, other, turn));
    let read = Rc::new(Cell::new(0));
    let total = read.clone();
    let program: Program = Rc::new(move |cpu: &SimCpu| {
        let (mine, other, turn) = &*words;
        let number = cpu.cpu().0;
        for round in 0..100 {
            let mine_is_due = |turn| turn == 2 * round + number;
            assert!(cpu.wait_until(turn, Budget::UNBOUNDED, Acquire, mine_is_due).is_ok());
            if number == 0 {
                cpu.fetch_add(other, 1, Relaxed);
            } else {
                let start = cpu.now_ns();
                cpu.load(mine, Relaxed);
                total.set(total.get() + cpu.now_ns() - start);
            }
            cpu.store(turn, 2 * round + number + 1, Release);
        }
    });
    let nothing: Program = Rc::new(|_: &SimCpu| {});
    run_program(&config(2, 2, 0, 1), &program, &nothing, 0).unwrap_or_else(|failure| panic!("{failure}"));
    read.get()
}

#[test]
fn who_writes_a_word_takes_its_neighbours_away() {
    let (alone, beside) = (reading_beside_a_writer(false), reading_beside_a_writer(true));
    // Each of the hundred reads misses, and the line comes from the other socket: 110 ns.
    assert!(
        beside > alone + 99 * 100,
        "{beside} ns, with a line of its own {alone} ns"
    );
}
