//! Optimistic spinners, as a mutex queues them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use holdfast_locks::{Osq, OsqTable, Steps};
use holdfast_model::{Cell, Checker, Cpu, Machine, ModelWord, Setup};

use super::job;

/// Each CPU queues `rounds` times as an optimistic spinner. The CPUs of the bit set `impatient` leave after they have
/// waited once. Checks **one head**, and that each CPU that stays becomes the head: a CPU that leaves does not cut off
/// the CPUs behind it.
pub fn optimistic_spinners<C: Checker, S: Steps + 'static>(
    setup: &Setup,
    rounds: u32,
    impatient: u32,
) -> impl Fn() + Send + Sync + use<C, S> {
    struct Spinners<C: Checker, S> {
        queue: Osq<ModelWord<C>, S>,
        table: OsqTable<ModelWord<C>>,
        data: C::Cell,
        heads: AtomicU32,
    }
    let setup = setup.clone();
    move || {
        let spinners = Arc::new(Spinners::<C, S> {
            queue: Osq::new(),
            table: OsqTable::new(setup.cpus as usize),
            data: C::Cell::new(0),
            heads: AtomicU32::new(0),
        });
        let each = |number| {
            let spinners = Arc::clone(&spinners);
            let leaves = impatient >> number & 1 != 0;
            job(number, move |cpu: &Cpu<C>| {
                for _ in 0..rounds {
                    if spinners.queue.lock(cpu, &spinners.table, |_| leaves) {
                        spinners.heads.fetch_add(1, Ordering::Relaxed);
                        spinners.data.update(|count| count + 1);
                        spinners.queue.unlock(cpu, &spinners.table);
                    } else {
                        assert!(leaves, "a patient spinner left the queue");
                    }
                }
            })
        };
        let machine = Machine::new(&setup);
        machine.run((0..setup.cpus).map(each).collect());
        let heads = spinners.heads.load(Ordering::Relaxed);
        assert_eq!(spinners.data.get(), heads, "updates under the queue were lost");
        let patient = setup.cpus - (impatient & ((1 << setup.cpus) - 1)).count_ones();
        assert!(
            heads >= rounds * patient.max(1),
            "a patient spinner never became the head"
        );
        assert!(
            spinners.queue.is_empty(&Cpu::inspector(machine)),
            "a spinner is left in the queue"
        );
    }
}
