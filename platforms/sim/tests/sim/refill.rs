//! A vCPU that returns to its pCPU fetches no more lines again than other threads could displace meanwhile.

use std::rc::Rc;
use std::sync::atomic::Ordering::{AcqRel, Acquire};

use holdfast_guest::Cpu;
use holdfast_locks::{CpuId, Paravirt, Platform, Word};
use holdfast_machine::Picos;
use holdfast_sim::{SimCpu, SimWord};

use crate::image::{Program, config, run_program};

const TURNS: u32 = 300;

/// Nanoseconds for which two vCPUs on one pCPU kick and displace each other; a whole refill takes `refill_ns`.
fn chase(refill_ns: u64) -> u64 {
    let word = Rc::new(SimWord::new(0));
    let program: Program = Rc::new(move |cpu: &SimCpu| {
        let mine = cpu.cpu().0;
        for _ in 0..TURNS {
            while cpu.load(&*word, Acquire) % 2 != mine {
                cpu.halt_masked();
            }
            cpu.compute(500);
            cpu.fetch_add(&*word, 1, AcqRel);
            cpu.kick(CpuId(1 - mine));
        }
    });
    let mut config = config(1, 2, 0, 1);
    config.machine.costs.cache_refill = Picos::from_nanos(refill_ns);
    let outcome = run_program(&config, &program, &(Rc::new(|_: &SimCpu| {}) as Program), 0);
    let outcome = outcome.unwrap_or_else(|failure| panic!("{failure}"));
    outcome.vms[0].elapsed_ns.expect("it ends")
}

#[test]
fn vcpus_that_chase_each_other_off_a_pcpu_get_on() {
    let (none, whole) = (chase(0), chase(1_000_000));
    let turn = none / u64::from(2 * TURNS);
    assert!(turn < 20_000, "a turn of {turn} ns displaces that much at the most");
    // In a turn a vCPU also displaces lines that it has just fetched: that must not add up from turn to turn.
    assert!(
        whole < none + 2_000_000 + 20 * none,
        "{whole} ns instead of {none} with refills of a millisecond"
    );
    assert!(whole > none, "and something is displaced");
}
