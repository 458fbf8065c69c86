//! Interrupts between CPUs, one call after another: to the caller's own CPU, to one other, to all others, to all others
//! with handlers that take one lock, and to all others by NMI. The kernel module of KVM's PV-IPI and IPI-virtualization
//! patches measures the same, without the last (Linux commit 4180bf1b655a).

use alloc::boxed::Box;
use alloc::vec::Vec;

use holdfast_guest::{Callees, Fork, Function, Limits, Machine, Os, Program, Start};
use holdfast_locks::CpuId;
use serde::{Deserialize, Serialize};

use crate::workload::{Load, share_of};

/// The CPUs that each call reaches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reach {
    /// The caller's own CPU.
    Itself,
    /// One other CPU, the next one each time.
    #[default]
    Unicast,
    /// All other CPUs.
    Broadcast,
    /// All other CPUs, with handlers that take one spinlock.
    BroadcastLock,
    /// All other CPUs, by non-maskable interrupts: a backtrace of each.
    Backtrace,
}

/// Parameters of the calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ipi {
    /// Which CPUs each call reaches: the caller's own, one other, all others, all others whose handlers take one
    /// spinlock, or all others by non-maskable interrupts for a backtrace.
    pub reach: Reach,
    /// Whether the other vCPUs compute in user mode. Otherwise they are halted.
    pub busy: bool,
    /// Number of calls, at scale 1.
    ///
    /// Default 20 000.
    pub calls: u64,
}

impl Default for Ipi {
    fn default() -> Self {
        Ipi {
            reach: Reach::default(),
            busy: true,
            calls: 20_000,
        }
    }
}

/// The length of one stretch of a busy loop. Stretches follow each other directly.
const STRETCH_NS: u64 = 1_000_000_000;
/// User time of the caller between two calls, in which other tasks and interrupts of its CPU get their turn.
/// Nanoseconds.
const PAUSE_NS: u64 = 3_000;
/// The longest time that an idle CPU needs until it has halted. Nanoseconds.
const HALT_NS: u64 = 3_000;

mod role {
    pub(super) const CALLER: u32 = 0;
    pub(super) const BUSY: u32 = 1;
}

/// The calls of a guest.
pub(crate) struct Calls {
    parameters: Ipi,
    cpus: u32,
}

impl Calls {
    fn call<M: Machine>(&self, os: &Os<M>) {
        os.wait_for_cpus();
        if self.parameters.busy {
            for argument in 1..self.cpus {
                os.fork(Fork::Share, Start::new(role::BUSY, argument));
            }
        }
        os.sleep(20_000_000);
        let mut after_ns = Vec::new();
        let begun_on = os.cpu();
        let mut moved = 0;
        os.begin();
        for round in 0..self.parameters.calls {
            moved += u64::from(os.cpu() != begun_on);
            let begun = os.clock();
            self.call_once(os, round, &mut after_ns);
            os.completed(begun);
            os.user(if self.parameters.busy { PAUSE_NS } else { HALT_NS });
        }
        let operations = after_ns.len() as u64;
        os.report("ipi_sender_moved", moved);
        report_latency(os, after_ns);
        os.done(Some(operations));
        // The other vCPUs go on until the end of the run, which may have other measured guests.
        while os.wait().is_some() {}
    }

    /// Returns one of the other CPUs, in turn.
    fn next<M: Machine>(&self, os: &Os<M>, round: u64) -> CpuId {
        let others = u64::from(self.cpus - 1).max(1);
        let next = os.cpu().0 + 1 + (round % others) as u32;
        CpuId(next % self.cpus)
    }

    fn call_once<M: Machine>(&self, os: &Os<M>, round: u64, after_ns: &mut Vec<u64>) {
        let plain = Function::default();
        match self.parameters.reach {
            Reach::Itself => os.call_cpus(Callees::Itself, plain, after_ns),
            Reach::Broadcast => os.call_cpus(Callees::Others, plain, after_ns),
            Reach::BroadcastLock => os.call_cpus(Callees::Others, Function { driver: Some((0, 0)) }, after_ns),
            Reach::Backtrace => os.backtrace(after_ns),
            Reach::Unicast if self.cpus == 1 => os.call_cpus(Callees::Itself, plain, after_ns),
            Reach::Unicast => os.call_cpus(Callees::One(self.next(os, round)), plain, after_ns),
        }
    }
}

/// Reports the times from each call to the end of the function on each called CPU.
fn report_latency<M: Machine>(os: &Os<M>, mut after_ns: Vec<u64>) {
    after_ns.sort_unstable();
    let Some(last) = after_ns.len().checked_sub(1) else {
        return;
    };
    let at = |permille: usize| after_ns[last * permille / 1000];
    os.report("ipi_latency_p50_ns", at(500));
    os.report("ipi_latency_p99_ns", at(990));
    os.report("ipi_latency_max_ns", at(1000));
    os.report(
        "ipi_latency_mean_ns",
        after_ns.iter().sum::<u64>() / after_ns.len() as u64,
    );
}

impl Load for Ipi {
    const THROUGHPUT: Option<&'static str> = Some("calls/s");

    fn scale_work(&mut self, share: f64) {
        self.calls = share_of(self.calls, share, 1);
    }

    fn program<M: Machine>(&self, cpus: u32) -> Box<dyn Program<M>> {
        Box::new(Calls {
            parameters: self.clone(),
            cpus,
        })
    }
}

impl<M: Machine> Program<M> for Calls {
    fn limits(&self) -> Limits {
        Limits {
            tasks: self.cpus + 1,
            drivers: 1,
            ..Limits::default()
        }
    }

    fn run(&self, os: &Os<M>, start: Start) {
        match start.role {
            role::CALLER => self.call(os),
            role::BUSY => loop {
                os.user(STRETCH_NS);
            },
            other => unreachable!("a task of ipi has the unknown role {other}"),
        }
    }
}
