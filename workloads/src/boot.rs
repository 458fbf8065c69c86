//! What a guest boots with: kernel parameters and workload.

use holdfast_guest::Config;
use serde::{Deserialize, Serialize};

use crate::workload::Workload;

/// A guest's kernel parameters and what it runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Boot {
    /// The kernel's parameters.
    pub kernel: Config,
    /// Iterations that a paravirtual waiter spins before it halts (SPIN_THRESHOLD).
    ///
    /// Linux: 2^15. It reaches the lock through [`Paravirt::spin_threshold`](holdfast_locks::Paravirt::spin_threshold).
    pub spin_threshold: u32,
    /// Whether a waiter in the queue of a paravirtual spinlock halts at once behind a preempted vCPU, as it does behind
    /// a halted one (Linux 4.11 to 5.3). The host must keep the preempted flag.
    ///
    /// It reaches the lock through
    /// [`Paravirt::halts_behind_preempted`](holdfast_locks::Paravirt::halts_behind_preempted).
    pub wait_early_preempted: bool,
    /// What the guest runs.
    pub workload: Workload,
}

impl Default for Boot {
    /// An idle guest with native ticket locks and a 1000 Hz tick.
    fn default() -> Self {
        Boot {
            kernel: Config::default(),
            spin_threshold: 1 << 15,
            wait_early_preempted: false,
            workload: Workload::Idle,
        }
    }
}
