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

/// The timer of a vCPU comes while it waits for another one. If it wakes that one itself first, its timer was what it
/// waited for.
#[test]
fn a_timer_within_a_wait_for_another_thread_is_a_tick_of_it_in_one_reading() {
    let steps = |wakes: bool, ticks: bool| {
        let mut repeats = Repeats::new(&[("vm".to_owned(), VCPUS.to_vec())], &[]);
        let mut events = vec![
            entry(1_000, 100),
            entry(1_000, 101),
            exit(1_200, 100, 12),
            switch(1_210, 100, Left::Asleep, 0),
            waking(1_450, 0, 100),
            switch(1_480, 0, Left::Ready, 100),
            event(1_490, 100, What::Interrupt { apic: 0, vector: 0xec }),
            entry(1_500, 100),
        ];
        if wakes {
            events.extend([
                exit(1_510, 101, 12),
                switch(1_520, 101, Left::Asleep, 0),
                exit(1_530, 100, 32),
                waking(1_540, 100, 101),
                entry(1_550, 100),
                switch(1_560, 0, Left::Ready, 101),
                entry(1_565, 101),
            ]);
        }
        events.extend([
            exit(1_600, 100, 12),
            switch(1_610, 100, Left::Asleep, 0),
            exit(1_700, 101, 32),
            waking(1_710, 101, 100),
            switch(1_730, 0, Left::Ready, 100),
            entry(1_740, 100),
        ]);
        events.iter().for_each(|event| repeats.take(event));
        let reading = Reading {
            ticks,
            ..Reading::default()
        };
        repeats.finish().read(&reading).guests["vm"][0].steps[1]
    };
    assert_eq!(steps(false, true), Step::Tick(240));
    assert_eq!(steps(false, false), Step::After(240));
    assert_eq!(
        steps(true, true),
        Step::After(240),
        "what it did then was for its timer"
    );
}
