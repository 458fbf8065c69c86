//! A pCPU: what it does now, and what it does next.

use holdfast_host::{HostInterrupt, Run, TaskId};
use holdfast_machine::{Picos, Time};

/// What a pCPU does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// Nothing; only an interrupt changes that.
    Idle,
    /// Executes host code, and then does what `Pcpu::next` says. Interrupts wait until then.
    Host,
    /// Runs this vCPU in guest mode.
    Guest(u32),
    /// Runs this host task.
    Task(TaskId),
    /// Polls for a halted vCPU's wake-up.
    Poll,
}

/// What a pCPU did when a call of the kernel on the machine itself came that no thread of that kernel could take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interrupted {
    /// Nothing yet: it is powered on.
    PowerOn,
    /// It ran this vCPU.
    Guest(u32),
    /// Anything else.
    Other,
}

/// How far the handling of such a call is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Handler {
    /// There is none.
    #[default]
    None,
    /// It runs as soon as the pCPU has left what it did.
    Due(Interrupted),
    /// It runs.
    Runs(Interrupted),
}

/// A pCPU.
#[derive(Clone, Debug)]
pub struct Pcpu {
    /// What it does now.
    pub activity: Activity,
    /// What follows the host's work.
    pub next: Run,
    /// Host work charged since the last event.
    pub charged: Picos,
    /// A timer interrupt waits for the host's work to end.
    pub timer_pending: bool,
    /// A reschedule interrupt waits for the host's work to end.
    pub reschedule_pending: bool,
    /// A call of the kernel on the machine itself waits for the host's work to end.
    pub call_pending: bool,
    /// The wake-up vector of posted interrupts waits for the host's work to end.
    pub wakeup_pending: bool,
    /// Devices' interrupts wait for the host's work to end, in the order in which they came.
    pub devices_pending: Vec<u8>,
    /// The IOMMU's interrupt does.
    pub ga_log_pending: bool,
    /// Their notification vector came while the host worked: the guest that is entered next finds it.
    pub notified: bool,
    /// The handler of such a call.
    pub handler: Handler,
    /// Whose caches these are: the vCPU or task that it ran last.
    pub warm_for: Option<Run>,
    /// Time spent in guests and tasks, in which lines are displaced.
    pub ran: Picos,
    /// Whom others displaced a short while ago, and what `ran` was then: their lines are not all gone.
    displaced: Vec<(Run, Picos)>,
    /// When the guest or task that runs started to.
    pub since: Time,
}

impl Pcpu {
    /// A pCPU at power-on.
    pub fn new() -> Pcpu {
        Pcpu {
            activity: Activity::Idle,
            next: Run::Idle,
            charged: Picos::ZERO,
            timer_pending: false,
            reschedule_pending: false,
            call_pending: false,
            wakeup_pending: false,
            devices_pending: Vec::new(),
            ga_log_pending: false,
            notified: false,
            handler: Handler::None,
            warm_for: None,
            ran: Picos::ZERO,
            displaced: Vec::new(),
            since: Time(0),
        }
    }
    /// `thread` runs here from now on; what it has to fetch of its lines again, of `all`. Those who ran meanwhile have
    /// displaced at most what they could fetch in that time.
    pub fn warm(&mut self, thread: Run, has_moved: bool, all: Picos) -> Picos {
        if self.warm_for == Some(thread) {
            return Picos::ZERO;
        }
        let ran = self.ran;
        self.displaced.retain(|(_, before)| ran - *before < all);
        let found = self.displaced.iter().position(|(other, _)| *other == thread);
        let lost = found.map(|index| ran - self.displaced.swap_remove(index).1);
        if let Some(before) = self.warm_for.replace(thread) {
            self.displaced.push((before, ran));
        }
        lost.filter(|_| !has_moved).unwrap_or(all)
    }

    /// `interrupt` waits until it can be taken.
    pub fn hold(&mut self, interrupt: HostInterrupt) {
        match interrupt {
            HostInterrupt::Timer => self.timer_pending = true,
            HostInterrupt::Reschedule => self.reschedule_pending = true,
            HostInterrupt::Call => self.call_pending = true,
            HostInterrupt::PostedWakeup => self.wakeup_pending = true,
            HostInterrupt::Device(vector) if self.devices_pending.contains(&vector) => {}
            HostInterrupt::Device(vector) => self.devices_pending.push(vector),
            HostInterrupt::GaLog => self.ga_log_pending = true,
        }
    }

    /// Whether an interrupt waits.
    pub fn is_interrupted(&self) -> bool {
        let device = self.ga_log_pending || !self.devices_pending.is_empty();
        self.timer_pending || self.reschedule_pending || self.call_pending || self.wakeup_pending || device
    }

    /// The next interrupt that waited.
    pub fn next_interrupt(&mut self) -> Option<HostInterrupt> {
        if std::mem::take(&mut self.timer_pending) {
            Some(HostInterrupt::Timer)
        } else if std::mem::take(&mut self.reschedule_pending) {
            Some(HostInterrupt::Reschedule)
        } else if std::mem::take(&mut self.call_pending) {
            Some(HostInterrupt::Call)
        } else if std::mem::take(&mut self.wakeup_pending) {
            Some(HostInterrupt::PostedWakeup)
        } else if std::mem::take(&mut self.ga_log_pending) {
            Some(HostInterrupt::GaLog)
        } else if !self.devices_pending.is_empty() {
            Some(HostInterrupt::Device(self.devices_pending.remove(0)))
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_host::VcpuId;

    #[test]
    fn a_thread_loses_no_more_than_others_could_fetch() {
        let all = Picos::from_nanos(20_000);
        let (a, b) = (Run::Poll(VcpuId(0)), Run::Poll(VcpuId(1)));
        let mut pcpu = Pcpu::new();
        let mut warm = |thread, moved, ran| {
            pcpu.ran += Picos::from_nanos(ran);
            pcpu.warm(thread, moved, all)
        };
        assert_eq!(warm(a, true, 0), all, "the first time");
        assert_eq!(warm(a, false, 50_000), Picos::ZERO, "nobody else ran meanwhile");
        assert_eq!(warm(b, true, 10_000), all);
        assert_eq!(warm(a, false, 3_000), Picos::from_nanos(3_000));
        assert_eq!(warm(b, false, 27_000), all, "that is enough to displace everything");
        assert_eq!(warm(a, true, 1_000), all, "it ran elsewhere");
    }
}
