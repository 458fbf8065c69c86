//! The memory operations by which the senders of interrupts and the target vCPUs agree on notifications
//! (docs/spec/host.md, "Guest entry"; docs/spec/interrupts.md, "AVIC injection and IsRunning").
//!
//! | sender | then | vCPU | then |
//! |---|---|---|---|
//! | hardware: IRR | IsRunning: doorbell or exit ([`complete`]) | IsRunning = 0 ([`Tables::blocking`]) | reads IRR |
//! | [`deliver`]: IRR = 1 | reads mode: doorbell or wakeup (4.7: IsRunning) | mode = in guest ([`enter`]) | VMRUN evaluates IRR |
//! | wakes a sleeping vCPU | | records that it sleeps | reads IRR |
//! | request, [`kick`] | claims the exit | mode = in guest ([`enter`]) | reads requests |
//!
//! In every row each side writes, fences, and reads what the other side has written.
//!
//! - **No lost interrupt**: at least one of the two sides sees the other's write.
//! - **IsRunning is exact**: the bit is set only between [`Tables::load`] and [`Tables::put`], and not while the vCPU
//!   blocks. A doorbell to a pCPU that the vCPU has just left is harmless: it left for a VMRUN elsewhere, which
//!   evaluates IRR.
//!
//! The functions are generic over memory and words. Model checkers explore the source that runs.

use holdfast_abi::avic::PhysicalEntry;
use holdfast_abi::{Memory, avic, lapic as reg};

use super::AvicDriver;

/// The state of a vCPU that others read without a lock.
pub trait Presence {
    /// Returns whether its mode is "in guest" (acquire).
    fn is_in_guest(&self) -> bool;
    /// Sets its mode to "in guest" (release).
    fn set_in_guest(&self);
    /// Changes its mode from "in guest" to "exiting", in one step. Returns `false` if it was in another mode.
    fn claim_exit(&self) -> bool;
    /// Returns whether its LAPIC is virtualized by hardware at present (`apicv_active`).
    fn is_active(&self) -> bool;
    /// Sets whether hardware virtualizes its LAPIC. Only the vCPU itself does, outside guest mode.
    fn set_active(&self, active: bool);
    /// Returns whether it has a request to process before it enters the guest.
    fn has_request(&self) -> bool;
    /// Returns the pCPU where it was last loaded.
    fn cpu(&self) -> Option<u32>;
}

/// How to notify a vCPU that has an interrupt in its IRR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Request an event and [`kick`]: its LAPIC is emulated.
    Kick,
    /// Ring the doorbell of this pCPU.
    Doorbell(u32),
    /// No notification: the next VMRUN evaluates IRR. The vCPU is on the caller's own pCPU, or has been loaded since
    /// hardware found it not running.
    Unneeded,
    /// Wake its thread, if it sleeps.
    Wake,
}

/// Steps left out or done in the wrong order, for tests that must catch them.
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
    /// [`Tables::load`] leaves the host APIC ID of the previous pCPU.
    pub stale_host_id: bool,
    /// [`deliver`] reads whether AVIC is active before it reads mode.
    pub active_before_mode: bool,
    /// [`enter`] does not look at requests after the mode is set.
    pub entry_without_look: bool,
    /// [`enter`] does not fence.
    pub entry_without_fence: bool,
    /// [`deactivate`] does not fence.
    pub deactivate_without_fence: bool,
    /// The tables are not written again for a vCPU that was restored.
    pub restored_without_tables: bool,
    /// Remap entries keep the previous host CPU ([`Remap::running`](super::remap::Remap::running)).
    pub remap_keeps_destination: bool,
    /// Remap entries keep IsRun ([`Remap::stopped`](super::remap::Remap::stopped)).
    pub remap_stays_running: bool,
    /// Remap entries are changed for a halt after the fence ([`blocking`](super::remap::blocking)).
    pub remap_after_fence: bool,
    /// The IOMMU's log is not read ([`drain`](super::remap::drain)).
    pub log_not_drained: bool,
    /// The log's status bit is cleared after the log is read.
    pub cleared_after_drain: bool,
    /// No vCPU is woken whose entry a full log has lost, as in Linux.
    pub overflow_ignored: bool,
}

/// A vCPU's backing page and its entry in the physical APIC ID table.
#[derive(Clone, Copy, Debug)]
pub struct Tables<'m, M> {
    /// The memory that contains them.
    pub memory: &'m M,
    /// Host-physical address of the backing page.
    pub page: u64,
    /// Host-physical address of the entry.
    pub entry: u64,
    /// Hardware may see IsRunning set (`enable_ipiv`). Off where erratum 1235 would make it act on a stale bit.
    pub ipiv: bool,
    /// What software tests before it notifies: mode, or IsRunning.
    pub driver: AvicDriver,
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

    /// The vCPU's thread takes the pCPU with `host_id`. A vCPU that `blocks` stays not running, since only a wakeup
    /// ends its sleep.
    pub fn load(&self, host_id: u32, blocks: bool) {
        if !blocks || self.faults.load_ignores_blocking {
            self.running(host_id);
        }
    }

    /// The vCPU's thread gives up its pCPU.
    pub fn put(&self) {
        if !self.faults.running_while_blocked {
            self.stopped();
        }
    }

    /// The vCPU is about to read its IRR and to sleep. Also done with interrupts masked: doorbells would disturb the
    /// next vCPU of the pCPU.
    pub fn blocking(&self) {
        if !self.faults.running_while_blocked {
            self.stopped();
        }
        // The vital race: pairs with the hardware's fence between IRR and IsRunning.
        if !self.faults.blocker_without_fence {
            self.memory.fence();
        }
    }

    /// The vCPU does not sleep, or has slept, and is on the pCPU with `host_id`.
    pub fn unblocking(&self, host_id: u32) {
        self.running(host_id);
    }
}

/// Pends `vector` in the page at `page`, with its trigger mode in TMR. Returns `false` if it was pending already.
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

/// Pends `vector` for a vCPU, and returns how to notify it. `here` is the caller's pCPU.
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
    match tables.driver {
        AvicDriver::Linux4_7 => by_running(tables, presence, true),
        AvicDriver::Now => by_mode(presence, here, tables.faults),
    }
}

/// Returns how to notify a vCPU of an interrupt that is in its IRR, and that hardware found not running.
pub fn complete<M: Memory>(tables: &Tables<'_, M>, presence: &impl Presence, here: Option<u32>) -> Notice {
    match tables.driver {
        AvicDriver::Linux4_7 => by_running(tables, presence, false),
        AvicDriver::Now => by_mode(presence, here, tables.faults),
    }
}

/// Returns how the driver of 4.7 notifies a vCPU of an interrupt that is in its IRR (`avic_vcpu_is_running`): it
/// `rings` while IsRunning is set, or relies on the VMRUN that follows. The sender has fenced since it set IRR.
///
/// IsRunning is also set while the vCPU handles an exit. A doorbell is lost there, and the next VMRUN evaluates IRR.
fn by_running<M: Memory>(tables: &Tables<'_, M>, presence: &impl Presence, rings: bool) -> Notice {
    // Pairs with the fences of `blocking` and of `deactivate`, which clear IsRunning and then read IRR.
    let is_running = tables.read().is_running();
    match presence.cpu() {
        _ if !presence.is_active() => Notice::Kick,
        Some(cpu) if is_running && rings => Notice::Doorbell(cpu),
        Some(_) if is_running => Notice::Unneeded,
        _ => Notice::Wake,
    }
}

/// Returns how the present driver notifies a vCPU of an interrupt that is in its IRR. The sender has fenced since it
/// set IRR.
///
/// Mode is read first, as in KVM: a vCPU changes `apicv_active` before it sets mode, so a sender that finds it in guest
/// mode also finds the right value. Under the model checker the other order loses nothing either, provided that
/// [`deactivate`] fences.
fn by_mode(presence: &impl Presence, here: Option<u32>, faults: AvicFaults) -> Notice {
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
        cpu if cpu == here => Notice::Unneeded,
        Some(cpu) => Notice::Doorbell(cpu),
        None => Notice::Wake,
    }
}

/// Sets the mode of a vCPU that is about to enter its guest. Returns `false` if a request came, and it must not enter
/// yet.
pub fn enter(memory: &impl Memory, presence: &impl Presence, faults: AvicFaults) -> bool {
    presence.set_in_guest();
    // Pairs with the senders' fences between IRR and mode, and with the IOMMU's between IRR and IsRun.
    if !faults.entry_without_fence {
        memory.fence();
    }
    faults.entry_without_look || !presence.has_request()
}

/// Makes a vCPU leave its guest for the request that the caller has just made. Returns whether the caller must send an
/// IPI.
pub fn kick(memory: &impl Memory, presence: &impl Presence) -> bool {
    memory.fence();
    presence.claim_exit()
}

/// Returns the vCPU, which is outside guest mode, to an emulated LAPIC. It must read its IRR next.
pub fn deactivate<M: Memory>(tables: &Tables<'_, M>, presence: &impl Presence) {
    presence.set_active(false);
    tables.stopped();
    // Pairs with the fences of senders of both kinds, between IRR and the words that this vCPU has just written.
    if !tables.faults.deactivate_without_fence {
        tables.memory.fence();
    }
}

/// Lets hardware virtualize the LAPIC of the vCPU from its next VMRUN on. The vCPU is outside guest mode, on the pCPU
/// with `host_id`.
pub fn activate<M: Memory>(tables: &Tables<'_, M>, presence: &impl Presence, host_id: u32) {
    presence.set_active(true);
    tables.running(host_id);
}

#[cfg(test)]
mod tests;
