//! IPIs between vCPUs (docs/spec/interrupts.md, "AVIC IPIs").
//!
//! An IPI has two steps, between which time passes: [`Avic::resolve`] finds the targets, [`Avic::post`] delivers to
//! them. A CPU model with erratum 1235 reads IsRunning in the first step.

use holdfast_abi::Memory;
use holdfast_abi::avic::{IncompleteIpi, IpiFailure, LogicalEntry, PhysicalEntry};
use holdfast_abi::lapic as reg;
use holdfast_abi::lapic::DeliveryMode;

use super::{Avic, request};

/// The targets of an IPI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Targets {
    icr: u64,
    /// Whether the sender is a target, by shorthand or broadcast.
    this: bool,
    others: Others,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Others {
    None,
    One((u32, PhysicalEntry)),
    Many(Vec<(u32, PhysicalEntry)>),
}

impl Targets {
    /// Returns the vector.
    pub fn vector(&self) -> u8 {
        self.icr as u8
    }

    /// Returns whether the sender is a target, by shorthand or broadcast.
    pub fn include_sender(&self) -> bool {
        self.this
    }

    /// Returns the physical APIC IDs of the other targets.
    pub fn others(&self) -> impl Iterator<Item = u32> {
        self.others.list().iter().map(|&(id, _)| id)
    }

    /// Returns the number of targets, the sender included.
    pub fn count(&self) -> u32 {
        u32::from(self.this) + self.others.list().len() as u32
    }
}

/// The outcome of an IPI.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IpiOutcome {
    /// Whether the sender must evaluate its own IRR ([`Avic::pending`]).
    pub evaluate: bool,
    /// Number of targets whose IRR was set.
    pub targets: u32,
    /// The exit, if there is one. The instruction is complete.
    pub exit: Option<IncompleteIpi>,
}

impl<M: Memory> Avic<'_, M> {
    /// Finds the targets of `icr`.
    ///
    /// The order in which hardware checks for errors is uncertain. Here a vector below 16 is checked after the delivery
    /// mode.
    ///
    /// # Errors
    /// Returns the exit if hardware cannot send the IPI. Nothing has been delivered.
    pub fn resolve(&self, icr: u64) -> Result<Targets, IncompleteIpi> {
        let low = icr as u32;
        let fails = |failure, index| Err(IncompleteIpi::new(icr, failure, index));
        if DeliveryMode::of(low) != DeliveryMode::Fixed || low & reg::ICR_LEVEL != 0 {
            return fails(IpiFailure::InvalidType, 0);
        }
        if (low as u8) < reg::FIRST_LEGAL_VECTOR {
            return fails(IpiFailure::InvalidVector, 0);
        }
        let mut targets = Targets {
            icr,
            this: false,
            others: Others::None,
        };
        let (destination, all) = if self.x2apic {
            ((icr >> 32) as u32, reg::X2APIC_BROADCAST)
        } else {
            ((icr >> 56) as u32, reg::BROADCAST)
        };
        match low & reg::ICR_SHORTHAND {
            reg::ICR_SHORTHAND_SELF => targets.this = true,
            reg::ICR_SHORTHAND_OTHERS => targets.others = self.all(),
            reg::ICR_SHORTHAND_ALL => {
                targets.this = true;
                targets.others = self.all();
            }
            _ if destination == all => {
                targets.this = true;
                targets.others = self.all();
            }
            _ if low & reg::ICR_LOGICAL != 0 => targets.others = self.logical(icr, destination)?,
            _ => {
                let Some(entry) = self.target(destination) else {
                    return fails(IpiFailure::InvalidTarget, destination);
                };
                targets.others = Others::One((destination, entry));
            }
        }
        self.check_pages(&targets)?;
        Ok(targets)
    }

    /// Returns the entry of physical APIC ID `id`, if it is valid.
    fn target(&self, id: u32) -> Option<PhysicalEntry> {
        let entry = (id <= self.max_index).then(|| self.entry(id))?;
        entry.is_valid().then_some(entry)
    }

    /// Returns all valid entries but the sender's, which has its own backing page.
    fn all(&self) -> Others {
        let valid = (0..=self.max_index).filter_map(|id| Some((id, self.target(id)?)));
        Others::Many(valid.filter(|(_, entry)| entry.backing_page() != self.page).collect())
    }

    /// Returns the targets of a logical destination.
    fn logical(&self, icr: u64, destination: u32) -> Result<Others, IncompleteIpi> {
        let mut found = Vec::with_capacity(8);
        let mut add = |index: u32, id: Option<u32>| match id.and_then(|id| Some((id, self.target(id)?))) {
            Some(target) => {
                found.push(target);
                Ok(())
            }
            None => Err(IncompleteIpi::new(icr, IpiFailure::InvalidTarget, index)),
        };
        if self.x2apic {
            // Logical IDs in x2APIC mode are derived from the physical IDs. There is no table.
            for bit in (0..16).filter(|bit| destination >> bit & 1 != 0) {
                let id = (destination >> 16) * 16 + bit;
                add(id, Some(id))?;
            }
            return Ok(Others::Many(found));
        }
        let (base, bits) = match self.get(reg::DFR) >> 28 {
            0xf => (0, destination & 0xff),
            0 => ((destination >> 4) * 4, destination & 0xf),
            _ => return Err(IncompleteIpi::new(icr, IpiFailure::InvalidType, 0)),
        };
        for bit in (0..8).filter(|bit| bits >> bit & 1 != 0) {
            let index = base + bit;
            add(index, self.logical_id(index))?;
        }
        Ok(Others::Many(found))
    }

    /// Returns the physical ID in entry `index` of the logical table, if the entry is valid.
    fn logical_id(&self, index: u32) -> Option<u32> {
        let address = self.logical_table + u64::from(index) * LogicalEntry::BYTES;
        let entry = LogicalEntry(self.memory.load32(address).unwrap_or(0));
        let exists = index < holdfast_abi::avic::LOGICAL_ENTRIES && entry.is_valid();
        exists.then(|| entry.id())
    }

    /// Returns an error if a target's page is not memory. That stops an IPI before it reaches any target.
    fn check_pages(&self, targets: &Targets) -> Result<(), IncompleteIpi> {
        for &(id, entry) in targets.others.list() {
            if self.memory.load32(entry.backing_page() | u64::from(reg::IRR)).is_none() {
                return Err(IncompleteIpi::new(targets.icr, IpiFailure::InvalidBackingPage, id));
            }
        }
        Ok(())
    }

    /// Delivers to `targets`. Calls `doorbell` with the host APIC ID of each target that runs.
    pub fn post(&self, targets: &Targets, mut doorbell: impl FnMut(u32)) -> IpiOutcome {
        let vector = targets.icr as u8;
        let mut posted = IpiOutcome::default();
        if targets.this {
            request(self.memory, self.page, vector);
            posted.evaluate = true;
            posted.targets += 1;
        }
        let others = targets.others.list();
        for &(_, entry) in others {
            request(self.memory, entry.backing_page(), vector);
        }
        posted.targets += others.len() as u32;
        // **IRR first**: pairs with the hypervisor's fence between clearing IsRunning and reading IRR.
        self.memory.fence();
        for &(id, before) in others {
            let now = if self.erratum_1235 { before } else { self.entry(id) };
            if now.is_running() {
                doorbell(now.host_id());
            } else if posted.exit.is_none() {
                posted.exit = Some(IncompleteIpi::new(targets.icr, IpiFailure::TargetNotRunning, id));
            }
        }
        posted
    }
}

impl Others {
    fn list(&self) -> &[(u32, PhysicalEntry)] {
        match self {
            Others::None => &[],
            Others::One(target) => core::slice::from_ref(target),
            Others::Many(list) => list,
        }
    }
}
