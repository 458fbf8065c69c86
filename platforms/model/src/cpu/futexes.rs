//! The kernel's queues of sleepers, as a modeled CPU finds them: each operation is one step.

use std::sync::MutexGuard;
use std::sync::atomic::Ordering;

use holdfast_locks::{CpuId, Futexes, Paravirt, Platform};

use super::Cpu;
use crate::checker::{Atomic, Checker, Rmw};
use crate::word::ModelWord;

type Sleepers = Vec<(usize, CpuId)>;

impl<C: Checker> Cpu<C> {
    /// Begins an operation on the queues. No other CPU runs until the caller's next step.
    fn sleepers(&self) -> MutexGuard<'_, Sleepers> {
        self.order_queues();
        self.machine.sleepers.lock().expect("no holder panics")
    }

    fn order_queues(&self) {
        let _ = self
            .machine
            .queues
            .rmw(Rmw::Add(1), Ordering::AcqRel, Ordering::Relaxed);
    }

    fn sleeps(&self) -> bool {
        let sleepers = self.machine.sleepers.lock().expect("no holder panics");
        sleepers.iter().any(|&(_, cpu)| cpu == self.id)
    }
}

/// Removes up to `count` sleepers of the queue of `key`, and returns them.
fn take(sleepers: &mut Sleepers, key: usize, count: u32) -> Vec<CpuId> {
    let mut left = count;
    let taken = sleepers.extract_if(.., |&mut (of, _)| {
        let takes = of == key && left > 0;
        left -= u32::from(takes);
        takes
    });
    taken.map(|(_, cpu)| cpu).collect()
}

impl<C: Checker> Futexes for Cpu<C> {
    fn sleep(&self, word: &ModelWord<C>, value: u32) -> bool {
        let mut sleepers = self.sleepers();
        if word.atomic.newest() != value {
            return false;
        }
        sleepers.push((self.key(word), self.id));
        drop(sleepers);
        while self.sleeps() {
            if self.chance() {
                // For no reason.
                let mut sleepers = self.sleepers();
                let before = sleepers.len();
                sleepers.retain(|&(_, cpu)| cpu != self.id);
                return sleepers.len() == before;
            }
            self.halt_masked();
        }
        self.order_queues();
        true
    }

    fn wake(&self, key: usize, count: u32) {
        let woken = take(&mut self.sleepers(), key, count);
        woken.into_iter().for_each(|cpu| self.kick(cpu));
    }

    fn requeue(&self, word: &ModelWord<C>, value: u32, count: u32, key: usize) -> bool {
        let mut sleepers = self.sleepers();
        if word.atomic.newest() != value {
            return false;
        }
        let from = self.key(word);
        let woken = take(&mut sleepers, from, count);
        for (of, _) in sleepers.iter_mut().filter(|(of, _)| *of == from) {
            *of = key;
        }
        drop(sleepers);
        woken.into_iter().for_each(|cpu| self.kick(cpu));
        true
    }
}
