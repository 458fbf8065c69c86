//! The list of workloads with their properties.
//!
//! A new workload is a file with its parameters, which implement [`Load`], and a line of the list below. One of another
//! crate is an [`OwnWorkload`].

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use holdfast_guest::{Limits, Machine, Os, Program, Start};
use serde::{Deserialize, Serialize};

pub use crate::load::{Load, share_of};
use crate::own::OwnWorkload;

/// Defines [`Workload`].
macro_rules! workloads {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)+) => {
        /// A program with its parameters.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        pub enum Workload {
            /// Nothing: all CPUs are idle.
            Idle,
            $($(#[$doc])* $variant(crate::$variant),)+
            /// A workload of another crate. It stays in this program: it has no form in which it could be sent.
            #[serde(skip)]
            Own(OwnWorkload),
        }

        impl Workload {
            /// Every workload of this crate, with its default parameters.
            pub fn all() -> Vec<Workload> {
                vec![Workload::Idle, $(Workload::$variant(crate::$variant::default()),)+]
            }

            /// Returns the name in experiments and results.
            pub const fn name(&self) -> &'static str {
                match self {
                    Workload::Idle => "idle",
                    $(Workload::$variant(_) => $name,)+
                    Workload::Own(own) => own.name,
                }
            }

            /// Returns `true` if the program ends.
            pub const fn ends(&self) -> bool {
                match self {
                    Workload::Idle => false,
                    $(Workload::$variant(_) => <crate::$variant as Load>::ENDS,)+
                    Workload::Own(own) => own.ends,
                }
            }

            /// Returns the unit in which its users state its throughput, or `None` if they ask how long it takes.
            pub const fn throughput_unit(&self) -> Option<&'static str> {
                match self {
                    Workload::Idle => None,
                    $(Workload::$variant(_) => <crate::$variant as Load>::THROUGHPUT,)+
                    Workload::Own(own) => own.throughput,
                }
            }

            /// Reduces the amount of work to `share` of it. Rates and sizes stay.
            pub fn scale_work(&mut self, share: f64) {
                match self {
                    Workload::Idle => {}
                    $(Workload::$variant(parameters) => parameters.scale_work(share),)+
                    Workload::Own(own) => own.share *= share,
                }
            }

            /// Makes the program, for a machine of `cpus` CPUs.
            pub(crate) fn program<M: Machine>(&self, cpus: u32) -> Box<dyn Program<M>> {
                match self {
                    Workload::Idle => Box::new(Idle),
                    $(Workload::$variant(parameters) => parameters.program(cpus),)+
                    Workload::Own(own) => own.program(cpus),
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
    /// Returns `true` if the program counts operations, so that it has a throughput.
    pub const fn counts_operations(&self) -> bool {
        self.throughput_unit().is_some()
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
