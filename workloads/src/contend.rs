//! Tasks that contend for one spinlock of the kernel. Each task repeatedly thinks in user mode and calls a driver.
//! Studies use the workload for contention of a known size, to find how many contenders a lock sustains.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use holdfast_guest::{Fork, Limits, Machine, Os, Program, Start};
use serde::{Deserialize, Serialize};

use crate::start::{Remaining, StartLine};
use crate::stream::Stream;
use crate::workload::{Load, share_of};

/// Parameters of the contending tasks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contend {
    /// Number of tasks that contend for one lock. `None` is one for each vCPU.
    pub tasks: Option<u32>,
    /// How long a call holds the lock.
    ///
    /// Default 1 µs: most holds of kernel spinlocks are below 2^12 cycles (Zhai 2009, commit 4b8d54f9726f).
    pub held_ns: u64,
    /// Mean user time of a task between two calls.
    ///
    /// Default 3 µs: four tasks keep the lock busy.
    pub think_ns: u64,
    /// Calls over all tasks, at scale 1.
    ///
    /// Default 200 000.
    pub calls: u64,
    /// Time in which calls begin, at scale 1, in place of the number of calls. With `None` the number ends the run.
    ///
    /// With a lock that collapses, a fixed number of calls would take minutes. Calls that have begun are completed, and
    /// count. Default `None`.
    pub span_ns: Option<u64>,
}

impl Default for Contend {
    fn default() -> Self {
        Contend {
            tasks: None,
            held_ns: 1_000,
            think_ns: 3_000,
            calls: 200_000,
            span_ns: None,
        }
    }
}

/// Spread of the thinking times: standard deviation of the logarithm.
const THINK_SIGMA: f64 = 0.5;

/// The number of thinking times that each task draws before it starts, and then repeats. Logarithms are slow without
/// hardware support, so none are computed while calls are counted.
const THINK_TIMES: usize = 1024;

mod role {
    pub(super) const FIRST: u32 = 0;
    pub(super) const CONTENDER: u32 = 1;
}

/// The contending tasks.
pub(crate) struct Contenders {
    parameters: Contend,
    tasks: u32,
    calls: Remaining,
    /// Calls made by the tasks that have ended.
    made: AtomicU64,
}

impl Contenders {
    fn first<M: Machine>(&self, os: &Os<M>) {
        StartLine::FIRST.launch(os, Fork::Share, role::CONTENDER, self.tasks);
        if let Some(span_ns) = self.parameters.span_ns {
            os.sleep(span_ns);
            self.calls.clear();
        }
        while os.wait().is_some() {}
        let before = os.call_driver(0, 0);
        assert_eq!(
            before,
            self.made.load(Relaxed),
            "driver calls counted by the driver and by the tasks"
        );
        os.done(Some(before));
    }

    fn contend<M: Machine>(&self, os: &Os<M>, number: u32) {
        let mut stream = Stream::new(os.seed("contend.think"), number);
        let times: Vec<u64> = (0..THINK_TIMES)
            .map(|_| stream.time(self.parameters.think_ns, THINK_SIGMA))
            .collect();
        let mut thinking = times.iter().cycle();
        let mut made = 0;
        StartLine::FIRST.wait(os);
        while self.calls.take() {
            os.user(thinking.next().copied().unwrap_or(0));
            let begun = os.clock();
            os.call_driver(0, self.parameters.held_ns);
            os.completed(begun);
            made += 1;
        }
        self.made.fetch_add(made, Relaxed);
    }
}

impl Load for Contend {
    const THROUGHPUT: Option<&'static str> = Some("calls/s");

    fn scale_work(&mut self, share: f64) {
        self.calls = share_of(self.calls, share, self.tasks.unwrap_or(1));
        self.span_ns = self.span_ns.map(|ns| libm::round(ns as f64 * share) as u64);
    }

    fn program<M: Machine>(&self, cpus: u32) -> Box<dyn Program<M>> {
        Box::new(Contenders {
            parameters: self.clone(),
            tasks: self.tasks.unwrap_or(cpus).max(1),
            calls: Remaining::new(match self.span_ns {
                Some(_) => u64::MAX,
                None => self.calls,
            }),
            made: AtomicU64::new(0),
        })
    }
}

impl<M: Machine> Program<M> for Contenders {
    fn limits(&self) -> Limits {
        Limits {
            tasks: 1 + self.tasks,
            semaphore_arrays: 1,
            semaphores: 1,
            drivers: 1,
            ..Limits::default()
        }
    }

    fn run(&self, os: &Os<M>, start: Start) {
        match start.role {
            role::FIRST => self.first(os),
            role::CONTENDER => self.contend(os, start.argument),
            other => unreachable!("a task of contend has the unknown role {other}"),
        }
    }
}
