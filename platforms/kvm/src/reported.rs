//! The content of a guest's reports, within limits, since a hostile guest reports as much as it can.

use holdfast_protocol::{Crash, Message};

use crate::linux;
use crate::printable::printable;
use crate::report::{VcpuReport, VmReport};
use crate::ring::Reader;

/// Largest number of log lines that are kept, the first ones.
const LINES_MAX: usize = 1000;
/// Number of bytes that are kept of a log line.
const LINE_BYTES_MAX: usize = 1000;
/// Largest number of counters. The guest kernel has about a hundred.
const COUNTERS_MAX: usize = 1000;
/// Number of bytes that are kept of a counter's name.
const NAME_BYTES_MAX: usize = 100;
/// Number of bytes that are kept of a panic message.
const PANIC_BYTES_MAX: usize = 4000;
/// Begin of the names of KVM's own statistics, which no guest may use.
pub(crate) const OF_HOST: &str = "kvm.";

/// The content of a guest's reports so far.
#[derive(Debug, Default)]
pub(crate) struct Reported {
    pub(crate) reader: Reader,
    /// Number of CPUs that execute the workload.
    pub(crate) started: u32,
    pub(crate) report: VmReport,
    begun_ns: Option<u64>,
    done_ns: Option<u64>,
    lost_lines: u64,
    lost_counters: u64,
}

/// A guest's report that it cannot continue.
#[derive(Debug)]
pub(crate) struct GuestPanic {
    pub(crate) message: String,
    /// State that an exception interrupted, if there was one.
    pub(crate) crash: Option<Crash>,
}

impl Reported {
    /// Returns the state of the guest `name` before its first report.
    pub(crate) fn new(name: &str, vcpus: u32) -> Reported {
        let report = VmReport {
            name: name.to_owned(),
            vcpus: vec![VcpuReport::default(); vcpus as usize],
            ..VmReport::default()
        };
        Reported {
            report,
            ..Reported::default()
        }
    }

    /// Returns whether the workload is complete.
    pub(crate) fn is_done(&self) -> bool {
        self.done_ns.is_some()
    }

    /// Records `message` of a guest, which runs a stock Linux if `is_linux`. Returns the guest's panic if it is one.
    pub(crate) fn record(&mut self, message: Message, is_linux: bool) -> Option<GuestPanic> {
        match message {
            Message::Log(line) => {
                if is_linux && let Some(lock) = linux::lock_in(&line) {
                    self.report.counters.insert(format!("guest.lock.{lock}"), 1);
                }
                match self.report.log.len() < LINES_MAX {
                    true => self.report.log.push(printable(line.as_bytes(), "\\n", LINE_BYTES_MAX)),
                    false => self.lost_lines = self.lost_lines.saturating_add(1),
                }
            }
            Message::Started { .. } => self.started = self.started.saturating_add(1),
            Message::Begin { now_ns } => self.begun_ns = Some(now_ns),
            Message::Done { now_ns, operations } => {
                self.done_ns = Some(now_ns);
                self.report.operations = operations;
            }
            Message::Counter(name, value) => {
                let name = printable(name.as_bytes(), "\\n", NAME_BYTES_MAX);
                let counters = &mut self.report.counters;
                if name.starts_with(OF_HOST) || (counters.len() >= COUNTERS_MAX && !counters.contains_key(&name)) {
                    self.lost_counters = self.lost_counters.saturating_add(1);
                } else {
                    let counter = counters.entry(name).or_default();
                    *counter = counter.saturating_add(value);
                }
            }
            Message::Contended(contended) => {
                if let Some(vcpu) = self.report.vcpus.get_mut(contended.cpu as usize) {
                    vcpu.acquisitions = contended.acquisitions;
                    vcpu.waits = contended.waits;
                    vcpu.kicks = contended.kicks;
                    vcpu.halts = contended.halts;
                    vcpu.longest_wait_ns = contended.longest_wait_ns;
                }
            }
            Message::Panic { message, crash, .. } => {
                let message = printable(message.as_bytes(), "\n  | ", PANIC_BYTES_MAX);
                return Some(GuestPanic { message, crash });
            }
        }
        None
    }

    /// Returns the report. It says how much of what the guest reported was lost.
    pub(crate) fn into_report(self) -> VmReport {
        let span = self.begun_ns.zip(self.done_ns);
        let mut report = self.report;
        report.elapsed_ns = span.map(|(begun, done)| done.saturating_sub(begun));
        if self.lost_lines > 0 {
            report
                .log
                .push(format!("({} more lines were not kept)", self.lost_lines));
        }
        let lost = [
            ("lost.log_lines", self.lost_lines),
            ("lost.counters", self.lost_counters),
        ];
        let lost = lost.into_iter().filter(|&(_, number)| number > 0);
        report
            .counters
            .extend(lost.map(|(name, number)| (name.to_owned(), number)));
        report
    }
}

#[cfg(test)]
mod tests {
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
}
