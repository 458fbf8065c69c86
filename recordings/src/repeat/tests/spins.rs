//! Threads that spin until those that they woke go on.

use super::*;

/// vCPU 0 calls vCPU 1, which takes from 1 to 50 us until it goes on. `gap` after that, or after the call, vCPU 0 makes
/// the next call.
fn calls(spins: bool) -> Repeated {
    let mut repeats = Repeats::new(&[("vm".to_owned(), VCPUS.to_vec())], &[]);
    let mut take = |event: Event| repeats.take(&event);
    take(entry(0, VCPUS[0]));
    take(entry(0, VCPUS[1]));
    let mut begin = 1_000_000;
    for call in 0..200 {
        let takes = 1_000 + call * 7_919 % 50_000;
        brief_halt(begin, begin + 200, begin + 200 + takes)
            .into_iter()
            .for_each(&mut take);
        begin += if spins {
            takes + 3_000
        } else {
            100_000 + call * 31_337 % 70_000
        };
    }
    repeats.finish()
}

#[test]
fn a_thread_spins_if_its_calls_take_as_long_as_their_answers() {
    let repeated = calls(true);
    assert!(repeated.has_spins());
    let steps = &repeated.tied.guests["vm"][0].steps;
    let spin = steps
        .iter()
        .position(|step| matches!(step, Step::Spin { .. }))
        .expect("a spin");
    assert_eq!(
        (steps[spin - 1], steps[spin]),
        (Step::Wake { thread: 1, wait: 0 }, Step::Spin { thread: 1, wait: 0 })
    );
    let ran = |host: &RecordedHost| -> u64 {
        let runs = host.guests["vm"][0].steps.iter().filter_map(|step| match step {
            Step::Run(ns) => Some(*ns),
            _ => None,
        });
        runs.sum()
    };
    let plain = repeated.read(&Reading::default());
    assert!(
        !plain.guests["vm"][0]
            .steps
            .iter()
            .any(|step| matches!(step, Step::Spin { .. }))
    );
    assert!(
        ran(&plain) > ran(&repeated.tied) + 200 * 1_000,
        "a spin is time that was recorded"
    );
    assert!(!calls(false).has_spins(), "these take as long as they take");
}

#[test]
fn a_spin_has_the_time_around_the_exits_that_interrupt_it() {
    let (wake, spin) = (Step::Wake { thread: 1, wait: 0 }, Step::Spin { thread: 1, wait: 0 });
    let interrupted = [Step::Run(10), Step::Exit, Step::Run(20), Step::Exit, Step::Run(5)];
    let steps = [
        &[Step::Run(3), Step::Exit, wake],
        &interrupted[..],
        &[spin, Step::Run(7)],
    ]
    .concat();
    let found = super::super::spins::marked(steps, &[Some(0)], |_| true);
    assert_eq!(
        found,
        (vec![Step::Run(3), Step::Exit, wake, spin, Step::Run(7)], vec![35])
    );
}
