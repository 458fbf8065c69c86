//! Spinlocks, their list, and the guards of the data behind them.

pub(crate) mod backoff;
pub(crate) mod exclusive;
pub(crate) mod guard;
pub(crate) mod kind;
pub(crate) mod pv_qspin;
pub(crate) mod pv_ticket;
pub(crate) mod pv_wait;
pub(crate) mod qspin;
pub(crate) mod registered;
pub(crate) mod select;
pub(crate) mod steal;
pub(crate) mod tas;
pub(crate) mod ticket;
pub(crate) mod unfair_qspin;

pub use exclusive::Exclusive;
pub use guard::{Guard, IrqGuard, SpinLock};
pub use kind::{BootLock, LockKind, UnknownLock};
pub use pv_qspin::{HybridPvQspin, PvQspin, PvQueued, UnfairPvQspin, WidePvQspin};
pub use pv_ticket::PvTicket;
pub use qspin::{Qspin, WideQspin};
pub use registered::{Operations, OperationsOfSome, Registered};
pub use select::{Environment, Selection, select};
pub use steal::{Hybrid, StealOnce, Stealing, Unfair};
pub use tas::{Tas, TestAndSet, Ttas};
pub use ticket::Ticket;
pub use unfair_qspin::UnfairQspin;
