//! An account as a document.

use std::collections::BTreeMap;

use serde::Serialize;

use super::figure::Figure;
use super::pace::Pace;
use crate::event::Tid;
use crate::hosts::{Feature, Groups, Place};
use crate::timeline::{Faults, Seen};

/// Schema of an account.
pub const SCHEMA: &str = "holdfast.account/1";

/// A time by a name.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Named {
    /// The name.
    pub name: String,
    /// How often.
    pub count: u64,
    /// The time, in ns.
    pub ns: u64,
}

/// What one vCPU sent to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Sent {
    /// Number of the sender in its VM.
    pub from: Option<u32>,
    /// Destination, as the guest wrote it: an APIC ID, or a set of them.
    pub to: u32,
    /// How often.
    pub count: u64,
}

/// The account of one vCPU.
#[derive(Clone, Debug, Serialize)]
pub struct VcpuAccount {
    /// Its number in its VM, if known.
    pub number: Option<u32>,
    /// Its thread.
    pub thread: Tid,
    /// The name of its thread.
    pub name: String,
    /// The time of its first event, in ns from the begin of the recording.
    pub from_ns: u64,
    /// The time at which its thread ended, in ns from the begin of the recording; null if it did not.
    pub gone_ns: Option<u64>,
    /// pCPUs that its thread may use, as Linux lists them, if a file says it.
    pub allowed: Option<String>,
    /// Its figures.
    pub figures: Vec<Figure>,
    /// How it ran and waited. It is no part of the document.
    #[serde(skip)]
    pub pace: Pace,
}

/// The account of one VM.
#[derive(Clone, Debug, Serialize)]
pub struct VmAccount {
    /// Its name: that of its domain, or of its process.
    pub name: String,
    /// Its process; null for vCPUs whose process is not known.
    pub process: Option<Tid>,
    /// Its quota in pCPUs, if files say that it has one.
    pub quota: Option<f64>,
    /// Paravirtual features that files say to be on or off.
    pub features: Vec<Feature>,
    /// Its control groups, if files say them.
    pub groups: Option<Groups>,
    /// Figures of all its vCPUs together. Shares are of their whole time.
    pub figures: Vec<Figure>,
    /// What its vCPUs waited behind, longest first.
    pub behind: Vec<Named>,
    /// Exits by reason, with the time that the host had the pCPU for them, longest first.
    pub exits: Vec<Named>,
    /// What woke its vCPUs, with the time until they ran, most often first.
    pub wakers: Vec<Named>,
    /// IPIs that the host saw.
    pub ipis: Vec<Sent>,
    /// Kick hypercalls.
    pub kicks: Vec<Sent>,
    /// Counters of KVM between the two copies of its files, if there are any.
    pub counters: BTreeMap<String, u64>,
    /// Its vCPUs by number.
    pub vcpus: Vec<VcpuAccount>,
}

/// A pCPU's time, in percent of what is recorded of it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CpuAccount {
    /// Its number in Linux.
    pub cpu: u32,
    /// vCPUs had it.
    pub vcpus_percent: f64,
    /// Other threads had it.
    pub threads_percent: f64,
    /// No thread had it.
    pub idle_percent: f64,
    /// Not known.
    pub unknown_percent: f64,
}

/// A thread that is no vCPU, and had much time on pCPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherThread {
    /// Its thread.
    pub thread: Tid,
    /// Its process, if known.
    pub process: Option<Tid>,
    /// pCPUs that it may use, as Linux lists them, if a file says it.
    pub allowed: Option<String>,
}

/// The longest wait of all.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Worst {
    /// Name of the VM.
    pub vm: String,
    /// Number of the vCPU.
    pub vcpu: Option<u32>,
    /// Its begin, in ns from the begin of the recording.
    pub from_ns: u64,
    /// Its length in ns.
    pub ns: u64,
}

/// The account of a recording.
#[derive(Clone, Debug, Serialize)]
pub struct Account {
    /// The schema of this document, [`SCHEMA`].
    pub schema: &'static str,
    /// The most important thing, in one sentence.
    pub sentence: String,
    /// The first time of the recording, on its clock, in ns.
    pub begin_ns: u64,
    /// Its length in ns.
    pub length_ns: u64,
    /// Release of the kernel, if known.
    pub kernel: Option<String>,
    /// Its model of preemption, if known.
    pub preemption: Option<String>,
    /// Longest time for which a halted vCPU polls, in ns, if known.
    pub halt_poll_ns: Option<u64>,
    /// What was wrong with the recording.
    pub faults: Faults,
    /// How many events of each kind there were.
    pub seen: Seen,
    /// The VMs, longest waiting first.
    pub vms: Vec<VmAccount>,
    /// Threads other than vCPUs by the time that they had pCPUs, longest first.
    pub threads: Vec<Named>,
    /// The threads other than vCPUs that replays repeat. They are no part of the document.
    #[serde(skip)]
    pub others: Vec<OtherThread>,
    /// Mean time from the wakeup of a vCPU until it gets a pCPU that idles, in ns; null if hardly any was woken so.
    #[serde(skip)]
    pub idle_exit_ns: Option<u64>,
    /// The pCPUs.
    pub cpus: Vec<CpuAccount>,
    /// Places of the pCPUs, if known.
    pub places: Vec<Place>,
    /// The longest wait of all.
    pub worst: Option<Worst>,
    /// Threads that have the name of a vCPU and no event, or never entered a guest, while others did. They are not
    /// counted.
    pub names_without_entry: u64,
    /// Files beside the recording that could not be understood.
    pub file_faults: Vec<String>,
}

/// Returns the first two numbers of a kernel's `release`, such as `6.12.8-amd64`.
pub fn release(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

impl Account {
    /// Returns whether the host preempts lazily, as files say, or else the version of its kernel.
    pub fn is_lazy(&self) -> bool {
        match self.preemption.as_deref() {
            Some(model) => model == "lazy",
            // Since 7.0 the choice is between lazy and full.
            None => self
                .kernel
                .as_deref()
                .and_then(release)
                .is_some_and(|release| release >= (7, 0)),
        }
    }

    /// Returns the figure `name` of `figures`.
    pub fn figure<'f>(figures: &'f [Figure], name: &str) -> Option<&'f Figure> {
        figures.iter().find(|figure| figure.name == name)
    }
}
