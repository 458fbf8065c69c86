//! A guest's network device: it gives time to the host's threads behind it (`network`), and carries out their
//! actions.
//!
//! A device that is hardware (`Nic::Assigned`) has no thread: its steps are events of their own. The guest writes to
//! the device's own notification port, and the device's interrupts go through the IOMMU (`apic/iommu.rs`).
//!
//! **One step at a time**: between two steps of a thread the host's scheduler may run another thread.

use holdfast_abi::{msi, virtio};
use holdfast_host::{ConfigError, Event, Host, Nic, PcpuId, TaskConfig, TaskEvent, TaskId, VmId, VmmEvent};
use holdfast_machine::Picos;

use crate::core::clock::TimedEvent;
use crate::core::engine::Engine;
use crate::core::failure::Failure;
use crate::flows::flow::Handle;
use crate::guests::tasks::{Drawn, Task};
use crate::network::{Action, Connection};

/// The vector that the guest's driver has requested for received packets.
const VECTOR: u32 = 0x41;

/// Time that a store to an assigned device's notification register takes on its way out, in nanoseconds. An estimate.
const RING_NS: u64 = 100;

/// The back end of a connection.
#[derive(Clone, Copy, Debug)]
enum Behind {
    /// The worker thread of vhost.
    Worker(TaskId),
    /// A device: its number, the number of the host's own port, and whether it is at work.
    Hardware { device: u16, port: u16, busy: bool },
}

/// A guest's network device, as the host has it.
#[derive(Debug)]
pub struct Network {
    /// The guest.
    pub vm: VmId,
    behind: Behind,
    /// The server behind the bridge.
    server: TaskId,
    connection: Connection,
}

impl Network {
    /// Gives guest `vm` a network device, with its threads.
    ///
    /// # Errors
    /// If the host takes no more tasks.
    pub fn new(host: &mut Host, vm: VmId, nic: Nic) -> Result<Network, Failure> {
        let invalid = |error: ConfigError| Failure::Invalid(error.to_string());
        let mut thread = || host.add_task(&TaskConfig::default()).map_err(invalid);
        let (behind, server) = match nic {
            Nic::Vhost => {
                let (worker, server) = (thread()?, thread()?);
                host.add_doorbell(vm, virtio::NOTIFY_PORT, worker);
                (Behind::Worker(worker), server)
            }
            Nic::Assigned => {
                let server = thread()?;
                let device = host.assign_device(vm, msi::address(0), VECTOR).map_err(invalid)?;
                let port = host.own_device(server).map_err(invalid)?;
                let busy = false;
                (Behind::Hardware { device, port, busy }, server)
            }
        };
        let connection = match nic {
            Nic::Vhost => Connection::default(),
            Nic::Assigned => Connection::assigned(),
        };
        Ok(Network {
            vm,
            behind,
            server,
            connection,
        })
    }

    /// The threads, as host tasks of the engine. What they do is decided here.
    pub fn threads(&self) -> impl Iterator<Item = (TaskId, Task)> {
        let task = Task {
            name: "network".to_owned(),
            busy: Some(Picos::ZERO),
            sleep: Picos::ZERO,
            remaining: Picos::ZERO,
            drawn: Drawn::Never,
        };
        let worker = match self.behind {
            Behind::Worker(worker) => Some(worker),
            Behind::Hardware { .. } => None,
        };
        worker
            .into_iter()
            .chain([self.server])
            .map(move |thread| (thread, task.clone()))
    }

    /// Whether it is hardware that is assigned to its guest.
    pub fn is_assigned(&self) -> bool {
        matches!(self.behind, Behind::Hardware { .. })
    }

    /// Whether `task` is one of its threads.
    pub fn has(&self, task: TaskId) -> bool {
        task == self.server || matches!(self.behind, Behind::Worker(worker) if worker == task)
    }
}

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
            network.connection.worker(&self.vms[vm].memory.network)
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
    fn wake_nic(&mut self, nic: u32) {
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
            match network.connection.worker(&self.vms[vm].memory.network) {
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

impl Handle {
    /// The guest writes to `port`, and does not wait for the effect. Returns `false` if `port` is not a register of an
    /// assigned device.
    pub fn ring_nic(&self, port: u16) -> bool {
        let engine = self.engine();
        let vm = engine.vcpus[engine.flows.current].vm;
        let Some(nic) = engine.tasks.assigned_nic(vm).filter(|_| port == virtio::NOTIFY_PORT) else {
            return false;
        };
        self.work(Picos::from_nanos(RING_NS));
        self.order();
        self.engine().wake_nic(nic as u32);
        true
    }
}
