//! The queued spinlock, and the halt of ticket locks, in parts of which other crates make variants.
//!
//! A variant implements [`Flavor`], the steps in which it differs, and calls [`lock_slow`], or [`lock_queued`] if its
//! waiters all queue. Its word is a [`Layout`](crate::Layout). A ticket lock whose waiters halt publishes in the
//! [`WaitTable`](crate::WaitTable) for whom it waits, and its unlock [kicks](unlock_kick).

pub use crate::cpu::layout::{LOCKED, LOCKED_MASK, PENDING};
pub use crate::cpu::paravirt::{clock, halt, halt_while, kick, unlock_kick};
pub use crate::cpu::queue::{Waiter, successor};
pub use crate::cpu::steps::unless_omitted;
pub use crate::cpu::subword::swap as swap_bits;
pub use crate::spin::qspin::{Flavor, Turn, is_contended, is_locked, lock_queued, lock_slow, try_lock};
pub use crate::spin::steal::take;
