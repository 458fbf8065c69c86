//! A timeline has everything that happened, once, and recording it does not change the history.

use holdfast_host::AvicDriver;
use holdfast_locks::LockKind;
use holdfast_machine::Time;
use holdfast_sim::timeline::{Behind, Doing, Happening, Place, Span, Thread, Timeline, Window};
use holdfast_sim::{CallOff, Cause, Config, Outcome, record_images};

use crate::apicv::apicv_config;
use crate::avic::{avic_config, counter};
use crate::exactness::program;
use crate::image::{Bare, config, profile, run_program};
use crate::migration::hackbench;

const WHOLE: Window = Window {
    from_ns: 0,
    to_ns: u64::MAX,
};
const TIMER_NS: u32 = 700_000;

fn scene(seed: u64) -> Config {
    let mut config = config(2, 4, 1 + seed as u32 % 2, seed);
    config.machine = profile(2, (seed % 3 == 2).then_some(holdfast_machine::PauseHardware::Ple));
    config.vms[0].boot.spin_threshold = 300;
    config
}

fn recorded(kind: LockKind, seed: u64, window: Window) -> (Outcome, Timeline) {
    let (program, on_timer) = program(kind, seed, 400);
    let (outcome, timeline) = record_images(&scene(seed), &CallOff::new(), window, |_, machine| {
        Box::new(Bare::new(machine, program.clone(), on_timer.clone(), TIMER_NS))
    })
    .expect("a machine that can be built");
    (outcome.unwrap_or_else(|failure| panic!("{failure}")), timeline)
}

fn each(check: impl Fn(LockKind, u64)) {
    for kind in [LockKind::Ticket, LockKind::PvTicket, LockKind::PvQspin] {
        (0..4).for_each(|seed| check(kind, seed));
    }
}

/// Panics where `spans` overlap, or leave a gap in `start..end`.
fn tiles<T: Copy>(spans: &[Span<T>], start: Time, end: Time) -> Result<(), String> {
    let mut at = start;
    for span in spans {
        if span.start != at || span.end <= span.start {
            return Err(format!("a span from {:?} to {:?} follows {at:?}", span.start, span.end));
        }
        at = span.end;
    }
    if at == end {
        Ok(())
    } else {
        Err(format!("nothing from {at:?} to {end:?}"))
    }
}

/// The stretches in which a vCPU had a pCPU.
fn running(places: &[Span<Place>]) -> Vec<Span<u32>> {
    let with = places.iter().filter_map(|&Span { start, end, what }| match what {
        Place::Running { pcpu } => Some(Span { start, end, what: pcpu }),
        _ => None,
    });
    with.collect()
}

fn whole(timeline: &Timeline) -> Result<(), String> {
    for pcpu in &timeline.pcpus {
        tiles(&pcpu.threads, timeline.from, timeline.to)?;
    }
    for vcpu in &timeline.vcpus {
        tiles(&vcpu.places, timeline.from, timeline.to)?;
        let mut doings = vcpu.doings.iter().peekable();
        for place in running(&vcpu.places) {
            let mut inside = Vec::new();
            while let Some(doing) = doings.next_if(|doing| doing.start < place.end) {
                inside.push(*doing);
            }
            tiles(&inside, place.start, place.end)?;
        }
        if let Some(doing) = doings.next() {
            return Err(format!("{doing:?} without a pCPU"));
        }
    }
    Ok(())
}

#[test]
fn looking_changes_nothing() {
    each(|kind, seed| {
        let (program, on_timer) = program(kind, seed, 400);
        let plain = run_program(&scene(seed), &program, &on_timer, TIMER_NS).expect("it ends");
        let (looked, _) = recorded(kind, seed, WHOLE);
        assert_eq!(plain.history_hash, looked.history_hash, "{kind} seed {seed}");
        for (plain, looked) in plain.vms.iter().zip(&looked.vms) {
            assert_eq!(plain.lost_time_ps, looked.lost_time_ps, "{kind} seed {seed}");
            assert_eq!(plain.counters, looked.counters, "{kind} seed {seed}");
        }
    });
}

#[test]
fn spans_leave_no_gap_and_do_not_overlap() {
    each(|kind, seed| {
        let (_, timeline) = recorded(kind, seed, WHOLE);
        whole(&timeline).unwrap_or_else(|what| panic!("{kind} seed {seed}: {what}"));
    });
}

#[test]
fn planted_gaps_and_overlaps_are_seen() {
    let (_, timeline) = recorded(LockKind::Ticket, 0, WHOLE);
    let mut gap = timeline.clone();
    gap.vcpus[0].doings.remove(5);
    assert!(whole(&gap).is_err());
    let mut overlap = timeline.clone();
    overlap.vcpus[1].places[3].end.0 += 1;
    assert!(whole(&overlap).is_err());
    let mut late = timeline;
    late.pcpus[0].threads.pop();
    assert!(whole(&late).is_err());
}

#[test]
fn sums_are_the_ledgers() {
    each(|kind, seed| {
        let (outcome, timeline) = recorded(kind, seed, WHOLE);
        let ledger = |causes: &[Cause]| -> u64 {
            let lost = &outcome.vms[0].lost_time_ps;
            causes.iter().map(|cause| lost[cause.name()]).sum()
        };
        let did = |wanted: &dyn Fn(&Doing) -> bool| -> u64 {
            let doings = timeline.vcpus.iter().flat_map(|vcpu| &vcpu.doings);
            let wanted = doings.filter(|span| wanted(&span.what));
            wanted.map(|span| span.end.since(span.start).0).sum()
        };
        let was = |wanted: &dyn Fn(&Place) -> bool| -> u64 {
            let places = timeline.vcpus.iter().flat_map(|vcpu| &vcpu.places);
            let wanted = places.filter(|span| wanted(&span.what));
            wanted.map(|span| span.end.since(span.start).0).sum()
        };
        let behind = |wanted: &dyn Fn(&Behind) -> bool| {
            did(&|doing| matches!(doing, Doing::Spin { behind, .. } if wanted(behind)))
        };
        assert_eq!(
            behind(&|behind| matches!(behind, Behind::RunningHolder(_))),
            ledger(&[Cause::SpinRunningHolder]),
            "{kind} seed {seed}"
        );
        assert_eq!(
            behind(&|behind| matches!(behind, Behind::PreemptedHolder(_))),
            ledger(&[Cause::SpinPreemptedHolder]),
            "{kind} seed {seed}"
        );
        assert_eq!(
            behind(&|behind| matches!(behind, Behind::PreemptedWaiter(_))),
            ledger(&[Cause::SpinPreemptedWaiter]),
            "{kind} seed {seed}"
        );
        for cause in Cause::ALL {
            let exit = cause.name().starts_with("exit_") || cause == Cause::HostOverhead;
            if exit && cause != Cause::ExitPause {
                let out = did(&|doing| *doing == Doing::Out(cause));
                // What the caches cost is known when the host's work is planned, and the timeline does not divide it.
                let also = (cause == Cause::HostOverhead).then_some(Cause::ColdCaches);
                let entered = ledger(&[cause]) + also.map_or(0, |also| ledger(&[also]));
                assert_eq!(out, entered, "{kind} seed {seed}: {}", cause.name());
            }
        }
        assert_eq!(
            was(&|place| matches!(place, Place::Preempted { .. })),
            ledger(&[Cause::Runnable])
        );
        assert_eq!(was(&|place| *place == Place::Woken), ledger(&[Cause::WakeLatency]));
        assert_eq!(
            was(&|place| matches!(place, Place::Halted { awaits: Some(_) })),
            ledger(&[Cause::HaltedForLock])
        );
        assert_eq!(was(&|_| true), outcome.vms[0].vcpu_time_ps);
    });
}

#[test]
fn pcpus_and_vcpus_tell_the_same() {
    each(|kind, seed| {
        let (_, timeline) = recorded(kind, seed, WHOLE);
        for (number, vcpu) in timeline.vcpus.iter().enumerate() {
            let mut told: Vec<Span<u32>> = Vec::new();
            for (pcpu, track) in timeline.pcpus.iter().enumerate() {
                let mine = track
                    .threads
                    .iter()
                    .filter(|span| span.what == Thread::Vcpu(number as u32));
                told.extend(mine.map(|&Span { start, end, .. }| Span {
                    start,
                    end,
                    what: pcpu as u32,
                }));
            }
            told.sort_by_key(|span| span.start);
            assert_eq!(running(&vcpu.places), told, "{kind} seed {seed} vcpu {number}");
        }
    });
}

#[test]
fn chains_have_a_beginning_and_an_end() {
    let mut woken = 0;
    each(|kind, seed| {
        let (_, timeline) = recorded(kind, seed, WHOLE);
        assert!(timeline.moments.is_sorted_by_key(|moment| moment.at));
        let mut links: Vec<_> = timeline.moments.iter().filter_map(|moment| moment.flow).collect();
        links.sort_by_key(|flow| (flow.id, flow.ends));
        for chain in links.chunk_by(|one, other| one.id == other.id) {
            let (last, first) = chain.split_last().expect("chunks are not empty");
            assert!(
                !first.is_empty() && first.iter().all(|flow| !flow.ends),
                "{kind} {seed}: {chain:?}"
            );
            let open = first.len() == 2 && !last.ends;
            assert!(last.ends || open, "{kind} {seed}: {chain:?}");
        }
    });
    // PV locks halt and kick: a vCPU woken by a kick names the kicker.
    for seed in 0..4 {
        let (outcome, timeline) = recorded(LockKind::PvTicket, seed, WHOLE);
        let kick = |what: &Happening| matches!(what, Happening::Kick(_));
        let kicks = timeline.moments.iter().filter(|moment| kick(&moment.what)).count() as u64;
        assert_eq!(kicks, outcome.vms[0].counters.get("kicks_sent").copied().unwrap_or(0));
        woken += timeline
            .moments
            .iter()
            .filter(|moment| matches!(moment.what, Happening::Woken { vector: None, .. }))
            .count();
    }
    assert!(woken > 0, "no kick woke anybody");
}

/// Under AVIC an IPI takes no exit, or one that says only that some target does not run. The timeline names the sender
/// in both cases.
#[test]
fn ipis_under_avic_have_senders_doorbells_and_wakeups() {
    let config = hackbench(avic_config(4, 4, 3, 1), 200);
    let (outcome, timeline) = holdfast_sim::record(&config, &CallOff::new(), WHOLE).expect("a machine");
    let outcome = outcome.unwrap_or_else(|failure| panic!("{failure}"));
    let happenings = || timeline.moments.iter().map(|moment| moment.what);
    let rung: u64 = happenings()
        .map(|what| {
            if let Happening::Doorbells(count) = what {
                count
            } else {
                0
            }
        })
        .sum();
    assert_eq!(rung, counter(&outcome, "avic_doorbells_by_hardware"));
    let missed = happenings().filter(|what| *what == Happening::DoorbellMissed).count() as u64;
    assert_eq!(missed, counter(&outcome, "avic_doorbells_in_vain"));
    let count = |wanted: fn(Happening) -> bool| happenings().filter(|what| wanted(*what)).count();
    let sent = count(|what| matches!(what, Happening::Ipi { .. })) as u64;
    assert!(rung > 0 && sent >= rung, "{sent} IPIs, {rung} doorbells");
    assert!(count(|what| matches!(what, Happening::TakesIpi { .. })) > 0);
    assert!(count(|what| matches!(what, Happening::Woken { vector: Some(_), .. })) > 0);
}

#[test]
fn ipis_that_apicv_posts_have_senders_receivers_and_wakeups() {
    let config = hackbench(apicv_config(true, 4, 4, 3, 1), 200);
    let (outcome, timeline) = holdfast_sim::record(&config, &CallOff::new(), WHOLE).expect("a machine");
    let outcome = outcome.unwrap_or_else(|failure| panic!("{failure}"));
    let count = |wanted: fn(Happening) -> bool| timeline.moments.iter().filter(|at| wanted(at.what)).count() as u64;
    let sent = count(|what| matches!(what, Happening::Ipi { .. }));
    assert_eq!(sent, counter(&outcome, "apicv_ipis_without_exit"), "hardware sends all");
    assert!(sent > 0);
    // What is posted twice before it is taken is taken once.
    let taken = count(|what| matches!(what, Happening::TakesIpi { .. }));
    assert!(taken > sent / 2 && taken <= sent, "{taken} of {sent}");
    assert!(count(|what| matches!(what, Happening::Woken { vector: Some(_), .. })) > 0);
}

#[test]
fn doorbells_and_notifications_of_software_are_drawn() {
    let rung = |config: &Config| {
        let (outcome, timeline) = holdfast_sim::record(config, &CallOff::new(), WHOLE).expect("a machine");
        let outcome = outcome.unwrap_or_else(|failure| panic!("{failure}"));
        let rings = timeline.moments.iter();
        let rings = rings.filter(|at| matches!(at.what, Happening::HostRings(_)));
        (rings.count() as u64, outcome)
    };
    let mut avic = hackbench(avic_config(4, 4, 3, 1), 200);
    avic.host.avic.driver = AvicDriver::Linux4_7;
    let (rings, outcome) = rung(&avic);
    assert!(rings > 0 && rings == counter(&outcome, "avic_doorbell"), "{rings}");
    // Without IPI virtualization software posts, and notifies.
    let (rings, outcome) = rung(&hackbench(apicv_config(false, 4, 4, 3, 1), 200));
    assert!(rings > 0 && counter(&outcome, "apicv_ipis_without_exit") == 0);
}

#[test]
fn a_window_shows_what_the_whole_shows_there() {
    let (_, all) = recorded(LockKind::PvTicket, 1, WHOLE);
    let (from_ns, to_ns) = (all.to.nanos() / 3, all.to.nanos() / 2);
    let (_, part) = recorded(LockKind::PvTicket, 1, Window { from_ns, to_ns });
    assert_eq!(
        (part.from, part.to),
        (Time::from_nanos(from_ns), Time::from_nanos(to_ns))
    );
    whole(&part).expect("no gap, no overlap");
    fn clip<T: Copy>(spans: &[Span<T>], part: &Timeline) -> Vec<Span<T>> {
        let clipped = spans.iter().map(|span| Span {
            start: span.start.max(part.from),
            end: span.end.min(part.to),
            what: span.what,
        });
        clipped.filter(|span| span.start < span.end).collect()
    }
    for (all, one) in all.vcpus.iter().zip(&part.vcpus) {
        assert_eq!(clip(&all.places, &part), one.places);
        assert_eq!(clip(&all.doings, &part), one.doings);
    }
    for (all, one) in all.pcpus.iter().zip(&part.pcpus) {
        assert_eq!(clip(&all.threads, &part), one.threads);
        assert_eq!(clip(&all.host, &part), one.host);
    }
}

/// A guest with a quota of a third of its two pCPUs: one vCPU uses all of it, and spins behind a vCPU that is throttled
/// on the other pCPU.
///
/// There are no pause exits. With them, each directed yield would make the other pCPU use up the nanosecond that a
/// queue gets when it is unthrottled, before its vCPU has entered the guest, again and again.
fn throttled(seed: u64) -> (Outcome, Timeline) {
    let mut config = scene(seed);
    config.machine = profile(2, None);
    config.vms[0].host.group = holdfast_host::VmGroup::Own { shares: 1024 };
    config.vms[0].host.quota = Some(holdfast_host::Quota {
        quota_ns: 2_000_000,
        period_ns: 3_000_000,
        burst_ns: 0,
    });
    let (program, on_timer) = program(LockKind::Ticket, seed, 4_000);
    let (outcome, timeline) = record_images(&config, &CallOff::new(), WHOLE, |_, machine| {
        Box::new(Bare::new(machine, program.clone(), on_timer.clone(), TIMER_NS))
    })
    .expect("a machine that can be built");
    (outcome.unwrap_or_else(|failure| panic!("{failure}")), timeline)
}

#[test]
fn who_is_throttled_is_shown_as_throttled_and_as_nothing_else() {
    let (mut throttlings, mut holders, mut waiters) = (0, 0, 0);
    for seed in 0..6 {
        let (outcome, timeline) = throttled(seed);
        whole(&timeline).unwrap_or_else(|what| panic!("seed {seed}: {what}"));
        let places = || timeline.vcpus.iter().flat_map(|vcpu| &vcpu.places);
        let lasts = |wanted: &dyn Fn(&Place) -> bool| -> u64 {
            let wanted = places().filter(|span| wanted(&span.what));
            wanted.map(|span| span.end.since(span.start).0).sum()
        };
        let lost = &outcome.vms[0].lost_time_ps;
        let shown = lasts(&|place| matches!(place, Place::Throttled { .. }));
        throttlings += shown;
        assert_eq!(shown, lost[Cause::Throttled.name()], "seed {seed}");
        assert_eq!(
            lasts(&|place| matches!(place, Place::Preempted { .. })),
            lost[Cause::Runnable.name()],
            "seed {seed}"
        );
        let doings = || timeline.vcpus.iter().flat_map(|vcpu| &vcpu.doings);
        let behind = |wanted: &dyn Fn(&Behind) -> bool| -> u64 {
            let wanted = doings().filter(|span| matches!(&span.what, Doing::Spin { behind, .. } if wanted(behind)));
            wanted.map(|span| span.end.since(span.start).0).sum()
        };
        let of_holders = behind(&|behind| matches!(behind, Behind::ThrottledHolder(_)));
        assert_eq!(of_holders, lost[Cause::SpinThrottledHolder.name()], "seed {seed}");
        let of_waiters = behind(&|behind| matches!(behind, Behind::ThrottledWaiter(_)));
        assert_eq!(of_waiters, lost[Cause::SpinThrottledWaiter.name()], "seed {seed}");
        holders += of_holders;
        waiters += of_waiters;
    }
    assert!(throttlings > 0, "nobody was throttled");
    assert!(holders > 0, "nobody spun behind a throttled holder");
    assert!(waiters > 0, "nobody spun behind a throttled waiter");
}
