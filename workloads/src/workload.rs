//! The list of workloads with their properties.
//!
//! A new workload is a file with its parameters, which implement [`Load`], a line of the list below, and its name among
//! the properties that it has.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use holdfast_guest::{Limits, Machine, Os, Program, Start};
use serde::{Deserialize, Serialize};

/// The parameters of a workload.
pub(crate) trait Load: Default {
    /// Reduces the amount of work to `share` of it. Rates and sizes stay.
    fn scale_work(&mut self, share: f64);

    /// Makes the program, for a machine of `cpus` CPUs.
    fn program<M: Machine>(&self, cpus: u32) -> Box<dyn Program<M>>;
}

/// Returns `share` of `count` operations by `tasks` tasks, but at least ten for each task. In a shorter run, beginning
/// and end would dominate. A share above 1 is more than the full-size work.
pub(crate) fn share_of(count: u64, share: f64, tasks: u32) -> u64 {
    let floor = u64::from(tasks) * 10;
    let wanted = libm::round(count as f64 * share) as u64;
    let most = if share > 1.0 { wanted } else { count };
    wanted.max(floor).min(most.max(floor))
}

/// Defines [`Workload`].
macro_rules! workloads {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)+) => {
        /// A program with its parameters.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        pub enum Workload {
            /// Nothing: all CPUs are idle.
            Idle,
            $($(#[$doc])* $variant(crate::$variant),)+
        }

        impl Workload {
            /// Every workload, with its default parameters.
            pub fn all() -> Vec<Workload> {
                vec![Workload::Idle, $(Workload::$variant(crate::$variant::default()),)+]
            }

            /// Returns the name in experiments and results.
            pub const fn name(&self) -> &'static str {
                match self {
                    Workload::Idle => "idle",
                    $(Workload::$variant(_) => $name,)+
                }
            }

            /// Reduces the amount of work to `share` of it. Rates and sizes stay.
            pub fn scale_work(&mut self, share: f64) {
                match self {
                    Workload::Idle => {}
                    $(Workload::$variant(parameters) => parameters.scale_work(share),)+
                }
            }

            /// Makes the program, for a machine of `cpus` CPUs.
            pub(crate) fn program<M: Machine>(&self, cpus: u32) -> Box<dyn Program<M>> {
                match self {
                    Workload::Idle => Box::new(Idle),
                    $(Workload::$variant(parameters) => parameters.program(cpus),)+
                }
            }
        }
    };
}

workloads! {
    /// A busy loop on each CPU.
    Hog = "hog",
    /// Tasks that contend for one spinlock of the kernel.
    Contend = "contend",
    /// Interrupts between CPUs.
    Ipi = "ipi",
    /// Threads that map, touch and unmap.
    Ebizzy = "ebizzy",
    /// A kernel build.
    Kernbench = "kernbench",
    /// PostgreSQL's benchmark.
    Pgbench = "pgbench",
    /// AIM7's disk mix.
    Aim7 = "aim7",
    /// A file server's clients.
    Dbench = "dbench",
    /// A message broker with its performance test.
    Amqp = "amqp",
    /// Groups of senders and receivers.
    Hackbench = "hackbench",
    /// Unpacking a compressed archive.
    Tar = "tar",
    /// Requests and answers over the network.
    Netperf = "netperf",
    /// The work of drivers and udev at boot.
    Startup = "boot",
    /// Threads of a recorded host, in place of a kernel.
    Recorded = "recorded",
}

impl Workload {
    /// Returns `true` if the program ends.
    pub const fn ends(&self) -> bool {
        !matches!(self, Workload::Idle | Workload::Hog(_))
    }

    /// Returns `true` if the program counts operations, so that it has a throughput.
    pub const fn counts_operations(&self) -> bool {
        self.throughput_unit().is_some()
    }

    /// Returns the unit in which its users state its throughput, or `None` if they ask how long it takes.
    pub const fn throughput_unit(&self) -> Option<&'static str> {
        use Workload::{Aim7, Amqp, Contend, Dbench, Ebizzy, Ipi, Netperf, Pgbench};
        match self {
            Netperf(_) | Pgbench(_) => Some("transactions/s"),
            Amqp(_) => Some("messages/s"),
            Ebizzy(_) => Some("records/s"),
            Aim7(_) => Some("jobs/min"),
            Dbench(_) => Some("MB/s"),
            Contend(_) | Ipi(_) => Some("calls/s"),
            _ => None,
        }
    }

    /// Returns `true` if the program needs a network device.
    pub const fn uses_network(&self) -> bool {
        matches!(self, Workload::Netperf(_))
    }
}

/// A program that does nothing.
pub(crate) struct Idle;

impl<M: Machine> Program<M> for Idle {
    fn limits(&self) -> Limits {
        Limits::default()
    }

    fn run(&self, _: &Os<M>, _: Start) {}
}
