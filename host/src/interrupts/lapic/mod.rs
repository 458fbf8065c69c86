//! The emulated local APIC (docs/spec/interrupts.md, "Emulated LAPIC"): registers, priorities, and the actions of
//! register accesses.
//!
//! This is the register file alone, without other vCPUs. An access returns its effect on the rest of the host as an
//! [`Action`]. [`deliver`] carries interrupts between LAPICs.
//!
//! - **Pending is never lost**: a vector in IRR stays there until it moves to ISR, or the LAPIC is reset.
//! - **The guest cannot break it**: every offset and value has a meaning or is ignored.

mod act;
mod deliver;
mod message;
mod page;
mod priority;
mod timer;

#[cfg(test)]
mod tests;

use alloc::sync::Arc;

use holdfast_abi::{lapic as reg, msr};

pub(crate) use message::{Message, Origin};
pub use page::{ApicRegisters, RegisterPage};
use timer::LapicTimer;
pub use timer::SavedTimer;
pub(crate) use timer::TimerBase;

/// The number of registers in the page, at a 16-byte stride.
pub(crate) const REGISTERS: usize = 64;

/// The effect of a register access on the rest of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// No effect.
    None,
    /// Pending interrupts must be evaluated again.
    Event,
    /// The same, since the guest has ended an interrupt.
    Ended,
    /// The message must be sent.
    Send(Message),
    /// The host timer must be set to the LAPIC timer.
    Timer,
}

/// A LAPIC.
#[derive(Debug)]
pub(crate) struct Lapic {
    /// The registers, shared with senders that deliver into them. A LAPIC keeps the same page for its whole life.
    page: Arc<RegisterPage>,
    /// The register IA32_APIC_BASE.
    pub(crate) base: u64,
    id: u32,
    /// Errors since ESR was last written.
    pub(crate) errors: u32,
    /// IRR may hold a vector. `false`: IRR is empty.
    irr_pending: bool,
    /// The vector taken last, until an interrupt ends. It is the highest in service, and the next that the guest ends.
    last_taken: Option<u8>,
    /// The number of lowest-priority interrupts accepted. The LAPIC with the fewest takes the next.
    pub(crate) arbitration: u32,
    pub(crate) timer: LapicTimer,
}

impl Lapic {
    /// Returns a LAPIC after reset, with ID `id`.
    pub(crate) fn new(id: u32) -> Lapic {
        let lapic = Lapic {
            page: RegisterPage::shared(),
            base: Lapic::base_of(id),
            id,
            errors: 0,
            irr_pending: false,
            last_taken: None,
            arbitration: 0,
            timer: LapicTimer::default(),
        };
        lapic.reset_page();
        lapic
    }

    /// Gives all registers their values after reset, in xAPIC mode.
    fn reset_page(&self) {
        self.page.clear();
        self.set(reg::ID, self.id << 24);
        self.set(reg::VERSION, reg::VERSION_VALUE);
        self.set(reg::DFR, reg::DFR_FLAT);
        self.set(reg::SVR, 0xff);
        for lvt in LVTS {
            self.set(lvt, reg::LVT_MASKED);
        }
    }

    /// Returns the page.
    pub(crate) fn registers(&self) -> &Arc<RegisterPage> {
        &self.page
    }

    fn get(&self, offset: u32) -> u32 {
        self.page.load(offset)
    }

    fn set(&self, offset: u32, value: u32) {
        self.page.store(offset, value);
    }

    pub(crate) fn is_x2apic(&self) -> bool {
        self.base & msr::APIC_BASE_X2APIC != 0
    }

    pub(crate) fn hardware_enabled(&self) -> bool {
        self.base & msr::APIC_BASE_ENABLE != 0
    }

    /// Returns whether it belongs to the bootstrap processor.
    pub(crate) fn is_bootstrap(&self) -> bool {
        self.base & msr::APIC_BASE_BSP != 0
    }

    /// Returns whether its page is at the address of after reset.
    pub(crate) fn is_at_home(&self) -> bool {
        (self.base ^ msr::APIC_BASE_ADDRESS) & PHYSICAL & !(reg::PAGE_BYTES as u64 - 1) == 0
    }

    /// Returns whether it is in xAPIC mode, with its page at the address of after reset.
    pub(crate) fn has_page(&self) -> bool {
        self.hardware_enabled() && !self.is_x2apic() && self.is_at_home()
    }

    /// Returns whether it accepts interrupts: it is enabled by the base MSR and by SVR.
    pub(crate) fn is_enabled(&self) -> bool {
        self.hardware_enabled() && self.get(reg::SVR) & reg::SVR_ENABLE != 0
    }

    /// Resets everything except mode, address and identity.
    fn reset(&mut self) {
        self.errors = 0;
        self.irr_pending = false;
        self.last_taken = None;
        self.arbitration = 0;
        self.timer = LapicTimer::default();
        self.reset_page();
    }

    /// Resets it, in xAPIC mode and at its first address.
    pub(crate) fn power_on(&mut self) {
        self.base = Lapic::base_of(self.id);
        self.arbitration = 0;
        self.reset();
    }

    /// IA32_APIC_BASE of the LAPIC with ID `id` after reset. ID 0 is the bootstrap processor.
    fn base_of(id: u32) -> u64 {
        msr::APIC_BASE_ADDRESS | msr::APIC_BASE_ENABLE | if id == 0 { msr::APIC_BASE_BSP } else { 0 }
    }

    /// Handles INIT: as reset, but mode, address and ID stay (SDM volume 3, "Local APIC State After an INIT Reset").
    pub(crate) fn init(&mut self) {
        let id = self.get(reg::ID);
        self.reset();
        self.set(reg::ID, id);
        if self.is_x2apic() {
            self.set_x2apic_ids();
        }
    }

    /// Writes IA32_APIC_BASE: switches between off, xAPIC and x2APIC as in the manual's state diagram. Returns `false`
    /// if that faults.
    pub(crate) fn set_base(&mut self, value: u64) -> bool {
        if !is_legal_base(value) {
            return false;
        }
        let (enable, x2apic) = (value & msr::APIC_BASE_ENABLE != 0, value & msr::APIC_BASE_X2APIC != 0);
        let legal = match (self.hardware_enabled(), self.is_x2apic()) {
            (true, true) => x2apic || !enable,
            (true, false) => true,
            (false, _) => !x2apic,
        };
        if !legal {
            return false;
        }
        if !enable && self.hardware_enabled() {
            self.reset();
        }
        if enable && !self.hardware_enabled() {
            // Hardware that sends IPIs does not check whether the target's LAPIC is on.
            (0..8).for_each(|word| self.set(reg::IRR + word * reg::STRIDE, 0));
        }
        self.base = (self.base & msr::APIC_BASE_BSP) | (value & !msr::APIC_BASE_BSP);
        if x2apic {
            self.set_x2apic_ids();
        } else {
            self.set(reg::ID, self.id << 24);
        }
        true
    }

    /// Derives the logical ID of x2APIC mode: a cluster of 16, and one bit within.
    fn set_x2apic_ids(&self) {
        self.set(reg::ID, self.id);
        self.set(reg::LDR, (self.id >> 4) << 16 | 1 << (self.id & 15));
    }

    /// Reads the register at `offset` of the page. A missing register reads as 0.
    pub(crate) fn read(&self, offset: u32, now: u64) -> u32 {
        match offset {
            reg::PPR => self.page.processor_priority(),
            reg::APR if !self.is_x2apic() => self.arbitration_priority(),
            reg::TIMER_CURRENT => self.timer_current(now),
            _ if offset.is_multiple_of(16) && is_readable(offset) => self.get(offset),
            _ => 0,
        }
    }

    /// Writes `value` to the register at `offset` of the page. A register that cannot be written ignores it.
    pub(crate) fn write(&mut self, offset: u32, value: u32, now: u64, config: &TimerBase) -> Action {
        match offset {
            reg::ID | reg::LDR if !self.is_x2apic() => self.set(offset, value & 0xff00_0000),
            reg::DFR if !self.is_x2apic() => self.set(reg::DFR, value | 0x0fff_ffff),
            reg::TPR => {
                self.set(reg::TPR, value & 0xff);
                return Action::Event;
            }
            reg::EOI => return self.ended(),
            reg::SVR => {
                self.write_spurious(value);
                return Action::Event;
            }
            reg::ESR => {
                let errors = core::mem::take(&mut self.errors);
                self.set(reg::ESR, errors);
            }
            reg::ICR_LOW => {
                let value = value & !reg::ICR_BUSY;
                self.set(reg::ICR_LOW, value);
                return self.command(value, self.destination());
            }
            reg::ICR_HIGH => {
                let reserved = if self.is_x2apic() { 0 } else { 0x00ff_ffff };
                self.set(reg::ICR_HIGH, value & !reserved);
            }
            reg::LVT_TIMER => return self.write_lvt_timer(value),
            reg::LVT_THERMAL | reg::LVT_PERFORMANCE | reg::LVT_LINT0 | reg::LVT_LINT1 | reg::LVT_ERROR => {
                let masked = if self.is_enabled() { 0 } else { reg::LVT_MASKED };
                self.set(offset, value & LVT_WRITABLE | masked);
            }
            reg::TIMER_INITIAL => return self.write_timer_initial(value, now, config),
            reg::TIMER_DIVIDE => return self.write_timer_divide(value, now, config),
            _ => return self.note_access(offset),
        }
        Action::None
    }

    /// Ends the interrupt in service.
    pub(crate) fn ended(&mut self) -> Action {
        match self.end_of_interrupt() {
            Some(_) => Action::Ended,
            None => Action::Event,
        }
    }

    /// Writes x2APIC's 64-bit ICR.
    pub(crate) fn write_icr(&mut self, value: u64) -> Action {
        let (low, high) = (value as u32 & !reg::ICR_BUSY, (value >> 32) as u32);
        self.set(reg::ICR_LOW, low);
        self.set(reg::ICR_HIGH, high);
        self.command(low, high)
    }

    /// Returns x2APIC's 64-bit ICR.
    pub(crate) fn icr(&self) -> u64 {
        u64::from(self.get(reg::ICR_HIGH)) << 32 | u64::from(self.get(reg::ICR_LOW))
    }

    fn destination(&self) -> u32 {
        let high = self.get(reg::ICR_HIGH);
        if self.is_x2apic() { high } else { high >> 24 }
    }

    /// Sends the message of the low half `low` of ICR to `destination`.
    pub(crate) fn command(&mut self, low: u32, destination: u32) -> Action {
        let message = Message::of_icr(self.id, low, destination, self.is_x2apic());
        if message.has_illegal_vector() {
            self.error(reg::ESR_SEND_ILLEGAL_VECTOR);
            return Action::Event;
        }
        Action::Send(message)
    }

    fn write_spurious(&mut self, value: u32) {
        self.set(reg::SVR, value & 0x3ff);
        if !self.is_enabled() {
            for lvt in LVTS {
                let masked = self.get(lvt) | reg::LVT_MASKED;
                self.set(lvt, masked);
            }
        }
    }

    /// Records an error, and raises its interrupt if the guest enabled it.
    fn error(&mut self, error: u32) {
        self.errors |= error;
        let lvt = self.get(reg::LVT_ERROR);
        if lvt & reg::LVT_MASKED == 0 && lvt as u8 >= reg::FIRST_LEGAL_VECTOR {
            self.accept(lvt as u8, false);
        }
    }

    /// Records an illegal access if there is no register at `offset`.
    pub(crate) fn note_access(&mut self, offset: u32) -> Action {
        if !offset.is_multiple_of(reg::STRIDE) || is_register(offset) {
            return Action::None;
        }
        self.error(reg::ESR_ILLEGAL_REGISTER);
        Action::Event
    }

    /// Records that a message with a vector below 16 came in.
    pub(crate) fn receive_error(&mut self) {
        self.error(reg::ESR_RECEIVE_ILLEGAL_VECTOR);
    }

    /// Returns whether the guest has changed its ID, which xAPIC mode allows.
    pub(crate) fn is_renamed(&self) -> bool {
        !self.is_x2apic() && self.get(reg::ID) != self.id << 24
    }

    /// Returns the physical destination that names it. See [`Lapic::has_physical_id`].
    pub(crate) fn physical_id(&self) -> u32 {
        if self.is_renamed() {
            self.get(reg::ID) >> 24
        } else {
            self.id
        }
    }

    /// Returns whether a physical `destination` that is no broadcast names it. IDs that are too large for xAPIC's
    /// register are matched in full.
    pub(super) fn has_physical_id(&self, destination: u32) -> bool {
        if self.is_renamed() && destination <= 0xff {
            self.get(reg::ID) >> 24 == destination
        } else {
            self.id == destination
        }
    }

    /// Returns whether a logical `destination` that is no broadcast names it. `wide`: it is in x2APIC's format.
    pub(super) fn has_logical_id(&self, destination: u32, wide: bool) -> bool {
        let ldr = self.get(reg::LDR);
        if self.is_x2apic() {
            return ldr >> 16 == destination >> 16 && ldr & destination & 0xffff != 0;
        }
        let (id, mask) = (ldr >> 24, destination & 0xff);
        if wide {
            false
        } else if self.get(reg::DFR) == reg::DFR_FLAT {
            id & mask != 0
        } else {
            id >> 4 == mask >> 4 && id & mask & 0xf != 0
        }
    }

    /// Returns the register page in the format of KVM_GET_LAPIC: word `o / 16` is the register at offset `o`.
    pub(crate) fn page(&self) -> [u32; REGISTERS] {
        core::array::from_fn(|register| self.get(register as u32 * reg::STRIDE))
    }

    /// Takes over a saved page, base MSR, and errors that the guest has not read yet.
    pub(crate) fn load(&mut self, page: &[u32; REGISTERS], base: u64, errors: u32) {
        for (register, &value) in page.iter().enumerate() {
            self.set(register as u32 * reg::STRIDE, value);
        }
        self.base = base;
        self.errors = errors;
        self.irr_pending = true;
        if self.is_x2apic() {
            // These IDs are derived, whatever was saved.
            self.set_x2apic_ids();
        }
        self.last_taken = None;
    }
}

/// A copy has a page of its own.
impl Clone for Lapic {
    fn clone(&self) -> Lapic {
        let page = RegisterPage::shared();
        page.copy_from(&self.page);
        Lapic { page, ..*self }
    }
}

/// The guest-physical addresses. A guest without CPUID leaf 0x80000008 has 36 bits of them (SDM volume 2, CPUID).
const PHYSICAL: u64 = (1 << 36) - 1;

/// Returns whether IA32_APIC_BASE can have this value. The page can be anywhere, and x2APIC mode needs an enabled
/// LAPIC.
pub(crate) fn is_legal_base(value: u64) -> bool {
    let modes = msr::APIC_BASE_ENABLE | msr::APIC_BASE_X2APIC;
    let reserved = (reg::PAGE_BYTES as u64 - 1) & !(modes | msr::APIC_BASE_BSP) | !PHYSICAL;
    value & reserved == 0 && value & modes != msr::APIC_BASE_X2APIC
}

/// The registers of the local vector table.
const LVTS: [u32; 6] = [
    reg::LVT_TIMER,
    reg::LVT_THERMAL,
    reg::LVT_PERFORMANCE,
    reg::LVT_LINT0,
    reg::LVT_LINT1,
    reg::LVT_ERROR,
];

/// The bits that a guest can change in the entries except the timer's: vector, mode, polarity, trigger, mask.
const LVT_WRITABLE: u32 = 0x1a7ff;

/// Returns whether there is a register at `offset`.
fn is_register(offset: u32) -> bool {
    is_readable(offset) || matches!(offset, reg::APR | reg::PPR | reg::EOI | reg::TIMER_CURRENT)
}

/// Returns whether the page has a register at `offset`, a multiple of 16.
fn is_readable(offset: u32) -> bool {
    matches!(
        offset,
        reg::ID | reg::VERSION | reg::TPR | reg::RRD | reg::LDR | reg::DFR | reg::SVR
            | reg::ISR..=0x270 | reg::ESR | reg::ICR_LOW..=reg::TIMER_INITIAL | reg::TIMER_DIVIDE
    )
}
