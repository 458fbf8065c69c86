//! Every way to deliver interrupts delivers the same ones, in the same order, as a plain model of the manual.
//!
//! [`Reference`] is that model: sets of vectors, no exits, no pages. An implementation is whatever implements
//! [`Delivers`]: here [`Driven`], the host's LAPICs behind the host's own boundary, emulated or with hardware that
//! virtualizes them. Where hardware differs from the emulated LAPIC by its manual, the reference says so
//! (`reference/hardware.rs`).
//!
//! Programs are random, over several vCPUs of two VMs: register writes, interrupt commands, MSIs, CR8, STI and CLI,
//! HLT, mode switches. After every [`Act`] all come to rest: who can take an interrupt has taken it, into a handler
//! that runs with interrupts masked until the program says otherwise.

mod driven;
mod fault;
mod program;
mod reference;
mod short;
mod tests;

use driven::Driven;
pub use fault::Fault;
pub use program::{Shape, decode};
use reference::Reference;
pub use tests::compare;

use crate::hardware::Part;

/// vCPUs of the first VM; those of the second are numbered behind them.
pub const FIRST_VM: u32 = 4;
/// vCPUs of both VMs.
pub const VCPUS: u32 = 6;

/// How the system is set up.
#[derive(Clone, Copy, Debug, Default)]
pub struct Setup {
    /// What virtualizes LAPICs.
    pub part: Part,
}

/// One thing that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// A vCPU stores to its LAPIC's page.
    Page { vcpu: u32, offset: u32, value: u32 },
    /// A vCPU writes a model-specific register.
    Msr { vcpu: u32, msr: u32, value: u64 },
    /// A vCPU writes CR8.
    Cr8 { vcpu: u32, value: u8 },
    /// STI or CLI.
    Interrupts { vcpu: u32, enabled: bool },
    /// IRET from the handler of a non-maskable interrupt.
    Iret { vcpu: u32 },
    /// The vCPU executes HLT.
    Halt { vcpu: u32 },
    /// The delivery of the next vector injected into this vCPU is interrupted once.
    Disturb { vcpu: u32 },
    /// A device signals.
    Msi { vm: u32, address: u64, data: u32 },
}

/// What a vCPU takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// An interrupt.
    Vector(u8),
    /// A non-maskable interrupt.
    Nmi,
    /// An INIT message.
    Init,
    /// A SIPI message.
    Startup(u8),
    /// A general-protection fault for the instruction that it executed.
    Fault,
}

/// A system of LAPICs.
pub trait Delivers {
    /// Performs `act`, and delivers all signals. A vCPU that sleeps does nothing.
    fn perform(&mut self, act: Act);
    /// Returns the events that each vCPU has taken since the last call.
    fn taken(&mut self) -> Vec<Vec<Taken>>;
    /// Returns whether `vcpu` sleeps: in HLT, or waiting for SIPI.
    fn sleeps(&self, vcpu: u32) -> bool;
    /// Returns the vectors of `vcpu` that are requested, in service, and marked as level-triggered.
    fn registers(&self, vcpu: u32) -> [Vec<u8>; 3];
    /// Returns whether hardware virtualizes the LAPIC of `vcpu`, which does not sleep.
    fn is_virtualized(&self, vcpu: u32) -> bool;
}

/// Runs `program` on `model` and `other`. Returns the number of interrupts taken, or the first difference.
pub fn agree(model: &mut dyn Delivers, other: &mut dyn Delivers, program: &[Act]) -> Result<usize, String> {
    let mut taken = 0;
    for (number, &act) in program.iter().enumerate() {
        model.perform(act);
        other.perform(act);
        let (expected, found) = (model.taken(), other.taken());
        let at = || format!("after {number}: {act:x?}");
        if expected != found {
            return Err(format!("{}: taken {found:x?}, expected {expected:x?}", at()));
        }
        taken += expected.iter().map(Vec::len).sum::<usize>();
        for vcpu in 0..VCPUS {
            let (expected, found) = (model.sleeps(vcpu), other.sleeps(vcpu));
            if expected != found {
                return Err(format!("{}: vcpu {vcpu} sleeps: {found}, expected {expected}", at()));
            }
            let (expected, found) = (model.is_virtualized(vcpu), other.is_virtualized(vcpu));
            if expected != found && !model.sleeps(vcpu) {
                return Err(format!(
                    "{}: hardware serves vcpu {vcpu}: {found}, expected {expected}",
                    at()
                ));
            }
            let (expected, found) = (model.registers(vcpu), other.registers(vcpu));
            if expected != found {
                return Err(format!("{}: vcpu {vcpu} has {found:x?}, expected {expected:x?}", at()));
            }
        }
    }
    Ok(taken)
}
