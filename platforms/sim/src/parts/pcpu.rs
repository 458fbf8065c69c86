//! A pCPU: what it does now, what it does next, and the interrupts that it holds back.

use holdfast_host::{HostInterrupt, Run, TaskId, VcpuId};
use holdfast_machine::{Picos, Time};

/// What a pCPU does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// Nothing, until an interrupt arrives.
    Idle,
    /// Executes host code, and then does what [`Pcpu::next`] says. Interrupts wait until then.
    Host,
    /// Runs this vCPU in guest mode.
    Guest(VcpuId),
    /// Runs this host task.
    Task(TaskId),
    /// Polls for the wakeup of a halted vCPU.
    Poll,
}

/// What a pCPU did when a call of the bare-metal kernel arrived that no thread of that kernel could take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interrupted {
    /// It was just powered on.
    PowerOn,
    /// It ran this vCPU.
    Guest(VcpuId),
    /// Anything else.
    Other,
}

/// Progress of the handler of such a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Handler {
    /// There is no such call.
    #[default]
    None,
    /// The handler starts as soon as the pCPU has left what it did.
    Due(Interrupted),
    /// The handler executes.
    Runs(Interrupted),
}

/// Interrupts that wait for the host's work on a pCPU to end.
#[derive(Clone, Debug, Default)]
pub struct HeldInterrupts {
    /// Each of them once, in order of arrival.
    waiting: Vec<HostInterrupt>,
    /// The notification vector of posted interrupts arrived: the next guest to be entered finds it.
    pub notified: bool,
}

impl HeldInterrupts {
    /// Holds `interrupt` back until it can be taken.
    pub fn hold(&mut self, interrupt: HostInterrupt) {
        if !self.waiting.contains(&interrupt) {
            self.waiting.push(interrupt);
        }
    }

    /// Whether an interrupt is held back.
    pub fn any(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Takes the next interrupt that was held back: by kind, those of devices last and in order of arrival.
    pub fn take(&mut self) -> Option<HostInterrupt> {
        let rank = |interrupt: &HostInterrupt| match interrupt {
            HostInterrupt::Timer => 0,
            HostInterrupt::Reschedule => 1,
            HostInterrupt::Call => 2,
            HostInterrupt::PostedWakeup => 3,
            HostInterrupt::GaLog => 4,
            HostInterrupt::Device(_) => 5,
        };
        let first = (0..self.waiting.len()).min_by_key(|&index| rank(&self.waiting[index]))?;
        Some(self.waiting.remove(first))
    }
}

/// Which threads' lines the caches of a pCPU hold.
#[derive(Clone, Debug, Default)]
pub struct WarmCaches {
    /// The vCPU or task that ran last.
    last: Option<Run>,
    /// Time spent in guests and tasks, which displaces lines of other threads.
    ran: Picos,
    /// Threads displaced a short while ago, each with `ran` at that time: some of their lines are still there.
    displaced: Vec<(Run, Picos)>,
    /// `ran` at the last wakeup of a thread, whose code and data are the host's.
    woke: Option<Picos>,
}

impl WarmCaches {
    /// The thread that ran last ran for another `span`.
    pub fn ran(&mut self, span: Picos) {
        self.ran += span;
    }

    /// The host wakes a thread. Returns the time that it needs to fetch the lines for that again, which is `all` for
    /// all of them, and at most the time for which guests and tasks ran since the last wakeup.
    pub fn warm_up(&mut self, all: Picos) -> Picos {
        let before = self.woke.replace(self.ran);
        before.map_or(all, |before| (self.ran - before).min(all))
    }

    /// `thread` runs from now on. Returns the time that it needs to fetch its lines again, which is `all` for all of
    /// them. Threads that ran meanwhile displaced at most the lines that they could fetch in that time.
    pub fn switch_to(&mut self, thread: Run, has_moved: bool, all: Picos) -> Picos {
        if self.last == Some(thread) {
            return Picos::ZERO;
        }
        let ran = self.ran;
        self.displaced.retain(|(_, before)| ran - *before < all);
        let found = self.displaced.iter().position(|(other, _)| *other == thread);
        let lost = found.map(|index| ran - self.displaced.swap_remove(index).1);
        if let Some(before) = self.last.replace(thread) {
            self.displaced.push((before, ran));
        }
        lost.filter(|_| !has_moved).unwrap_or(all)
    }
}

/// A pCPU.
#[derive(Clone, Debug)]
pub struct Pcpu {
    /// What it does now.
    pub activity: Activity,
    /// What it does after the host's work.
    pub next: Run,
    /// Host work charged since the last event.
    pub charged: Picos,
    /// Interrupts that wait for the host's work to end.
    pub held: HeldInterrupts,
    /// The handler of a call that found no thread of the bare-metal kernel.
    pub handler: Handler,
    /// Contents of its caches.
    pub caches: WarmCaches,
    /// The start of the guest or task that runs.
    pub since: Time,
    /// Time by which a microsecond of the task that runs takes longer.
    pub slowdown: Picos,
}

impl Pcpu {
    /// A pCPU at power-on.
    pub fn new() -> Pcpu {
        Pcpu {
            activity: Activity::Idle,
            next: Run::Idle,
            charged: Picos::ZERO,
            held: HeldInterrupts::default(),
            handler: Handler::None,
            caches: WarmCaches::default(),
            since: Time(0),
            slowdown: Picos::ZERO,
        }
    }

    /// The guest or task that runs stops at `now`. Returns for how long it ran.
    pub fn stop(&mut self, now: Time) -> Picos {
        let ran = now.since(self.since);
        self.caches.ran(ran);
        ran
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wakeup_soon_after_another_finds_its_lines() {
        let all = Picos::from_nanos(5_000);
        let mut caches = WarmCaches::default();
        let mut warm_up = |ran| {
            caches.ran(Picos::from_nanos(ran));
            caches.warm_up(all)
        };
        assert_eq!(
            [1_000, 0, 2_000, 9_000].map(&mut warm_up),
            [all, Picos::ZERO, Picos::from_nanos(2_000), all]
        );
    }

    #[test]
    fn a_thread_loses_no_more_than_others_could_fetch() {
        let all = Picos::from_nanos(20_000);
        let (a, b) = (Run::Poll(VcpuId(0)), Run::Poll(VcpuId(1)));
        let mut caches = WarmCaches::default();
        let mut switch_to = |thread, moved, ran| {
            caches.ran(Picos::from_nanos(ran));
            caches.switch_to(thread, moved, all)
        };
        assert_eq!(switch_to(a, true, 0), all, "the first time");
        assert_eq!(
            switch_to(a, false, 50_000),
            Picos::ZERO,
            "no other thread ran meanwhile"
        );
        assert_eq!(switch_to(b, true, 10_000), all);
        assert_eq!(switch_to(a, false, 3_000), Picos::from_nanos(3_000));
        assert_eq!(
            switch_to(b, false, 27_000),
            all,
            "that is enough to displace everything"
        );
        assert_eq!(switch_to(a, true, 1_000), all, "it ran elsewhere");
    }
}
