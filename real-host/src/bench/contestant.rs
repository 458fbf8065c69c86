//! The locks that are measured.

use holdfast_locks::LockKind;
use lock_api::RawMutex;

use super::contended::{self, Cell, Clock, Outcome};
use super::lock::Lock;
use super::report::{Origin, Overtaking};
use super::uncontended;

/// A row of the tables.
pub struct Contestant {
    /// Name in results.
    pub name: &'static str,
    /// Origin of the lock.
    pub origin: Origin,
    /// The promise to waiters in its documentation, or by its algorithm.
    pub overtaking: Overtaking,
    /// Functions that measure it; `None` if it is not installed.
    pub measure: Option<Measure>,
}

/// The measurements of one lock type.
#[derive(Clone, Copy)]
pub struct Measure {
    /// Measures nanoseconds for lock and unlock without contention.
    pub uncontended: fn(iterations: u32) -> f64,
    /// Measures the lock under contention.
    pub contended: fn(&Cell, Clock) -> Outcome,
}

const fn measure<L: Lock>() -> Option<Measure> {
    Some(Measure {
        uncontended: uncontended::once::<L>,
        contended: contended::once::<L>,
    })
}

const fn ours<R: RawMutex + Sync>(name: &'static str, overtaking: Overtaking) -> Contestant {
    Contestant {
        name,
        origin: Origin::Holdfast,
        overtaking,
        measure: measure::<lock_api::Mutex<R, u64>>(),
    }
}

const fn peer<L: Lock>(name: &'static str, overtaking: Overtaking) -> Contestant {
    Contestant {
        name,
        origin: Origin::Peer,
        overtaking,
        measure: measure::<L>(),
    }
}

const fn concurrency_kit<R: RawMutex + Sync>(name: &'static str, overtaking: Overtaking) -> Contestant {
    let contestant = peer::<lock_api::Mutex<R, u64>>(name, overtaking);
    if holdfast_peers::ck::INSTALLED {
        contestant
    } else {
        Contestant {
            measure: None,
            ..contestant
        }
    }
}

/// The turn of a hybrid lock: the default.
const TURN_NS: u64 = holdfast_threads::TURN_DEFAULT.as_nanos() as u64;

/// What the algorithm of `kind` promises to a waiter.
const fn overtaking(kind: LockKind) -> Overtaking {
    match kind {
        LockKind::HybridPvQspin => Overtaking::Turns { ns: TURN_NS },
        _ if kind.is_fifo() => Overtaking::Never,
        _ => Overtaking::Unbounded,
    }
}

/// Defines the list of all contestants: every raw lock of ours, then the peers.
macro_rules! contestants {
    ($($(#[$doc:meta])* $raw:ident = $kind:ident;)+) => {
        /// Every contestant, ours first.
        pub const CONTESTANTS: &[Contestant] = &[
            $(ours::<holdfast_threads::$raw>(LockKind::$kind.name(), overtaking(LockKind::$kind)),)+
            peer::<std::sync::Mutex<u64>>("std::sync::Mutex", Overtaking::Unbounded),
            peer::<lock_api::Mutex<parking_lot::RawMutex, u64>>("parking_lot::Mutex", Overtaking::Unbounded),
            peer::<lock_api::Mutex<parking_lot::RawFairMutex, u64>>("parking_lot::FairMutex", Overtaking::Never),
            peer::<usync::Mutex<u64>>("usync::Mutex", Overtaking::Unbounded),
            peer::<spin::mutex::SpinMutex<u64>>("spin::SpinMutex", Overtaking::Unbounded),
            peer::<spin::mutex::TicketMutex<u64>>("spin::TicketMutex", Overtaking::Never),
            peer::<mcslock::raw::spins::Mutex<u64>>("mcslock::raw", Overtaking::Never),
            peer::<lock_api::Mutex<holdfast_peers::PthreadMutex, u64>>("pthread_mutex", Overtaking::Unbounded),
            peer::<lock_api::Mutex<holdfast_peers::PthreadSpinlock, u64>>("pthread_spinlock", Overtaking::Unbounded),
            concurrency_kit::<holdfast_peers::ck::FasSpinlock>("ck_spinlock_fas", Overtaking::Unbounded),
            concurrency_kit::<holdfast_peers::ck::TicketSpinlock>("ck_spinlock_ticket", Overtaking::Never),
        ];
    };
}
holdfast_threads::for_each_raw_lock!(contestants);
