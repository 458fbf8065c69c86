//! The comparisons, and the faults that they must find.

use proptest::prelude::*;

use super::{Act, Emulated, Fault, Reference, Setup, Shape, agree, decode};
use crate::world::Rng;

/// What `data` as a program makes of both: how many interrupts were taken, or the shortest program that differs.
pub fn compare(setup: Setup, shape: Shape, data: &[u8], fault: Fault) -> Result<usize, String> {
    let program = decode(shape, data);
    let differs = |program: &[Act]| agree(&mut Reference::new(setup), &mut Emulated::new(setup, fault), program);
    differs(&program).map_err(|_| shortest(&program, &differs))
}

/// The difference of a program from which no act can be left out, and that program.
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
    fn emulated_lapics_deliver_what_the_reference_does(
        shape in shapes(),
        vector_hashing in any::<bool>(),
        split_irqchip in any::<bool>(),
        data in proptest::collection::vec(any::<u8>(), 0..1500),
    ) {
        let setup = Setup { vector_hashing, split_irqchip };
        if let Err(difference) = compare(setup, shape, &data, Fault::None) {
            return Err(TestCaseError::fail(difference));
        }
    }
}

/// Enough programs of each shape to meet everything; interrupts taken in all of them.
fn run(fault: Fault) -> Result<usize, String> {
    let mut rng = Rng(5);
    let mut taken = 0;
    for round in 0..60 {
        let shape = [Shape::XApic, Shape::X2Apic, Shape::Hostile][round % 3];
        let data = random(&mut rng, 1200);
        taken += compare(Setup::default(), shape, &data, fault)?;
    }
    Ok(taken)
}

#[test]
fn programs_have_many_interrupts_taken() {
    let taken = run(Fault::None).expect("no difference");
    assert!(taken > 1_500, "{taken}");
}

#[test]
fn every_fault_planted_is_found() {
    for fault in [
        Fault::LostKick,
        Fault::NoWindow,
        Fault::ForgottenInjection,
        Fault::NoCr8Intercept,
        Fault::StaleCr8,
        Fault::NoIret,
        Fault::LostEoi,
        Fault::StaleTmr,
    ] {
        assert!(run(fault).is_err(), "{fault:?} goes unnoticed");
    }
}
