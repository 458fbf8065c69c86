//! A guest's network device, as the host has it: the threads behind it, or hardware. How it works is in
//! `events/network.rs`.

use crate::network::Connection;
use holdfast_abi::{msi, virtio};
use holdfast_host::{ConfigError, Host, Nic, TaskConfig, TaskId, VmId};
use holdfast_machine::Picos;

use crate::core::failure::Failure;
use crate::tasks::task::{Drawn, Task};

/// The vector that the guest's driver has requested for received packets.
pub const VECTOR: u32 = 0x41;

/// The back end of a connection.
#[derive(Clone, Copy, Debug)]
pub enum Behind {
    /// The worker thread of vhost.
    Worker(TaskId),
    /// A device.
    Hardware {
        /// The number of the guest's device.
        device: u16,
        /// The number of the host's own port.
        port: u16,
        /// It is at work.
        busy: bool,
    },
}

/// A guest's network device, as the host has it.
#[derive(Debug)]
pub struct Network {
    /// The guest.
    pub vm: VmId,
    /// What works for it.
    pub behind: Behind,
    /// The server behind the bridge.
    pub server: TaskId,
    /// What goes over it.
    pub connection: Connection,
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
