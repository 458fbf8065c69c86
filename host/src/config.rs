//! Parameters of the host kernel, the hypervisor, and what each guest is offered.
//!
//! Defaults are those of Linux 3.3 ([`HostConfig::linux_3_3`]). Section marks refer to the host specification; "bracketed"
//! means that the value was read on both sides of that version.

use alloc::vec::Vec;

use crate::GroupId;
use crate::spin::config::{PauseControls, PauseHandling};

/// Which host scheduler runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SchedulerKind {
    /// The completely fair scheduler as of Linux 3.3 (2.6.39 to 3.7 behave alike).
    #[default]
    Cfs33,
}

/// When the scheduler ticks of the pCPUs fall, relative to each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TickPhase {
    /// All at the same time: Linux from 2.6.36, which removed the old skew, and the default (`skew_tick=0`) since 3.6
    /// brought it back as an option. Slices end on ticks, so co-scheduled pCPUs keep their phases: it matters.
    #[default]
    Aligned,
    /// Spread over the first half of a period, as `skew_tick=1` does it.
    HalfSkewed,
    /// Spread evenly over the whole period.
    Spread,
}

/// Scheduler features that Linux can switch at run time (`sched_features`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// A woken thread gets half a latency period of credit instead of a whole one.
    pub gentle_fair_sleepers: bool,
    /// A new thread starts one virtual slice late.
    pub start_debit: bool,
    /// A woken thread that may preempt does so.
    pub wakeup_preemption: bool,
    /// The thread woken last is favoured even if it did not preempt.
    pub next_buddy: bool,
    /// The thread preempted last is favoured.
    pub last_buddy: bool,
    /// Buddies count as cache-hot.
    pub cache_hot_buddy: bool,
    /// The waking pCPU is considered in wake placement.
    pub affine_wakeups: bool,
    /// A wake-up across last-level caches is queued and carried out by the target pCPU on an IPI.
    pub ttwu_queue: bool,
    /// Balancing compares loads biased by their history.
    pub lb_bias: bool,
}

/// Parameters of one level of scheduling domains (§4.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DomainConfig {
    /// Shortest interval between two balancing passes, in milliseconds.
    pub min_interval_ms: u64,
    /// Longest interval, in milliseconds.
    pub max_interval_ms: u64,
    /// By how much longer the interval is on a busy pCPU.
    pub busy_factor: u64,
    /// How much more load, in per cent of the own, makes the busiest group worth pulling from.
    pub imbalance_pct: u64,
    /// Failed passes before cache-hot threads are moved too.
    pub cache_nice_tries: u32,
    /// Index of the load history used on a busy pCPU: 0 is now, each further one is averaged over twice as many ticks.
    pub busy_index: usize,
    /// The same for an idle pCPU.
    pub idle_index: usize,
}

/// Load balancing (§4.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BalanceConfig {
    /// Threads of one core.
    pub smt: DomainConfig,
    /// Cores that share a last-level cache: one socket.
    pub cache: DomainConfig,
    /// Sockets of one memory node.
    pub package: DomainConfig,
    /// Memory nodes.
    pub numa: DomainConfig,
    /// Whether each socket is a memory node of its own.
    pub sockets_are_nodes: bool,
    /// Threads looked at in one pass.
    pub nr_migrate: u32,
    /// A thread that ran less than this long ago is cache-hot, and a pCPU that is idle for less than this on average does
    /// not pull when it falls idle. Nanoseconds.
    pub migration_cost_ns: u64,
    /// What all threads of a core can do together, 1024 being one thread that has the core for itself.
    pub smt_gain: u64,
}

/// Parameters of the host kernel and the hypervisor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostConfig {
    /// Scheduler ticks per second.
    pub hz: u32,
    /// How the ticks of the pCPUs lie to each other.
    pub tick_phase: TickPhase,
    /// The host scheduler.
    pub scheduler: SchedulerKind,
    /// Period in which each runnable thread runs once, before scaling by the number of pCPUs. Nanoseconds.
    pub latency_ns: u64,
    /// Shortest slice, before scaling. Nanoseconds.
    pub min_granularity_ns: u64,
    /// By how much a woken thread must be behind to preempt, before scaling. Nanoseconds.
    pub wakeup_granularity_ns: u64,
    /// Whether the three values above are multiplied by `1 + log2(min(pCPUs, 8))`.
    pub scale_by_pcpus: bool,
    /// Window over which a group's load on one pCPU is averaged. Nanoseconds.
    pub shares_window_ns: u64,
    /// Features.
    pub features: Features,
    /// Balancing.
    pub balance: BalanceConfig,
    /// Longest time for which a halted vCPU's pCPU polls before its thread sleeps; 0: never. Nanoseconds.
    pub halt_poll_ns: u64,
    /// Factor by which the polling time grows.
    pub halt_poll_grow: u64,
    /// What it grows to from 0. Nanoseconds.
    pub halt_poll_grow_start_ns: u64,
    /// Divisor by which it shrinks; 0: to nothing at once.
    pub halt_poll_shrink: u64,
    /// What is done about guests that spin.
    pub pause: PauseHandling,
    /// How the part is told to watch for them.
    pub pause_controls: PauseControls,
    /// Frequency of the time-stamp counter, for the LAPIC timer's deadline mode.
    pub tsc_hz: u64,
    /// Frequency that the emulated LAPIC timer's divider divides. KVM: 1 GHz.
    pub apic_bus_hz: u64,
    /// Shortest period of a periodic LAPIC timer, against guests that drown the host in timer interrupts. KVM
    /// (`min_timer_period_us`): 500 µs (200 µs since 4.7, uncertain).
    pub min_timer_period_ns: u64,
}

impl HostConfig {
    /// Linux 3.3 (March 2012): no halt polling; directed yield exists, but acts only where the part has pause-loop exiting.
    pub fn linux_3_3() -> HostConfig {
        let level = |min, max, busy, pct, tries, busy_index, idle_index| DomainConfig {
            min_interval_ms: min,
            max_interval_ms: max,
            busy_factor: busy,
            imbalance_pct: pct,
            cache_nice_tries: tries,
            busy_index,
            idle_index,
        };
        HostConfig {
            hz: 1000,
            tick_phase: TickPhase::default(),
            scheduler: SchedulerKind::Cfs33,
            latency_ns: 6_000_000,
            min_granularity_ns: 750_000,
            wakeup_granularity_ns: 1_000_000,
            scale_by_pcpus: true,
            shares_window_ns: 10_000_000,
            features: Features {
                gentle_fair_sleepers: true,
                start_debit: true,
                wakeup_preemption: true,
                next_buddy: false,
                last_buddy: true,
                cache_hot_buddy: true,
                affine_wakeups: true,
                ttwu_queue: true,
                lb_bias: true,
            },
            // Intervals, busy factors and percentages: §4.4, bracketed. Tries and history indices: from memory of
            // that era's topology.h, uncertain.
            balance: BalanceConfig {
                smt: level(1, 2, 64, 110, 0, 0, 0),
                cache: level(1, 4, 64, 125, 1, 2, 0),
                package: level(1, 4, 64, 125, 1, 2, 1),
                numa: level(8, 32, 32, 125, 2, 3, 2),
                sockets_are_nodes: true,
                nr_migrate: 32,
                migration_cost_ns: 500_000,
                smt_gain: 1178,
            },
            halt_poll_ns: 0,
            halt_poll_grow: 2,
            halt_poll_grow_start_ns: 10_000,
            halt_poll_shrink: 0,
            pause: PauseHandling::DIRECTED_YIELD_2011,
            pause_controls: PauseControls::INTEL,
            tsc_hz: 2_930_000_000,
            apic_bus_hz: 1_000_000_000,
            min_timer_period_ns: 500_000,
        }
    }
}

impl Default for HostConfig {
    fn default() -> HostConfig {
        HostConfig::linux_3_3()
    }
}

/// Where a guest's threads stand in the hierarchy of task groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VmGroup {
    /// In the root group, beside all other threads.
    #[default]
    Root,
    /// In a group of the guest's own.
    Own {
        /// `cpu.shares`: 1024 is the default, 2 to 262144.
        shares: u64,
    },
    /// In a group of the guest's own, each vCPU in a further group of default shares beneath it, as libvirt does it.
    OwnWithVcpuGroups {
        /// `cpu.shares` of the guest's group.
        shares: u64,
    },
    /// In a group that exists.
    In(GroupId),
}

/// What a guest is offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VmConfig {
    /// Halting for a lock and the kick hypercall (`KVM_FEATURE_PV_UNHALT`).
    pub pv_unhalt: bool,
    /// Directed yield by hypercall (`KVM_FEATURE_PV_SCHED_YIELD`, since 5.3).
    pub pv_sched_yield: bool,
    /// The steal-time record.
    pub steal_time: bool,
    /// Whether the host keeps the record's preempted flag (since 4.10, uncertain).
    pub preempted_flag: bool,
    /// The hint that vCPUs are never preempted for long.
    pub realtime_hint: bool,
    /// Nice level of the vCPU threads, -20 to 19.
    pub nice: i8,
    /// Task group of the vCPU threads.
    pub group: VmGroup,
    /// Halt-polling limit of this guest instead of [`HostConfig::halt_poll_ns`]. Nanoseconds.
    pub halt_poll_cap_ns: Option<u64>,
}

impl Default for VmConfig {
    fn default() -> VmConfig {
        VmConfig {
            pv_unhalt: true,
            pv_sched_yield: false,
            steal_time: true,
            preempted_flag: true,
            realtime_hint: false,
            nice: 0,
            group: VmGroup::Root,
            halt_poll_cap_ns: None,
        }
    }
}

/// A host task that is no vCPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskConfig {
    /// Nice level, -20 to 19.
    pub nice: i8,
    /// pCPUs that it may run on; empty: all.
    pub affinity: Vec<u32>,
    /// Its task group; `None`: the root group.
    pub group: Option<GroupId>,
}

/// Where a pCPU sits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PcpuPlace {
    /// Socket; one last-level cache each.
    pub socket: u32,
    /// Core within the socket.
    pub core: u32,
    /// Hardware thread within the core.
    pub thread: u32,
}
