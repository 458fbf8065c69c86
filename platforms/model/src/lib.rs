//! The locks under model checkers: the same source, every execution.
//!
//! | checker | memory | threads | search | finds |
//! |---|---|---|---|---|
//! | [`Loom`] | C11, no load buffering | 2 or 3 | every execution, or all with few preemptions | missing orderings |
//! | [`Shuttle`] | sequentially consistent | many | random and PCT schedules | odd schedules |
//!
//! A [`Checker`] supplies shared words and threads; [`Cpu`] is one `Platform` over any of them; a [`scenario`] is a
//! small program over a lock, with what must hold. What a search may find wrong: a failed assertion, a data race on
//! what the lock protects, a touched word whose memory is freed, and **no progress**, which is how a lost kick shows.
//!
//! What the suite has explored, one line for each lock, what each ordering made weaker leads to, and who finds each
//! step left out:
//!
//! ```sh
//! cargo test -p holdfast-model -- --nocapture >searches
//! awk '/^(loom|shuttle) .* executions/ { lock = substr($0, 10, 20); sub(/ executions.*/, ""); sum[lock] += $NF }
//!      END { for (lock in sum) print lock, sum[lock] }' searches | sort
//! grep '^loom.*->' searches
//! grep '^fault' searches
//! ```
//!
//! The two disagree on purpose. Loom treats `SeqCst` accesses as `AcqRel` (its `SeqCst` fences are right), so
//! handshakes are written with fences; Shuttle treats every access as `SeqCst`, so it judges no ordering. A lock must
//! pass both, and a lock from which a necessary step or ordering was taken ([`fault`]) must fail one.

mod avic;
mod catch;
mod checker;
mod cpu;
pub mod fault;
mod interrupts;
mod loom;
mod machine;
mod posting;
pub mod scenario;
mod shuttle;
mod trace;
mod word;

pub use avic::{AvicScenario, Sender, Waiting};
pub use checker::{Atomic, Cell, Checker, Explored, Failure, Rmw};
pub use cpu::Cpu;
pub use loom::{Bounds, Loom};
pub use machine::{Machine, ModelWorld, Setup};
pub use posting::PostingScenario;
pub use shuttle::{Schedules, Shuttle};
pub use word::ModelWord;
