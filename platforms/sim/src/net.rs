//! A guest's network device: gives time to the host's threads behind it (`host/src/net`), and carries out what they do.
//!
//! **One step at a time**: between two steps of a thread the host's scheduler may run another one.

use holdfast_abi::{msi, virtio};
use holdfast_host::net::{Action, Connection};
use holdfast_host::{Event, Host, PcpuId, TaskConfig, TaskId, VmId};
use holdfast_machine::{Key, Picos, Time};

use crate::api::Failure;
use crate::engine::{CLASS_ACTIVITY, Engine, Task};
use crate::pcpu::Activity;

/// The vector of the guest's interrupt for received packets: what its driver has asked for.
const VECTOR: u32 = 0x41;

/// A guest's network device, seen from the host.
#[derive(Debug)]
pub struct Network {
    vm: VmId,
    /// vhost's worker.
    worker: TaskId,
    /// The server behind the bridge.
    server: TaskId,
    connection: Connection,
}

impl Network {
    /// Gives guest `vm` a network device, with its threads.
    ///
    /// # Errors
    /// If the host takes no more tasks.
    pub fn new(host: &mut Host, vm: VmId) -> Result<Network, Failure> {
        let mut thread = || {
            let added = host.add_task(&TaskConfig::default());
            added.map_err(|error| Failure::Invalid(error.to_string()))
        };
        let (worker, server) = (thread()?, thread()?);
        host.add_doorbell(vm, virtio::NOTIFY_PORT, worker);
        Ok(Network {
            vm,
            worker,
            server,
            connection: Connection::default(),
        })
    }

    /// The threads, as the engine knows host tasks: what they do is decided here.
    pub fn threads(&self) -> [(TaskId, Task); 2] {
        let task = Task {
            busy: Some(Picos::ZERO),
            sleep: Picos::ZERO,
            remaining: Picos::ZERO,
        };
        [(self.worker, task.clone()), (self.server, task)]
    }

    /// Whether it is guest `vm`'s.
    pub fn is_of(&self, vm: u32) -> bool {
        self.vm.0 == vm
    }

    fn has(&self, task: TaskId) -> bool {
        task == self.worker || task == self.server
    }
}

impl Engine {
    /// Whether `task` is a thread behind a network device.
    pub fn is_network_thread(&self, task: TaskId) -> bool {
        self.networks.iter().any(|network| network.has(task))
    }

    /// The thread `task` behind a network device has `pcpu`: goes on with its work, or finds out what is next.
    pub fn run_network_thread(&mut self, pcpu: u32, task: TaskId) {
        let left = self.tasks.get(&task).map_or(Picos::ZERO, |task| task.remaining);
        if left > Picos::ZERO {
            return self.work_in_thread(pcpu, task, left);
        }
        let Some(network) = self.networks.iter_mut().find(|network| network.has(task)) else {
            return;
        };
        let (vm, is_worker) = (network.vm, task == network.worker);
        let action = if is_worker {
            network.connection.worker(&self.vms[vm.0 as usize].network)
        } else {
            network.connection.server()
        };
        let other = if is_worker { network.server } else { network.worker };
        let id = PcpuId(pcpu);
        let event = match action {
            Action::Work(ns) => {
                let span = Picos::from_nanos(ns);
                if let Some(task) = self.tasks.get_mut(&task) {
                    task.remaining = span;
                }
                return self.work_in_thread(pcpu, task, span);
            }
            Action::WakeOther => Event::TaskWakes { pcpu: id, task: other },
            Action::Signal => Event::Msi {
                pcpu: id,
                vm,
                address: msi::address(0),
                data: VECTOR,
            },
            Action::Sleep => Event::TaskSleeps { pcpu: id, until: None },
        };
        self.step_host(pcpu, event);
    }

    fn work_in_thread(&mut self, pcpu: u32, task: TaskId, span: Picos) {
        self.pcpus[pcpu as usize].activity = Activity::Task(task);
        let end: Time = self.now + span;
        self.queue.set(pcpu, Key::new(end, CLASS_ACTIVITY, pcpu));
    }
}
