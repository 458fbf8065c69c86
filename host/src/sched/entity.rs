//! What is scheduled: entities (threads, and groups on one pCPU), the queues that hold them, and groups.
//!
//! A group has one entity and one queue per pCPU, made when first needed. A thread's entity stands in the queue of its
//! group on its pCPU; that queue's own entity stands in the queue of the parent group, up to the pCPU's root queue.
//!
//! - **Running is out of the tree**: a queue's `curr` is on the queue (counted in `load` and `nr`) but not in its
//!   timeline.

use alloc::vec::Vec;

use super::average::Average;
use super::ids::{EntityId, QueueId};
use super::pelt::Tracked;
use super::quota::{Bandwidth, LocalQuota};
use super::timeline::Timeline;
use crate::boundary::{GroupId, TaskId};

/// The meaning of an entity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EntityKind {
    /// A thread.
    Task(TaskId),
    /// A group on one pCPU. The thread to run is picked from this queue.
    Group(QueueId),
}

/// A thread or a group as a member of a queue.
#[derive(Clone, Debug)]
pub(crate) struct Entity {
    pub(crate) kind: EntityKind,
    /// The queue that it is in when runnable.
    pub(crate) queue: QueueId,
    pub(crate) weight: u64,
    /// Virtual runtime. For a thread between two queues it is relative to the queue's `min_vruntime`.
    pub(crate) vruntime: u64,
    /// On its queue, running or not.
    pub(crate) on_rq: bool,
    /// On its queue although it sleeps, until its lag is 0 (EEVDF).
    pub(crate) delayed: bool,
    /// Virtual deadline (EEVDF), relative to the virtual runtime while `deadline_is_relative`.
    pub(crate) deadline: u64,
    pub(crate) deadline_is_relative: bool,
    /// The deadline at its last pick (EEVDF).
    pub(crate) protected: Option<u64>,
    /// Lag with which it left its queue (EEVDF). Virtual nanoseconds.
    pub(crate) vlag: i64,
    /// Its tracked load.
    pub(crate) tracked: Tracked,
    /// It sleeps, and its tracked load is still part of its queue's.
    pub(crate) counts_asleep: bool,
    /// When its running was last accounted for. Nanoseconds.
    pub(crate) exec_start: u64,
    /// Time that it has run. Nanoseconds.
    pub(crate) sum_exec: u64,
    /// `sum_exec` when it was last picked.
    pub(crate) prev_sum_exec: u64,
    /// Neighbors in the queue's list of threads.
    pub(crate) list_prev: Option<EntityId>,
    pub(crate) list_next: Option<EntityId>,
}

impl Entity {
    pub(crate) fn new(kind: EntityKind, queue: QueueId, weight: u64) -> Entity {
        Entity {
            kind,
            queue,
            weight,
            vruntime: 0,
            on_rq: false,
            delayed: false,
            deadline: 0,
            deadline_is_relative: false,
            protected: None,
            vlag: 0,
            tracked: Tracked::default(),
            counts_asleep: false,
            exec_start: 0,
            sum_exec: 0,
            prev_sum_exec: 0,
            list_prev: None,
            list_next: None,
        }
    }
}

/// The run queue of one group on one pCPU.
#[derive(Clone, Debug, Default)]
pub(crate) struct Queue {
    pub(crate) pcpu: u32,
    pub(crate) group: GroupId,
    /// The entity of this queue in the parent queue. `None`: a root queue.
    pub(crate) entity: Option<EntityId>,
    pub(crate) timeline: Timeline,
    pub(crate) curr: Option<EntityId>,
    /// Sum of the weights on the queue, `curr` included.
    pub(crate) load: u64,
    /// Entities on the queue, `curr` included.
    pub(crate) nr: u32,
    /// Threads that can run, here and below, without those below a throttled queue.
    pub(crate) runnable: u32,
    /// Average virtual runtime of the timeline, if the policy needs it.
    pub(crate) average: Average,
    /// Sum of the tracked loads on the queue.
    pub(crate) tracked: Tracked,
    /// Its part of the group's quota.
    pub(crate) quota: LocalQuota,
    /// Lower bound of virtual runtimes, which never decreases. New entities are placed by it.
    pub(crate) min_vruntime: u64,
    /// Buddies: `next` and `last` are preferred to the leftmost entity, `skip` is passed over.
    pub(crate) next: Option<EntityId>,
    pub(crate) last: Option<EntityId>,
    pub(crate) skip: Option<EntityId>,
    /// First of the queue's runnable threads, the latest arrival first. Balancing walks this list.
    pub(crate) tasks: Option<EntityId>,
    /// Weight of the queue's runnable threads alone.
    pub(crate) task_weight: u64,
    /// The pCPU's list of leaves contains it.
    pub(crate) listed: bool,
    pub(crate) share: ShareHistory,
}

/// History of a group's load on one pCPU (docs/spec/host.md, "Weights and groups").
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ShareHistory {
    /// Load times time, over `period`.
    pub(crate) load_sum: u64,
    /// Nanoseconds that `load_sum` covers.
    pub(crate) period: u64,
    /// When it was last brought up to date.
    pub(crate) stamp: u64,
    /// When there was last any load.
    pub(crate) last: u64,
    /// Its contribution to the group's total.
    pub(crate) contribution: u64,
    /// Time run since the last update.
    pub(crate) unaccounted: u64,
    /// The load as a geometric average, if the rule needs it.
    pub(crate) tracked: Tracked,
    /// The number of runnable threads as a geometric average, times 1024.
    pub(crate) runnable: Tracked,
    /// Its contribution to the group's number of runnable threads, times 1024.
    pub(crate) runnable_contribution: u64,
}

impl Queue {
    pub(crate) fn new(pcpu: u32, group: GroupId, entity: Option<EntityId>) -> Queue {
        // As in the kernel it starts just before the wrap, so that a comparison that cannot wrap fails early.
        let origin = 0u64.wrapping_sub(1 << 20);
        Queue {
            pcpu,
            group,
            entity,
            average: Average::new(origin),
            min_vruntime: origin,
            ..Queue::default()
        }
    }
}

/// A task group.
#[derive(Clone, Debug, Default)]
pub(crate) struct Group {
    pub(crate) parent: Option<GroupId>,
    pub(crate) children: Vec<GroupId>,
    pub(crate) shares: u64,
    pub(crate) bandwidth: Option<Bandwidth>,
    /// Sum of its queues' contributions.
    pub(crate) load: u64,
    /// Sum of their contributions to the number of runnable threads, times 1024.
    pub(crate) runnable: u64,
    /// Its queue on each pCPU where it has ever had a thread.
    pub(crate) queues: Vec<Option<QueueId>>,
}

/// The marks of a queue, by which it prefers an entity or passes it over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// Picked next, if that is fair.
    Next,
    /// Picked next as the entity that was preempted last, if that is fair.
    Last,
    /// Passed over once, if that is fair.
    Skip,
}
