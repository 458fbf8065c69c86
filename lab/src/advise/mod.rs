//! Advice for a recorded host: what would help its VMs, what it would cost their neighbors, and how to do it.
//!
//! `rules.rs` `RULES`, with those of `spins.rs`, propose remedies (`proposal.rs`) from an account, whose figures
//! `facts.rs` reads. `replays.rs` writes the experiment that has a variant for each remedy that a replay can answer.
//! `worth.rs` compares its outcomes with the recorded set-up (`wakes.rs`: times from wakeup to pCPU). `advice.rs` is
//! the answer, and `words.rs` fits it to a screen. Nothing here changes a host: [`Proposal::apply`] is text.

mod advice;
mod facts;
mod proposal;
mod replays;
mod rules;
mod spins;
mod wakes;
mod words;
mod worth;

use holdfast_recordings::account::Account;
use holdfast_recordings::import::guest_names;

pub use advice::{Advice, SCHEMA};
pub use proposal::{Effort, Measure, Proposal};
pub use replays::{Kind, NAME, Replays};
pub use wakes::{WakeGain, WakesGain};
pub use words::words;
pub use worth::{Gain, GuestGain, Knee, Outcome};

use facts::Facts;

/// Returns what the rules propose for the host of `account`.
pub fn proposals(account: &Account) -> Vec<Proposal> {
    let names = guest_names(account);
    let facts = Facts::new(account, &names);
    rules::RULES.iter().flat_map(|rule| rule(&facts)).collect()
}
