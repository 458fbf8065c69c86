//! Torture: every lock on 2 to 64 vCPUs with fewer pCPUs, interrupts whose handlers take locks and are interrupted
//! themselves, and preemption at random memory operations; all from one seed.
//!
//! Checked: **exclusion**, **order** where it is promised, **no lost kick** (a run without progress is a failure),
//! **nested interrupts** (up to five contexts, one more than there are queue nodes), **try-lock**, and that nothing is
//! left behind. How often waiters were overtaken is reported.

mod algorithm;
mod cpu;
mod storm;
#[cfg(test)]
mod tests;

pub use algorithm::{ALGORITHMS, Algorithm};
pub use cpu::Fault;
pub use storm::{Report, run};
