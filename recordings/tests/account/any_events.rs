//! What holds for any sequence of events, however absurd.

use std::collections::BTreeMap;

use holdfast_recordings::account;
use holdfast_recordings::event::{Event, Left, Name, Tid, What};
use holdfast_recordings::hosts::Beside;
use holdfast_recordings::timeline::State;
use proptest::prelude::*;

use crate::host::{HLT, INTERRUPT, PAUSE, followed};

fn tid() -> impl Strategy<Value = Tid> {
    prop_oneof![8 => 0..6_u32, 1 => any::<u32>()]
}

fn cpu() -> impl Strategy<Value = u32> {
    prop_oneof![30 => 0..3_u32, 1 => any::<u32>()]
}

fn name() -> impl Strategy<Value = Name> {
    let names = [
        "CPU 0/KVM",
        "CPU 1/KVM",
        "vcpu0",
        "cc1",
        "vhost-2",
        "<...>",
        "",
        "kworker/0:1",
    ];
    prop::sample::select(names.to_vec()).prop_map(Name::from)
}

fn what() -> impl Strategy<Value = What> {
    let left = prop::sample::select(vec![Left::Ready, Left::Asleep, Left::Dead]);
    let reason = prop_oneof![Just(HLT), Just(PAUSE), Just(INTERRUPT), any::<u32>()];
    prop_oneof![
        6 => (tid(), name(), left, tid(), name()).prop_map(|(prev, prev_name, left, next, next_name)| What::Switch {
            prev, prev_name, left, next, next_name, next_prio: 120,
        }),
        4 => (tid(), name(), cpu(), any::<bool>()).prop_map(|(woken, name, target, queued)| What::Waking {
            woken, name, target, queued,
        }),
        2 => (tid(), cpu(), cpu()).prop_map(|(moved, from, to)| What::Migrate { moved, from, to }),
        3 => (0..2_u32).prop_map(|vcpu| What::Entry { vcpu }),
        3 => (prop::option::of(0..2_u32), reason, 0..3_u32).prop_map(|(vcpu, reason, isa)| What::Exit {
            vcpu, reason, isa,
        }),
        2 => (prop_oneof![0..2000_u64, any::<u64>()], any::<bool>()).prop_map(|(ns, slept)| What::HaltEnd {
            ns, slept, valid: true,
        }),
        1 => (prop_oneof![Just(5_u64), any::<u64>()], any::<[u64; 2]>()).prop_map(|(nr, args)| What::Hypercall {
            nr, args,
        }),
        1 => any::<[u32; 2]>().prop_map(|[icr_low, destination]| What::Ipi { icr_low, destination }),
        1 => (tid(), tid(), name()).prop_map(|(parent, child, name)| What::Forked { parent, child, name }),
        1 => (tid(), prop::option::of(tid()), name()).prop_map(|(named, process, name)| What::Named {
            named, process, name,
        }),
        1 => tid().prop_map(|ended| What::Ended { ended }),
        1 => prop::option::of(0..9_u64).prop_map(|events| What::Lost { events }),
    ]
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let time =
        prop_oneof![40 => 0..1000_i64, 1 => Just(-500_i64), 1 => Just(6_000_000_000_i64), 1 => Just(i64::MAX / 8)];
    let event = (time, cpu(), tid(), what());
    prop::collection::vec(event, 0..200).prop_map(|rows| {
        let mut at = 1_000_i64;
        let event = |(step, cpu, thread, what): (i64, u32, Tid, What)| {
            at = at.saturating_add(step).max(0);
            Event {
                at: at as u64,
                cpu,
                thread,
                what,
            }
        };
        rows.into_iter().map(event).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(500) })]

    /// The spans of a vCPU follow each other without gap from the moment at which it was found to its end.
    #[test]
    fn states_sum_to_the_recorded_time(events in events()) {
        let (steps, follower) = followed(&events);
        let end = follower.time().map_or(0, |(_, end)| end);
        let found: BTreeMap<u32, u64> = steps.known.iter().map(|(vcpu, since)| (vcpu.0, *since)).collect();
        prop_assert!(steps.was.iter().all(|(vcpu, ..)| found.contains_key(&vcpu.0)));
        for (vcpu, since) in found {
            let mut at = since;
            for (_, from, to, _) in steps.was.iter().filter(|(of, ..)| of.0 == vcpu) {
                prop_assert_eq!(*from, at);
                prop_assert!(to > from);
                at = *to;
            }
            let gone = steps.gone.iter().find(|(of, _)| of.0 == vcpu).map(|(_, at)| *at);
            prop_assert_eq!(at, gone.unwrap_or(end));
        }
    }

    /// A wait is a ready span, and what it was behind sums to it.
    #[test]
    fn waits_are_the_ready_spans(events in events()) {
        let (steps, _) = followed(&events);
        let mut ready: Vec<(u32, u64)> = Vec::new();
        for (vcpu, from, to, state) in &steps.was {
            if *state == State::Ready {
                ready.push((vcpu.0, to - from));
            }
        }
        let mut waited: Vec<(u32, u64)> = steps.waits.iter().map(|wait| (wait.vcpu.0, wait.to - wait.from)).collect();
        ready.sort_unstable();
        waited.sort_unstable();
        prop_assert_eq!(ready, waited);
        for wait in &steps.waits {
            let sum: u64 = wait.behind.iter().map(|(_, ns)| ns).sum();
            prop_assert_eq!(sum, wait.to - wait.from);
            prop_assert!(wait.until_exit <= wait.to - wait.from);
        }
    }

    /// The time of each pCPU follows itself without gap.
    #[test]
    fn a_pcpu_has_one_occupant_at_a_time(events in events()) {
        let (steps, _) = followed(&events);
        let mut until: BTreeMap<u32, u64> = BTreeMap::new();
        for (cpu, from, to, _) in &steps.had {
            let before = until.insert(*cpu, *to);
            prop_assert!(before.is_none_or(|before| before == *from), "{before:?} {from}");
        }
    }

    /// An account can be made of anything. Shares are shares.
    #[test]
    fn any_account_is_finite(events in events()) {
        let account = account::account(events, &Beside::default());
        for figures in account.vms.iter().flat_map(|vm| {
            vm.vcpus.iter().map(|vcpu| &vcpu.figures).chain([&vm.figures])
        }) {
            for figure in figures {
                prop_assert!(figure.value.is_none_or(f64::is_finite), "{figure:?}");
                if figure.name.ends_with("_percent") && figure.name != "run_delay_percent" {
                    prop_assert!(figure.value.is_none_or(|value| (0.0..=100.0001).contains(&value)), "{figure:?}");
                }
            }
        }
        prop_assert!(serde_json::to_string(&account).is_ok());
        prop_assert!(!account::metrics(&account).is_empty());
    }
}
