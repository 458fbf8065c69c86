//! A pCPU: what it does now, and what it does next.

use holdfast_host::{Run, TaskId};
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
    /// Whose caches these are: the vCPU or task that it ran last.
    pub warm_for: Option<Run>,
    /// When the task that runs started to.
    pub task_since: Time,
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
            warm_for: None,
            task_since: Time(0),
        }
    }
}
