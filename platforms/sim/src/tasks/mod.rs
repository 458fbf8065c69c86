//! Host tasks other than vCPUs, and what runs in them: the host kernel's own threads, VMMs, network devices, disks, and
//! the threads of a kernel on the machine itself.

pub mod disk;
pub mod native;
pub mod network;
pub mod noise;
pub mod task;
pub mod vmm;

use std::collections::BTreeMap;

use holdfast_host::{TaskId, VcpuId, VmId};
use holdfast_machine::Picos;

use crate::tasks::disk::Disk;
use crate::tasks::native::Native;
use crate::tasks::network::Network;
use crate::tasks::task::Task;
use crate::tasks::vmm::Vmm;

/// A vCPU's thread out of `KVM_RUN`, in the user space of the VMM: its device model handles an access of the guest.
#[derive(Clone, Copy, Debug)]
pub struct DeviceWork {
    /// The vCPU that made the access.
    pub vcpu: VcpuId,
    /// CPU time until the access is done.
    pub remaining: Picos,
}

/// Host tasks other than vCPUs.
#[derive(Debug)]
pub struct HostTasks {
    /// Tasks that compute and sleep, the host kernel's threads and those of devices included.
    pub all: BTreeMap<TaskId, Task>,
    /// vCPU threads in the VMM's user space.
    pub in_vmm: BTreeMap<TaskId, DeviceWork>,
    /// The main threads of VMMs that wake now and then, or whose VMs come or go.
    pub vmms: BTreeMap<TaskId, Vmm>,
    /// The guests' network devices.
    pub networks: Vec<Network>,
    /// The guests' disks.
    pub disks: Vec<Disk>,
    /// The bare-metal kernel, if there is one: its threads are host tasks.
    pub native: Option<Native>,
}

impl HostTasks {
    /// `task` ran for `ran` and is interrupted.
    pub fn ran(&mut self, task: TaskId, ran: Picos) {
        let ordinary = self.all.get_mut(&task).map(|task| &mut task.remaining);
        let in_vmm = self.in_vmm.get_mut(&task).map(|work| &mut work.remaining);
        if let Some(remaining) = ordinary.or(in_vmm) {
            *remaining = Picos(remaining.0.saturating_sub(ran.0));
        } else if let Some(vmm) = self.vmms.get_mut(&task) {
            vmm.ran(ran);
        }
    }

    /// The vCPU whose thread `task` is, if it is in the VMM's user space.
    pub fn vcpu_in_vmm(&self, task: TaskId) -> Option<VcpuId> {
        self.in_vmm.get(&task).map(|work| work.vcpu)
    }

    /// CPU time that `task` needs until it looks at its plan, if it is the main thread of a VMM.
    pub fn vmm_time(&self, task: TaskId) -> Option<Picos> {
        self.vmms.get(&task).map(Vmm::remaining)
    }

    /// Whether `task` is a thread of a network device.
    pub fn is_network_thread(&self, task: TaskId) -> bool {
        self.networks.iter().any(|network| network.has(task))
    }

    /// Whether `task` is the I/O thread of a disk.
    pub fn is_disk_thread(&self, task: TaskId) -> bool {
        self.disks.iter().any(|disk| disk.thread == task)
    }

    /// The index of the network device that is assigned to `vm`, if there is one.
    pub fn assigned_nic(&self, vm: VmId) -> Option<usize> {
        let is_assigned = |network: &Network| network.vm == vm && network.is_assigned();
        self.networks.iter().position(is_assigned)
    }

    /// The thread of the bare-metal kernel that `task` is, if it is one.
    pub fn native_thread(&self, task: TaskId) -> Option<u32> {
        self.native.as_ref().and_then(|native| native.thread_of(task))
    }
}
