//! The host kernel's own threads. They wake on a busy host, too, and preempt what runs there for some microseconds.

use std::collections::BTreeMap;

use holdfast_host::{ConfigError, Host, TaskConfig, TaskId};
use holdfast_machine::{Picos, Topology};
use holdfast_workloads::stream_seed;

use crate::config::Config;
use crate::tasks::task::{Drawn, Task};

/// A thread of the host kernel, as measured.
struct KernelThread {
    name: &'static str,
    /// How many there are.
    of: Of,
    /// Mean time between two runs.
    every_ns: u64,
    /// Whether a timer with this period wakes it. Otherwise the times are drawn, since several timers wake it.
    periodic: bool,
    /// Length of a run.
    busy_ns: u64,
}

/// How many threads of a kind a host has.
#[derive(Clone, Copy)]
enum Of {
    /// One for each pCPU, which runs only there.
    Pcpu,
    /// One for each node (socket), which runs there.
    Node,
    /// One, which runs anywhere.
    Host,
}

/// Linux 6.1 (Debian's cloud kernel), two CPUs with one and with two computing threads each, 20 s each
/// (docs/findings/stock-linux.md). Instructions are counted, 1 ns each. RCU's thread ran twice. A host with disks, a
/// network and daemons has more.
///
/// Timers of the kernel wake them in a tick. Here each wakeup is an interrupt of its own. `migration` precedes all
/// other classes of threads in Linux, and is an ordinary thread here.
const THREADS: [KernelThread; 4] = [
    // Statistics of memory, slabs, timers of drivers.
    KernelThread {
        name: "kworker",
        of: Of::Pcpu,
        every_ns: 940_000_000,
        periodic: false,
        busy_ns: 5_000,
    },
    // The watchdog for soft lockups.
    KernelThread {
        name: "migration",
        of: Of::Pcpu,
        every_ns: 4_000_000_000,
        periodic: true,
        busy_ns: 4_000,
    },
    // The state of huge pages.
    KernelThread {
        name: "kcompactd",
        of: Of::Node,
        every_ns: 512_000_000,
        periodic: true,
        busy_ns: 5_000,
    },
    KernelThread {
        name: "kworker/u",
        of: Of::Host,
        every_ns: 1_860_000_000,
        periodic: false,
        busy_ns: 5_000,
    },
];

/// Adds the kernel's threads to the host of `config`.
///
/// # Errors
/// If the host does not accept a task.
pub fn add(host: &mut Host, config: &Config, all: &mut BTreeMap<TaskId, Task>) -> Result<(), ConfigError> {
    if config.noise == 0.0 {
        return Ok(());
    }
    for thread in &THREADS {
        let sleep = Picos::from_nanos((thread.every_ns as f64 / config.noise) as u64);
        for (affinity, place) in places(&config.machine.topology, thread.of).into_iter().zip(0..) {
            let wanted = TaskConfig {
                affinity,
                ..TaskConfig::default()
            };
            let random = stream_seed(config.seed, place, thread.name);
            let task = Task {
                name: thread.name.to_owned(),
                busy: Some(Picos::from_nanos(thread.busy_ns)),
                sleep,
                drawn: if thread.periodic {
                    Drawn::First(random)
                } else {
                    Drawn::Always(random)
                },
                // It sleeps first.
                remaining: Picos::ZERO,
            };
            all.insert(host.add_task(&wanted)?, task);
        }
    }
    Ok(())
}

/// The pCPUs on which each thread of a kind may run.
fn places(topology: &Topology, of: Of) -> Vec<Vec<u32>> {
    let pcpus = 0..topology.pcpus();
    match of {
        Of::Pcpu => pcpus.map(|pcpu| vec![pcpu]).collect(),
        Of::Node => (0..topology.sockets)
            .map(|socket| {
                pcpus
                    .clone()
                    .filter(|&pcpu| topology.socket_of(pcpu) == socket)
                    .collect()
            })
            .collect(),
        Of::Host => vec![Vec::new()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thread_may_run_where_its_kind_does() {
        let topology = Topology {
            sockets: 2,
            cores: 2,
            threads: 1,
        };
        assert_eq!(places(&topology, Of::Pcpu), [[0], [1], [2], [3]]);
        assert_eq!(places(&topology, Of::Node), [[0, 1], [2, 3]]);
        // Everywhere.
        assert_eq!(places(&topology, Of::Host), [[0; 0]]);
    }
}
