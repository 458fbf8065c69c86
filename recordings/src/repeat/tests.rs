//! Steps of threads, from events.

use std::collections::BTreeSet;

use super::*;
use crate::event::Name;

mod halts;
mod spins;
mod ticks;

const VCPUS: [Tid; 2] = [100, 101];
/// Exits of VMX.
const HLT: u32 = 12;
const WRMSR: u32 = 32;

/// Returns the reading in which the waits of the guests `names` keep their lengths.
fn timed(names: &[&str]) -> Reading {
    Reading {
        timed: names.iter().map(|name| (*name).to_owned()).collect(),
        ticks: true,
        spins: true,
        answers: false,
    }
}

fn event(at: u64, thread: Tid, what: What) -> Event {
    Event {
        at,
        cpu: 0,
        thread,
        what,
    }
}

fn switch(at: u64, prev: Tid, left: Left, next: Tid) -> Event {
    let what = What::Switch {
        prev,
        prev_name: Name::default(),
        left,
        next,
        next_name: Name::default(),
        next_prio: 120,
    };
    event(at, prev, what)
}

fn waking(at: u64, waker: Tid, woken: Tid) -> Event {
    let what = What::Waking {
        woken,
        name: Name::default(),
        target: 0,
        queued: false,
    };
    event(at, waker, what)
}

fn exit(at: u64, thread: Tid, reason: u32) -> Event {
    let what = What::Exit {
        vcpu: None,
        reason,
        isa: 1,
    };
    event(at, thread, what)
}

fn halt_end(at: u64, thread: Tid, ns: u64, slept: bool) -> Event {
    let what = What::HaltEnd { ns, slept, valid: true };
    event(at, thread, what)
}

fn entry(at: u64, thread: Tid) -> Event {
    event(
        at,
        thread,
        What::Entry {
            vcpu: thread - VCPUS[0],
        },
    )
}

fn threads(events: &[Event]) -> (Vec<Thread>, Waits) {
    let mut repeats = Repeats::new(&[("vm".to_owned(), VCPUS.to_vec())], &[]);
    for event in events {
        repeats.take(event);
    }
    let mut repeated = repeats.finish();
    let timed = repeated.read(&timed(&["vm"]));
    assert_eq!(holdfast_workloads::recorded_fault(&timed.guests["vm"]), None);
    let mut threads = repeated.tied.guests.remove("vm").expect("the guest that was followed");
    assert_eq!(holdfast_workloads::recorded_fault(&threads), None);
    for thread in &mut threads {
        thread
            .steps
            .pop_if(|step| matches!(step, Step::Until(_) | Step::Again(_)));
    }
    (threads, repeated.waits)
}

/// vCPU 0 halts, the host polls for 50 ns of it and then sleeps; vCPU 1 wakes it by writing an MSR.
fn a_halt_ended_by_a_sibling(reason: u32) -> (Vec<Thread>, Waits) {
    threads(&[
        entry(1_000, 100),
        entry(1_000, 101),
        exit(1_200, 100, 12),
        switch(1_260, 100, Left::Asleep, 0),
        exit(1_400, 101, reason),
        waking(1_410, 101, 100),
        switch(1_500, 0, Left::Ready, 100),
        halt_end(1_510, 100, 300, true),
        entry(1_520, 100),
        exit(1_600, 100, 1),
    ])
}

#[test]
fn a_wait_is_ended_by_the_sibling_that_sent_an_interrupt_and_polling_is_part_of_it() {
    let (threads, waits) = a_halt_ended_by_a_sibling(32);
    // From 1000 to the halt, which began at 1210; from 1500 on.
    assert_eq!(threads[0].steps, [Step::Run(210), Step::Woken, Step::Run(100)]);
    let wake = Step::Wake { thread: 0, wait: 0 };
    assert_eq!(threads[1].steps, [Step::Run(410), wake, Step::Run(190)]);
    assert_eq!(waits.by_threads, 1);
}

#[test]
fn a_sibling_whose_exit_sends_nothing_is_not_believed_to_have_ended_the_wait() {
    // An external interrupt arrives while vCPU 1 is in guest mode: a timer or a device of the host.
    let (threads, waits) = a_halt_ended_by_a_sibling(1);
    assert_eq!(threads[0].steps, [Step::Run(210), Step::After(200), Step::Run(100)]);
    assert_eq!(threads[1].steps, [Step::Run(600)]);
    assert_eq!((waits.by_threads, waits.unknown), (0, 1));
}

#[test]
fn an_interrupt_of_a_device_ends_a_wait_at_its_time_and_the_timers_after_its_length() {
    for (vector, expected) in [(0x41, Step::At(450)), (0xec, Step::After(240))] {
        let (threads, _) = threads(&[
            entry(1_000, 100),
            exit(1_200, 100, 12),
            switch(1_260, 100, Left::Asleep, 0),
            waking(1_450, 0, 100),
            switch(1_500, 0, Left::Ready, 100),
            halt_end(1_510, 100, 300, true),
            event(1_515, 100, What::Interrupt { apic: 0, vector }),
            entry(1_520, 100),
        ]);
        // The wait is known before its interrupt is.
        assert_eq!(threads[0].steps[..2], [Step::Run(210), expected], "vector {vector:#x}");
    }
}

#[test]
fn a_device_that_answers_ends_a_wait_after_its_length() {
    let mut repeats = Repeats::new(&[("vm".to_owned(), VCPUS.to_vec())], &[]);
    for event in [
        entry(1_000, 100),
        exit(1_200, 100, HLT),
        switch(1_260, 100, Left::Asleep, 0),
        waking(1_450, 0, 100),
        switch(1_500, 0, Left::Ready, 100),
        halt_end(1_510, 100, 300, true),
        event(1_515, 100, What::Interrupt { apic: 0, vector: 0x41 }),
        entry(1_520, 100),
    ] {
        repeats.take(&event);
    }
    let repeated = repeats.finish();
    assert!(repeated.has_answers());
    let second = |answers| {
        let reading = Reading { answers, ..timed(&[]) };
        repeated.read(&reading).guests["vm"][0].steps[1]
    };
    assert_eq!((second(false), second(true)), (Step::At(450), Step::After(240)));
}

#[test]
fn a_poll_that_succeeds_is_a_wait_without_a_sleep() {
    let (threads, waits) = threads(&[
        entry(1_000, 100),
        entry(1_000, 101),
        exit(1_200, 100, 12),
        exit(1_230, 101, 32),
        event(1_235, 101, What::Interrupt { apic: 0, vector: 0xfd }),
        halt_end(1_240, 100, 30, false),
        entry(1_250, 100),
        exit(1_300, 100, 1),
    ]);
    assert_eq!(threads[0].steps, [Step::Run(210), Step::Woken, Step::Run(60)]);
    assert_eq!(waits.by_threads, 1);
    assert_eq!(threads[1].steps[1], Step::Wake { thread: 0, wait: 0 });
}

#[test]
fn preemption_is_no_wait_and_its_time_is_not_the_threads() {
    let (threads, waits) = threads(&[
        entry(1_000, 100),
        exit(1_200, 100, 1),
        switch(1_210, 100, Left::Ready, 7),
        switch(1_900, 7, Left::Ready, 100),
        entry(1_910, 100),
        exit(2_000, 100, 1),
    ]);
    assert_eq!(threads[0].steps, [Step::Run(310)]);
    assert_eq!(waits, Waits::default());
}

#[test]
fn a_thread_that_is_first_seen_when_it_is_woken_has_slept_from_the_beginning() {
    let (threads, _) = threads(&[
        entry(1_000, 101),
        waking(1_300, 0, 100),
        switch(1_400, 0, Left::Ready, 100),
        entry(1_420, 100),
        exit(1_500, 100, 1),
    ]);
    assert_eq!(threads[0].steps, [Step::After(300), Step::Run(100)]);
}

#[test]
fn an_interrupt_is_for_the_vcpu_whose_entry_had_the_number_and_not_for_the_place_in_the_list() {
    let numbered = |at, thread, vcpu| event(at, thread, What::Entry { vcpu });
    for (apic, by_threads) in [(5, 1), (1, 0)] {
        let (threads, waits) = threads(&[
            numbered(1_000, 100, 3),
            numbered(1_000, 101, 5),
            exit(1_200, 101, 12),
            exit(1_230, 100, 32),
            event(1_235, 100, What::Interrupt { apic, vector: 0xfd }),
            halt_end(1_240, 101, 30, false),
            numbered(1_250, 101, 5),
        ]);
        assert_eq!(waits.by_threads, by_threads, "APIC {apic}: {threads:?}");
    }
}

#[test]
fn a_thread_that_is_preempted_while_it_polls_has_one_wait_and_no_time_in_it() {
    let (threads, _) = threads(&[
        entry(1_000, 100),
        exit(1_200, 100, 12),
        switch(1_300, 100, Left::Ready, 7),
        switch(1_500, 7, Left::Ready, 100),
        switch(1_550, 100, Left::Asleep, 0),
        waking(1_700, 0, 100),
        switch(1_800, 0, Left::Ready, 100),
        // Preempted again before the halt's end is recorded.
        switch(1_810, 100, Left::Ready, 7),
        switch(1_900, 7, Left::Ready, 100),
        halt_end(1_920, 100, 710, true),
        entry(1_930, 100),
        exit(2_000, 100, 1),
    ]);
    // The halt began at 1210; woken at 1700; with a pCPU from 1800 to 1810 and from 1900 on.
    assert_eq!(threads[0].steps, [Step::Run(210), Step::After(490), Step::Run(110)]);
}

#[test]
fn a_vcpu_that_wakes_for_nothing_and_sleeps_again_is_in_one_halt() {
    let (threads, waits) = threads(&[
        entry(1_000, 100),
        entry(1_000, 101),
        exit(1_200, 100, 12),
        switch(1_210, 100, Left::Asleep, 0),
        waking(1_300, 0, 100),
        switch(1_310, 0, Left::Ready, 100),
        switch(1_320, 100, Left::Asleep, 0),
        exit(1_400, 101, 32),
        waking(1_410, 101, 100),
        switch(1_500, 0, Left::Ready, 100),
        halt_end(1_510, 100, 310, true),
        entry(1_520, 100),
        exit(1_600, 100, 1),
    ]);
    assert_eq!(threads[0].steps, [Step::Run(200), Step::Woken, Step::Run(100)]);
    assert_eq!((waits.by_threads, waits.unknown), (1, 0));
}

#[test]
fn a_siblings_own_interrupt_does_not_make_a_wait_one_for_a_device() {
    let (threads, waits) = threads(&[
        entry(1_000, 100),
        entry(1_000, 101),
        exit(1_200, 100, 12),
        switch(1_200, 100, Left::Asleep, 0),
        waking(1_450, 0, 100),
        switch(1_500, 0, Left::Ready, 100),
        halt_end(1_510, 100, 310, true),
        exit(1_512, 101, 32),
        event(1_514, 101, What::Interrupt { apic: 0, vector: 0x41 }),
        entry(1_520, 100),
    ]);
    assert_eq!(threads[0].steps[1], Step::After(250));
    assert_eq!((waits.by_devices, waits.unknown), (0, 1));
}

#[test]
fn a_thread_that_wants_a_cpu_at_the_end_of_the_recording_still_wants_it_then() {
    let mut repeats = Repeats::new(&[("vm".to_owned(), vec![100, 101, 102, 103])], &[]);
    for event in [
        entry(1_000, 100),
        entry(1_000, 101),
        entry(1_000, 102),
        entry(1_000, 103),
        // Preempted for good.
        switch(1_100, 100, Left::Ready, 7),
        // Halted for good; woken and still without a CPU; polling.
        exit(1_100, 101, 12),
        switch(1_110, 101, Left::Asleep, 0),
        exit(1_100, 102, 12),
        switch(1_120, 102, Left::Asleep, 0),
        waking(1_300, 0, 102),
        exit(1_500, 103, 12),
        switch(1_900, 7, Left::Ready, 8),
    ] {
        repeats.take(&event);
    }
    let repeated = repeats.finish();
    let last = |thread: usize| repeated.tied.guests["vm"][thread].steps.last().copied();
    assert_eq!(last(0), Some(Step::Until(900)));
    assert_eq!(last(1), Some(Step::Run(110)));
    let woken = &repeated.tied.guests["vm"][2].steps;
    assert_eq!(*woken, [Step::Run(120), Step::After(180), Step::Again(900)]);
    assert_eq!(last(3), Some(Step::Run(900)));
}

#[test]
fn a_thread_of_the_host_that_sleeps_does_no_more_than_it_did() {
    let mut repeats = Repeats::new(&[], &[7, 8]);
    for event in [
        switch(1_000, 0, Left::Asleep, 7),
        switch(1_200, 7, Left::Asleep, 8),
        waking(1_400, 8, 7),
        switch(1_500, 8, Left::Ready, 7),
        switch(1_600, 7, Left::Ready, 8),
    ] {
        repeats.take(&event);
    }
    let mut repeated = repeats.finish();
    let threads = repeated.tied.guests.remove(HOST).expect("threads of the host");
    // Both want a CPU at the end. The second has done so all the time.
    assert_eq!(threads[0].steps.last(), Some(&Step::Run(100)));
    assert_eq!(threads[1].steps.last(), Some(&Step::Until(600)));
}

#[test]
fn the_timed_reading_keeps_the_lengths_of_waits_that_siblings_ended_and_has_no_wakes() {
    let mut repeats = Repeats::new(&[("vm".to_owned(), VCPUS.to_vec())], &[]);
    for event in [
        entry(1_000, 100),
        entry(1_000, 101),
        exit(1_200, 100, 12),
        switch(1_260, 100, Left::Asleep, 0),
        exit(1_400, 101, 32),
        waking(1_410, 101, 100),
        switch(1_500, 0, Left::Ready, 100),
        halt_end(1_510, 100, 300, true),
        entry(1_520, 100),
        switch(1_600, 100, Left::Asleep, 0),
    ] {
        repeats.take(&event);
    }
    let repeated = repeats.finish();
    let names = repeated.with_tied_waits();
    assert_eq!(names, BTreeSet::from(["vm".to_owned()]));
    let lengths = repeated.read(&timed(&["vm"]));
    assert_eq!(
        lengths.guests["vm"][0].steps,
        [Step::Run(210), Step::After(200), Step::Run(100)]
    );
    assert_eq!(lengths.guests["vm"][1].steps, [Step::Run(600), Step::Until(600)]);
    let tied = repeated.read(&timed(&[]));
    assert_eq!(tied.guests["vm"][0].steps, repeated.tied.guests["vm"][0].steps);
    assert_eq!(tied.guests["vm"][1].steps, repeated.tied.guests["vm"][1].steps);
    // Of a wait without a length of its own.
    assert_eq!(
        (&tied.guests["vm"][0].lengths, &lengths.guests["vm"][0].lengths),
        (&vec![200], &vec![])
    );
}

/// An exit for a hypercall, one for an interrupt of the host, and a halt.
#[test]
fn exits_are_repeated_where_asked_for_but_not_those_that_the_host_causes() {
    let events = [
        entry(1_000, 100),
        exit(1_200, 100, 18),
        entry(1_210, 100),
        exit(1_400, 100, 1),
        entry(1_410, 100),
        exit(1_500, 100, 12),
        switch(1_510, 100, Left::Asleep, 0),
    ];
    let steps = |with_exits: bool| {
        let mut repeats = Repeats::new(&[("vm".to_owned(), VCPUS.to_vec())], &[]).with_exits(with_exits);
        events.iter().for_each(|event| repeats.take(event));
        repeats.finish().tied.guests.remove("vm").expect("the guest")[0]
            .steps
            .clone()
    };
    assert_eq!(steps(false), [Step::Run(510)]);
    assert_eq!(steps(true), [Step::Run(200), Step::Exit, Step::Run(310)]);
}

/// vCPU 1 halts, and what ends its halt comes before it sleeps: an interrupt that vCPU 0 sends at `sent`.
fn brief_halt(begin: u64, sent: u64, end: u64) -> Vec<Event> {
    vec![
        exit(begin, VCPUS[1], HLT),
        exit(sent - 10, VCPUS[0], WRMSR),
        event(sent, VCPUS[0], What::Interrupt { apic: 1, vector: 252 }),
        entry(sent + 10, VCPUS[0]),
        entry(end, VCPUS[1]),
    ]
}

#[test]
fn a_halt_that_is_over_before_the_thread_sleeps_is_a_wait_of_no_length() {
    let mut events = vec![entry(0, VCPUS[0]), entry(0, VCPUS[1])];
    events.extend(brief_halt(1_000, 1_200, 2_000));
    events.push(exit(5_000, VCPUS[1], 1));
    let (threads, waits) = threads(&events);
    assert_eq!(waits.by_threads, 1);
    assert!(threads[0].steps.contains(&Step::Wake { thread: 1, wait: 0 }));
    let steps = &threads[1].steps;
    assert_eq!(
        steps[..2],
        [Step::Run(2_000), Step::Woken],
        "its time on the CPU is no poll"
    );
}

#[test]
fn a_wakeup_on_the_way_to_sleep_ends_the_sleep() {
    let events = [
        entry(0, VCPUS[0]),
        entry(0, VCPUS[1]),
        exit(1_000, VCPUS[1], HLT),
        exit(1_100, VCPUS[0], WRMSR),
        event(1_200, VCPUS[0], What::Interrupt { apic: 1, vector: 252 }),
        waking(1_210, VCPUS[0], VCPUS[1]),
        switch(1_300, VCPUS[1], Left::Asleep, 0),
        switch(1_900, 0, Left::Ready, VCPUS[1]),
        halt_end(2_000, VCPUS[1], 1_000, true),
        entry(2_100, VCPUS[1]),
    ];
    let (threads, waits) = threads(&events);
    assert_eq!((waits.by_threads, waits.unknown), (1, 0));
    assert!(threads[1].steps.contains(&Step::Woken));
}
