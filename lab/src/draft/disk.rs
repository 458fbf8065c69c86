//! The disk of a guest while keys are being set.

use holdfast_sim::DiskConfig;

/// The disk of a guest while keys are being set.
#[derive(Clone, Copy, Debug)]
pub struct DraftDisk {
    /// Time from a request's arrival at the guest's disk to its first byte: seek and rotation, or that of flash.
    ///
    /// `None`: the guest has no disk, and all files are in its page cache.
    pub latency_ns: Option<u64>,
    /// Requests that the guest's disk works on at a time. Their latencies overlap, their transfers do not.
    pub depth: u32,
    /// Rate at which the guest's disk transfers.
    pub mib_per_second: u32,
}

impl DraftDisk {
    /// No disk. If there is one, it is the only one of its kind: one request at a time, 100 MiB/s.
    pub(crate) const NONE: DraftDisk = DraftDisk {
        latency_ns: None,
        depth: 1,
        mib_per_second: 100,
    };

    /// Returns the disk for the simulator.
    pub(crate) fn config(&self) -> Option<DiskConfig> {
        self.latency_ns.map(|latency_ns| DiskConfig {
            latency_ns,
            depth: self.depth,
            bytes_per_second: u64::from(self.mib_per_second) << 20,
        })
    }
}
