//! The work of kernel and init at boot, on all CPUs at once: drivers probe their devices, and udev handles an event for
//! each.
//!
//! Devices are found through the PCI configuration space. Its only spinlock (`pci_config_lock`) is held during each
//! access, and in a guest each access is an exit to the emulator in user space. So the holder runs, and holds the lock
//! for longer than the pause-loop window. A pause-loop handler that expects a preempted holder gets this case wrong.

use alloc::boxed::Box;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use holdfast_guest::{Executable, FileId, Fork, Limits, Machine, Os, Program, Start, Touch};
use serde::{Deserialize, Serialize};

use crate::stream::Stream;
use crate::workload::{Load, share_of};

/// Parameters of the boot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Startup {
    /// Devices that the CPUs probe, at scale 1.
    ///
    /// Default 512, an estimate of the devices that a server's kernel reports to udev.
    pub devices: u32,
    /// Whether each access to the configuration space leaves the guest for a device model in the VMM's user space,
    /// where the vCPU's thread can be preempted. Otherwise the time of an access is the guest's own.
    pub exits: bool,
}

impl Default for Startup {
    fn default() -> Self {
        Startup {
            devices: 512,
            exits: false,
        }
    }
}

/// Accesses to the configuration space per device: header, base addresses written and read back, capabilities. An
/// estimate.
const ACCESSES: u32 = 64;
/// How long an access holds the lock, in nanoseconds: two exits to user space (address and data ports), each about 2500
/// cycles, and the emulator's own work. An estimate.
const ACCESS_NS: u64 = 4_000;
/// User time between two accesses, nanoseconds. [E]
const BETWEEN_NS: u64 = 300;
/// User time of setting a device up, without its accesses, nanoseconds. [E] 0.1-1 ms
const SETUP_NS: u64 = 500_000;
const SETUP_SPREAD: f64 = 0.5;
/// User time of udev's process for an event: reading attributes, matching rules. Nanoseconds. [E]
const RULES_NS: u64 = 300_000;
const ATTRIBUTES: u32 = 10;
/// One of this many events loads a module. [E]
const MODULE_EVERY: u32 = 4;
const DEPTH: u32 = 5;
/// Mappings of udevd. [E]
const VMAS: u32 = 40;

/// The lock of the configuration space.
const PCI_CONFIG: u32 = 0;

/// Files: `/dev`, udev's database, modprobe and its library, then the attributes and nodes of each device.
mod files {
    pub(super) const DEV: u32 = 0;
    pub(super) const DATABASE: u32 = 1;
    pub(super) const MODPROBE: u32 = 2;
    pub(super) const LIBRARY: u32 = 3;
    pub(super) const DEVICES: u32 = 8;
    pub(super) const DEVICE_COUNT: u32 = 256;
}

mod role {
    pub(super) const FIRST: u32 = 0;
    pub(super) const PROBER: u32 = 1;
    pub(super) const EVENT: u32 = 2;
}

/// A kernel that boots.
pub(crate) struct Booting {
    parameters: Startup,
    cpus: u32,
    /// The next device to be probed. Plain memory: choosing the device has no cost of its own.
    next: AtomicU32,
}

impl Booting {
    fn first<M: Machine>(&self, os: &Os<M>) {
        os.begin();
        os.wait_for_cpus();
        for prober in 0..self.cpus {
            os.fork(Fork::Copy { vmas: VMAS }, Start::new(role::PROBER, prober));
        }
        while os.wait().is_some() {}
        os.done(None);
    }

    /// Runs a thread that probes devices. Asynchronous probing has one for each CPU.
    fn prober<M: Machine>(&self, os: &Os<M>) {
        loop {
            let device = self.next.fetch_add(1, Relaxed);
            if device >= self.parameters.devices {
                return;
            }
            for register in 0..ACCESSES {
                if self.parameters.exits {
                    os.access_configuration(PCI_CONFIG, register * 4);
                } else {
                    os.call_driver(PCI_CONFIG, ACCESS_NS);
                }
                os.user(BETWEEN_NS);
            }
            let mut times = Stream::new(os.seed("boot.device"), device);
            os.user(times.time(SETUP_NS, SETUP_SPREAD));
            os.fork(Fork::Copy { vmas: VMAS }, Start::new(role::EVENT, device));
            os.wait();
        }
    }

    /// Runs udev's process for `device`.
    fn event<M: Machine>(&self, os: &Os<M>, device: u32) {
        let file = FileId(files::DEVICES + device % files::DEVICE_COUNT);
        for _ in 0..ATTRIBUTES {
            os.open(file, DEPTH);
            os.read(1);
            os.close(file);
            os.user(RULES_NS / u64::from(ATTRIBUTES));
        }
        if device.is_multiple_of(MODULE_EVERY) {
            os.exec(&Executable {
                file: FileId(files::MODPROBE),
                library_first: FileId(files::LIBRARY),
                libraries: 1,
                pages: 20,
            });
            os.user_touching(RULES_NS, Touch::file(30));
        }
        os.create(FileId(files::DEV), file, 2);
        os.close(file);
        os.create(FileId(files::DATABASE), file, DEPTH);
        os.write(file, 1);
        os.close(file);
        os.rename(FileId(files::DATABASE), file, DEPTH);
    }
}

impl Load for Startup {
    fn scale_work(&mut self, share: f64) {
        self.devices = share_of(u64::from(self.devices), share, 1) as u32;
    }

    fn program<M: Machine>(&self, cpus: u32) -> Box<dyn Program<M>> {
        Box::new(Booting {
            parameters: self.clone(),
            cpus,
            next: AtomicU32::new(0),
        })
    }
}

impl<M: Machine> Program<M> for Booting {
    fn limits(&self) -> Limits {
        Limits {
            tasks: 1 + 2 * self.cpus,
            files: files::DEVICES + files::DEVICE_COUNT,
            drivers: 1,
            ..Limits::default()
        }
    }

    fn run(&self, os: &Os<M>, start: Start) {
        match start.role {
            role::FIRST => self.first(os),
            role::PROBER => self.prober(os),
            role::EVENT => self.event(os, start.argument),
            other => unreachable!("a task of boot has the unknown role {other}"),
        }
    }
}
