//! Memory that the host and the IOMMU share, and the host's record of each device.

use alloc::vec::Vec;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use crate::boundary::{TaskId, VcpuId, VmId};

/// The host's handling of a device's interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Device {
    /// Signals a message of a guest.
    Guest {
        vm: VmId,
        address: u64,
        data: u32,
        /// The vCPU into whose page the IOMMU delivers at present.
        posted: Option<VcpuId>,
    },
    /// Wakes a thread.
    Wake(TaskId),
    /// Was a device of a VM that has ended.
    Gone,
}

/// Registers, log and table that the host and the IOMMU share, and the host's records of devices.
#[derive(Debug, Default)]
pub(crate) struct Iommu {
    pub(crate) status: AtomicU64,
    pub(crate) head: AtomicU64,
    pub(crate) tail: AtomicU64,
    /// The log, made with the first device.
    pub(crate) log: Vec<AtomicU64>,
    /// Two words for each device.
    pub(crate) table: Vec<AtomicU64>,
    pub(crate) devices: Vec<Device>,
}

/// A copy has memory of its own.
impl Clone for Iommu {
    fn clone(&self) -> Iommu {
        let copy = |word: &AtomicU64| AtomicU64::new(word.load(Relaxed));
        Iommu {
            status: copy(&self.status),
            head: copy(&self.head),
            tail: copy(&self.tail),
            log: self.log.iter().map(copy).collect(),
            table: self.table.iter().map(copy).collect(),
            devices: self.devices.clone(),
        }
    }
}
