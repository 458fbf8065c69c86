//! Devices behind the IOMMU that interrupt the vCPU, and the handler of the interrupt of the IOMMU's log.
//!
//! - **One after the other**: one thread delivers all interrupts of an IOMMU, and another runs the log's handler. (It
//!   is an assumption that an IOMMU orders its interrupts; for the log it must.)
//! - **A short log**: the log has room for one entry, so the second entry finds it full.
//! - **An invalidation waits**: after it, no interrupt is in flight by the previous remap entry. (An assumption about
//!   what `COMPLETION_WAIT` promises for interrupts.)

use std::sync::Arc;

use ::loom::sync::Mutex;
use ::loom::thread::JoinHandle;
use holdfast_abi::avic::GaTag;
use holdfast_abi::iommu::{self, GaLogEntry, Layout, RemapEntry};
use holdfast_host::avic::remap::{self, Remap, Woken};
use holdfast_machine::iommu::{Delivery, Iommu, Notice};

use super::{AvicScenario, PAGE, Sender, VECTOR, Waiting, World};
use crate::interrupts::LoomMemory;

/// Host-physical addresses of the IOMMU's words.
const LAYOUT: Layout = Layout {
    registers: 0x10_0000,
    log: 0x20_0000,
    log_entries: 2,
    table: 0x30_0000,
};
/// The tags of the vCPU and of another vCPU in the IOMMU's log.
const TAG: GaTag = GaTag::new(1, 0);
const OTHER: GaTag = GaTag::new(1, 1);

/// The state of the IOMMU that is not in memory.
pub(super) struct Devices {
    /// The vector of each device. A device uses the remap entry of its number.
    vectors: Vec<u8>,
    /// Held while an interrupt is in flight.
    in_flight: Mutex<()>,
}

impl Devices {
    pub(super) fn new(scenario: &AvicScenario) -> Devices {
        let numbered = scenario.senders.iter().zip(0u8..);
        Devices {
            vectors: numbered
                .filter(|&(&sender, _)| sender == Sender::Device)
                .map(|(_, number)| VECTOR - number)
                .collect(),
            in_flight: Mutex::new(()),
        }
    }
}

impl Devices {
    /// Adds the words that IOMMU and host share to `memory`.
    pub(super) fn lay_out(&self, mut memory: LoomMemory, scenario: &AvicScenario) -> LoomMemory {
        if self.vectors.is_empty() {
            return memory;
        }
        for (&vector, device) in self.vectors.iter().zip(0..) {
            let entry = RemapEntry::guest(vector, PAGE, TAG).running(0);
            memory = memory.with_quad(LAYOUT.entry(device), [entry.low, entry.high]);
        }
        let (first, tail, status) = if scenario.log_is_full {
            let others = GaLogEntry::new(OTHER, u16::MAX);
            (others.0, LAYOUT.next_in_log(0), iommu::STATUS_GA_INTERRUPT)
        } else {
            (0, 0, 0)
        };
        memory
            .with_exchanged(LAYOUT.register(iommu::STATUS), status)
            .with_stored(LAYOUT.register(iommu::GA_LOG_HEAD), 0)
            .with_stored(LAYOUT.register(iommu::GA_LOG_TAIL), tail)
            .with_stored(LAYOUT.log, first)
            .with_stored(LAYOUT.log + LAYOUT.next_in_log(0), 0)
    }
}

impl World {
    /// Returns the remap entries of the vCPU's devices.
    pub(super) fn remaps(&self) -> impl Iterator<Item = Remap<'_, LoomMemory>> {
        (0..self.devices.vectors.len() as u16).map(|device| Remap {
            memory: &self.memory,
            address: LAYOUT.entry(device),
            faults: self.scenario.faults,
        })
    }

    /// Lets every device signal once. Returns when the handler of the log's interrupts has run, too.
    pub(super) fn signal_all(self: &Arc<World>) {
        let mut handler = self.scenario.log_is_full.then(|| self.interrupt_by_log(None));
        for (&vector, device) in self.devices.vectors.iter().zip(0..) {
            match self.deliver(device) {
                Delivery::Blocked => {
                    panic!("cannot deliver the interrupt of device {device}: its remap entry blocks it")
                }
                Delivery::Host { .. } => self.send(Sender::Software, vector),
                Delivery::Guest { notice, .. } => match notice {
                    Notice::Doorbell(host_id) => self.ring(host_id),
                    Notice::Log { interrupt: true } => handler = Some(self.interrupt_by_log(handler.take())),
                    Notice::Log { interrupt: false } | Notice::None => {}
                },
            }
        }
        if let Some(handler) = handler {
            handler.join().expect("a panic ends the execution");
        }
    }

    fn deliver(&self, device: u16) -> Delivery {
        // Without a change of remap entries no other thread takes this lock.
        let deactivates = matches!(
            self.scenario.waiting,
            Waiting::Deactivates | Waiting::DeactivatesAndMoves
        );
        let in_flight = deactivates.then(|| self.devices.in_flight.lock());
        let delivery = Iommu::new(&self.hardware_memory(), LAYOUT).deliver(device);
        drop(in_flight);
        delivery
    }

    /// Delivers the log's interrupt. Its handler runs when `before`, the previous handler, has returned.
    fn interrupt_by_log(self: &Arc<World>, before: Option<JoinHandle<()>>) -> JoinHandle<()> {
        let world = Arc::clone(self);
        ::loom::thread::spawn(move || {
            if let Some(before) = before {
                before.join().expect("a panic ends the execution");
            }
            remap::drain(&world.memory, LAYOUT, world.scenario.faults, |whom| {
                if matches!(whom, Woken::Everyone | Woken::Tagged(TAG)) {
                    world.waiter.wake();
                }
            });
        })
    }

    /// Routes the devices' interrupts through the host from here on.
    pub(super) fn take_devices_back(&self) {
        for (entry, &vector) in self.remaps().zip(&self.devices.vectors) {
            entry.write(RemapEntry::legacy(vector, 0));
        }
        if !self.devices.vectors.is_empty() && !self.scenario.remap_without_invalidation {
            drop(self.devices.in_flight.lock());
        }
    }
}
