//! The queue of optimistic spinners: it has one head at a time, and a CPU that leaves takes no other CPU with it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use holdfast_locks::conformance::Job;
use holdfast_locks::{Budget, CpuId, Osq, OsqTable, Platform};

use crate::explore::{every_schedule, random_schedules};
use crate::scenes::{Checked, job, run_in_turn};
use crate::steps::{Setup, StepCpu, StepWord};

/// A queue, and what became of the CPUs that entered it.
struct Spinners {
    queue: Osq<StepWord>,
    table: OsqTable<StepWord>,
    heads: AtomicU32,
    /// How often a CPU was the head.
    served: AtomicU32,
    /// How often a CPU left.
    left: AtomicU32,
    /// The CPUs that will enter the queue again.
    active: AtomicU32,
}

impl Spinners {
    fn new(cpus: u32) -> Arc<Self> {
        Arc::new(Spinners {
            queue: Osq::new(),
            table: OsqTable::new(cpus as usize),
            heads: AtomicU32::new(0),
            served: AtomicU32::new(0),
            left: AtomicU32::new(0),
            active: AtomicU32::new(cpus),
        })
    }

    /// Enters the queue once. Returns `true` if the caller was the head for some steps, or `false` if it left.
    fn spin(&self, cpu: &StepCpu, leaves: impl Fn(CpuId) -> bool) -> bool {
        if !self.queue.lock(cpu, &self.table, leaves) {
            self.left.fetch_add(1, Relaxed);
            return false;
        }
        assert_eq!(self.heads.fetch_add(1, Relaxed), 0, "two heads");
        assert!(!self.queue.is_empty(cpu), "the head is not in the queue");
        cpu.relax();
        self.served.fetch_add(1, Relaxed);
        self.heads.fetch_sub(1, Relaxed);
        self.queue.unlock(cpu, &self.table);
        true
    }

    /// Makes the jobs of all CPUs, which enter the queue `times` times. The CPUs in the mask `leavers` leave at the
    /// first chance.
    fn jobs(self: &Arc<Self>, cpus: u32, times: u32, leavers: u32) -> Vec<(CpuId, Job<StepCpu>)> {
        let each = |number: u32| {
            let spinners = Arc::clone(self);
            let leaves = leavers >> number & 1 == 1;
            let body = move |cpu: &StepCpu| {
                for _ in 0..times {
                    let stayed = spinners.spin(cpu, |before| {
                        assert!(
                            before.0 < cpus && before.0 != number,
                            "{before:?} is not before {number}"
                        );
                        leaves
                    });
                    assert!(stayed || leaves, "CPU {number} left against its will");
                }
                if spinners.active.fetch_sub(1, Relaxed) == 1 {
                    assert!(
                        spinners.queue.is_empty(cpu),
                        "no CPU is left, and the queue is not empty"
                    );
                }
            };
            (CpuId(number), job(body))
        };
        (0..cpus).map(each).collect()
    }
}

#[test]
fn no_spinner_is_forgotten_whichever_leave() {
    let (mut served, mut left) = (0, 0);
    for leavers in 0..8 {
        let runs = std::cell::RefCell::new(Vec::new());
        every_schedule(Setup::new(3), 2, || {
            let spinners = Spinners::new(3);
            runs.borrow_mut().push(Arc::clone(&spinners));
            spinners.jobs(3, 1, leavers)
        })
        .unwrap_or_else(|failure| panic!("leavers {leavers:03b}: {failure}"));
        for spinners in runs.take() {
            served += spinners.served.load(Relaxed);
            left += spinners.left.load(Relaxed);
        }
    }
    assert!(served > 0 && left > 0, "{served} heads, {left} left");
}

#[test]
fn spinners_come_and_leave_in_any_schedule() {
    for leavers in [0, 0b10101, 0b01110, 0b11111] {
        random_schedules(Setup::new(5), 400, || Spinners::new(5).jobs(5, 4, leavers))
            .unwrap_or_else(|failure| panic!("leavers {leavers:05b}: {failure}"));
    }
}

#[test]
fn fifo_order_of_spinners_that_stay() {
    const CPUS: u32 = 6;
    let (spinners, turn) = (Spinners::new(CPUS), Checked::new(0));
    let each = |number: u32| {
        let (spinners, turn) = (Arc::clone(&spinners), Arc::clone(&turn));
        let wait = |cpu: &StepCpu, turn: &Checked, least: u32| {
            let _ = cpu.wait_until(&turn.word, Budget::UNBOUNDED, Relaxed, |now| now >= least);
        };
        let body = move |cpu: &StepCpu| {
            wait(cpu, &turn, number);
            if number == 0 {
                assert!(
                    spinners.queue.lock(cpu, &spinners.table, |_| true),
                    "the first is the head"
                );
                cpu.store(&turn.word, 1, Relaxed);
                wait(cpu, &turn, CPUS);
                assert_eq!(spinners.served.fetch_add(1, Relaxed), 0);
                return spinners.queue.unlock(cpu, &spinners.table);
            }
            let is_head = spinners.queue.lock(cpu, &spinners.table, |before| {
                // This CPU is in the queue now, and the next one may come.
                assert_eq!(before.0, number - 1);
                cpu.store(&turn.word, cpu.load(&turn.word, Relaxed).max(number + 1), Relaxed);
                false
            });
            assert!(is_head);
            assert_eq!(
                spinners.served.fetch_add(1, Relaxed),
                number,
                "the head's place in the order"
            );
            spinners.queue.unlock(cpu, &spinners.table);
        };
        (CpuId(number), job(body))
    };
    run_in_turn(CPUS, (0..CPUS).map(each).collect());
}
