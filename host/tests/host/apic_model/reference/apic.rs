//! One LAPIC of the reference model, and what is sent to it.

use std::collections::BTreeSet;

use super::super::Taken;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Off,
    XApic,
    X2Apic,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    Runs,
    Halted,
    AwaitsSipi,
}

#[derive(Clone, Debug)]
pub(super) struct Apic {
    pub(super) index: u32,
    pub(super) mode: Mode,
    pub(super) base: u64,
    pub(super) id: u32,
    pub(super) ldr: u32,
    pub(super) flat: bool,
    pub(super) enabled: bool,
    pub(super) tpr: u8,
    pub(super) irr: BTreeSet<u8>,
    pub(super) isr: BTreeSet<u8>,
    pub(super) tmr: BTreeSet<u8>,
    pub(super) icr_high: u32,
    pub(super) error_vector: Option<u8>,
    pub(super) error_lvt: u32,
    pub(super) arbitration: u32,
    pub(super) interrupts: bool,
    pub(super) life: Life,
    /// The next halt ends at once.
    pub(super) kicked: bool,
    pub(super) init: bool,
    pub(super) sipi: Option<u8>,
    pub(super) nmis: u8,
    pub(super) in_nmi: bool,
    pub(super) taken: Vec<Taken>,
}

/// An interrupt.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message {
    pub(super) sender: Option<usize>,
    pub(super) low: u32,
    pub(super) logical: bool,
    pub(super) destination: u32,
    pub(super) wide: bool,
    pub(super) hint: bool,
    /// A device's counts as asserted.
    pub(super) asserted: bool,
}

impl Apic {
    pub(super) fn new(index: u32) -> Apic {
        Apic {
            index,
            mode: Mode::XApic,
            base: 0xfee0_0000,
            id: index,
            ldr: 0,
            flat: true,
            enabled: false,
            tpr: 0,
            irr: BTreeSet::new(),
            isr: BTreeSet::new(),
            tmr: BTreeSet::new(),
            icr_high: 0,
            error_vector: None,
            error_lvt: 0x1_0000,
            arbitration: 0,
            interrupts: false,
            life: Life::Runs,
            kicked: false,
            init: false,
            sipi: None,
            nmis: 0,
            in_nmi: false,
            taken: Vec::new(),
        }
    }

    /// Resets the LAPIC except mode, base address and ID, as INIT does.
    pub(super) fn reset(&mut self) {
        *self = Apic {
            mode: self.mode,
            base: self.base,
            id: self.id,
            ldr: if self.mode == Mode::X2Apic { self.ldr } else { 0 },
            taken: std::mem::take(&mut self.taken),
            ..Apic::new(self.index)
        };
    }

    /// Takes pending INIT and SIPI.
    pub(super) fn take_init(&mut self) {
        let sipi = self.sipi.take();
        if self.init {
            self.reset();
            self.taken.push(Taken::Init);
            if self.index > 0 {
                self.life = Life::AwaitsSipi;
            }
        }
        if let Some(vector) = sipi.filter(|_| self.life == Life::AwaitsSipi) {
            self.life = Life::Runs;
            self.taken.push(Taken::Startup(vector));
        }
    }

    pub(super) fn class(&self) -> u8 {
        (self.tpr >> 4).max(self.isr.last().map_or(0, |vector| vector >> 4))
    }

    pub(super) fn deliverable(&self) -> Option<u8> {
        let highest = *self.irr.last()?;
        (self.mode != Mode::Off && highest >> 4 > self.class()).then_some(highest)
    }

    pub(super) fn request(&mut self, vector: u8, level: bool) -> bool {
        if !self.enabled || self.mode == Mode::Off {
            return false;
        }
        self.irr.insert(vector);
        if level {
            self.tmr.insert(vector);
        } else {
            self.tmr.remove(&vector);
        }
        true
    }

    pub(super) fn error(&mut self) {
        if let Some(vector) = self.error_vector {
            self.request(vector, false);
        }
    }

    pub(super) fn is_named(&self, message: &Message) -> bool {
        let destination = message.destination;
        let broadcast = destination == if message.wide { u32::MAX } else { 0xff };
        if broadcast {
            return true;
        }
        match (message.logical, self.mode) {
            // IDs above what the register shows are known in full; a renamed one is known by its new name.
            (false, Mode::XApic) if destination <= 0xff => self.id == destination,
            (false, _) => self.index == destination,
            (true, Mode::X2Apic) => {
                let cluster = self.index >> 4;
                let bit = 1 << (self.index & 15);
                destination >> 16 == cluster && destination & bit != 0
            }
            // Real systems don't mix modes: an x2APIC's logical destination names no xAPIC.
            (true, _) if message.wide => false,
            (true, _) if self.flat => self.ldr & destination & 0xff != 0,
            (true, _) => self.ldr >> 4 == destination >> 4 & 0xf && self.ldr & destination & 0xf != 0,
        }
    }
}
