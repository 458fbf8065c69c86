//! Interrupts for several CPUs: by hypercall, shorthand, logical destination or one by one, as Linux chooses.
//!
//! - **Exactly the named**: each CPU of the set gets the vector once, and nobody else does.

use holdfast_abi::{hypercall, lapic};
use holdfast_locks::Interrupts;
use serde::{Deserialize, Serialize};

use crate::apic;
use crate::kernel::OnCpu;
use crate::machine::{Cpu, Machine};
use crate::mask::CpuMask;

/// How this kernel uses its APIC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApicOptions {
    /// `nox2apic`: memory-mapped registers even where CPUID offers x2APIC mode.
    pub nox2apic: bool,
    /// x2APIC's clusters: one command for up to 16 CPUs. Linux does that only with an interrupt-remapping unit; without, as
    /// KVM guests mostly are, it addresses CPUs physically, one by one.
    pub cluster: bool,
    /// The shorthand "all but self" for calls to all others (Linux 5.4 and later; for up to 8 CPUs in xAPIC mode always).
    pub shorthand: bool,
}

/// xAPIC CPUs that a flat logical destination reaches.
const FLAT_CPUS: u32 = 8;
/// x2APIC CPUs in a cluster.
const CLUSTER_CPUS: u32 = 16;

/// How an interrupt to several CPUs is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Method {
    Hypercall,
    Cluster,
    Flat,
    Unicast,
}

fn method<M: Machine>(on: &OnCpu<'_, M>) -> Method {
    if on.kernel.machine.threads().is_some() {
        Method::Unicast
    } else if on.kernel.assists().ipis {
        Method::Hypercall
    } else if !apic::is_x2apic(on) && is_flat(on) {
        Method::Flat
    } else if apic::is_x2apic(on) && on.kernel.config.apic.cluster {
        Method::Cluster
    } else {
        Method::Unicast
    }
}

/// Whether xAPIC CPUs have logical IDs in the flat model (`apic_flat`, against `apic_physflat`).
pub(crate) fn is_flat<M: Machine>(on: &OnCpu<'_, M>) -> bool {
    on.kernel.machine.cpus() <= FLAT_CPUS
}

/// Whether sending to several CPUs is more than sending to each: then it is worth collecting them.
pub(crate) fn collects<M: Machine>(on: &OnCpu<'_, M>) -> bool {
    on.kernel.machine.threads().is_none() && (method(on) != Method::Unicast || on.kernel.config.apic.shorthand)
}

/// Sends `vector` to each of `targets`, which does not contain the caller's CPU.
pub(crate) fn send_many<M: Machine>(on: &OnCpu<'_, M>, targets: &CpuMask, vector: u8) {
    if targets.count() == 1 {
        // Another way in Linux, too: `call_function_single_ipi`.
        targets.iter().for_each(|target| apic::send(on, target, vector));
        return;
    }
    let may_shorten = on.kernel.config.apic.shorthand || method(on) == Method::Flat;
    if may_shorten && is_all_others(on, targets) {
        apic::command(on, 0, u32::from(vector) | lapic::ICR_SHORTHAND_OTHERS);
        return;
    }
    match method(on) {
        Method::Hypercall => by_hypercall(on, targets, vector),
        Method::Cluster => by_cluster(on, targets, vector),
        Method::Flat => {
            let bits = targets.iter().fold(0, |bits, target| bits | 1 << target);
            apic::command(on, bits, u32::from(vector) | lapic::ICR_LOGICAL);
        }
        Method::Unicast => targets.iter().for_each(|target| apic::send(on, target, vector)),
    }
}

/// A shorthand reaches every CPU of the machine, so all must be up.
fn is_all_others<M: Machine>(on: &OnCpu<'_, M>, targets: &CpuMask) -> bool {
    targets.count() + 1 == on.kernel.machine.cpus() && on.kernel.all_booted()
}

/// `__send_ipi_mask` of Linux's KVM guest.
fn by_hypercall<M: Machine>(on: &OnCpu<'_, M>, targets: &CpuMask, vector: u8) {
    let masked = on.cpu.irq_save();
    let call = |window: Window| {
        let arguments = [
            window.bits as u64,
            (window.bits >> 64) as u64,
            u64::from(window.base),
            u64::from(vector),
        ];
        let taken = on.cpu.hypercall(hypercall::SEND_IPI as u32, arguments);
        assert!(taken >= 0, "a host that offers IPIs by hypercall refuses one: {taken}");
    };
    let mut window = Window::EMPTY;
    for target in targets.iter() {
        if let Some(full) = window.add(target) {
            call(full);
        }
    }
    if window.bits != 0 {
        call(window);
    }
    on.cpu.irq_restore(masked);
}

fn by_cluster<M: Machine>(on: &OnCpu<'_, M>, targets: &CpuMask, vector: u8) {
    let command = u32::from(vector) | lapic::ICR_LOGICAL;
    let mut pending: Option<(u32, u32)> = None;
    for target in targets.iter() {
        let (cluster, bit) = (target / CLUSTER_CPUS, 1 << (target % CLUSTER_CPUS));
        match &mut pending {
            Some((same, bits)) if *same == cluster => *bits |= bit,
            other => {
                if let Some((done, bits)) = other.replace((cluster, bit)) {
                    apic::command(on, done << 16 | bits, command);
                }
            }
        }
    }
    if let Some((cluster, bits)) = pending {
        apic::command(on, cluster << 16 | bits, command);
    }
}

/// APIC IDs for one hypercall: a window of 128 that slides down while all fit
/// (docs/spec/guest-locks.md, "Paravirtual helpers").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Window {
    /// Bit `i`: the ID `base + i`.
    bits: u128,
    base: u32,
}

impl Window {
    const EMPTY: Window = Window { bits: 0, base: 0 };

    /// Adds `id`. If that does not fit: the window so far, which starts anew with `id`.
    fn add(&mut self, id: u32) -> Option<Window> {
        if self.bits == 0 {
            *self = Window { bits: 1, base: id };
            return None;
        }
        if id < self.base {
            let shift = self.base - id;
            if shift <= self.bits.leading_zeros() {
                *self = Window {
                    bits: self.bits << shift | 1,
                    base: id,
                };
                return None;
            }
        } else if id - self.base < hypercall::SEND_IPI_IDS {
            self.bits |= 1 << (id - self.base);
            return None;
        }
        Some(core::mem::replace(self, Window { bits: 1, base: id }))
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    fn windows(ids: &[u32]) -> Vec<Window> {
        let mut window = Window::EMPTY;
        let mut done: Vec<Window> = ids.iter().filter_map(|&id| window.add(id)).collect();
        done.push(window);
        done
    }

    fn named(windows: &[Window]) -> Vec<u32> {
        let ids = |window: &Window| {
            let window = *window;
            (0..128)
                .filter(move |bit| window.bits >> bit & 1 == 1)
                .map(move |bit| window.base + bit)
        };
        let mut all: Vec<u32> = windows.iter().flat_map(ids).collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn windows_name_exactly_the_ids_that_were_added() {
        let mut state = 1_u64;
        for round in 0..2_000 {
            let mut ids: Vec<u32> = (0..round % 40 + 1)
                .map(|_| {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    (state >> 40) as u32 % 1024
                })
                .collect();
            let windows = windows(&ids);
            ids.sort_unstable();
            // A window that was left may be entered again: the same CPU then gets a second, harmless call. Kernels add
            // ascending IDs, once each.
            let mut named = named(&windows);
            named.dedup();
            ids.dedup();
            assert_eq!(named, ids);
        }
    }

    #[test]
    fn a_window_is_as_wide_as_two_words_and_slides_down() {
        assert_eq!(windows(&[0, 127]).len(), 1);
        assert_eq!(windows(&[0, 128]).len(), 2);
        assert_eq!(
            windows(&[200, 150, 73]),
            [Window {
                bits: 1 << 127 | 1 << 77 | 1,
                base: 73
            }]
        );
        assert_eq!(windows(&[200, 72]).len(), 2);
        let all: Vec<u32> = (0..255).collect();
        assert_eq!(windows(&all).len(), 2);
    }
}
