//! Who tells whom: the memory operations by which senders of interrupts and the vCPUs that they are for agree
//! (docs/spec/host.md, "Guest entry"; docs/spec/interrupts.md, "AVIC injection and IsRunning").
//!
//! | sender | then | vCPU | then |
//! |---|---|---|---|
//! | hardware: IRR = 1 | reads IsRunning: doorbell, or exit and [`complete`] | IsRunning = 0 ([`Tables::blocking`]) | reads IRR, sleeps |
//! | [`deliver`]: IRR = 1 | reads mode: doorbell or wakeup | mode = in guest ([`enter`]) | VMRUN evaluates IRR |
//! | wakes whoever sleeps | | says that it sleeps | reads IRR, sleeps |
//! | request, [`kick`] | claims the exit | mode = in guest ([`enter`]) | reads requests |
//!
//! In every row each side writes, fences, and reads what the other has written.
//!
//! - **No lost interrupt**: of two such sides at least one sees the other.
//! - **IsRunning means it**: the bit is set only between [`Tables::load`] and [`Tables::put`], and not while the vCPU
//!   blocks. A doorbell to a pCPU that the vCPU has just left is harmless: it left for a VMRUN elsewhere, which
//!   evaluates.
//!
//! The functions are generic over memory and words, so that model checkers explore the source that runs.

use holdfast_abi::avic::PhysicalEntry;
use holdfast_abi::lapic as reg;
use holdfast_abi::{Memory, avic};

/// What software keeps of a vCPU, for others to read without a lock.
pub trait Presence {
    /// Returns whether its mode is "in guest" (acquire).
    fn is_in_guest(&self) -> bool;
    /// Its mode becomes "in guest" (release).
    fn set_in_guest(&self);
    /// Its mode goes from "in guest" to "exiting", in one step; false if it was another.
    fn claim_exit(&self) -> bool;
    /// Returns whether its LAPIC is virtualized by hardware at present (`apicv_active`).
    fn is_active(&self) -> bool;
    /// Changes that. Only the vCPU itself, outside guest mode.
    fn set_active(&self, active: bool);
    /// Returns whether there is a request that it must look at before it enters the guest.
    fn has_request(&self) -> bool;
    /// Returns the pCPU where it was last loaded.
    fn cpu(&self) -> Option<u32>;
}

/// What is left to be done for a vCPU that has an interrupt in its IRR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Request an event and [`kick`]: its LAPIC is emulated.
    Kick,
    /// Ring the doorbell of this pCPU.
    Doorbell(u32),
    /// Nothing: it is the caller's own pCPU, whose next VMRUN evaluates.
    Here,
    /// Wake its thread, if it sleeps.
    Wake,
}

/// Steps left out or done in the wrong order, for tests that must see them caught.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AvicFaults {
    /// [`deliver`] reads mode without a fence after IRR.
    pub sender_without_fence: bool,
    /// [`Tables::blocking`] does not fence after IsRunning.
    pub blocker_without_fence: bool,
    /// [`Tables::blocking`] leaves IsRunning set.
    pub running_while_blocked: bool,
    /// [`Tables::load`] sets IsRunning although the vCPU blocks.
    pub load_ignores_blocking: bool,
    /// [`Tables::load`] leaves the host APIC ID of the pCPU before.
    pub stale_host_id: bool,
    /// [`complete`] reads whether AVIC is active before it reads mode.
    pub active_before_mode: bool,
    /// [`enter`] does not look at requests after the mode is set.
    pub entry_without_look: bool,
    /// [`enter`] does not fence.
    pub entry_without_fence: bool,
    /// [`deactivate`] does not fence.
    pub deactivate_without_fence: bool,
    /// The tables are not written again for a vCPU that was restored.
    pub restored_without_tables: bool,
    /// Remap entries keep the host CPU of before ([`Remap::running`](super::remap::Remap::running)).
    pub remap_keeps_destination: bool,
    /// Remap entries keep IsRun ([`Remap::stopped`](super::remap::Remap::stopped)).
    pub remap_stays_running: bool,
    /// Remap entries are told of a halt behind the fence ([`blocking`](super::remap::blocking)).
    pub remap_after_fence: bool,
    /// The IOMMU's log is not read ([`drain`](super::remap::drain)).
    pub log_not_drained: bool,
    /// The log's status bit is cleared after the log is read.
    pub cleared_after_drain: bool,
    /// Nobody is looked for whose entry a full log has lost: what Linux does.
    pub overflow_ignored: bool,
}

/// A vCPU's backing page and its entry in the physical APIC ID table.
#[derive(Clone, Copy, Debug)]
pub struct Tables<'m, M> {
    /// Where they are.
    pub memory: &'m M,
    /// Host-physical address of the backing page.
    pub page: u64,
    /// Host-physical address of the entry.
    pub entry: u64,
    /// Whether hardware may see IsRunning (`enable_ipiv`); off where erratum 1235 would have it act on an old one.
    pub ipiv: bool,
    /// Planted faults.
    #[doc(hidden)]
    pub faults: AvicFaults,
}

impl<M: Memory> Tables<'_, M> {
    fn read(&self) -> PhysicalEntry {
        PhysicalEntry(self.memory.load64(self.entry).unwrap_or(0))
    }

    fn running(&self, host_id: u32) {
        let before = self.read();
        let running = before.running(host_id);
        let entry = if self.faults.stale_host_id {
            PhysicalEntry(before.0 | PhysicalEntry::IS_RUNNING)
        } else if self.ipiv {
            running
        } else {
            running.stopped()
        };
        self.memory.store64(self.entry, entry.0);
    }

    fn stopped(&self) {
        self.memory.store64(self.entry, self.read().stopped().0);
    }

    /// The vCPU's thread takes the pCPU with `host_id`. One that `blocks` stays not running: nobody but a wakeup ends
    /// its sleep.
    pub fn load(&self, host_id: u32, blocks: bool) {
        if !blocks || self.faults.load_ignores_blocking {
            self.running(host_id);
        }
    }

    /// The vCPU's thread gives its pCPU away.
    pub fn put(&self) {
        if !self.faults.running_while_blocked {
            self.stopped();
        }
    }

    /// The vCPU is about to look at its IRR and to sleep. Even with interrupts masked: doorbells would disturb whoever
    /// has the pCPU then.
    pub fn blocking(&self) {
        if !self.faults.running_while_blocked {
            self.stopped();
        }
        // The vital race: pairs with the hardware's fence between IRR and IsRunning.
        if !self.faults.blocker_without_fence {
            self.memory.fence();
        }
    }

    /// It does not sleep, or has slept, and is on the pCPU with `host_id`.
    pub fn unblocking(&self, host_id: u32) {
        self.running(host_id);
    }
}

/// Pends `vector` in the page at `page`: whether `level`-triggered, in TMR. False if it was pending already.
pub fn request<M: Memory>(memory: &M, page: u64, vector: u8, level: bool) -> bool {
    let word = |base: u32| page & avic::PAGE_ADDRESS | u64::from(base + u32::from(vector) / 32 * 16);
    let bit = 1 << (vector % 32);
    if level {
        memory.set32(word(reg::TMR), bit);
    } else {
        memory.clear32(word(reg::TMR), bit);
    }
    memory.set32(word(reg::IRR), bit).is_some_and(|irr| irr & bit == 0)
}

/// Pends `vector` for a vCPU, and says how it is to be told; `here` is the caller's pCPU.
pub fn deliver<M: Memory>(
    tables: &Tables<'_, M>,
    presence: &impl Presence,
    vector: u8,
    level: bool,
    here: Option<u32>,
) -> Notice {
    request(tables.memory, tables.page, vector, level);
    if !tables.faults.sender_without_fence {
        tables.memory.fence();
    }
    complete(presence, here, tables.faults)
}

/// Returns how a vCPU is to be told of an interrupt that is in its IRR, and whose sender has fenced since.
///
/// Mode first, as KVM has it: a vCPU changes `apicv_active` before it sets mode, so whoever sees it in guest mode sees
/// in which way. Under the model checker the other order loses nothing either, as long as [`deactivate`] fences.
pub fn complete(presence: &impl Presence, here: Option<u32>, faults: AvicFaults) -> Notice {
    let early = faults.active_before_mode.then(|| presence.is_active());
    let in_guest = presence.is_in_guest();
    let active = early.unwrap_or_else(|| presence.is_active());
    if !active {
        return Notice::Kick;
    }
    if !in_guest {
        return Notice::Wake;
    }
    match presence.cpu() {
        cpu if cpu == here => Notice::Here,
        Some(cpu) => Notice::Doorbell(cpu),
        None => Notice::Wake,
    }
}

/// Returns the vCPU is about to enter its guest. False if it must not yet: a request came.
pub fn enter(memory: &impl Memory, presence: &impl Presence, faults: AvicFaults) -> bool {
    presence.set_in_guest();
    // Pairs with the senders' fences between IRR and mode, and with the IOMMU's between IRR and IsRun.
    if !faults.entry_without_fence {
        memory.fence();
    }
    faults.entry_without_look || !presence.has_request()
}

/// Makes a vCPU leave its guest for the request that the caller has just made. Whether the caller is to send it an IPI.
pub fn kick(memory: &impl Memory, presence: &impl Presence) -> bool {
    memory.fence();
    presence.claim_exit()
}

/// The vCPU, outside guest mode, goes back to an emulated LAPIC: it must look at its IRR next.
pub fn deactivate<M: Memory>(tables: &Tables<'_, M>, presence: &impl Presence) {
    presence.set_active(false);
    tables.stopped();
    // Pairs with the fences between IRR and what this vCPU has just written, in senders of both kinds.
    if !tables.faults.deactivate_without_fence {
        tables.memory.fence();
    }
}

/// The vCPU, outside guest mode and on the pCPU with `host_id`, has its LAPIC virtualized by hardware from its next
/// VMRUN on.
pub fn activate<M: Memory>(tables: &Tables<'_, M>, presence: &impl Presence, host_id: u32) {
    presence.set_active(true);
    tables.running(host_id);
}
