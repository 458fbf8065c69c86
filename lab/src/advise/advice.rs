//! What is said of a recorded host.

use holdfast_recordings::account::Account;
use holdfast_recordings::import::guest_names;
use serde::Serialize;

use super::facts::Facts;
use super::proposal::Proposal;
use super::replays::Replays;
use super::worth::{self, Gain, Knee, Outcome};
use crate::plan::Plan;
use crate::replay::Check;
use crate::run::Outcomes;

/// Schema of an advice.
pub const SCHEMA: &str = "holdfast.advice/2";

/// What `holdfast advise` says.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advice {
    /// The schema, [`SCHEMA`].
    pub schema: &'static str,
    /// The most important thing of the account.
    pub sentence: String,
    /// Whether a replay gives the recorded waits back. Nothing is measured if it does not.
    pub passes: bool,
    /// The replay of the recorded set-up against the recording; null if there is none.
    pub check: Option<Check>,
    /// Why there is no replay; null if there is one.
    pub without_replay: Option<String>,
    /// Length of the recording in ns.
    pub length_ns: u64,
    /// Number of draws of each replay.
    pub draws: usize,
    /// The remedies: what is wrongly set first, then those that are most worth.
    pub advice: Vec<Outcome>,
    /// How many of these vCPUs the host has pCPUs for; null if they are not too many, or if that is not measured.
    pub knee: Option<Knee>,
}

impl Advice {
    /// Returns the advice without measurements: the replay did not pass its check, or `Err`: there is none, for a
    /// reason.
    pub fn unmeasured(account: &Account, proposals: Vec<Proposal>, check: Result<Check, String>) -> Advice {
        let advice = Advice::new(account, proposals, |_| None);
        match check {
            Ok(check) => Advice {
                draws: 1,
                check: Some(check),
                ..advice
            },
            Err(why) => Advice {
                without_replay: Some(why),
                ..advice
            },
        }
    }

    /// Returns the advice with what replays say: `outcomes` of `plan`, which `replays` has made for `proposals`. The
    /// replay of the recorded set-up has passed its `check`.
    pub fn measured(
        account: &Account,
        proposals: Vec<Proposal>,
        check: Check,
        replays: &Replays,
        (plan, outcomes): (&Plan, &Outcomes),
    ) -> Advice {
        let gain = |at: usize| worth::gain(account, replays, (plan, outcomes), replays.variant(at)?, &check);
        Advice {
            passes: true,
            check: Some(check.clone()),
            draws: plan.seeds.len(),
            knee: worth::knee(account, replays, plan, outcomes),
            ..Advice::new(account, proposals, gain)
        }
    }

    fn new(account: &Account, proposals: Vec<Proposal>, gain: impl Fn(usize) -> Option<Gain>) -> Advice {
        let gains = proposals.into_iter().enumerate().map(|(at, proposal)| Outcome {
            gain: gain(at),
            proposal,
        });
        let mut advice: Vec<Outcome> = gains.collect();
        let ready_ms = Facts::new(account, &guest_names(account)).ready_ms();
        worth::sort(&mut advice, ready_ms);
        Advice {
            schema: SCHEMA,
            sentence: account.sentence.clone(),
            passes: false,
            check: None,
            without_replay: None,
            length_ns: account.length_ns,
            draws: 0,
            advice,
            knee: None,
        }
    }

    /// Returns the remedies, of several that one rule has for one VM the best.
    pub fn best(&self) -> impl Iterator<Item = &Outcome> {
        let id = |outcome: &Outcome| (outcome.proposal.rule, outcome.proposal.vm.clone());
        let first = move |at: usize| {
            self.advice[..at]
                .iter()
                .all(|before| id(before) != id(&self.advice[at]))
        };
        (self.advice.iter().enumerate()).filter_map(move |(at, outcome)| first(at).then_some(outcome))
    }
}
