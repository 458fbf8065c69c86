//! Ticks while vCPUs wait for others.

use super::*;

/// vCPU 0 waits for vCPU 1 again and again, and its timer interrupts that: every `period` but for some delay.
fn ticking(period: u64, delay: u64) -> RecordedHost {
    let mut repeats = Repeats::new(&[("vm".to_owned(), VCPUS.to_vec())], &[]);
    let mut events = vec![entry(0, VCPUS[0]), entry(0, VCPUS[1])];
    let mut at = 0;
    for number in 0..200 {
        at += period + number * 7_919 % (delay + 1);
        events.extend([
            exit(at - 900, VCPUS[0], HLT),
            halt_end(at, VCPUS[0], 900, false),
            event(at + 10, VCPUS[0], What::Interrupt { apic: 0, vector: 0xec }),
            entry(at + 20, VCPUS[0]),
            exit(at + 100, VCPUS[0], HLT),
            exit(at + 200, VCPUS[1], WRMSR),
            event(at + 300, VCPUS[1], What::Interrupt { apic: 0, vector: 0 }),
            entry(at + 310, VCPUS[1]),
            halt_end(at + 300, VCPUS[0], 200, false),
            entry(at + 320, VCPUS[0]),
        ]);
    }
    events.sort_by_key(|event| event.at);
    events.iter().for_each(|event| repeats.take(event));
    let reading = Reading {
        ticks: true,
        ..Reading::default()
    };
    repeats.finish().read(&reading)
}

#[test]
fn ticks_of_a_period_come_in_all_waits_and_not_only_where_they_were_recorded() {
    let thread = &ticking(1_000_000, 0).guests["vm"][0];
    let tick = thread.tick.expect("a tick");
    assert_eq!((tick.period_ns, tick.takes_ns), (1_000_000, 100));
    assert!(!thread.steps.iter().any(|step| matches!(step, Step::Tick(_))));
    assert_eq!(thread.steps.iter().filter(|step| **step == Step::Woken).count(), 200);
    let irregular = &ticking(1_000, 1_000_000).guests["vm"][0];
    assert_eq!(irregular.tick, None);
    assert!(irregular.steps.iter().any(|step| matches!(step, Step::Tick(_))));
}
