//! Devices behind the IOMMU, for the vCPU; and the handler of the interrupt of the IOMMU's log.
//!
//! - **One after the other**: an IOMMU's interrupts are one thread, the handler's runs another. (That an IOMMU orders
//!   them is an assumption; of the log it must be so.)
//! - **A short log**: one entry fits in, so that the second finds it full.
//! - **An invalidation waits**: behind it, no interrupt is under way by the remap entry of before. (From memory: what
//!   `COMPLETION_WAIT` promises of interrupts.)

use std::sync::Arc;

use ::loom::sync::Mutex;
use ::loom::thread::JoinHandle;
use holdfast_abi::avic::GaTag;
use holdfast_abi::iommu::{self, GaLogEntry, Layout, RemapEntry};
use holdfast_host::avic::remap::{self, Remap, Woken};
use holdfast_machine::iommu::{Delivery, Iommu, Notice};

use super::{AvicScenario, PAGE, Sender, VECTOR, Waiting, World};
use crate::interrupts::LoomMemory;

/// Where the IOMMU's words lie.
const LAYOUT: Layout = Layout {
    registers: 0x10_0000,
    log: 0x20_0000,
    log_entries: 2,
    table: 0x30_0000,
};
/// Who the vCPU is, and who somebody else is.
const TAG: GaTag = GaTag::new(1, 0);
const OTHER: GaTag = GaTag::new(1, 1);

/// What the IOMMU's side has beside memory.
pub(super) struct Devices {
    /// The vector of each, which has the remap entry of that number.
    vectors: Vec<u8>,
    /// Held while an interrupt is under way.
    under_way: Mutex<()>,
}

impl Devices {
    pub(super) fn new(scenario: &AvicScenario) -> Devices {
        let numbered = scenario.senders.iter().zip(0u8..);
        Devices {
            vectors: numbered
                .filter(|&(&sender, _)| sender == Sender::Device)
                .map(|(_, number)| VECTOR - number)
                .collect(),
            under_way: Mutex::new(()),
        }
    }
}

impl Devices {
    /// Adds what IOMMU and host share to `memory`.
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
    /// The remap entries of the vCPU's devices.
    pub(super) fn remaps(&self) -> impl Iterator<Item = Remap<'_, LoomMemory>> {
        (0..self.devices.vectors.len() as u16).map(|device| Remap {
            memory: &self.memory,
            address: LAYOUT.entry(device),
            faults: self.scenario.faults,
        })
    }

    /// Every device signals once; returns when the handler of the log's interrupts has run, too.
    pub(super) fn signal_all(self: &Arc<World>) {
        let mut handler = self.scenario.log_is_full.then(|| self.interrupt_by_log(None));
        for (&vector, device) in self.devices.vectors.iter().zip(0..) {
            match self.deliver(device) {
                Delivery::Blocked => panic!("the entry of device {device} is valid"),
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
        // Nobody else ever takes the lock where nobody takes devices back.
        let deactivates = matches!(
            self.scenario.waiting,
            Waiting::Deactivates | Waiting::DeactivatesAndMoves
        );
        let under_way = deactivates.then(|| self.devices.under_way.lock());
        let delivery = Iommu::new(&self.part(), LAYOUT).deliver(device);
        drop(under_way);
        delivery
    }

    /// The log's interrupt: its handler runs when `before`, if there is one, has returned.
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

    /// Devices' interrupts go by way of the host from here on.
    pub(super) fn take_devices_back(&self) {
        for (entry, &vector) in self.remaps().zip(&self.devices.vectors) {
            entry.write(RemapEntry::legacy(vector, 0));
        }
        if !self.devices.vectors.is_empty() && !self.scenario.remap_without_invalidation {
            drop(self.devices.under_way.lock());
        }
    }
}
