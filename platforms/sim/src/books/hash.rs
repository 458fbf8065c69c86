//! The hash of the history.

use holdfast_host::{Run, VcpuId};
use holdfast_machine::{LineId, Time};

use crate::books::happened::{Happened, View};

/// Folds 64-bit words into a hash, in order.
#[derive(Clone, Copy, Debug)]
pub struct HistoryHash(u64);

impl HistoryHash {
    /// The hash of an empty history.
    pub fn new() -> HistoryHash {
        HistoryHash(0x9e37_79b9_7f4a_7c15)
    }

    /// Appends `word`.
    #[inline(always)]
    fn add(&mut self, word: u64) {
        // One multiplication and one fold per word: every bit of the state depends on every earlier word.
        let product = u128::from(self.0 ^ word) * 0xa076_1d64_78bd_642f_u128;
        self.0 = (product as u64) ^ ((product >> 64) as u64) ^ word.rotate_left(32);
    }

    /// Appends an ordered memory operation of `vcpu` on `line`.
    #[inline(always)]
    pub fn operation(&mut self, now: Time, line: LineId, vcpu: VcpuId) {
        self.add(now.0 ^ u64::from(line.0) << 20 ^ u64::from(vcpu.0) << 52);
    }

    /// Appends what `happened`, if the hash covers it.
    #[inline(always)]
    pub fn observe(&mut self, view: &View<'_>, happened: &Happened<'_>) {
        let now = view.now.0;
        match *happened {
            Happened::Chosen { pcpu, run } => {
                self.add(now);
                self.add(u64::from(pcpu.0) << 40 | run_word(run));
            }
            Happened::StateChanged { vcpu, .. } => self.add(u64::from(vcpu.0) << 8 | view.vcpu(vcpu).state as u64),
            Happened::Taken { vcpu, vector } => self.add(now ^ u64::from(vcpu.0) << 40 ^ u64::from(vector) << 56),
            Happened::ApicWritten { vcpu, offset, value } => {
                let offset = u64::from(offset.unwrap_or(0));
                self.add(now ^ offset << 44 ^ u64::from(vcpu.0) << 28 ^ u64::from(value));
            }
            Happened::DeviceSignaled { device, .. } => self.add(now ^ u64::from(device) << 48),
            Happened::GuestsStopped => self.add(now),
            _ => {}
        }
    }

    /// The hash so far.
    pub fn value(self) -> u64 {
        self.0
    }
}

fn run_word(run: Run) -> u64 {
    match run {
        Run::Idle => 0,
        Run::Guest { vcpu, inject, window } => {
            let vector = inject.map_or(0, |vector| u64::from(vector) | 0x100);
            1 | u64::from(vcpu.0) << 3 | vector << 24 | u64::from(window) << 2
        }
        Run::Task(task) => 2 | u64::from(task.0) << 3,
        Run::Poll(vcpu) => 3 | u64::from(vcpu.0) << 3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_and_content_matter() {
        let hash = |words: &[u64]| {
            let mut hash = HistoryHash::new();
            words.iter().for_each(|&word| hash.add(word));
            hash.value()
        };
        assert_ne!(hash(&[1, 2]), hash(&[2, 1]));
        assert_ne!(hash(&[0]), hash(&[0, 0]));
    }
}
