//! netperf's TCP_RR: a request of one byte to a server on the host and its answer, over virtio-net, one after the
//! other.
//!
//! The benchmark measures latency. The guest sleeps while the host's threads carry the request and the answer, so each
//! transaction has a doorbell, wakeups on the host, an interrupt for the guest, and the end of the guest's halt.
//!
//! **Conserved**: the answer to a request has its number. The program asserts that.

use alloc::boxed::Box;

use holdfast_guest::{Limits, Machine, Os, Program, Start};
use serde::{Deserialize, Serialize};

use crate::workload::{Load, share_of};

/// Parameters of TCP_RR.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Netperf {
    /// Requests, each with its answer, at scale 1.
    ///
    /// Default 1 300 000: about a minute (`-l 60`).
    pub transactions: u64,
}

/// User time of a transaction. Calibrated: with the emulated local APIC on the carrizo-4 profile, 1 vCPU makes 21 624
/// transactions a second. Most of it represents what the estimates of TCP, vhost and wakeups on both sides leave out.
const USER_NS: u64 = 5_800;

impl Default for Netperf {
    fn default() -> Self {
        Netperf {
            transactions: 1_300_000,
        }
    }
}

impl Load for Netperf {
    const THROUGHPUT: Option<&'static str> = Some("transactions/s");

    fn scale_work(&mut self, share: f64) {
        self.transactions = share_of(self.transactions, share, 1);
    }

    fn program<M: Machine>(&self, _: u32) -> Box<dyn Program<M>> {
        Box::new(self.clone())
    }
}

impl<M: Machine> Program<M> for Netperf {
    fn limits(&self) -> Limits {
        Limits::default()
    }

    fn run(&self, os: &Os<M>, _: Start) {
        os.wait_for_cpus();
        os.open_network();
        os.begin();
        for transaction in 0..self.transactions {
            let number = transaction as u32;
            let begun = os.clock();
            os.user(USER_NS);
            os.send_network(number);
            assert_eq!(os.receive_network(), number, "number of the answer and of the request");
            os.completed(begun);
        }
        os.report("netperf.transactions", self.transactions);
        os.done(Some(self.transactions));
    }
}
