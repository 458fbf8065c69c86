//! The threads of a recorded host, as far as its events and the files beside the recording name them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::names::Role;
use crate::event::{Name, Tid};
use crate::timeline::VcpuIndex;

/// Most threads other than vCPUs that are remembered. Beyond it names are learned again.
const THREADS_MAX: usize = 1 << 18;

/// A thread.
#[derive(Clone, Copy, Debug)]
pub struct Thread {
    /// Its name. Empty if not known.
    pub name: Name,
    /// Its process, if known.
    pub process: Option<Tid>,
    /// What it does, by its name.
    pub role: Role,
    /// The vCPU that it runs.
    pub vcpu: Option<VcpuIndex>,
    /// It has said that it ends, and still runs.
    pub ends: bool,
}

/// The threads that are alive.
#[derive(Clone, Debug, Default)]
pub struct Threads {
    known: HashMap<Tid, Thread>,
    /// Processes of threads, from files beside the recording.
    processes: BTreeMap<Tid, Tid>,
    /// Kernel threads, from such files.
    kernel: BTreeSet<Tid>,
}

impl Threads {
    /// No threads. `processes` of threads, and `kernel` threads: what files beside the recording say of them.
    pub fn new(processes: BTreeMap<Tid, Tid>, kernel: BTreeSet<Tid>) -> Threads {
        Threads {
            known: HashMap::new(),
            processes,
            kernel,
        }
    }

    /// Returns the role of thread `tid`, which is called `name`.
    pub fn role(&self, tid: Tid, name: &str) -> Role {
        match Role::of(name) {
            Role::Vmm | Role::Other if self.kernel.contains(&tid) => Role::Kernel,
            role => role,
        }
    }

    /// Returns thread `tid`, if it is known.
    #[inline]
    pub fn get(&self, tid: Tid) -> Option<&Thread> {
        self.known.get(&tid)
    }

    /// Returns thread `tid` as it is known now.
    pub fn or_new(&mut self, tid: Tid) -> &mut Thread {
        if self.known.len() >= THREADS_MAX && !self.known.contains_key(&tid) {
            self.known.retain(|_, thread| thread.vcpu.is_some());
        }
        let process = self.processes.get(&tid).copied();
        self.known.entry(tid).or_insert_with(|| Thread {
            name: Name::default(),
            process,
            role: Role::Other,
            vcpu: None,
            ends: false,
        })
    }

    /// Forgets thread `tid`: its ID may come back as another thread. Returns the vCPU that it ran.
    pub fn forget(&mut self, tid: Tid) -> Option<VcpuIndex> {
        // The files beside the recording are about the thread that has ended, or are newer: not to be relied on.
        self.processes.remove(&tid);
        self.kernel.remove(&tid);
        self.known.remove(&tid)?.vcpu
    }
}

/// Returns whether `name` is a name: tools write `<...>` and an empty text for one that they do not know.
pub fn is_name(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('<')
}
