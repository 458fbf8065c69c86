//! The comparisons, and the faults that they must find.

use proptest::prelude::*;

use super::{Act, Driven, Fault, Reference, Setup, Shape, agree, decode};
use crate::hardware::{PARTS, Part};
use crate::world::Rng;

/// Runs the program in `data` on both systems. Returns how many interrupts were taken, or the shortest program that
/// differs.
pub fn compare(setup: Setup, shape: Shape, data: &[u8]) -> Result<usize, String> {
    let program = decode(shape, data);
    let differs = |program: &[Act]| run(setup, Fault::None, program);
    differs(&program).map_err(|_| shortest(&program, &differs))
}

fn run(setup: Setup, fault: Fault, program: &[Act]) -> Result<usize, String> {
    agree(&mut Reference::new(setup), &mut Driven::new(setup, fault), program)
}

/// Shortens `program` until no act can be left out. Returns the difference that it shows, and the program.
fn shortest(program: &[Act], differs: &dyn Fn(&[Act]) -> Result<usize, String>) -> String {
    let mut program = program.to_vec();
    let mut step = program.len() / 2;
    while step > 0 {
        let mut from = 0;
        while from + step <= program.len() {
            let mut without = program.clone();
            without.drain(from..from + step);
            if differs(&without).is_err() {
                program = without;
            } else {
                from += step;
            }
        }
        step /= 2;
    }
    let difference = differs(&program).expect_err("it differed before");
    format!("{difference}\nof {program:#x?}")
}

fn shapes() -> impl Strategy<Value = Shape> {
    prop_oneof![Just(Shape::XApic), Just(Shape::X2Apic), Just(Shape::Hostile)]
}

fn random(rng: &mut Rng, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|_| rng.next() as u8).collect()
}

proptest! {
    #[test]
    fn every_part_delivers_what_the_reference_does(
        part in prop::sample::select(&PARTS[..]),
        shape in shapes(),
        data in proptest::collection::vec(any::<u8>(), 0..1500),
    ) {
        let setup = Setup { part };
        if let Err(difference) = compare(setup, shape, &data) {
            return Err(TestCaseError::fail(difference));
        }
    }
}

/// Runs many programs of each shape. Returns how many interrupts were taken.
fn run_many(part: Part, fault: Fault) -> Result<usize, String> {
    let setup = Setup { part };
    let mut rng = Rng(5);
    let mut taken = 0;
    for round in 0..60 {
        let shape = [Shape::XApic, Shape::X2Apic, Shape::Hostile][round % 3];
        let data = random(&mut rng, 1200);
        taken += run(setup, fault, &decode(shape, &data))?;
    }
    Ok(taken)
}

#[test]
fn programs_have_many_interrupts_taken() {
    for part in PARTS {
        let taken = run_many(part, Fault::None).unwrap_or_else(|difference| panic!("{part:?}: {difference}"));
        assert!(taken > 1_500, "{part:?}: {taken}");
    }
}

#[test]
fn every_fault_planted_is_found() {
    use Part::{Apicv, Avic, Ipiv, X2Avic};
    const EMULATED: &[Part] = &[Part::None];
    const ALL: &[Part] = &[Avic, X2Avic, Apicv, Ipiv];
    const AMD: &[Part] = &[Avic, X2Avic];
    for (fault, parts) in [
        (Fault::LostKick, EMULATED),
        (Fault::LostKick, ALL),
        (Fault::NoWindow, EMULATED),
        (Fault::ForgottenInjection, EMULATED),
        (Fault::ForgottenInjection, ALL),
        (Fault::NoCr8Intercept, EMULATED),
        (Fault::StaleCr8, EMULATED),
        (Fault::NoIret, EMULATED),
        (Fault::LostEoi, EMULATED),
        (Fault::StaleTmr, EMULATED),
        (Fault::LostSignal, ALL),
        (Fault::LostNotRunning, AMD),
        (Fault::LostInvalidTarget, AMD),
        (Fault::LostLevelEoi, AMD),
        (Fault::LostTrap, ALL),
        (Fault::EoiOfLowest, ALL),
        (Fault::LowestFirst, ALL),
        (Fault::NoServicePriority, ALL),
        (Fault::IrrLostAtInhibit, ALL),
        (Fault::RunningWhileBlocked, AMD),
        (Fault::IgnoresInvalidTarget, AMD),
        (Fault::BlockKeepsVector, &[Ipiv]),
        (Fault::BlockSuppresses, &[Ipiv]),
    ] {
        for &part in parts {
            assert!(run_many(part, fault).is_err(), "{fault:?} goes unnoticed with {part:?}");
        }
    }
}
