//! The seam of host policies: a [`Policy`] is asked at each decision, and its answers are checked.
//!
//! - **No answer breaks the scheduler**: a wrong one is counted, and the kernel's is taken.
//! - **Nothing changes without a policy**: every question returns at once, unless a switch for siblings is on.
//!
//! The rules are those of the methods of [`Policy`].

mod kind;
mod policy;
mod siblings;
mod view;

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

pub use kind::PolicyKind;
pub(crate) use policy::SLICE_NS;
pub use policy::{Pause, Policy, Yield};
use siblings::Siblings;
pub(crate) use view::Parts;
use view::Seen;
pub use view::{GuestView, GuestWord, RunState, ThreadView, View};

use super::runqueue::{Thread, ThreadState};
use crate::boundary::{PcpuId, TaskId, VcpuId, VmId};
use crate::config::HostConfig;

/// The most that a thread runs longer than its slice, that it sleeps after a pause exit, and that a yield costs.
/// Nanoseconds.
const EXTRA_MAX_NS: u64 = 10_000_000;
/// For how long the kernel's choice may wait, for each runnable thread of its pCPU, until it counts as forgotten.
/// Nanoseconds.
const FORGOTTEN_NS: u64 = 100_000_000;

/// Makes [`Parts`] of a scheduler whose seam is borrowed.
macro_rules! parts {
    ($sched:ident) => {
        $crate::sched::seam::Parts {
            hierarchy: &$sched.hierarchy,
            threads: &$sched.threads,
            queues: &$sched.queues,
            topology: &$sched.topology,
        }
    };
}
pub(super) use parts;

/// The slice that a policy has given to the running thread of a pCPU.
#[derive(Clone, Copy, Debug, Default)]
struct Slice {
    /// When it ends. `None`: it is the kernel's.
    until: Option<u64>,
    /// Whether it is time in which the thread runs on although it was to leave.
    is_grace: bool,
    /// How much longer than the slice the thread may run. Nanoseconds.
    extra_ns: u64,
}

/// A host's policy, if it has one.
#[derive(Clone, Debug)]
pub(crate) struct Seam {
    policy: Option<Box<dyn Policy>>,
    siblings: Siblings,
    seen: Seen,
    /// One for each pCPU.
    slices: Vec<Slice>,
    /// For each pCPU the thread to which the one that yields hands it over.
    handovers: Vec<Option<TaskId>>,
    /// The number of answers that were refused.
    pub(crate) refused: u64,
    /// A fault planted by tests.
    grace_is_free: bool,
}

impl Seam {
    pub(crate) fn new(config: &HostConfig, pcpus: usize) -> Seam {
        Seam {
            policy: config.policy.make(),
            siblings: Siblings::of(config),
            seen: Seen::default(),
            slices: vec![Slice::default(); pcpus],
            handovers: vec![None; pcpus],
            refused: 0,
            grace_is_free: config.planted.grace_is_free,
        }
    }

    /// Returns whether there is no policy.
    #[inline]
    pub(crate) fn is_kernel(&self) -> bool {
        self.policy.is_none()
    }

    /// Asks the policy by `ask`. Returns `kernel` if there is none.
    #[inline]
    fn ask<R>(&mut self, parts: Parts<'_>, kernel: R, ask: impl FnOnce(&mut dyn Policy, &View<'_>) -> R) -> R {
        let seen = &self.seen;
        match &mut self.policy {
            Some(policy) => ask(&mut **policy, &View { parts, seen }),
            None => kernel,
        }
    }

    /// Returns what `look` finds in the view of a policy.
    pub(super) fn with_view<R>(&self, parts: Parts<'_>, look: impl FnOnce(&View<'_>) -> R) -> R {
        let seen = &self.seen;
        look(&View { parts, seen })
    }

    /// Returns the pCPU for `task`, for which kernel or policy have `chosen` one.
    fn apart(&self, parts: Parts<'_>, task: TaskId, chosen: PcpuId) -> PcpuId {
        self.with_view(parts, |view| self.siblings.place(view, task, chosen))
    }

    /// Returns when the slice of `task` ends if the slices of vCPUs end together.
    fn aligned(&self, parts: Parts<'_>, task: TaskId) -> Option<u64> {
        let is_vcpu = self.seen.guests.get(task.0 as usize).is_some_and(Option::is_some);
        let end = || self.siblings.slice_until(parts.hierarchy.now);
        is_vcpu.then(end).flatten()
    }

    /// Returns `answer` if it is `allowed`, else `kernel`.
    fn checked<R>(&mut self, answer: R, allowed: bool, kernel: R) -> R {
        self.refused += u64::from(!allowed);
        if allowed { answer } else { kernel }
    }

    /// Records that `task` was made for `vcpu` of `vm`. vCPUs come in the order of their ids.
    pub(crate) fn add_vcpu(&mut self, vm: VmId, vcpu: VcpuId, task: TaskId) {
        let room = self.seen.guests.len().max(task.0 as usize + 1);
        self.seen.guests.resize(room, None);
        self.seen.guests[task.0 as usize] = Some((vm, vcpu, GuestView::default()));
        self.seen.vcpus.push(task);
    }

    /// Records how `vcpu` left guest mode.
    pub(crate) fn exited(&mut self, vcpu: VcpuId, seen: GuestView) {
        if let Some(&task) = self.seen.vcpus.get(vcpu)
            && let Some((.., guest)) = &mut self.seen.guests[task.0 as usize]
        {
            *guest = seen;
        }
    }

    /// Records that the running thread of `pcpu` hands it over to `task`, which waits there.
    pub(crate) fn hand_over(&mut self, pcpu: u32, task: TaskId) {
        self.handovers[pcpu as usize] = Some(task);
    }

    /// Returns the thread that runs next on `pcpu`: `kernel`, or one that waits there or may be moved there.
    pub(crate) fn pick(&mut self, parts: Parts<'_>, pcpu: u32, kernel: Option<TaskId>) -> Option<TaskId> {
        if self.is_kernel() && self.siblings.are_off() {
            return kernel;
        }
        let at = PcpuId(pcpu);
        let heir = self.handovers[pcpu as usize].take();
        let heir = heir.filter(|&task| can_take(parts, task, pcpu) && parts.threads[task].pcpu == pcpu);
        let forgotten = kernel.is_some_and(|task| {
            let runnable = parts.hierarchy.queues[parts.hierarchy.root(pcpu)].runnable;
            let waited = parts.hierarchy.now.saturating_sub(parts.threads[task].queued_at);
            waited > FORGOTTEN_NS * u64::from(runnable)
        });
        let seen = &self.seen;
        let together = kernel.map(|task| match forgotten {
            true => task,
            false => self.siblings.pick(&View { parts, seen }, at, task),
        });
        let choice = heir.or(together);
        let answer = self.ask(parts, choice, |policy, view| policy.pick(view, at, choice));
        let allowed = match answer {
            None => kernel.is_none(),
            Some(task) => answer == kernel || !forgotten && can_take(parts, task, pcpu),
        };
        self.checked(answer, allowed, kernel)
    }

    /// Begins the slice of `task`, which was picked for `pcpu`. `None`: the pCPU is idle.
    pub(crate) fn picked(&mut self, parts: Parts<'_>, pcpu: u32, task: Option<TaskId>) {
        if self.is_kernel() && self.siblings.are_off() {
            return;
        }
        let slice = task.and_then(|task| self.ask(parts, None, |policy, view| policy.slice(view, PcpuId(pcpu), task)));
        let allowed = slice.is_none_or(|slice| SLICE_NS.contains(&slice.0));
        let slice = self.checked(slice, allowed, None);
        let own = slice.map(|slice| parts.hierarchy.now + slice.0);
        let until = own.or_else(|| self.aligned(parts, task?));
        self.slices[pcpu as usize] = Slice {
            until,
            is_grace: false,
            extra_ns: EXTRA_MAX_NS,
        };
    }

    /// Returns when the slice of the running thread of `pcpu` ends, if it is the policy's.
    #[inline]
    pub(crate) fn slice_until(&self, pcpu: u32) -> Option<u64> {
        self.slices[pcpu as usize].until
    }

    /// Returns whether the running thread of `pcpu` runs on after its slice.
    pub(crate) fn has_grace(&self, pcpu: u32) -> bool {
        let slice = self.slices[pcpu as usize];
        slice.is_grace && slice.until.is_some()
    }

    /// The running thread of `pcpu` needs no more time after its slice.
    pub(crate) fn end_grace(&mut self, pcpu: u32, now: u64) {
        self.slices[pcpu as usize].until = Some(now);
    }

    /// Forgets the policy's slice of `task`, which runs on `pcpu`: no other thread wants the pCPU. One that ends with
    /// those of others goes on to their next end.
    pub(crate) fn drop_slice(&mut self, parts: Parts<'_>, pcpu: u32, task: Option<TaskId>) {
        self.slices[pcpu as usize].until = task.and_then(|task| self.aligned(parts, task));
    }

    /// Returns whether the slice of the running thread of `pcpu` may end `now`.
    pub(crate) fn slice_ends(&self, now: u64, pcpu: u32) -> bool {
        self.slice_until(pcpu).is_none_or(|until| until <= now)
    }

    /// Returns for how long the thread that leaves `pcpu` has run on without being charged, by a planted fault.
    /// Nanoseconds.
    pub(crate) fn uncharged(&self, pcpu: u32) -> u64 {
        let slice = self.slices[pcpu as usize];
        let is_free = self.grace_is_free && slice.is_grace;
        if is_free { EXTRA_MAX_NS - slice.extra_ns } else { 0 }
    }

    /// Returns whether `task`, which is to leave `pcpu` to another thread, runs on for a while.
    pub(crate) fn runs_on(&mut self, parts: Parts<'_>, pcpu: u32, task: TaskId) -> bool {
        let now = parts.hierarchy.now;
        let slice = self.slices[pcpu as usize];
        if slice.is_grace && !self.slice_ends(now, pcpu) {
            return true;
        }
        let more = self.ask(parts, None, |policy, view| policy.slice_ends(view, PcpuId(pcpu), task));
        let allowed = more.is_none_or(|more| (1..=slice.extra_ns).contains(&more.0));
        let Some(more) = self.checked(more, allowed, None) else {
            return false;
        };
        self.slices[pcpu as usize] = Slice {
            until: Some(now + more.0),
            is_grace: true,
            extra_ns: slice.extra_ns - more.0,
        };
        true
    }

    /// Returns whether `woken` takes the pCPU from `running`.
    pub(crate) fn preempts(&mut self, parts: Parts<'_>, woken: TaskId, running: TaskId, kernel: bool) -> bool {
        self.ask(parts, kernel, |policy, view| {
            policy.preempts(view, woken, running, kernel)
        })
    }

    /// Returns the pCPU for `task`, which is new or was woken.
    pub(crate) fn place(&mut self, parts: Parts<'_>, task: TaskId, kernel: u32) -> u32 {
        if self.is_kernel() && self.siblings.are_off() || parts.threads[task].is_pinned() {
            return kernel;
        }
        let answer = self.ask(parts, PcpuId(kernel), |policy, view| {
            policy.place(view, task, PcpuId(kernel))
        });
        let known = parts.queues.get(answer).is_some();
        let allowed = known && parts.threads[task].may_run_on(answer.0);
        let chosen = self.checked(answer, allowed, PcpuId(kernel));
        self.apart(parts, task, chosen).0
    }

    /// Returns whether load balancing may move `task` to `to`.
    pub(crate) fn moves(&mut self, parts: Parts<'_>, task: TaskId, to: u32) -> bool {
        let to = PcpuId(to);
        self.ask(parts, true, |policy, view| policy.moves(view, task, to)) && self.apart(parts, task, to) == to
    }

    /// Returns what `spinner` does after a pause exit.
    pub(crate) fn pause_exit(&mut self, parts: Parts<'_>, spinner: VcpuId) -> Pause {
        let answer = self.ask(parts, Pause::Kernel, |policy, view| policy.pause_exit(view, spinner));
        let allowed = match answer {
            Pause::Kernel | Pause::Resume | Pause::Leave => true,
            Pause::YieldTo(target) | Pause::Boost(target) => target != spinner && self.same_vm(spinner, target),
            Pause::Sleep(ns) => ns.0 <= EXTRA_MAX_NS,
        };
        self.checked(answer, allowed, Pause::Kernel)
    }

    /// Records that `task` is next on the pCPU for which it waits. Returns that pCPU, or `None` if it waits for none.
    pub(crate) fn boost(&mut self, parts: Parts<'_>, task: TaskId) -> Option<u32> {
        let pcpu = parts.threads.get(task)?.pcpu;
        let ready = can_take(parts, task, pcpu);
        ready.then(|| self.hand_over(pcpu, task))?;
        Some(pcpu)
    }

    fn same_vm(&self, one: VcpuId, other: VcpuId) -> bool {
        let vm = |vcpu| {
            let task = self.seen.vcpus.get(vcpu)?;
            self.seen.guests[task.0 as usize].map(|(vm, ..)| vm)
        };
        vm(one).is_some() && vm(one) == vm(other)
    }

    /// Returns what a yield of `from`, which runs on `pcpu`, to `to` does.
    pub(crate) fn yields(&mut self, parts: Parts<'_>, pcpu: u32, from: TaskId, to: TaskId) -> Yield {
        let answer = self.ask(parts, Yield::Kernel, |policy, view| policy.yields(view, from, to));
        let allowed = match answer {
            Yield::Kernel | Yield::Refuse => true,
            Yield::Penalty(ns) => ns.0 <= EXTRA_MAX_NS,
            Yield::Handover => can_take(parts, to, pcpu),
        };
        self.checked(answer, allowed, Yield::Kernel)
    }

    /// Returns whether `from`, which has kicked `to`, yields to it.
    pub(crate) fn kick_yields(&mut self, parts: Parts<'_>, from: VcpuId, to: VcpuId, kernel: bool) -> bool {
        self.ask(parts, kernel, |policy, view| policy.kick_yields(view, from, to, kernel))
    }

    /// `from` has sent `to` an interrupt.
    pub(crate) fn ipi(&mut self, parts: Parts<'_>, from: VcpuId, to: VcpuId) {
        self.ask(parts, (), |policy, view| policy.ipi(view, from, to));
    }

    /// Returns the result of a hypercall that the host does not know.
    pub(crate) fn hint(&mut self, parts: Parts<'_>, from: VcpuId, number: u64, arguments: [u64; 4]) -> Option<u64> {
        self.ask(parts, None, |policy, view| policy.hint(view, from, number, arguments))
    }
}

/// Returns whether `task` is ready and may run on `pcpu`, where it waits or to which it can be moved.
fn can_take(parts: Parts<'_>, task: TaskId, pcpu: u32) -> bool {
    let ready = |thread: &Thread| {
        let waits = thread.state == ThreadState::Runnable && !thread.on_cpu;
        waits && thread.may_run_on(pcpu) && !parts.hierarchy.is_throttled(thread.entity)
    };
    let there = |thread: &Thread| {
        let queue = parts.hierarchy.groups[thread.group].queues[pcpu as usize];
        queue.is_none_or(|queue| parts.hierarchy.queues[queue].quota.throttles == 0)
    };
    parts
        .threads
        .get(task)
        .is_some_and(|thread| ready(thread) && there(thread))
}
