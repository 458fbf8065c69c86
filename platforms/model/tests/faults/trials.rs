//! Searches by loom that may find a weakened ordering.

use holdfast_locks::*;
use holdfast_model::fault::Orderings;
use holdfast_model::{Bounds, Checker, Explored, Failure, Loom, ModelWord, Setup};

use crate::faults::{Body, Lock};
use crate::scenario;

type Biased = BiasedRwlock<ModelWord<Loom>, Tas>;

/// A search that may find a weakened ordering.
pub(super) struct Trial {
    bounds: Bounds,
    setup: Setup,
    body: Box<dyn Fn(&Setup) -> Body>,
}

impl Trial {
    pub(super) fn new(cpus: u32, preemptions: usize, body: impl Fn(&Setup) -> Body + 'static) -> Self {
        Trial {
            bounds: Bounds::preemptions(preemptions),
            setup: Setup::new(cpus),
            body: Box::new(body),
        }
    }

    pub(super) fn run(&self, orderings: Orderings) -> Result<Explored, Failure> {
        let setup = Setup {
            orderings,
            ..self.setup.clone()
        };
        Loom::explore(&self.bounds, (self.body)(&setup))
    }
}

pub(super) fn once<L: Lock<Loom>>(preemptions: usize) -> Trial {
    Trial::new(2, preemptions, |setup| {
        Box::new(scenario::contention::<Loom, L>(setup, 1, 0))
    })
}
pub(super) fn twice<L: Lock<Loom>>(preemptions: usize) -> Trial {
    Trial::new(2, preemptions, |setup| {
        Box::new(scenario::contention::<Loom, L>(setup, 2, 0))
    })
}
pub(super) fn try_lock<L: Lock<Loom>>() -> Trial {
    Trial::new(2, 3, |setup| Box::new(scenario::try_lock::<Loom, L>(setup)))
}
pub(super) fn queue<L: Lock<Loom>>(cpus: u32, preemptions: usize) -> Trial {
    Trial::new(cpus, preemptions, |setup| Box::new(scenario::queue::<Loom, L>(setup)))
}

/// A queue on two NUMA nodes.
pub(super) fn nodes<L: Lock<Loom>>(cpus: u32, preemptions: usize) -> Trial {
    let mut trial = queue::<L>(cpus, preemptions);
    trial.setup.numa_nodes = 2;
    trial
}

/// A queue whose waiters look twice before they halt.
pub(super) fn patient<L: Lock<Loom>>() -> Trial {
    let mut trial = queue::<L>(3, 2);
    trial.setup.spin_threshold = 1;
    trial.setup.looks_max = 1;
    trial
}

/// A queue in a guest of `possible` CPUs.
pub(super) fn larger<L: Lock<Loom>>(possible: u32, cpus: u32, preemptions: usize) -> Trial {
    let mut trial = queue::<L>(cpus, preemptions);
    trial.setup.cpus_possible = possible;
    trial
}

/// Contention on a machine whose compare-stores are two steps.
pub(super) fn compare_stores<L: Lock<Loom>>() -> Trial {
    let mut trial = once::<L>(3);
    trial.setup.compare_stores = true;
    trial
}

pub(super) fn shared_entry<L: Lock<Loom>>() -> Trial {
    Trial::new(3, 2, |setup| Box::new(scenario::shared_entry::<Loom, L>(setup)))
}

pub(super) fn spinners<const IMPATIENT: u32>(cpus: u32, rounds: u32, preemptions: usize) -> Trial {
    Trial::new(cpus, preemptions, move |setup| {
        Box::new(scenario::optimistic_spinners::<Loom, AllSteps>(
            setup, rounds, IMPATIENT,
        ))
    })
}

pub(super) fn requeued_broadcast(cpus: u32, preemptions: usize) -> Trial {
    Trial::new(cpus, preemptions, |setup| {
        Box::new(scenario::requeued_broadcast::<Loom, Tas, AllSteps>(setup, true))
    })
}
/// Two CPUs, of which the first `writers` write.
pub(super) fn readers_and_writers(writers: u32) -> Trial {
    Trial::new(2, 3, move |setup| {
        Box::new(scenario::readers_and_writers::<Loom, Tas, AllSteps>(setup, writers, 1))
    })
}

/// The same with a lock without a queue.
pub(super) fn unqueued(writers: u32) -> Trial {
    Trial::new(2, 3, move |setup| {
        Box::new(scenario::readers_and_writers_of::<Loom, UnqueuedRwlock<ModelWord<Loom>>>(setup, writers, 1))
    })
}

/// A search on a lock with a bias, on a machine with a line for each CPU.
fn with_lines(cpus: u32, preemptions: usize, body: impl Fn(&Setup) -> Body + 'static) -> Trial {
    let mut trial = Trial::new(cpus, preemptions, body);
    trial.setup.reader_lines = cpus;
    trial
}

/// Two CPUs, of which the first `writers` write, after a read of a lock with a bias.
pub(super) fn biased(writers: u32, rounds: u32) -> Trial {
    with_lines(2, 4 - rounds as usize, move |setup| {
        Box::new(scenario::readers_and_writers_after_a_read::<Loom, Biased>(
            setup, writers, rounds,
        ))
    })
}

/// A reader that tries to take such a lock once more until a writer prevents it.
pub(super) fn biased_coming_reader() -> Trial {
    with_lines(2, 3, |setup| Box::new(scenario::coming_reader::<Loom, Biased>(setup)))
}

/// One CPU writes such a lock, reads it and tries to write it, while two others read: one of them may bias it for the
/// other.
pub(super) fn biased_writer_that_reads() -> Trial {
    with_lines(3, 2, |setup| {
        Box::new(scenario::writer_that_reads::<Loom, Biased>(setup))
    })
}

/// Two CPUs with one attempt each.
pub(super) fn biased_tries(writers: u32) -> Trial {
    with_lines(2, 3, move |setup| {
        Box::new(scenario::tries::<Loom, Biased>(setup, writers))
    })
}

pub(super) fn queue_behind(writer: bool) -> Trial {
    Trial::new(3, 2, move |setup| {
        Box::new(scenario::queue_behind::<Loom, Tas, AllSteps>(setup, writer, 1))
    })
}

pub(super) fn downgraded_writer(others_write: bool) -> Trial {
    Trial::new(2, 3, move |setup| {
        Box::new(scenario::downgraded_writer::<Loom, Qrwlock<ModelWord<Loom>, Tas>>(
            setup,
            others_write,
        ))
    })
}

pub(super) fn equal_tickets<L: Lock<Loom>>() -> Trial {
    Trial::new(3, 2, |setup| Box::new(scenario::equal_tickets::<Loom, L>(setup)))
}
