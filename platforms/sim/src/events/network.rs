//! A guest's network device at work: it gives time to the host's threads behind it (`host/src/net`), and carries out
//! their actions.
//!
//! A device that is hardware (`Nic::Assigned`) has no thread: its steps are events of their own. The guest writes to
//! the device's own notification port, and the device's interrupts go through the IOMMU (`iommu.rs`).
//!
//! **One step at a time**: between two steps of a thread the host's scheduler may run another thread.

use crate::network::Action;
use holdfast_abi::msi;
use holdfast_host::{Event, PcpuId, TaskEvent, TaskId, VmmEvent};
use holdfast_machine::Picos;

use crate::core::clock::TimedEvent;
use crate::engine::Engine;
use crate::tasks::network::{Behind, VECTOR};

impl Engine {
    /// The thread `task` of a network device has `pcpu`: it continues its work, or takes its next action.
    pub fn run_network_thread(&mut self, pcpu: PcpuId, task: TaskId) {
        let left = self.tasks.all.get(&task).map_or(Picos::ZERO, |task| task.remaining);
        if left > Picos::ZERO {
            return self.run_task(pcpu, task, left);
        }
        let Some(nic) = self.tasks.networks.iter().position(|network| network.has(task)) else {
            return;
        };
        let network = &mut self.tasks.networks[nic];
        let (vm, is_worker) = (network.vm, task != network.server);
        let action = if is_worker {
            network.connection.worker(&self.vms[vm].fixed.memory.network)
        } else {
            network.connection.server()
        };
        let other = match network.behind {
            _ if is_worker => network.server,
            Behind::Worker(worker) => worker,
            Behind::Hardware { .. } if action == Action::WakeOther => {
                self.wake_nic(nic as u32);
                return self.run_network_thread(pcpu, task);
            }
            Behind::Hardware { .. } => network.server,
        };
        let event = match action {
            Action::Work(ns) => {
                let span = Picos::from_nanos(ns);
                if let Some(task) = self.tasks.all.get_mut(&task) {
                    task.remaining = span;
                }
                return self.run_task(pcpu, task, span);
            }
            Action::WakeOther => Event::Task(TaskEvent::Wakes { pcpu, task: other }),
            Action::Signal => Event::Vmm(VmmEvent::Msi {
                pcpu,
                vm,
                address: msi::address(0),
                data: VECTOR,
            }),
            Action::Sleep => Event::Task(TaskEvent::Sleeps { pcpu, until: None }),
        };
        self.step_host(pcpu, event);
    }

    /// Device `nic` has work to do.
    pub fn wake_nic(&mut self, nic: u32) {
        if let Behind::Hardware { busy, .. } = &mut self.tasks.networks[nic as usize].behind
            && !std::mem::replace(busy, true)
        {
            self.nic_works(nic, Picos::ZERO);
        }
    }

    fn nic_works(&mut self, nic: u32, span: Picos) {
        self.clock.plan_after(TimedEvent::Nic(nic), span);
    }

    /// Device `nic` has finished a step, and takes the next one.
    pub fn step_nic(&mut self, nic: u32) {
        loop {
            let network = &mut self.tasks.networks[nic as usize];
            let Behind::Hardware { device, port, busy } = &mut network.behind else {
                return;
            };
            let (device, port, vm) = (*device, *port, network.vm);
            match network.connection.worker(&self.vms[vm].fixed.memory.network) {
                Action::Work(ns) => return self.nic_works(nic, Picos::from_nanos(ns)),
                Action::WakeOther => self.device_signals(port, None),
                Action::Signal => self.device_signals(device, Some(vm)),
                Action::Sleep => {
                    *busy = false;
                    return;
                }
            }
        }
    }
}
