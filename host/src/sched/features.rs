//! Features of the schedulers, by which kernels differ.

/// Scheduler features, most of which Linux can switch at run time (`sched_features`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// CFS: a woken thread gets half a period of credit, not a whole one (GENTLE_FAIR_SLEEPERS).
    pub gentle_fair_sleepers: bool,
    /// A new thread starts one virtual slice late.
    pub start_debit: bool,
    /// A woken thread may preempt the running one (WAKEUP_PREEMPTION).
    pub wakeup_preemption: bool,
    /// The thread woken last is preferred even if it did not preempt (NEXT_BUDDY).
    pub next_buddy: bool,
    /// The thread preempted last is preferred.
    pub last_buddy: bool,
    /// The target pCPU carries out a wakeup from another last-level cache, on an IPI (TTWU_QUEUE, 3.0).
    pub ttwu_queue: bool,
    /// Balancing compares loads with their history.
    pub lb_bias: bool,
    /// A thread that is picked again goes on with its slice, as does a group that two threads in succession share
    /// (3.15 and later, `pick_next_task_fair`). Before, each pick began a slice.
    pub slice_continues: bool,
    /// Threads can yield to a thread of their choice (`yield_to`, 2.6.39).
    pub yield_to: bool,
    /// Loads are geometric averages of the runnable load, per entity (3.8 and later).
    pub load_tracking: bool,
    /// A pCPU's load includes that of its sleeping threads, as it decays (5.5 and later, `cpu_load`).
    pub sleepers_count: bool,
    /// A thread that wakes many others stays away from them (3.12 and later).
    pub wake_wide: bool,
    /// Wake placement first checks which of the two pCPUs is idle (4.14 and later).
    pub wake_idle: bool,
    /// The average idle time of a pCPU bounds its search for an idle one (4.12 and later).
    pub bounded_scan: bool,
    /// A woken thread also tries the pCPU that it used before its last one (4.16, in this form 5.13;
    /// `select_idle_sibling`).
    pub recently_used: bool,
    /// The utilization of the last-level cache's pCPUs bounds that search instead (SIS_UTIL, 6.0 and later).
    pub scan_by_utilization: bool,
    /// A pCPU that falls idle searches for work only if some pCPU has more than one thread (3.19 and later).
    pub overload_gate: bool,
    /// Slices of bandwidth expire with their period (until 5.3).
    pub bandwidth_expires: bool,
    /// EEVDF: a thread keeps its lag across sleep and migration (PLACE_LAG).
    pub place_lag: bool,
    /// EEVDF: the running thread is not replaced before its deadline or until its lag is used up (RUN_TO_PARITY).
    pub run_to_parity: bool,
    /// EEVDF: what RUN_TO_PARITY protects ends where the deadline was when the thread was picked. A thread without
    /// protection is compared with the others at each accounting (6.17 and later, `protect_slice`). Before, the
    /// protection ends when the deadline changes, and only then there is a comparison.
    pub protection_ends: bool,
    /// EEVDF: the next buddy is picked while it is eligible (`PICK_BUDDY`).
    pub pick_buddy: bool,
    /// EEVDF: a thread that sleeps with negative lag stays queued until the lag is 0 (DELAY_DEQUEUE, 6.12).
    pub delay_dequeue: bool,
    /// EEVDF: no entity gains lag by being delayed (`DELAY_ZERO`).
    pub delay_zero: bool,
    /// EEVDF: deadlines move with their threads (`PLACE_REL_DEADLINE`).
    pub relative_deadline: bool,
    /// A timer ends slices between ticks (HRTICK; on by default since 7.1).
    pub slice_timer: bool,
}
