//! Faults in orderings that no trial finds, and orderings that no trial reaches, with the reasons.

use std::sync::atomic::Ordering::{self, *};

use holdfast_model::fault::Role;

/// An ordering whose weakening no trial finds.
pub(super) struct Unfound {
    pub(super) file: &'static str,
    /// A fragment of the source line.
    pub(super) line: &'static str,
    pub(super) role: Role,
    /// The weaker ordering, or `None` if a fence is left out.
    pub(super) to: Option<Ordering>,
    pub(super) reason: &'static str,
}

/// Loom orders racing plain stores in the order in which it executes them.
const RACING_STORES: &str =
    "keeps two plain stores to one node in order; loom takes racing stores in the order of execution";
/// This differs from `qspin`, whose head stores to the locked byte.
const HEAD_EXCHANGES: &str =
    "not for exclusion: the head takes the lock by an exchange, which acquires; kept as in Linux";

/// See `unlock_kick`.
const HALF_A_RECORD: &str =
    "only avoids needless kicks: the search continues after a match that is half of two records";

pub(super) static UNFOUND: &[Unfound] = &[
    Unfound {
        file: "paravirt.rs",
        line: "cpu.store_address(&record.lock, key, Release);",
        role: Role::Store,
        to: Some(Relaxed),
        reason: HALF_A_RECORD,
    },
    Unfound {
        file: "paravirt.rs",
        line: "cpu.fence(Acquire);",
        role: Role::Fence,
        to: None,
        reason: HALF_A_RECORD,
    },
    Unfound {
        file: "paravirt.rs",
        line: "cpu.fence(Release);",
        role: Role::Fence,
        to: None,
        reason: "a CPU clears its record before it releases that lock: no unlocker sees the lock with a later ticket",
    },
    Unfound {
        file: "numerous_qspin.rs",
        line: "cpu.store_low8(word, 0, Release);",
        role: Role::Rmw,
        to: Some(Relaxed),
        reason: "a byte store is a read-modify-write here, which passes on an earlier release by itself",
    },
    Unfound {
        file: "pv_qspin.rs",
        line: "cpu.store(&cpu.nodes().at::<L>(node).state, RUNNING, Release);",
        role: Role::Store,
        to: Some(Relaxed),
        reason: "needs a head that the owner lists while it looks: four preemptions of three CPUs, too many to search",
    },
    Unfound {
        file: "pv_fair.rs",
        line: "let next = cpu.load(&last.next, Acquire);",
        role: Role::Load,
        to: Some(Relaxed),
        reason: "an older link costs a needless kick only: the waiter to which it leads spins and halts again",
    },
    Unfound {
        file: "pv_wait.rs",
        line: "let is_listed = ",
        role: Role::Load,
        to: Some(Relaxed),
        reason: "the other side of the unlocker's RUNNING: four preemptions of three CPUs, too many to search",
    },
    Unfound {
        file: "pv_qspin.rs",
        line: "cpu.store(&node.locked, 1, Release);",
        role: Role::Store,
        to: Some(Relaxed),
        reason: HEAD_EXCHANGES,
    },
    Unfound {
        file: "pv_wait.rs",
        line: "if cpu.load(&me.locked, Acquire) != 0",
        role: Role::Load,
        to: Some(Relaxed),
        reason: HEAD_EXCHANGES,
    },
    Unfound {
        file: "pv_wait.rs",
        line: "cpu.wait_until(&me.locked, chunk, Acquire",
        role: Role::Wait,
        to: Some(Relaxed),
        reason: HEAD_EXCHANGES,
    },
    Unfound {
        file: "pv_qspin.rs",
        line: ".compare_exchange(&node.state, HALTED, HASHED, Release, Relaxed)",
        role: Role::Rmw,
        to: Some(Relaxed),
        reason: "the fence before it releases, too; kept for a build whose fence is of another kind",
    },
    Unfound {
        file: "pv_wait.rs",
        line: "cpu.compare_exchange(&me.state, HALTED, RUNNING, Relaxed, Acquire)",
        role: Role::Failure,
        to: Some(Relaxed),
        reason: "needs a handover between the last two looks before a halt: three preemptions of three CPUs, too many",
    },
    Unfound {
        file: "pv_fair_wait.rs",
        line: "let is_listed = ",
        role: Role::Load,
        to: Some(Relaxed),
        reason: "the other side of the unlocker's RUNNING: four preemptions of three CPUs, too many to search",
    },
    Unfound {
        file: "pv_fair.rs",
        line: ".compare_exchange(&node.state, HALTED, HASHED, Release, Relaxed)",
        role: Role::Rmw,
        to: Some(Relaxed),
        reason: "the fence before it releases, too; kept for a build whose fence is of another kind",
    },
    Unfound {
        file: "unfair_qspin.rs",
        line: ".wait_until(&me.node.locked, iterations, Acquire",
        role: Role::Wait,
        to: Some(Relaxed),
        reason: HEAD_EXCHANGES,
    },
    Unfound {
        file: "unfair_qspin.rs",
        line: ".compare_exchange(word, me.code | LOCKED, previous_code | LOCKED, AcqRel, Relaxed)",
        role: Role::Rmw,
        to: Some(Acquire),
        reason: RACING_STORES,
    },
    Unfound {
        file: "unfair_qspin.rs",
        line: ".compare_exchange(word, me.code | LOCKED, previous_code | LOCKED, AcqRel, Relaxed)",
        role: Role::Rmw,
        to: Some(Release),
        reason: "what follows depends on its success; Acquire says so to a compiler, and costs nothing",
    },
    Unfound {
        file: "cna_qspin.rs",
        line: "let next_code = cpu.load(&me.node().next, Acquire);",
        role: Role::Load,
        to: Some(Relaxed),
        reason: "an old NUMA node costs time only; where the node is written to, racing stores as below",
    },
    Unfound {
        file: "cna_qspin.rs",
        line: "let after = cpu.load(&next.next, Acquire);",
        role: Role::Load,
        to: Some(Relaxed),
        reason: RACING_STORES,
    },
    Unfound {
        file: "watching_qspin.rs",
        line: "let next = cpu.load(&me.node().next, Acquire);",
        role: Role::Load,
        to: Some(Relaxed),
        reason: "a question that a new waiter overwrites costs a kick only; and racing stores as below",
    },
    Unfound {
        file: "osq.rs",
        line: "let previous = cpu.load(&me.prev, Acquire);",
        role: Role::Load,
        to: Some(Relaxed),
        reason: "the predecessor's node is only exchanged, and an exchange finds the newest value; kept with its pair",
    },
    Unfound {
        file: "osq.rs",
        line: "cpu.store(&table.at(next).prev, previous, Release);",
        role: Role::Store,
        to: Some(Relaxed),
        reason: RACING_STORES,
    },
    Unfound {
        file: "osq.rs",
        line: ".compare_exchange(&self.tail, code, previous, AcqRel, Relaxed)",
        role: Role::Rmw,
        to: Some(Release),
        reason: RACING_STORES,
    },
];

/// Orderings that no trial comes to: file, a part of the line, reason.
pub(super) static UNREACHED: &[(&str, &str, &str)] = &[
    (
        "numerous_qspin.rs",
        "swap_bits(cpu, word, Self::TAIL_MASK, code, AcqRel)",
        "`NumerousQspin` joins its queue by an exchange of the whole word",
    ),
    (
        "unfair_qspin.rs",
        "cpu.store(&previous.next, next, Release);",
        "a waiter leaves from the middle: two preemptions of four CPUs, which is minutes of search",
    ),
    (
        "cna_qspin.rs",
        ".compare_exchange(word, seen, last_code | LOCKED, Release, Relaxed)",
        RACING_STORES,
    ),
];
