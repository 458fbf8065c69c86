//! The experiment that repeats a recorded host, as it was and with each remedy.

use std::fmt::Write as _;
use std::io;
use std::path::Path;

use holdfast_recordings::account::Account;
use holdfast_recordings::import::guest_names;
use holdfast_recordings::repeat::{Reading, Repeated};

use super::proposal::{Effort, Measure, Proposal};
use crate::diagnostic::Problems;
use crate::experiment::Experiment;
use crate::options::Options;
use crate::plan::Plan;
use crate::replay::Replay;

/// The variant without a remedy.
pub const AS_RECORDED: &str = "as-recorded";
/// Name of the experiment.
pub const NAME: &str = "advise";
/// Most numbers of pCPUs that are tried.
const PCPUS_TRIED: usize = 6;

/// The replays of a recorded host.
#[derive(Debug)]
pub struct Replays {
    replay: Replay,
    /// Names of the guests, in the order of the account's VMs.
    names: Vec<String>,
    /// The variant of each proposal, if a replay can answer it.
    variants: Vec<Option<String>>,
    /// Variants with more pCPUs, and their number of pCPUs.
    larger: Vec<(String, usize)>,
}

impl Replays {
    /// Adds `proposals` to `replay`, which repeats the host of `account`.
    pub fn new(account: &Account, mut replay: Replay, proposals: &[Proposal]) -> Replays {
        let names = guest_names(account);
        let mut add = |name: &str, set: &[(String, String)]| {
            let set: Vec<String> = set.iter().map(|(key, value)| format!("{key:?} = {value}")).collect();
            let set = set.join(", ");
            // Writing to a string cannot fail.
            let _ = write!(replay.text, "\n[[variants]]\nname = {name:?}\nset = {{ {set} }}\n");
        };
        // A wait of recorded length ends with a timer, which interrupts the pCPU: not even lazy preemption delays it.
        let is_timed = !replay.reading.timed.is_empty();
        let variants = (proposals.iter().enumerate()).map(|(at, proposal)| {
            let name = format!("{}-{}", proposal.rule, at + 1);
            let can_tell = proposal.measure != Measure::WakeToRun || !is_timed;
            (can_tell && !proposal.set.is_empty()).then(|| {
                add(&name, &proposal.set);
                name
            })
        });
        let variants = variants.collect();
        let too_many = proposals.iter().any(|proposal| proposal.effort == Effort::Fewer);
        let sizes = if too_many { sizes(account) } else { Vec::new() };
        let larger = sizes.into_iter().map(|pcpus| {
            let name = format!("pcpus-{pcpus}");
            let machine = [("sockets", 1), ("cores", pcpus), ("threads", 1)];
            let machine = machine.map(|(key, value)| (format!("machine.{key}"), value.to_string()));
            let unpinned = ("vm.*.affinity".to_owned(), "[]".to_owned());
            add(&name, &machine.into_iter().chain([unpinned]).collect::<Vec<_>>());
            (name, pcpus)
        });
        let larger = larger.collect();
        Replays {
            replay,
            names,
            variants,
            larger,
        }
    }

    /// Returns the plan of all replays, each with `seeds` draws.
    ///
    /// # Errors
    /// If a set-up cannot be built.
    pub fn plan(&self, seeds: u32) -> Result<Plan, Problems> {
        let own = self.variants.iter().flatten();
        let larger = self.larger.iter().map(|(name, _)| name);
        let options = Options {
            seeds: Some(seeds),
            variants: own.chain(larger).cloned().chain([AS_RECORDED.to_owned()]).collect(),
            ..Options::default()
        };
        self.replay.plan(&options)
    }

    /// Returns the names of the guests, in the order of the account's VMs.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Returns the variant of the proposal at `index`, or `None` if no replay can answer it.
    pub fn variant(&self, index: usize) -> Option<&str> {
        self.variants.get(index)?.as_deref()
    }

    /// Returns the variants with more pCPUs than were recorded, and their numbers of pCPUs.
    pub fn larger(&self) -> &[(String, usize)] {
        &self.larger
    }
}

/// A recorded VM, to be copied: without pins, and without the other threads of its host.
#[derive(Debug)]
pub struct Kind {
    replay: Replay,
    /// The name of the guest in its experiment.
    pub name: String,
    /// What its host needs to leave idle, the mean in ns, if recorded.
    pub idle_exit_ns: Option<u64>,
}

impl Kind {
    /// Returns the VM called `vm` of the recording with this `account`, or `None` if it has no such VM. Its waits are
    /// those of `reading`.
    pub fn new(account: &Account, repeated: &Repeated, reading: &Reading, vm: &str) -> Option<Kind> {
        let at = account.vms.iter().position(|known| known.name == vm)?;
        let name = guest_names(account).swap_remove(at);
        let mut account = account.clone();
        account.vms = vec![account.vms.swap_remove(at)];
        account.vms[0].name.clone_from(&name);
        for vcpu in &mut account.vms[0].vcpus {
            vcpu.allowed = None;
        }
        let mut repeated = repeated.clone();
        repeated.tied.guests.retain(|guest, _| *guest == name);
        let mut reading = reading.clone();
        reading.timed.retain(|guest| *guest == name);
        Some(Kind {
            replay: Replay::new(NAME, &account, &repeated, &reading),
            name,
            idle_exit_ns: account.idle_exit_ns,
        })
    }

    /// Returns the experiment, in which the key `vm.NAME.count` says how many copies there are.
    ///
    /// # Errors
    /// If the set-up cannot be built.
    pub fn experiment(&self) -> Result<Experiment, Problems> {
        let mut experiment = Experiment::parse(&self.replay.file, &self.replay.text)?;
        experiment.let_count(&self.name);
        Ok(experiment)
    }

    /// Returns the text of the file `path` of the experiment.
    ///
    /// # Errors
    /// If there is no such file.
    pub fn read(&self, path: &Path) -> io::Result<String> {
        self.replay.read(path)
    }
}

/// Returns numbers of pCPUs above those of `account`, up to one for each thread that it repeats.
fn sizes(account: &Account) -> Vec<usize> {
    let vcpus: usize = account.vms.iter().map(|vm| vm.vcpus.len()).sum();
    let pcpus = account.cpus.len();
    let step = |at: usize| pcpus + ((vcpus + 1).saturating_sub(pcpus) * at).div_ceil(PCPUS_TRIED);
    let mut sizes: Vec<usize> = (1..=PCPUS_TRIED).map(step).filter(|size| *size > pcpus).collect();
    sizes.dedup();
    sizes
}
