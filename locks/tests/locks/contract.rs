//! Every lock keeps its contract on both platforms.

use holdfast_locks::LockKind;
use holdfast_locks::conformance::check;

use crate::explore::StepWorld;
use crate::steps::Setup;
use crate::threads::ThreadWorld;

#[test]
fn every_lock_conforms_when_stepped() {
    for &kind in LockKind::ALL {
        for cpus in [2, 3, 5, 33] {
            check(&StepWorld::new(Setup::new(cpus)), kind);
        }
    }
}

#[test]
fn every_lock_conforms_on_threads() {
    for &kind in LockKind::ALL {
        check(&ThreadWorld::new(3), kind);
    }
}
