//! The locks under model checkers, which explore the executions of the same source.
//!
//! | checker | memory | threads | search | finds |
//! |---|---|---|---|---|
//! | [`Loom`] | C11, no load buffering | 2 or 3 | every execution, or all with few preemptions | missing orderings |
//! | [`Shuttle`] | sequentially consistent | many | random and PCT schedules | odd schedules |
//!
//! A [`Checker`] supplies shared words and threads. [`Cpu`] is a `Platform` over any checker. A [`scenario`] is a small
//! program over a lock, with assertions. A search can find a failed assertion, a data race on the protected data, an
//! access to a word whose memory is freed, and **no progress**, which is how a lost kick shows.
//!
//! The first command below prints the time that each lock took. The second shows the effect of each weakened ordering,
//! the third which checker finds each step that is left out:
//!
//! ```sh
//! cargo test -p holdfast-model -- --nocapture >searches
//! awk '/^(loom|shuttle) .* executions/ { lock = substr($0, 10, 20); sub(/ executions.*/, ""); sum[lock] += $NF }
//!      END { for (lock in sum) print lock, sum[lock] }' searches | sort
//! grep '^loom.*->' searches
//! grep '^fault' searches
//! ```
//!
//! The checkers differ. Loom treats `SeqCst` accesses as `AcqRel` but is exact about `SeqCst` fences, so the locks'
//! handshakes use fences. Shuttle treats every access as `SeqCst`, so it does not judge orderings. A lock must pass
//! both checkers. A lock without a necessary step or ordering ([`fault`]) must fail one of them.

mod catch;
mod checker;
mod cpu;
pub mod fault;
mod loom;
mod machine;
pub mod scenario;
mod shuttle;
mod trace;
mod word;

pub use checker::{Atomic, Cell, Checker, Explored, Failure, Rmw};
pub use cpu::Cpu;
pub use loom::{Bounds, Loom};
pub use machine::{Machine, ModelWorld, Setup};
pub use shuttle::{Schedules, Shuttle};
pub use word::ModelWord;
