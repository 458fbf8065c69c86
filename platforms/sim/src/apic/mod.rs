//! Delivery of interrupts by hardware: AVIC, APICv and the IOMMU.

pub mod apicv;
pub mod avic;
pub mod door;
pub mod hardware;
pub mod iommu;
