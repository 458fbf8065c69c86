//! Halts that end while the vCPU goes to sleep, and what they take the host.

use super::*;

/// vCPU 0 halts at 1200 and begins to wait at 1210; its APIC takes the interrupt of vCPU 1 at `taken`. It sleeps
/// nevertheless, and vCPU 1 wakes it at 1230.
fn taken_at(taken: u64) -> Vec<Thread> {
    let (threads, waits) = threads(&[
        entry(1_000, 100),
        entry(1_000, 101),
        exit(1_190, 101, WRMSR),
        exit(1_200, 100, HLT),
        event(taken, 101, What::Interrupt { apic: 0, vector: 0xfc }),
        waking(1_230, 101, 100),
        switch(1_260, 100, Left::Asleep, 0),
        switch(1_500, 0, Left::Ready, 100),
        halt_end(1_510, 100, 300, true),
        entry(1_520, 100),
        exit(1_600, 100, 1),
    ]);
    assert_eq!(waits.by_threads, 1);
    threads
}

#[test]
fn an_interrupt_for_a_vcpu_that_sleeps_in_spite_of_it_has_come_after_the_last_look() {
    for taken in [1_205, 1_215, 1_230] {
        let threads = taken_at(taken);
        assert_eq!(threads[0].steps, [Step::Run(210), Step::Woken, Step::Run(100)]);
        let wake = Step::Wake { thread: 0, wait: 0 };
        assert_eq!(
            threads[1].steps,
            [Step::Run(230), wake, Step::Run(370)],
            "taken at {taken}"
        );
    }
}

#[test]
fn a_vcpu_that_is_woken_on_its_way_to_sleep_is_not_woken_again() {
    let (threads, waits) = threads(&[
        entry(1_000, 100),
        entry(1_000, 101),
        exit(1_190, 101, WRMSR),
        exit(1_200, 100, HLT),
        waking(1_230, 101, 100),
        switch(1_260, 100, Left::Asleep, 0),
        switch(1_500, 0, Left::Ready, 100),
        halt_end(1_510, 100, 300, true),
        entry(1_520, 100),
    ]);
    assert_eq!(threads[0].steps[..2], [Step::Run(210), Step::Woken]);
    assert_eq!((waits.by_threads, waits.unknown), (1, 0));
}

/// Returns what a halt of vCPU 0 takes the host: `halts` halts, of which each sleeps 40 ns after a poll of `poll`,
/// where that is recorded, or whose poll ends 20 ns late, where it does not sleep.
fn takes(halts: u64, sleeps: bool, poll: Option<u64>) -> u64 {
    let mut repeats = Repeats::new(&[("vm".to_owned(), VCPUS.to_vec())], &[]);
    let mut events = vec![entry(0, 100), entry(0, 101)];
    if let Some(ns) = poll {
        events.push(event(5, 100, What::PollTime { vcpu: 0, ns, before: 0 }));
    }
    let polls = poll.unwrap_or(500);
    for at in (1..=halts).map(|number| number * 10_000) {
        events.extend([exit(at - 10, 100, HLT), exit(at, 101, WRMSR)]);
        if sleeps {
            events.push(switch(at + polls + 40, 100, Left::Asleep, 0));
        }
        events.push(event(at + 1_000, 101, What::Interrupt { apic: 0, vector: 0xfc }));
        if sleeps {
            events.push(waking(at + 1_000, 101, 100));
            events.push(switch(at + 1_010, 0, Left::Ready, 100));
        }
        let end = at + 1_020;
        events.extend([
            halt_end(end, 100, 1_020, sleeps),
            entry(end + 5, 100),
            entry(end + 5, 101),
        ]);
    }
    events.iter().for_each(|event| repeats.take(event));
    repeats.finish().tied.guests["vm"][0].halt_ns
}

#[test]
fn a_halt_takes_the_host_time_beside_its_poll() {
    assert_eq!(takes(200, true, Some(500)), 40);
    assert_eq!(takes(200, false, Some(500)), 20);
    assert_eq!(takes(20, true, Some(500)), 0, "too few");
    assert_eq!(takes(200, true, None), 0, "no event says how long the host polled");
}
