use holdfast_protocol::Contended;
use proptest::prelude::*;

use super::*;
use crate::printable::tests::is_harmless;

/// Text that a hostile guest may send.
fn text() -> impl Strategy<Value = String> {
    let bytes = proptest::collection::vec(prop_oneof![any::<u8>(), 0u8..32, 0x7fu8..0xa0], 0..2500);
    let wild = bytes.prop_map(|bytes| bytes.into_iter().map(char::from).collect());
    prop_oneof![any::<String>(), wild, "kvm\\.[a-z.]{1,9}", "[a-z]{1,3}"]
}

fn message() -> impl Strategy<Value = Message> {
    prop_oneof![
        text().prop_map(Message::Log),
        (text(), any::<u64>()).prop_map(|(name, value)| Message::Counter(name, value)),
        any::<(u32, u64)>().prop_map(|(cpu, now_ns)| Message::Started { cpu, now_ns }),
        any::<u64>().prop_map(|now_ns| Message::Begin { now_ns }),
        any::<(u64, Option<u64>)>().prop_map(|(now_ns, operations)| Message::Done { now_ns, operations }),
        any::<(u32, u64)>().prop_map(|(cpu, acquisitions)| Message::Contended(Contended {
            cpu: cpu % 3,
            acquisitions,
            ..Contended::default()
        })),
        (text(), any::<u64>()).prop_map(|(name, value)| Message::Before(name, value)),
        any::<u64>().prop_map(|now_ns| Message::Snapshot { now_ns }),
        text().prop_map(|message| Message::Panic {
            cpu: 0,
            message,
            crash: None
        }),
    ]
}

#[test]
fn a_guest_that_reports_without_end_fills_no_memory_and_its_losses_are_counted() {
    let mut reported = Reported::new("vm1", 1);
    for number in 0..20_000u64 {
        reported.record(Message::Log("x".repeat(5000)), false);
        reported.record(Message::Counter(format!("{number} {}", "y".repeat(500)), 1), false);
    }
    reported.record(Message::Counter("0 ".to_owned() + &"y".repeat(500), 1), false);
    let report = reported.into_report();
    assert_eq!(report.log.len(), LINES_MAX + 1);
    assert_eq!(
        report.log[0],
        format!("{}... (4000 more bytes)", "x".repeat(LINE_BYTES_MAX))
    );
    let lost = 20_000 - LINES_MAX as u64;
    assert_eq!(report.log[LINES_MAX], format!("({lost} more lines were not kept)"));
    assert_eq!(report.counters["lost.log_lines"], lost);
    assert_eq!(report.counters["lost.counters"], 20_000 - COUNTERS_MAX as u64);
    assert_eq!(report.counters.len(), COUNTERS_MAX + 2);
    // A known counter still counts.
    assert_eq!(report.counters.values().filter(|&&value| value == 2).count(), 1);
    assert!(report.counters.keys().all(|name| name.len() <= NAME_BYTES_MAX + 30));
}

#[test]
fn counters_count_from_the_first_whole_snapshot() {
    let counter = |name: &str, value| Message::Counter(name.to_owned(), value);
    let before = |name: &str, value| Message::Before(name.to_owned(), value);
    let counters = |snapshots: &[Message]| {
        let mut reported = Reported::new("vm1", 1);
        let end = [counter("kicks", 10), counter("other", 3)];
        for message in snapshots.iter().cloned().chain(end) {
            assert!(reported.record(message, false).is_none());
        }
        let report = reported.into_report();
        (report.counters["kicks"], report.counters["other"], report.zeroed_ns)
    };
    let snapshot = |now_ns| Message::Snapshot { now_ns };
    assert_eq!(counters(&[before("kicks", 4), snapshot(7)]), (6, 3, Some(7)));
    assert_eq!(counters(&[before("kicks", 4)]), (10, 3, None), "unfinished");
    let twice = [before("kicks", 4), snapshot(7), before("kicks", 9), snapshot(8)];
    assert_eq!(counters(&twice), (6, 3, Some(7)));
    // A hostile guest's lies do not overflow.
    assert_eq!(counters(&[before("kicks", u64::MAX), snapshot(7)]), (0, 3, Some(7)));
    let flood = (0..20_000).map(|number| before(&number.to_string(), 1));
    let flood: Vec<Message> = flood.chain([before("kicks", 4), snapshot(7)]).collect();
    assert_eq!(counters(&flood), (10, 3, Some(7)));
}

proptest! {
    #[test]
    fn whatever_a_guest_reports_is_harmless_and_in_the_guests_own_name(
        messages in proptest::collection::vec(message(), 0..60), is_linux: bool
    ) {
        let mut reported = Reported::new("vm1", 2);
        let lines = messages.iter().filter(|message| matches!(message, Message::Log(_))).count();
        for message in messages {
            if let Some(panic) = reported.record(message, is_linux) {
                prop_assert!(panic.message.lines().all(is_harmless), "{:?}", panic.message);
                prop_assert!(panic.message.len() <= PANIC_BYTES_MAX + 30);
            }
        }
        let report = reported.into_report();
        prop_assert_eq!(report.log.len(), lines);
        prop_assert!(report.log.iter().all(|line| is_harmless(line) && line.len() <= LINE_BYTES_MAX + 30));
        for name in report.counters.keys() {
            prop_assert!(is_harmless(name) && !name.starts_with(OF_HOST), "{name:?}");
        }
        // Sums of a guest's figures do not overflow.
        let _ = (report.acquisitions(), report.per_second());
    }

    #[test]
    fn lines_of_a_panic_cannot_be_taken_for_the_vmms(message in text()) {
        let panic = Message::Panic { cpu: 0, message, crash: None };
        let panic = Reported::default().record(panic, false).expect("a panic");
        prop_assert!(panic.message.lines().skip(1).all(|line| line.starts_with("  | ")), "{:?}", panic.message);
    }
}
