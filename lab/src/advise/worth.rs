//! What remedies are worth: replays with a remedy, compared with replays of the recorded set-up, draw by draw.

use holdfast_recordings::account::Account;
use serde::Serialize;

use super::proposal::{Effort, Measure, Proposal};
use super::replays::{AS_RECORDED, Replays};
use super::wakes::{self, Quantiles, WakesGain};
use crate::draws::Draws;
use crate::plan::Plan;
use crate::replay::{Check, SHARE, SHARE_OF_WANTED, idle_exits_ns};
use crate::run::Outcomes;

/// Share of the wanted CPU time up to which ready vCPUs have enough pCPUs, in percent: VMware's and KubeVirt's users
/// complain above it.
pub const ENOUGH: f64 = 5.0;

/// What a remedy changes for one VM.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GuestGain {
    /// Its name in the account.
    pub vm: String,
    /// CPU ready in the replay of the recorded set-up, in ms per 20 s of all vCPUs together, at the recorded scale.
    pub ready_before_ms_per_20s: f64,
    /// CPU ready with the remedy; null if the VM is not there any more.
    pub ready_ms_per_20s: Option<Draws>,
    /// Time on pCPUs, as a change in percent; null if the VM is not there any more. A vCPU that wanted a pCPU when the
    /// recording ended goes on in the replay: more time is more work.
    pub ran_percent: Option<Draws>,
    /// Time from a wakeup of a vCPU that sleeps to its pCPU; null if that is not known.
    pub wake_to_run: Option<WakesGain>,
}

/// What a remedy gains.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Gain {
    /// CPU ready saved of all VMs that stay, in ms per 20 s. The range is that of the draws, wider by the replay's own
    /// error.
    pub saved_ms_per_20s: Draws,
    /// Whether each draw saves something.
    pub saves_in_every_draw: bool,
    /// The VMs, in the account's order.
    pub vms: Vec<GuestGain>,
}

/// One proposal with its worth.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// The proposal.
    #[serde(flatten)]
    pub proposal: Proposal,
    /// What replays say of it; null if none can answer it, or if they cannot be believed.
    pub gain: Option<Gain>,
}

/// How many of these vCPUs the host has pCPUs for.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Knee {
    /// The vCPUs of all VMs.
    pub vcpus: usize,
    /// The pCPUs of the host.
    pub pcpus: usize,
    /// Fewest pCPUs with which a replay of them all is ready without a pCPU for at most 5 percent of the
    /// wanted time; null if none of those tried is enough.
    pub enough_pcpus: Option<usize>,
    /// Number of such vCPUs for which the host's own pCPUs are enough, at the same ratio; null as above.
    pub fits: Option<usize>,
}

/// A VM in one replay.
#[derive(Clone, Copy, Debug)]
struct Run {
    /// Ready time in ms per 20 s.
    ready_ms: f64,
    /// Time on pCPUs in s.
    ran_s: f64,
    /// Times from wakeups to pCPUs.
    wakes: Option<Quantiles>,
}

/// Returns a VM in one replay of the recording with this `account`.
fn of_run(plan: &Plan, outcomes: &Outcomes, variant: &str, seed: usize, vm: &str, account: &Account) -> Option<Run> {
    let cell = plan.cells.iter().position(|cell| cell.variant == variant)?;
    let outcome = outcomes.get(cell, seed)?.as_ref().ok()?;
    let vm = outcome.vms.iter().find(|found| found.name == vm)?;
    let ready_ns = *vm.counters.get("ready_ns")? as f64 + idle_exits_ns(vm, account.idle_exit_ns);
    // A VM that is removed is not measured.
    vm.elapsed_ns?;
    Some(Run {
        ready_ms: ready_ns / account.length_ns.max(1) as f64 * 20_000.0,
        ran_s: *vm.counters.get("cpu_time_ns")? as f64 / 1e9,
        wakes: wakes::replayed(vm),
    })
}

/// Returns what `variant` gains over the recorded set-up, whose replay has this `check`.
///
/// Ready times are at the recorded scale ([`Error::scale`]), and their ranges are wider by [`Error::of`].
pub fn gain(
    account: &Account,
    replays: &Replays,
    (plan, outcomes): (&Plan, &Outcomes),
    variant: &str,
    check: &Check,
) -> Option<Gain> {
    let length_ns = account.length_ns.max(1) as f64;
    let seeds = plan.seeds.len();
    let of = |variant: &str, name: &str| -> Option<Vec<Run>> {
        let of = |seed| of_run(plan, outcomes, variant, seed, name, account);
        (0..seeds).map(of).collect()
    };
    let mut runs = Vec::new();
    for name in replays.names() {
        runs.push((of(AS_RECORDED, name)?, of(variant, name)));
    }
    let mean_ready = |runs: &[Run]| runs.iter().map(|run| run.ready_ms).sum::<f64>() / seeds.max(1) as f64;
    let stays = |name: &str| {
        let at = replays.names().iter().position(|known| known == name);
        at.is_some_and(|at| runs[at].1.is_some())
    };
    let staying = runs.iter().filter(|(_, after)| after.is_some());
    let error = Error::new(
        check,
        stays,
        length_ns,
        staying.map(|(before, _)| mean_ready(before)).sum(),
    );
    let (mut saved, mut ready_after) = (vec![0.0; seeds], 0.0);
    let mut vms = Vec::new();
    for (vm, (before, after)) in account.vms.iter().zip(&runs) {
        let changed = after.as_ref().map(|after| {
            for (sum, (before, after)) in saved.iter_mut().zip(before.iter().zip(after)) {
                *sum += (before.ready_ms - after.ready_ms) * error.scale;
            }
            let ready: Vec<f64> = after.iter().map(|run| run.ready_ms * error.scale).collect();
            let ran: Vec<f64> = (before.iter().zip(after))
                .map(|(before, after)| (after.ran_s / before.ran_s.max(1e-9) - 1.0) * 100.0)
                .collect();
            ready_after += mean_ready(after) * error.scale;
            let wakes = |runs: &[Run]| runs.iter().map(|run| run.wakes).collect::<Vec<_>>();
            let wakes = WakesGain::new(vm, &wakes(before), &wakes(after));
            (Draws::of(&ready), Draws::of(&ran), wakes)
        });
        let (ready, ran, wake_to_run) = changed.unwrap_or((None, None, None));
        vms.push(GuestGain {
            vm: vm.name.clone(),
            ready_before_ms_per_20s: mean_ready(before) * error.scale,
            ready_ms_per_20s: ready.map(|ready| ready.wider(error.share * ready.mean)),
            ran_percent: ran,
            wake_to_run,
        });
    }
    // A variant that ran nowhere has gained nothing.
    vms.iter().any(|vm| vm.ready_ms_per_20s.is_some()).then_some(())?;
    let saved = Draws::of(&saved)?;
    Some(Gain {
        saved_ms_per_20s: saved.wider(error.of(ready_after)),
        saves_in_every_draw: saved.min > 0.0,
        vms,
    })
}

/// How far the replay of the recorded set-up is from the recording, for some of its VMs.
///
/// CPU ready before a remedy is known: it was recorded. A replay that has a share too little of it has that much too
/// little with a remedy, too, so all replayed times are scaled to the recorded one. What is left is the error of CPU
/// ready with the remedy: it may be as large a share as the check has shown for the vCPUs, one by one, since their
/// errors can cancel out each other in the sum.
struct Error {
    /// What replayed ready times are multiplied by.
    scale: f64,
    /// Error of the vCPUs' ready time, as a share of it.
    share: f64,
    /// The least error of ready time in ms per 20 s: the check is no finer.
    least: f64,
}

impl Error {
    /// Returns the error of the VMs of `check` that `stay`, whose ready time in replays has the mean `replayed`, in ms
    /// per 20 s of a recording of `length_ns`.
    fn new(check: &Check, stays: impl Fn(&str) -> bool, length_ns: f64, replayed: f64) -> Error {
        let ms = |seconds: f64| seconds * 1e9 / length_ns * 20_000.0;
        let guests = || check.guests.iter().filter(|guest| stays(&guest.name));
        let recorded: f64 = guests().map(|guest| guest.ready_s.recorded).sum();
        let wanted: f64 = guests().map(|guest| guest.wanted_s.recorded).sum();
        let pairs = guests().flat_map(|guest| &guest.vcpus).map(|vcpu| vcpu.ready_s);
        let off: f64 = pairs.map(|pair| (pair.replayed - pair.recorded).abs()).sum();
        Error {
            // Ready time of nearly nothing has no scale.
            scale: (ms(recorded) / replayed.max(1e-9)).clamp(1.0 - SHARE, 1.0 + SHARE),
            share: off / recorded.max(1e-9),
            least: ms(SHARE_OF_WANTED * wanted),
        }
    }

    /// Returns the error of `ready_ms`, ready time in a replay with a remedy.
    fn of(&self, ready_ms: f64) -> f64 {
        (self.share * ready_ms).max(self.least)
    }
}

/// Returns how many vCPUs the host has pCPUs for, or `None` if no larger host was tried.
pub fn knee(account: &Account, replays: &Replays, plan: &Plan, outcomes: &Outcomes) -> Option<Knee> {
    replays.larger().first()?;
    let (pcpus, vcpus) = (account.cpus.len(), account.vms.iter().map(|vm| vm.vcpus.len()).sum());
    let is_enough = |variant: &str| {
        let cell = plan.cells.iter().position(|cell| cell.variant == variant);
        let ended = cell.map(|cell| (0..plan.seeds.len()).map(move |seed| outcomes.get(cell, seed)));
        ended.is_some_and(|mut runs| {
            runs.all(|run| {
                let Some(Ok(outcome)) = run else { return false };
                let own = || outcome.vms.iter().filter(|vm| replays.names().contains(&vm.name));
                let sum = |name: &str| own().filter_map(|vm| vm.counters.get(name)).sum::<u64>() as f64;
                let ready = sum("ready_ns");
                ready / (ready + sum("cpu_time_ns")).max(1.0) * 100.0 <= ENOUGH
            })
        })
    };
    let enough = replays.larger().iter().find(|(variant, _)| is_enough(variant));
    let enough_pcpus = enough.map(|(_, pcpus)| *pcpus);
    Some(Knee {
        vcpus,
        pcpus,
        enough_pcpus,
        fits: enough_pcpus.map(|enough| vcpus * pcpus / enough),
    })
}

/// Share of the recorded ready time that a setting saves, from which on it goes before fewer vCPUs.
const WORTH: f64 = 0.1;
/// The same for a setting about which no replay says anything: its bound by the account may be low.
const WORTH_UNANSWERED: f64 = 0.01;

impl Outcome {
    /// Returns what it saves in ms per 20 s: as measured, or else at most; 0 if that is not known.
    pub fn worth(&self) -> f64 {
        match &self.gain {
            Some(gain) => gain.saved_ms_per_20s.mean,
            None => self.proposal.at_most_ms_per_20s.unwrap_or(0.0),
        }
    }

    /// Returns whether it gains something in every draw, as far as is known.
    pub fn helps(&self) -> bool {
        let quickens = |vm: &GuestGain| vm.wake_to_run.is_some_and(|wakes| wakes.is_sooner_in_every_draw);
        self.gain.as_ref().is_none_or(|gain| match self.proposal.measure {
            Measure::CpuReady => gain.saves_in_every_draw,
            Measure::WakeToRun => gain.saves_in_every_draw || gain.vms.iter().any(quickens),
        })
    }
}

/// Sorts `outcomes` by kind, and within a kind by worth. What is wrongly set comes first, whatever it saves, since to
/// set it right takes nothing from other VMs. Then come other settings that save a tenth of the ready time `ready_ms`,
/// or a hundredth if no replay can answer; fewer vCPUs; and other settings. Of fewer vCPUs, those that a replay has
/// measured come first.
pub fn sort(outcomes: &mut [Outcome], ready_ms: f64) {
    let enough = |outcome: &Outcome| match outcome.proposal.set.is_empty() {
        true => WORTH_UNANSWERED * ready_ms,
        false => WORTH * ready_ms,
    };
    let class = |outcome: &Outcome| match outcome.proposal.effort {
        _ if !outcome.helps() => 4,
        Effort::Mistake => 0,
        Effort::Setting if outcome.worth() >= enough(outcome) => 1,
        Effort::Fewer => 2,
        Effort::Setting => 3,
    };
    // A bound on what fewer vCPUs save is no measurement.
    let is_bound = |outcome: &Outcome| outcome.proposal.effort == Effort::Fewer && outcome.gain.is_none();
    outcomes.sort_by(|a, b| {
        let order = class(a).cmp(&class(b)).then(is_bound(a).cmp(&is_bound(b)));
        order.then(b.worth().total_cmp(&a.worth()))
    });
}
