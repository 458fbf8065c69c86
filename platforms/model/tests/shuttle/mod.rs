//! Tests the locks and the queue of optimistic spinners under random schedules, and under priorities that change a few
//! times (PCT): with more CPUs and rounds than loom can explore, spurious ends of halts, and interrupts while waiting.

use holdfast_locks::*;
use holdfast_model::{Checker, ModelWord, ModelWorld, Schedules, Setup, Shuttle};

use crate::faults::Lock;
use crate::scenario;
use crate::support::holds;

/// The number of schedules of each scenario.
const COUNT: usize = 1000;

fn searches() -> [Schedules; 2] {
    [Schedules::random(COUNT), Schedules::pct(3, COUNT)]
}

/// Returns a machine whose halts sometimes end for no reason and whose CPUs sometimes seem preempted.
fn odd(cpus: u32) -> Setup {
    Setup {
        odds: 8,
        spin_threshold: 1,
        numa_nodes: 2,
        ..Setup::new(cpus)
    }
}

fn interrupted(cpus: u32) -> Setup {
    Setup {
        interrupts: true,
        rounds: 2,
        ..odd(cpus)
    }
}

/// Checks what every lock promises, and that only a lock that `may_be_freed` at once leaves its word alone.
fn keeps_its_promises<L: Lock<Shuttle>>(name: &str, may_be_freed: bool) {
    for search in searches() {
        let holds = |what: &str, body: Box<dyn Fn() + Send + Sync>| holds::<Shuttle>(name, what, search, body);
        holds(
            "6 CPUs, twice",
            Box::new(scenario::contention::<Shuttle, L>(&odd(6), 2, 0)),
        );
        holds("queue of 5", Box::new(scenario::queue::<Shuttle, L>(&odd(5))));
        holds("stray kick", Box::new(scenario::stray_kick::<Shuttle, L>(&odd(4))));
        holds("shared entry", Box::new(scenario::shared_entry::<Shuttle, L>(&odd(3))));
        holds(
            "equal tickets",
            Box::new(scenario::equal_tickets::<Shuttle, L>(&odd(3))),
        );
        holds("try_lock", Box::new(scenario::try_lock::<Shuttle, L>(&odd(4))));
        if may_be_freed {
            holds(
                "freed at once",
                Box::new(scenario::freed_at_once::<Shuttle, L>(&odd(2))),
            );
        } else {
            let failure = Shuttle::explore(&search, scenario::freed_at_once::<Shuttle, L>(&odd(2)));
            assert!(failure.is_err(), "{name} accesses its word after the release");
        }
        holds(
            "interrupted waiter",
            Box::new(scenario::interrupted_waiter::<Shuttle, L>(&odd(2))),
        );
    }
}

/// Head and tail shortly before they wrap. Bit 0 of the head is a flag in some ticket locks, and clear here.
fn wraps_its_tickets<L: Lock<Shuttle>>(name: &str) {
    for search in searches() {
        for initial in [0xfffe_fffe, 0xfffc_fffc] {
            let body = scenario::contention::<Shuttle, L>(&odd(4), 3, initial);
            holds::<Shuttle>(name, "tickets wrap", search, body);
        }
    }
}

/// Runs the conformance suite.
fn conforms<L: Exclusive<holdfast_model::Cpu<Shuttle>> + 'static>(name: &str) {
    for search in searches() {
        let setup = interrupted(3);
        let body = move || conformance::check_lock::<L, _>(&ModelWorld::<Shuttle>::new(&setup));
        let search = Schedules {
            count: COUNT / 10,
            ..search
        };
        holds::<Shuttle>(name, "conformance", search, body);
    }
}

/// Defines the test of each lock.
macro_rules! tests {
    ([$from:ident] $($module:ident: $kind:ident = $name:literal,)+) => {$(
        #[test]
        fn $module() {
            use $from::$kind as Algorithm;
            keeps_its_promises::<Algorithm>($name, <Algorithm>::MAY_BE_FREED_AT_ONCE);
            if <Algorithm>::DRAWS_TICKETS {
                wraps_its_tickets::<Algorithm>($name);
            }
            conforms::<Algorithm>($name);
        }
    )+};
}

for_each_lock_kind!(tests holdfast_locks);
holdfast_history::for_each_historic_lock!(tests holdfast_history);

#[test]
fn words_for_many_cpus() {
    keeps_its_promises::<Qspin<Wide>>("qspin (wide)", true);
}

#[test]
fn optimistic_spinners() {
    for search in searches() {
        for impatient in [0, 0b00010, 0b01110, 0b11111] {
            let body = scenario::optimistic_spinners::<Shuttle, AllSteps>(&odd(5), 2, impatient);
            holds::<Shuttle>("osq", &format!("5 CPUs, {impatient:b} leave"), search, body);
        }
    }
}

#[test]
fn condition_variables_over_queues_of_the_kernel() {
    type Mutex = HybridPvQspin;
    for search in searches() {
        let holds = |what: &str, body: Box<dyn Fn() + Send + Sync>| holds::<Shuttle>("requeue", what, search, body);
        for destroys in [false, true] {
            holds(
                "broadcast to 4",
                Box::new(scenario::requeued_broadcast::<Shuttle, Mutex, AllSteps>(
                    &odd(5),
                    destroys,
                )),
            );
        }
        for cpus in [2, 4] {
            holds(
                &format!("{cpus} CPUs in turn"),
                Box::new(scenario::requeued_turns::<Shuttle, Mutex, AllSteps>(&odd(cpus), 3)),
            );
        }
        holds(
            "impatient waiter",
            Box::new(scenario::requeued_impatience::<Shuttle, Mutex, AllSteps>(&odd(3))),
        );
    }
}

#[test]
fn reader_writer_locks() {
    type Queue = HybridPvQspin;
    type Lock = Qrwlock<ModelWord<Shuttle>, Queue>;
    let equal = |cpus| Setup {
        sharing: holdfast_locks::thread::SHARING,
        ..odd(cpus)
    };
    for search in searches() {
        let holds = |what: &str, body: Box<dyn Fn() + Send + Sync>| holds::<Shuttle>("qrwlock", what, search, body);
        for (setup, kind) in [(odd(5), "Linux"), (equal(5), "threads")] {
            for writers in [1, 3] {
                holds(
                    &format!("{writers} writers of 5, as on {kind}"),
                    Box::new(scenario::readers_and_writers::<Shuttle, Queue, AllSteps>(
                        &setup, writers, 2,
                    )),
                );
                for holder_writes in [false, true] {
                    holds(
                        &format!("queue with {writers} writers, as on {kind}"),
                        Box::new(scenario::queue_behind::<Shuttle, Queue, AllSteps>(
                            &setup,
                            holder_writes,
                            writers,
                        )),
                    );
                }
            }
            for others_write in [false, true] {
                holds(
                    "downgrade",
                    Box::new(scenario::downgraded_writer::<Shuttle, Lock>(&setup, others_write)),
                );
            }
            holds(
                "waiting writer",
                Box::new(scenario::waiting_writer::<Shuttle, Lock>(&setup)),
            );
            let body = move || conformance::check_fair_rwlock::<Lock, _>(&ModelWorld::<Shuttle>::new(&setup));
            holds("conformance", Box::new(body));
        }
    }
}

/// Three CPUs share each line.
#[test]
fn reader_writer_locks_with_a_bias() {
    type Lock = BiasedRwlock<ModelWord<Shuttle>, HybridPvQspin>;
    for search in searches() {
        let holds = |what: &str, body: Box<dyn Fn() + Send + Sync>| holds::<Shuttle>("biased", what, search, body);
        for sharing in [Sharing::LINUX, holdfast_locks::thread::SHARING] {
            let setup = Setup {
                reader_lines: 2,
                sharing,
                ..odd(5)
            };
            for writers in [1, 3] {
                let body = scenario::readers_and_writers_after_a_read::<Shuttle, Lock>(&setup, writers, 3);
                holds(&format!("{writers} writers of 5"), Box::new(body));
                let body = scenario::tries::<Shuttle, Lock>(&setup, writers);
                holds(&format!("{writers} writers of 5 try"), Box::new(body));
            }
            for others_write in [false, true] {
                let body = scenario::downgraded_writer::<Shuttle, Lock>(&setup, others_write);
                holds("downgrade", Box::new(body));
            }
            holds(
                "waiting writer",
                Box::new(scenario::waiting_writer::<Shuttle, Lock>(&setup)),
            );
            let body = move || conformance::check_fair_rwlock::<Lock, _>(&ModelWorld::<Shuttle>::new(&setup));
            holds("conformance", Box::new(body));
        }
    }
}

#[test]
fn reader_writer_locks_without_a_queue() {
    type Lock = UnqueuedRwlock<ModelWord<Shuttle>>;
    for search in searches() {
        let holds = |what: &str, body: Box<dyn Fn() + Send + Sync>| holds::<Shuttle>("unqueued", what, search, body);
        for writers in [1, 3] {
            holds(
                &format!("{writers} writers of 5"),
                Box::new(scenario::readers_and_writers_of::<Shuttle, Lock>(&odd(5), writers, 2)),
            );
        }
        let body = move || conformance::check_rwlock::<Lock, _>(&ModelWorld::<Shuttle>::new(&odd(5)));
        holds("conformance", Box::new(body));
    }
}

/// Either way of choosing schedules finds a lock that does not exclude.
#[test]
fn both_searches_see_a_lock_that_does_not_exclude() {
    for search in searches() {
        let body = scenario::contention::<Shuttle, Open>(&odd(3), 2, 0);
        assert!(Shuttle::explore(&search, body).is_err(), "{search:?}");
    }
}

/// A lock that is always free.
struct Open;

impl Described for Open {
    const FIFO: bool = false;
    const HALTS: bool = false;
    const KICKS: bool = false;
    const WITHOUT_KICKS: Instead = Instead::Itself;
    const DRAWS_TICKETS: bool = false;
    const CPUS_MAX: u32 = u32::MAX;
    const MAY_BE_FREED_AT_ONCE: bool = true;
    const ORIGIN: &'static str = "in this test only";
}

impl<P: Platform> RawLock<P> for Open {
    fn lock(_: &P, _: &P::Word) {}
    fn try_lock(_: &P, _: &P::Word) -> bool {
        true
    }
    fn unlock(_: &P, _: &P::Word) {}
    fn is_locked(_: &P, _: &P::Word) -> bool {
        false
    }
    fn is_contended(_: &P, _: &P::Word) -> bool {
        false
    }
}
