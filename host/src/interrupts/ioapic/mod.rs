//! The I/O APIC (docs/spec/interrupts.md, "I/O APIC"): turns pins of devices into interrupts by its redirection table.
//!
//! This is the register file. [`deliver`] sends its interrupts to the LAPICs.
//!
//! - **A level is not lost**: while a pin is asserted and no LAPIC serves it, its interrupt is sent whenever the entry
//!   allows.
//! - **An edge counts once**: it is sent when the pin rises, or not at all if the pin is masked then (82093AA
//!   datasheet).
//! - **The guest cannot break it**: every selector, offset and value has a meaning or is ignored.
//!
//! The level of a line means asserted or not. As in KVM, the polarity of the wire is stored and has no effect.

mod deliver;
mod saved;

#[cfg(test)]
mod tests;

use holdfast_abi::ioapic as reg;

pub use saved::SavedIoapic;

const PINS: usize = reg::PINS as usize;

/// The bits of the ID register that a guest can write.
const ID_BITS: u32 = 0x0f00_0000;

/// The bits of a redirection entry that a guest can write.
const WRITABLE: u64 = !(reg::ENTRY_STATUS | reg::ENTRY_REMOTE_IRR) & (0xff << reg::ENTRY_DESTINATION_SHIFT | 0x1_ffff);

/// What follows the end of a level-triggered interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterEnd {
    /// Nothing follows.
    Nothing,
    /// The pin is still asserted, and its interrupt is sent again.
    Again,
    /// The interrupt is sent again after a delay, since the guest does nothing else any more.
    Later,
}

/// An I/O APIC.
#[derive(Clone, Debug)]
pub(crate) struct Ioapic {
    /// The register IOREGSEL.
    select: u8,
    id: u32,
    entries: [u64; PINS],
    /// Pins that are asserted.
    asserted: u32,
    /// Pins at which an EOI ends the assertion and is reported to the device, which may assert again (KVM's resampling
    /// irqfd).
    resampled: u32,
    /// For each pin, how often in a row its interrupt was sent again at its end.
    again: [u32; PINS],
}

/// How often in a row a level-triggered interrupt is sent again at its end before it is delayed (KVM,
/// `IOAPIC_SUCCESSIVE_IRQ_MAX_COUNT`).
const AGAIN_MAX: u32 = 10_000;

impl Default for Ioapic {
    /// Returns an I/O APIC after reset.
    fn default() -> Ioapic {
        Ioapic {
            select: 0,
            id: 0,
            entries: [reg::ENTRY_MASKED; PINS],
            asserted: 0,
            resampled: 0,
            again: [0; PINS],
        }
    }
}

impl Ioapic {
    /// Reads the register at `offset` of the page. A missing register reads as 0.
    pub(crate) fn read(&self, offset: u32) -> u32 {
        match offset {
            reg::SELECT => u32::from(self.select),
            reg::WINDOW => self.read_selected(),
            _ => 0,
        }
    }

    fn read_selected(&self) -> u32 {
        match u32::from(self.select) {
            reg::ID | reg::ARBITRATION => self.id,
            reg::VERSION => reg::VERSION_VALUE,
            _ => match self.selected_entry() {
                Some((pin, true)) => (self.entries[pin] >> 32) as u32,
                Some((pin, false)) => self.entries[pin] as u32,
                None => 0,
            },
        }
    }

    /// Returns the pin whose redirection entry is selected, and whether its high half is.
    fn selected_entry(&self) -> Option<(usize, bool)> {
        let half = u32::from(self.select).checked_sub(reg::REDIRECTION)?;
        let pin = (half / 2) as usize;
        (pin < PINS).then_some((pin, half % 2 == 1))
    }

    /// Writes `value` to the selected register. Returns the pin if that was a redirection entry.
    pub(crate) fn write_selected(&mut self, value: u32) -> Option<u32> {
        if u32::from(self.select) == reg::ID {
            self.id = value & ID_BITS;
            return None;
        }
        let (pin, high) = self.selected_entry()?;
        let (shift, mask) = if high {
            (32, 0xffff_ffff << 32)
        } else {
            (0, 0xffff_ffff)
        };
        let entry = &mut self.entries[pin];
        let writable = WRITABLE & mask;
        *entry = *entry & !writable | u64::from(value) << shift & writable;
        // Kernels switch to edge and back to end an interrupt that no LAPIC will end.
        if *entry & reg::ENTRY_LEVEL == 0 {
            *entry &= !reg::ENTRY_REMOTE_IRR;
        }
        Some(pin as u32)
    }

    /// Asserts or releases `pin`. Returns whether an interrupt is to be sent.
    pub(crate) fn set_line(&mut self, pin: u32, level: bool) -> bool {
        let bit = 1 << pin;
        let rises = level && self.asserted & bit == 0;
        if level {
            self.asserted |= bit;
        } else {
            self.asserted &= !bit;
        }
        let entry = self.entries[pin as usize];
        let edge = entry & reg::ENTRY_LEVEL == 0;
        entry & reg::ENTRY_MASKED == 0 && if edge { rises } else { self.wants_to_send(pin) }
    }

    /// Returns whether a level-triggered interrupt of `pin` is to be sent now.
    pub(crate) fn wants_to_send(&self, pin: u32) -> bool {
        const GATES: u64 = reg::ENTRY_LEVEL | reg::ENTRY_REMOTE_IRR | reg::ENTRY_MASKED;
        self.entries[pin as usize] & GATES == reg::ENTRY_LEVEL && self.asserted >> pin & 1 == 1
    }

    /// Records that a LAPIC has accepted the level-triggered interrupt of `pin`.
    pub(crate) fn taken(&mut self, pin: u32) {
        self.entries[pin as usize] |= reg::ENTRY_REMOTE_IRR;
    }

    /// Returns whether some pin sends `vector`, level-triggered. In a split irqchip the VMM then handles its EOI.
    pub(crate) fn owns(&self, vector: u8) -> bool {
        const KIND: u64 = reg::ENTRY_VECTOR | reg::ENTRY_LEVEL;
        let asked = u64::from(vector) | reg::ENTRY_LEVEL;
        self.entries.iter().any(|entry| entry & KIND == asked)
    }

    /// Returns the pins that send `vector`, level-triggered, and wait for its end.
    pub(crate) fn waiting_for_end(&self, vector: u8) -> impl Iterator<Item = u32> + use<> {
        const GATES: u64 = reg::ENTRY_VECTOR | reg::ENTRY_REMOTE_IRR;
        let entries = self.entries;
        let asked = u64::from(vector) | reg::ENTRY_REMOTE_IRR;
        (0..reg::PINS).filter(move |&pin| entries[pin as usize] & GATES == asked)
    }

    /// Ends the interrupt of `pin`.
    pub(crate) fn end(&mut self, pin: u32) -> AfterEnd {
        let at = pin as usize;
        self.entries[at] &= !reg::ENTRY_REMOTE_IRR;
        if self.is_resampled(pin) {
            self.asserted &= !(1 << pin);
        }
        if !self.wants_to_send(pin) {
            self.again[at] = 0;
            return AfterEnd::Nothing;
        }
        self.again[at] += 1;
        if self.again[at] == AGAIN_MAX {
            self.again[at] = 0;
            return AfterEnd::Later;
        }
        AfterEnd::Again
    }

    /// Makes an EOI end the assertion of `pin`, and report it to the device.
    pub(crate) fn resample(&mut self, pin: u32) {
        self.resampled |= 1 << pin;
    }

    /// Returns whether an EOI of `pin` is reported to the device.
    pub(crate) fn is_resampled(&self, pin: u32) -> bool {
        self.resampled >> pin & 1 == 1
    }
}
