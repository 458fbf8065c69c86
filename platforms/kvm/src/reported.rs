//! The content of a guest's reports, within limits, since a hostile guest reports as much as it can.

use std::collections::BTreeMap;

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
    /// Values of the guest's counters when it was asked to report them.
    before: BTreeMap<String, u64>,
    /// Whether it has reported them all.
    pub(crate) zeroed: bool,
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
            Message::Before(name, value) => {
                let name = printable(name.as_bytes(), "\\n", NAME_BYTES_MAX);
                if !self.zeroed && self.before.len() < COUNTERS_MAX {
                    self.before.insert(name, value);
                }
            }
            Message::Snapshot { now_ns } => {
                if !self.zeroed {
                    self.report.zeroed_ns = Some(now_ns);
                }
                self.zeroed = true;
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
        // A snapshot that the guest did not finish counts for nothing.
        for (name, value) in self.before.iter().filter(|_| self.zeroed) {
            if let Some(counter) = report.counters.get_mut(name) {
                *counter = counter.saturating_sub(*value);
            }
        }
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
mod tests;
