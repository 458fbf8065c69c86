//! Sending interrupts to CPUs: by hypercall, shorthand, logical destination or one by one, as Linux chooses.
//!
//! - **Exactly the named CPUs**: each CPU of the set gets the vector once, and no other CPU gets it.

use core::iter;

use holdfast_abi::{hypercall, lapic};
use holdfast_locks::{CpuId, Interrupts};

use crate::apic::{CALL_VECTOR, is_flat};
use crate::cpu::ThisCpu;
use crate::machine::{Cpu, Machine};
use crate::mask::CpuMask;

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

fn method<M: Machine>(on: &ThisCpu<'_, M>) -> Method {
    let (system, is_x2apic) = (on.system, on.local.apic.x2apic.is_set());
    if system.machine.threads().is_some() {
        Method::Unicast
    } else if system.chosen.get().assists.ipis {
        Method::Hypercall
    } else if is_flat_mode(on) {
        Method::Flat
    } else if is_x2apic && system.config.apic.cluster {
        Method::Cluster
    } else {
        Method::Unicast
    }
}

/// Returns `true` in the xAPIC's flat model, in which a destination is a mask of CPUs.
fn is_flat_mode<M: Machine>(on: &ThisCpu<'_, M>) -> bool {
    !on.local.apic.x2apic.is_set() && is_flat(on.system.cpu_count())
}

/// Sends `vector` to CPU `target`, whose APIC ID is its number.
///
/// Linux's flat driver sends to one CPU as to several (`default_send_IPI_single`), which PV IPIs replace by their
/// hypercall. The drivers of physical xAPIC and x2APIC write the ICR, with PV IPIs as without.
pub(crate) fn send<M: Machine>(on: &ThisCpu<'_, M>, target: CpuId, vector: u8) {
    if let Some(threads) = on.system.machine.threads() {
        assert_eq!(vector, CALL_VECTOR, "only call interrupts are this kernel's to send");
        return threads.call(target);
    }
    if is_flat_mode(on) && method(on) == Method::Hypercall {
        return by_hypercall(on, iter::once(target), vector);
    }
    command(on, target.0, u32::from(vector) | lapic::ICR_SHORTHAND_NONE);
}

fn command<M: Machine>(on: &ThisCpu<'_, M>, destination: u32, low: u32) {
    on.local.apic.command(&on.cpu, destination, low);
}

/// Returns `true` if one send to several CPUs differs from one send to each, so that collecting targets is worthwhile.
pub(crate) fn collects<M: Machine>(on: &ThisCpu<'_, M>) -> bool {
    let system = on.system;
    system.machine.threads().is_none() && (method(on) != Method::Unicast || system.config.apic.shorthand)
}

/// Sends `vector` to each of `targets`, which must not contain the caller's CPU.
pub(crate) fn send_many<M: Machine>(on: &ThisCpu<'_, M>, targets: &CpuMask, vector: u8) {
    if targets.count() == 1 {
        // Linux treats a single target separately, too: `call_function_single_ipi`.
        targets.iter().for_each(|target| send(on, target, vector));
        return;
    }
    let may_shorten = on.system.config.apic.shorthand || method(on) == Method::Flat;
    if may_shorten && is_all_others(on, targets) {
        command(on, 0, u32::from(vector) | lapic::ICR_SHORTHAND_OTHERS);
        return;
    }
    match method(on) {
        Method::Hypercall => by_hypercall(on, targets.iter(), vector),
        Method::Cluster => by_cluster(on, targets, vector),
        Method::Flat => {
            let bits = targets.iter().fold(0, |bits, target| bits | 1 << target.0);
            command(on, bits, u32::from(vector) | lapic::ICR_LOGICAL);
        }
        Method::Unicast => targets.iter().for_each(|target| send(on, target, vector)),
    }
}

/// A shorthand reaches every CPU of the machine, so all CPUs must be up.
fn is_all_others<M: Machine>(on: &ThisCpu<'_, M>, targets: &CpuMask) -> bool {
    targets.count() + 1 == on.system.cpu_count() && on.system.all_booted()
}

/// `__send_ipi_mask` of Linux's KVM guest.
fn by_hypercall<M: Machine>(on: &ThisCpu<'_, M>, targets: impl Iterator<Item = CpuId>, vector: u8) {
    let enabled = on.cpu.irq_save();
    let call = |window: Window| {
        let arguments = [
            window.bits as u64,
            (window.bits >> 64) as u64,
            u64::from(window.base),
            u64::from(vector),
        ];
        let taken = on.cpu.hypercall(hypercall::SEND_IPI as u32, arguments);
        assert!(
            taken >= 0,
            "the host offers IPIs by hypercall but refuses one with {taken}"
        );
    };
    let mut window = Window::EMPTY;
    for target in targets {
        if let Some(full) = window.add(target.0) {
            call(full);
        }
    }
    if window.bits != 0 {
        call(window);
    }
    on.cpu.irq_restore(enabled);
}

fn by_cluster<M: Machine>(on: &ThisCpu<'_, M>, targets: &CpuMask, vector: u8) {
    let low = u32::from(vector) | lapic::ICR_LOGICAL;
    let mut pending: Option<(u32, u32)> = None;
    for target in targets.iter() {
        let (cluster, bit) = (target.0 / CLUSTER_CPUS, 1 << (target.0 % CLUSTER_CPUS));
        match &mut pending {
            Some((same, bits)) if *same == cluster => *bits |= bit,
            other => {
                if let Some((done, bits)) = other.replace((cluster, bit)) {
                    command(on, done << 16 | bits, low);
                }
            }
        }
    }
    if let Some((cluster, bits)) = pending {
        command(on, cluster << 16 | bits, low);
    }
}

/// APIC IDs for one hypercall: a window of 128 that slides down while all of them fit
/// (docs/spec/guest-locks.md, "Paravirtual helpers").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Window {
    /// Bit `i`: the ID `base + i`.
    bits: u128,
    base: u32,
}

impl Window {
    const EMPTY: Window = Window { bits: 0, base: 0 };

    /// Adds `id`. If `id` does not fit, returns the window so far and starts a new one with `id`.
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
            // With unordered IDs a window may be opened twice, so that a CPU gets a second, harmless call. Kernels add
            // each ID once, in ascending order.
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
