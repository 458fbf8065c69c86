//! The Holdfast locks on host threads.
//!
//! A thread plays a CPU: it halts in a futex and is kicked out of it. The locks are those that run in the simulator and
//! in a guest. Ordinary programs use them through `lock_api`, 0.5 or 0.4, whichever they have; each lock takes 4 bytes:
//!
//! ```
//! static EVENTS: lock_api::Mutex<holdfast_threads::RawHybrid, u64> = lock_api::Mutex::new(0);
//! *EVENTS.lock() += 1;
//! ```

mod cpu;
mod exit;
mod loaded;
mod numa;
mod park;
mod raw;
mod slot;
mod spin;
mod word;

pub use cpu::{ThisThread, ThreadAddress, ThreadWord};
pub use raw::*;
pub use slot::{CPUS_MAX, ClaimError, claim};
pub use spin::{SPIN_THRESHOLD_DEFAULT, TURN_DEFAULT, set_spin_threshold, set_turn, spin_threshold, turn};
pub use word::has_restartable_sequences;
