//! What a policy decides.

use alloc::boxed::Box;
use core::fmt;

use super::view::View;
use crate::boundary::{Nanos, PcpuId, TaskId, VcpuId};

/// The shortest and the longest slice. Nanoseconds.
pub(crate) const SLICE_NS: core::ops::RangeInclusive<u64> = 10_000..=100_000_000;

/// A policy of the host: it is asked at each decision of the scheduler and of the hypervisor about spinning guests.
///
/// Each method gets the kernel's own decision where there is one, and its default returns that: an empty
/// implementation is the kernel. Run queues, weights, groups, quotas and affinities stay the kernel's. A thread is
/// charged for what it runs, so time that a policy gives to a thread before its turn is paid back later.
///
/// An answer that breaks a rule is refused: it is counted ([`Host::policy_refusals`](crate::Host::policy_refusals)),
/// and the kernel's decision is taken. The rules are with the methods.
///
/// A policy must depend on its arguments and its own state only. Otherwise two runs with the same seed differ.
pub trait Policy: Copied + fmt::Debug + Send {
    /// Returns what the policy does, in one line, for lists.
    fn about(&self) -> &'static str;

    /// Returns whether a vCPU that gives its pCPU away in a pause exit, or by its own yield, seems preempted to its
    /// guest.
    ///
    /// Until 5.18 the kernel says so in any case, and since 5.19 only after interrupts of the host. Without it, PV TLB
    /// flush waits for vCPUs that the policy makes leave. Asked once.
    fn reports_yields(&self) -> bool {
        false
    }

    /// Returns the thread that runs next on `pcpu`, where none runs now. `kernel` is the kernel's choice, or `None` if
    /// `pcpu` has no ready thread.
    ///
    /// It may be any ready thread that may run there. One that waits for another pCPU is moved. Refused are `None`
    /// while a thread is ready, and a choice against a `kernel` that has waited for more than 100 ms for each runnable
    /// thread of `pcpu`: it was forgotten.
    fn pick(&mut self, view: &View<'_>, pcpu: PcpuId, kernel: Option<TaskId>) -> Option<TaskId> {
        let _ = (view, pcpu);
        kernel
    }

    /// Returns for how long `task`, just picked for `pcpu`, runs before another thread is picked, or `None` for the
    /// kernel's slice. A wakeup may end it earlier ([`Policy::preempts`]), as may a quota. Refused: less than 10 us,
    /// more than 100 ms.
    fn slice(&mut self, view: &View<'_>, pcpu: PcpuId, task: TaskId) -> Option<Nanos> {
        let _ = (view, pcpu, task);
        None
    }

    /// `task`, which runs on `pcpu`, is to leave it: its slice ends, or a woken thread takes its place. Returns how
    /// much longer it may run, or `None`. It is asked after the exit, so that what is seen of the guest is new, and
    /// again after that time. It is not asked if a quota is spent. Refused: more than 10 ms in sum since the thread was
    /// picked.
    fn slice_ends(&mut self, view: &View<'_>, pcpu: PcpuId, task: TaskId) -> Option<Nanos> {
        let _ = (view, pcpu, task);
        None
    }

    /// Returns whether `woken` takes the pCPU from `running`.
    fn preempts(&mut self, view: &View<'_>, woken: TaskId, running: TaskId, kernel: bool) -> bool {
        let _ = (view, woken, running);
        kernel
    }

    /// Returns the pCPU for `task`, which is new or was woken. It is not asked about a thread that may run on one pCPU
    /// only, or that is still on its queue (a delayed dequeue of EEVDF). Refused: a pCPU where it may not run.
    fn place(&mut self, view: &View<'_>, task: TaskId, kernel: PcpuId) -> PcpuId {
        let _ = (view, task);
        kernel
    }

    /// Returns whether load balancing may move `task`, which is ready, to the pCPU `to`.
    fn moves(&mut self, view: &View<'_>, task: TaskId, to: PcpuId) -> bool {
        let _ = (view, task, to);
        true
    }

    /// `spinner` took a pause exit. Returns what it does. Refused: another VM's vCPU, itself, and a sleep of more than
    /// 10 ms.
    fn pause_exit(&mut self, view: &View<'_>, spinner: VcpuId) -> Pause {
        let _ = (view, spinner);
        Pause::Kernel
    }

    /// `from`, which runs, yields to `to`, which is ready: after a pause exit, a kick or a hypercall. Refused: a
    /// penalty of more than 10 ms, and a handover to a thread that may not run on the yielder's pCPU.
    fn yields(&mut self, view: &View<'_>, from: TaskId, to: TaskId) -> Yield {
        let _ = (view, from, to);
        Yield::Kernel
    }

    /// Returns whether `from`, which has kicked `to`, yields to it.
    fn kick_yields(&mut self, view: &View<'_>, from: VcpuId, to: VcpuId, kernel: bool) -> bool {
        let _ = (view, from, to);
        kernel
    }

    /// `from` has sent `to` an interrupt. Those that hardware delivers alone are not seen.
    fn ipi(&mut self, view: &View<'_>, from: VcpuId, to: VcpuId) {
        let _ = (view, from, to);
    }

    /// The kernel of `from` made a hypercall that KVM does not know. Returns its result, or `None` for `-ENOSYS`.
    fn hint(&mut self, view: &View<'_>, from: VcpuId, number: u64, arguments: [u64; 4]) -> Option<u64> {
        let _ = (view, from, number, arguments);
        None
    }
}

/// What a vCPU does after a pause exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// What the kernel does.
    Kernel,
    /// It spins on.
    Resume,
    /// Its slice ends, if another thread waits for its pCPU. [`Policy::slice_ends`] and [`Policy::pick`] are asked.
    Leave,
    /// It yields to this vCPU of its VM. If that one is not ready, it does what the kernel does.
    YieldTo(VcpuId),
    /// It spins on, and this vCPU of its VM takes the pCPU for which it waits. If that one is not ready, nothing else
    /// happens.
    Boost(VcpuId),
    /// Its thread sleeps for this long, or until an interrupt or a kick.
    Sleep(Nanos),
}

/// What a directed yield does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Yield {
    /// What the kernel does.
    Kernel,
    /// The yield has no effect.
    Refuse,
    /// What the kernel does, and the yielder is charged for this much time that it has not run. If both are on one
    /// pCPU, the charge is where their groups meet.
    Penalty(Nanos),
    /// The target runs next, on the yielder's pCPU, to which it is moved.
    Handover,
}

/// Copies a policy: hosts are cloned. Every policy that is `Clone` has it.
pub trait Copied {
    /// Returns a copy of the policy with its state.
    fn copied(&self) -> Box<dyn Policy>;
}

impl<P: Policy + Clone + 'static> Copied for P {
    fn copied(&self) -> Box<dyn Policy> {
        Box::new(self.clone())
    }
}

impl Clone for Box<dyn Policy> {
    fn clone(&self) -> Box<dyn Policy> {
        (**self).copied()
    }
}
