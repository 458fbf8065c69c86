//! The host: construction and the step function.

use alloc::vec::Vec;

use crate::GroupId;
use crate::boundary::{Command, Event, Nanos, PcpuId, Run, TaskId, VcpuId, VmId};
use crate::config::{ConfigError, HostConfig, PcpuPlace, TaskConfig, VmConfig};

/// A host: hypervisor and scheduler.
#[derive(Debug)]
pub struct Host {
    pcpus: u32,
    vms: u32,
    vcpus: u32,
    tasks: u32,
}

impl Host {
    /// A host of `pcpus`, with nothing to run yet.
    ///
    /// # Errors
    /// [`ConfigError`] names the parameter that is out of range.
    pub fn new(config: &HostConfig, pcpus: &[PcpuPlace]) -> Result<Host, ConfigError> {
        let _ = config;
        if pcpus.is_empty() {
            return Err(ConfigError::NoPcpus);
        }
        Ok(Host {
            pcpus: pcpus.len() as u32,
            vms: 0,
            vcpus: 0,
            tasks: 0,
        })
    }

    /// Adds a task group below `parent` (`None`: the root group), with `cpu.shares` of 2 to 262144.
    ///
    /// # Errors
    /// Unknown parent, shares out of range, or a host that runs.
    pub fn add_group(&mut self, parent: Option<GroupId>, shares: u64) -> Result<GroupId, ConfigError> {
        let _ = (parent, shares);
        Ok(GroupId(0))
    }

    /// Adds a VM of `vcpus` vCPUs. vCPU ids are dense in order of creation; the APIC ID of a vCPU is its index in its VM.
    /// All vCPUs are runnable from [`Host::start`] on, interrupts masked, CPL 0. `affinity` gives the pCPUs that
    /// each may run on; an empty or missing entry means all.
    ///
    /// # Errors
    /// [`ConfigError`], and nothing was added.
    pub fn add_vm(&mut self, vm: &VmConfig, vcpus: u32, affinity: &[Vec<u32>]) -> Result<VmId, ConfigError> {
        let _ = (vm, affinity);
        self.vcpus += vcpus;
        self.tasks += vcpus;
        self.vms += 1;
        Ok(VmId(self.vms - 1))
    }

    /// Adds a host task that is no vCPU, runnable from [`Host::start`] on.
    ///
    /// # Errors
    /// [`ConfigError`], and nothing was added.
    pub fn add_task(&mut self, task: &TaskConfig) -> Result<TaskId, ConfigError> {
        let _ = task;
        self.tasks += 1;
        Ok(TaskId(self.tasks - 1))
    }

    /// The vCPUs of `vm`, in the order of their APIC IDs.
    pub fn vcpus(&self, vm: VmId) -> impl Iterator<Item = VcpuId> + use<> {
        let _ = vm;
        (0..self.vcpus).map(VcpuId)
    }

    /// Starts all pCPUs: the first [`Command::Run`] for each.
    pub fn start(&mut self, now: Nanos, out: &mut Vec<Command>) {
        let _ = now;
        for pcpu in 0..self.pcpus {
            let run = if pcpu < self.vcpus {
                Run::Guest {
                    vcpu: VcpuId(pcpu),
                    inject: None,
                    window: false,
                }
            } else {
                Run::Idle
            };
            out.push(Command::Run {
                pcpu: PcpuId(pcpu),
                run,
            });
        }
    }

    /// The host's step: `event` happened at `now`. Appends what is to be done to `out`.
    ///
    /// # Panics
    /// If the caller breaks the boundary's contract (an exit from a pCPU that runs no vCPU, time going backwards). No
    /// guest can cause a panic.
    pub fn handle(&mut self, event: Event, now: Nanos, out: &mut Vec<Command>) {
        let _ = now;
        let pcpu = match event {
            Event::Exit { pcpu, .. } | Event::Interrupt { pcpu, .. } | Event::TaskSleeps { pcpu, .. } => pcpu,
        };
        let run = Run::Guest {
            vcpu: VcpuId(pcpu.0),
            inject: None,
            window: false,
        };
        out.push(Command::Run { pcpu, run });
    }

    /// Statistics of `vm`, by KVM's own names, summed over its vCPUs.
    pub fn counters(&self, vm: VmId) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        let _ = vm;
        [("exits", 0)].into_iter()
    }
}
