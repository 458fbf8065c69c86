//! Locks of other crates, for guests and programs in virtual time.

use std::marker::PhantomData;

use holdfast_locks::{Described, LockKind, Operations, OperationsOfSome, RawLock};

use crate::{SimCpu, SimThread};

/// A lock that guests and programs in virtual time can have.
pub trait SimLock: Described + RawLock<SimCpu> + RawLock<SimThread> + 'static {}

impl<L: Described + RawLock<SimCpu> + RawLock<SimThread> + 'static> SimLock for L {}

/// The operations of the lock `L` on the CPUs here.
struct Table<L>(PhantomData<L>);

impl<L: SimLock> Table<L> {
    const ON_CPU: Operations<SimCpu> = Operations::of::<L>();
    const ON_THREAD: Operations<SimThread> = Operations::of::<L>();
    const OPERATIONS: &'static [&'static OperationsOfSome] = &[&Self::ON_CPU, &Self::ON_THREAD];
}

/// Returns the kind of the lock `L` of another crate, which is called `name`. See [`LockKind::registered`].
#[track_caller]
pub fn lock_kind<L: SimLock>(name: &'static str, known: &[LockKind]) -> LockKind {
    LockKind::registered::<L>(name, Table::<L>::OPERATIONS, known)
}
