//! Hints of a guest on the lock for which a vCPU waits (`holdfast_abi::LockHint`): whom it yields to first.
//!
//! - **Only its own VM**: an index that is not one of the VM's vCPUs, or is the waiter's own, is no hint.
//! - **The filters hold**: a vCPU that the guest names is yielded to only if the search might have found it.

use crate::boundary::VcpuId;
use crate::pause::search::{self, Attempt, Search};
use crate::step::Step;
use crate::wings::Wings;

/// Yields to the vCPU that the guest names as holder of the spinner's lock, or else to the waiter in front of it.
/// Returns whether the scheduler accepted it.
pub(super) fn yield_as_hinted(on: &mut Wings, search: &Search, step: &mut Step<'_>) -> bool {
    if !on.config.pause.filters.hinted {
        return false;
    }
    let named = hinted(on, search.spinner);
    let found = named
        .into_iter()
        .flatten()
        .any(|candidate| search::look(on, search, candidate, step) == Attempt::Boosted);
    on.guests.vcpus[search.spinner].counters.directed_yield_hinted += u64::from(found);
    found
}

/// `vcpu`, which has halted, is about to sleep, and its pCPU to be rescheduled.
pub(crate) fn yield_before_sleep(on: &mut Wings, vcpu: VcpuId, step: &mut Step<'_>) {
    let search = Search {
        spinner: vcpu,
        in_kernel: on.guests.vcpus[vcpu].guest.cpl == 0,
        tries: 0,
        relaxed: false,
    };
    yield_as_hinted(on, &search, step);
}

/// Returns the indexes of the holder and of the waiter in front that the guest names, if they are other vCPUs of
/// the same VM.
fn hinted(on: &Wings, vcpu: VcpuId) -> [Option<u32>; 2] {
    let at = &on.guests.vcpus[vcpu];
    let vm = &on.guests.vms[at.vm];
    let hint = at.guest.lock_hint;
    let offered = vm.config.offers_lock_hints();
    let crosses = on.guests.planted.pause.hint_crosses;
    let legal = |index: &u32| offered && (*index < vm.vcpus || crosses) && *index != at.index;
    [hint.holder, hint.waiter].map(|named| named.checked_sub(1).filter(legal))
}
