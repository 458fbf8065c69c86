//! A replay against its recording: before an answer of a replay is believed, it must give the recording back.

use holdfast_recordings::account::{Account, Pace, VmAccount};
use holdfast_recordings::import::guest_names;
use serde::Serialize;

/// Most by which a guest's ready time may differ from the recorded one, as a share of that.
pub const SHARE: f64 = 0.05;
/// Or as a share of the time in which its vCPUs ran or could have run: ready time of nearly nothing has no share.
pub const SHARE_OF_WANTED: f64 = 0.005;

/// A figure of the recording, and of the replay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Pair {
    /// Of the recording.
    pub recorded: f64,
    /// Of the replay.
    pub replayed: f64,
}

impl Pair {
    fn of(recorded: &Pace, replayed: &Pace, figure: impl Fn(&Pace) -> f64) -> Pair {
        Pair {
            recorded: figure(recorded),
            replayed: figure(replayed),
        }
    }

    /// Returns the replayed figure as a multiple of the recorded one; `None` if that is nothing.
    pub fn ratio(&self) -> Option<f64> {
        (self.recorded > 0.0).then(|| self.replayed / self.recorded)
    }
}

/// Ready time of a vCPU.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct VcpuCheck {
    /// Its number in the recorded VM, if known.
    pub number: Option<u32>,
    /// Ready time in seconds.
    pub ready_s: Pair,
}

/// A guest of the replay against the recorded VM.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GuestCheck {
    /// Its name in the replay's experiment.
    pub name: String,
    /// Ready time of all its vCPUs, in seconds.
    pub ready_s: Pair,
    /// Time in which its vCPUs ran or could have run, in seconds.
    pub wanted_s: Pair,
    /// Distance between the lengths of its vCPUs' stretches with a pCPU (Kolmogorov and Smirnov): 0 to 1.
    pub runs_distance: Option<f64>,
    /// Distance between the lengths of its vCPUs' waits for a pCPU.
    pub waits_distance: Option<f64>,
    /// Stretches with a pCPU, per second of a vCPU.
    pub switches_per_s: Pair,
    /// Moves to another pCPU, per second of a vCPU.
    pub moves_per_s: Pair,
    /// Its vCPUs.
    pub vcpus: Vec<VcpuCheck>,
}

impl GuestCheck {
    /// Returns whether the ready time of the replay is near enough to the recorded one to believe the replay.
    pub fn passes(&self) -> bool {
        self.excess() <= 1.0
    }

    /// Returns the difference of the ready times as a multiple of what is allowed.
    fn excess(&self) -> f64 {
        let difference = (self.ready_s.replayed - self.ready_s.recorded).abs();
        let allowed = (SHARE * self.ready_s.recorded).max(SHARE_OF_WANTED * self.wanted_s.recorded);
        if difference == 0.0 { 0.0 } else { difference / allowed }
    }
}

/// A replay against its recording.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Check {
    /// The guests.
    pub guests: Vec<GuestCheck>,
    /// Recorded guests that the replay has not.
    pub missing: Vec<String>,
}

impl Check {
    /// Returns whether the ready time of each guest is within 5 % of the recorded one, or within half a percent of the
    /// time that it wanted.
    pub fn passes(&self) -> bool {
        !self.guests.is_empty() && self.missing.is_empty() && self.guests.iter().all(GuestCheck::passes)
    }

    /// Returns the largest difference of ready times as a multiple of what is allowed.
    pub fn excess(&self) -> f64 {
        self.guests.iter().map(GuestCheck::excess).fold(0.0, f64::max)
    }
}

/// Compares the account of a replay with that of the recording that it repeats. Guests are matched by the names that
/// the replay's experiment gives them ([`guest_names`]), their vCPUs by their order.
pub fn check(recorded: &Account, replayed: &Account) -> Check {
    let mut check = Check {
        guests: Vec::new(),
        missing: Vec::new(),
    };
    for (name, vm) in guest_names(recorded).into_iter().zip(&recorded.vms) {
        match replayed.vms.iter().find(|replayed| replayed.name == name) {
            Some(replayed) => check.guests.push(guest(name, vm, replayed)),
            None => check.missing.push(name),
        }
    }
    check
}

fn guest(name: String, recorded: &VmAccount, replayed: &VmAccount) -> GuestCheck {
    let none = Pace::default();
    let seconds = |ns: u64| ns as f64 / 1e9;
    let ready = |pace: &Pace| seconds(pace.ready_ns);
    let per_second = |pace: &Pace, count: u64| count as f64 / seconds(pace.recorded_ns.max(1));
    let (one, other) = (sum(recorded), sum(replayed));
    let vcpus = recorded.vcpus.iter().enumerate().map(|(index, vcpu)| {
        let again = replayed.vcpus.get(index).map_or(&none, |vcpu| &vcpu.pace);
        VcpuCheck {
            number: vcpu.number,
            ready_s: Pair::of(&vcpu.pace, again, ready),
        }
    });
    GuestCheck {
        name,
        ready_s: Pair::of(&one, &other, ready),
        wanted_s: Pair::of(&one, &other, |pace| seconds(pace.ready_ns.saturating_add(pace.ran_ns))),
        runs_distance: one.runs.distance(&other.runs),
        waits_distance: one.waits.distance(&other.waits),
        switches_per_s: Pair::of(&one, &other, |pace| per_second(pace, pace.runs.count())),
        moves_per_s: Pair::of(&one, &other, |pace| per_second(pace, pace.moves)),
        vcpus: vcpus.collect(),
    }
}

fn sum(vm: &VmAccount) -> Pace {
    let mut sum = Pace::default();
    vm.vcpus.iter().for_each(|vcpu| sum.merge(&vcpu.pace));
    sum
}
