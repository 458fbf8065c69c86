//! What a policy sees.

use alloc::vec::Vec;

use super::super::entity::EntityKind;
use super::super::hierarchy::Hierarchy;
use super::super::runqueue::{RunQueue, Thread, ThreadState};
use super::super::topology::Topology;
use super::super::weight::NICE_0;
use crate::boundary::{Nanos, PcpuId, TaskId, VcpuId, VmId};
use crate::ids::IdVec;

/// The scheduler's state, read-only. Unknown ids give `None` or nothing.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    pub(super) parts: Parts<'a>,
    pub(super) seen: &'a Seen,
}

/// The parts of the scheduler that a view shows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parts<'a> {
    pub(crate) hierarchy: &'a Hierarchy,
    pub(crate) threads: &'a IdVec<TaskId, Thread>,
    pub(crate) queues: &'a IdVec<PcpuId, RunQueue>,
    pub(crate) topology: &'a Topology,
}

/// What the scheduler knows of guests, for policies.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    /// The thread with which each vCPU was made.
    pub(super) vcpus: IdVec<VcpuId, TaskId>,
    /// For each of these threads its VM and vCPU.
    pub(super) guests: Vec<Option<(VmId, VcpuId, GuestView)>>,
}

/// Whether a thread runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunState {
    /// It has a pCPU.
    Running,
    /// It waits for its pCPU.
    Ready,
    /// It would, if the quota of its group were not spent.
    Throttled,
    /// It has not started, sleeps, is about to arrive at its pCPU, or has ended.
    Asleep,
}

/// What was seen of a guest at the last exit of a vCPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GuestView {
    /// It was in kernel mode.
    pub in_kernel: bool,
    /// Interrupts were masked, as in many critical sections.
    pub masked: bool,
    /// It spun: the exit was a pause exit.
    pub spins: bool,
    /// It was halted.
    pub halted: bool,
    /// What it said of itself, if it shares a word with the host.
    pub word: Option<GuestWord>,
}

/// What a guest says of a vCPU (docs/spec/guest-host-interface.md, "Guest word"). The guest may lie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GuestWord {
    /// It holds a spinlock.
    pub in_section: bool,
    /// It waits for a spinlock, maybe with others behind it.
    pub in_queue: bool,
    /// It waits for this vCPU of its VM to answer an IPI.
    pub waits_for: Option<VcpuId>,
}

/// A thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadView {
    /// Its VM and vCPU. `None`: it was not made for a vCPU.
    pub vcpu: Option<(VmId, VcpuId)>,
    /// The pCPU where it runs, waits, or ran last.
    pub pcpu: PcpuId,
    /// Whether it runs.
    pub run: RunState,
    /// For how long it has waited, if it is ready.
    pub waited: Nanos,
    /// For how long it has run since it was picked, if it runs.
    pub ran: Nanos,
    /// The run time in nanoseconds that it still has to get to be where its queue's average is. Negative if it is
    /// ahead. In a group, the least of this for it and the groups above it. 0 while it sleeps.
    pub lag: i64,
    /// Its guest, if it was made for a vCPU.
    pub guest: GuestView,
}

impl<'a> View<'a> {
    /// Returns the present time.
    pub fn now(&self) -> Nanos {
        Nanos(self.parts.hierarchy.now)
    }

    /// Returns all pCPUs.
    pub fn pcpus(&self) -> impl Iterator<Item = PcpuId> + use<> {
        self.parts.queues.ids()
    }

    /// Returns the running thread of `pcpu`.
    pub fn running(&self, pcpu: PcpuId) -> Option<TaskId> {
        self.parts.queues.get(pcpu)?.curr
    }

    /// Returns the threads that wait for `pcpu`, without throttled ones. The order says nothing.
    pub fn ready(&self, pcpu: PcpuId) -> impl Iterator<Item = TaskId> + use<'a> {
        let Parts { hierarchy, threads, .. } = self.parts;
        let leaves = hierarchy.leaves.get(pcpu.0 as usize).map_or(&[][..], Vec::as_slice);
        let lists = leaves.iter().flat_map(move |&queue| {
            let first = hierarchy.queues[queue].tasks;
            core::iter::successors(first, |&at| hierarchy.entities[at].list_next)
        });
        let tasks = lists.filter_map(|entity| match hierarchy.entities[entity].kind {
            EntityKind::Task(task) => Some(task),
            EntityKind::Group(_) => None,
        });
        tasks.filter(move |&task| !threads[task].on_cpu && !hierarchy.is_throttled(threads[task].entity))
    }

    /// Returns the number of runnable threads of `pcpu`, the running one included.
    pub fn runnable(&self, pcpu: PcpuId) -> u32 {
        match self.parts.queues.get(pcpu) {
            Some(_) => self.parts.hierarchy.queues[self.parts.hierarchy.root(pcpu.0)].runnable,
            None => 0,
        }
    }

    /// Returns whether `task` may run on `pcpu`.
    pub fn may_run_on(&self, task: TaskId, pcpu: PcpuId) -> bool {
        let thread = self.parts.threads.get(task);
        self.parts.queues.get(pcpu).is_some() && thread.is_some_and(|thread| thread.may_run_on(pcpu.0))
    }

    /// Returns whether two pCPUs have the same last-level cache.
    pub fn share_cache(&self, one: PcpuId, other: PcpuId) -> bool {
        let known = |pcpu| self.parts.queues.get(pcpu).is_some();
        known(one) && known(other) && self.parts.topology.share_cache(one.0, other.0)
    }

    /// Returns the thread with which `vcpu` was made. Another one may carry the vCPU after an exit to the VMM.
    pub fn thread_of(&self, vcpu: VcpuId) -> Option<TaskId> {
        self.seen.vcpus.get(vcpu).copied()
    }

    /// Returns the threads of the other vCPUs of the VM of `task`.
    pub fn siblings(&self, task: TaskId) -> impl Iterator<Item = TaskId> + use<'a> {
        // The threads of a VM follow each other.
        let guests = &self.seen.guests;
        let vm_at = |index: u32| guests.get(index as usize).copied().flatten().map(|(vm, ..)| vm);
        let vm = vm_at(task.0);
        let same = move |index: &u32| vm.is_some() && vm_at(*index) == vm;
        let below = (0..task.0).rev().take_while(same);
        below.chain((task.0.saturating_add(1)..).take_while(same)).map(TaskId)
    }

    /// Returns whether a sibling of `task` runs on `pcpu`, waits for it, or is about to.
    pub fn has_sibling(&self, task: TaskId, pcpu: PcpuId) -> bool {
        let Parts { hierarchy, threads, .. } = self.parts;
        self.siblings(task).any(|sibling| {
            let thread = &threads[sibling];
            // One whose dequeue is delayed is woken where it is.
            let is_there = matches!(thread.state, ThreadState::Waking | ThreadState::Runnable)
                || hierarchy.entities[thread.entity].delayed;
            is_there && thread.pcpu == pcpu.0
        })
    }

    /// Returns `task`.
    pub fn thread(&self, task: TaskId) -> Option<ThreadView> {
        let Parts { hierarchy, threads, .. } = self.parts;
        let thread = threads.get(task)?;
        let entity = &hierarchy.entities[thread.entity];
        let runnable = thread.state == ThreadState::Runnable;
        let run = match (runnable, thread.on_cpu) {
            (true, true) => RunState::Running,
            (true, false) if hierarchy.is_throttled(thread.entity) => RunState::Throttled,
            (true, false) => RunState::Ready,
            (false, _) => RunState::Asleep,
        };
        let running = run == RunState::Running;
        let guest = self.seen.guests.get(task.0 as usize).copied().flatten();
        let lags = hierarchy.path(thread.entity).map(|at| {
            let entity = &hierarchy.entities[at];
            let lag = hierarchy.average(entity.queue).wrapping_sub(entity.vruntime) as i64;
            let run_time = i128::from(lag) * i128::from(entity.weight) / i128::from(NICE_0);
            run_time as i64
        });
        let lag = lags.min().unwrap_or(0);
        let since = |from: u64| hierarchy.now.saturating_sub(from);
        Some(ThreadView {
            vcpu: guest.map(|(vm, vcpu, _)| (vm, vcpu)),
            pcpu: PcpuId(thread.pcpu),
            run,
            waited: Nanos(if run == RunState::Ready {
                since(thread.queued_at)
            } else {
                0
            }),
            ran: Nanos(match running {
                true => entity.sum_exec - entity.prev_sum_exec + since(entity.exec_start),
                false => 0,
            }),
            lag: if runnable { lag } else { 0 },
            guest: guest.map(|(.., guest)| guest).unwrap_or_default(),
        })
    }
}
