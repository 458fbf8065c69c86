//! Comparison of predictions with stock Linux guests on this host's KVM: the threads of one process call a path of the
//! kernel, on two CPUs.
//!
//! Which share of a call the path's lock covers comes from the measured profile of a kernel (`kernels/`). How long a
//! call takes where nothing contends is measured here, with one thread on one vCPU: that row calibrates the
//! prediction, and all other rows are predictions.

use std::time::Duration;

use holdfast_lab::shipped::{KERNELS, Shipped};
use holdfast_locks::LockKind;
use holdfast_sim::{Config, Failure};
use holdfast_workloads::{Contend, Workload};
use serde::Deserialize;

use super::guests::{Cell, config, machine_here, measure, predict};
use super::judge::Row;
use super::{Session, Settings};
use crate::linux::{KernelPath, Linux};

/// Real time after which a guest counts as lost. A stock kernel boots in 10 to 20 s in an emulated host.
const LIMIT: Duration = Duration::from_secs(120);

/// The spinlock that a stock kernel chooses at boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spinlock {
    /// Paravirtual queued spinlocks, the default.
    Pvspin,
    /// The native queued spinlock: the kernel's parameter `nopvspin`.
    Nopvspin,
    /// Test-and-set, where the kick (`PV_UNHALT`) is withheld.
    TestAndSet,
}

impl Spinlock {
    /// All members of this type.
    pub const ALL: [Spinlock; 3] = [Spinlock::Pvspin, Spinlock::Nopvspin, Spinlock::TestAndSet];

    /// Returns the name in tables and arguments.
    pub fn name(self) -> &'static str {
        match self {
            Spinlock::Pvspin => "pvspin",
            Spinlock::Nopvspin => "nopvspin",
            Spinlock::TestAndSet => "test-and-set",
        }
    }

    /// Returns the spinlock with `name`.
    pub fn named(name: &str) -> Option<Spinlock> {
        Spinlock::ALL.into_iter().find(|spinlock| spinlock.name() == name)
    }
}

/// The path that the threads call, which has a lock that the threads of a process share.
const PATH: &str = "dup";
/// The operation of this path in the measured profiles, and the class of the lock.
const OPERATION: &str = "dup_close";
const CLASS: &str = "files";

/// A measured operation, as far as it matters here (docs/kernels.md).
#[derive(Deserialize)]
struct Operation {
    instructions: f64,
    locks: Vec<Lock>,
}

#[derive(Deserialize)]
struct Lock {
    class: String,
    count: f64,
    hold: f64,
}

/// What a call does with its lock.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Share {
    /// Acquisitions of the lock.
    sections: f64,
    /// Share of the call's instructions during which it is held.
    held: f64,
}

/// Returns what a call does with its lock in the kernel of `file`.
fn share(file: &Shipped) -> Share {
    let table: toml::Table = file.text.parse().expect("shipped kernels are valid");
    let operation = table["operation"][OPERATION].clone();
    let operation: Operation = operation.try_into().expect("shipped kernels are valid");
    let shared = || operation.locks.iter().filter(|lock| lock.class == CLASS);
    Share {
        sections: shared().map(|lock| lock.count).sum(),
        held: shared().map(|lock| lock.count * lock.hold).sum::<f64>() / operation.instructions,
    }
}

/// Returns the measured kernel of the series of `release`, or the newest.
fn kernel_of(release: &str) -> &'static Shipped {
    let is_of = |file: &&Shipped| {
        let rest = release.strip_prefix(file.name.trim_start_matches("linux-"));
        rest.is_some_and(|rest| !rest.starts_with(|next: char| next.is_ascii_digit()))
    };
    let file = KERNELS.iter().find(is_of).or(KERNELS.last());
    file.expect("kernels are shipped")
}

/// Returns the configuration of one lock, without the times of its calls.
fn stock(settings: &Settings, lock: Spinlock, vcpus: u32, machine: &Config) -> Config {
    // As in Linux, the kernel chooses another lock by its parameter, or if it is not offered the kick.
    let mut config = config(settings, LockKind::HybridPvQspin, vcpus, 0, machine);
    let vm = &mut config.vms[0];
    vm.boot.kernel.nopvspin = lock == Spinlock::Nopvspin;
    vm.host.pv_unhalt &= lock != Spinlock::TestAndSet;
    config
}

fn contend(config: &mut Config) -> &mut Contend {
    match &mut config.vms[0].boot.workload {
        Workload::Contend(contend) => contend,
        other => panic!("a stock guest contends, and does not run {other:?}"),
    }
}

/// Measures and predicts. `linux` has the kernel.
///
/// # Errors
/// If a measurement fails repeatedly or cannot succeed, or [`Failure::CalledOff`].
pub fn compare(settings: &Settings, linux: &Linux, session: &mut Session<'_>) -> Result<(), Failure> {
    let machine = machine_here(session.profile, session.host)?;
    let share = share(kernel_of(&linux.kernel.release()));
    let linux = Linux {
        path: KernelPath::Dup,
        ..linux.clone()
    };
    let cells = 1 + settings.contenders.len() * settings.spinlocks.len();
    let total = (cells * (settings.rounds as usize + 1)) as u64;
    let cell = |lock: Spinlock, vcpus: u32| Cell {
        vcpus,
        section_ns: 0,
        lock: lock.name().to_owned(),
        linux: Some((linux.clone(), PATH)),
        sections: share.sections,
        config: stock(settings, lock, vcpus, &machine),
        samples: Vec::new(),
        lost: Vec::new(),
    };
    let run = |cell: &mut Cell, session: &mut Session<'_>| -> Result<(), Failure> {
        let is_here = |row: &&Row| row.is_of(PATH, cell.vcpus, &cell.lock);
        if let Some(row) = settings.measured.iter().find(is_here) {
            cell.samples.clone_from(&row.samples);
            cell.lost.clone_from(&row.lost);
        }
        for round in cell.samples.len() as u32..settings.rounds {
            let (vcpus, lock) = (cell.vcpus, &cell.lock);
            session.next(&format!("{PATH}, {vcpus} vCPUs, round {}: {lock}", round + 1), total)?;
            measure(cell, round, LIMIT, session.call_off)?;
        }
        Ok(())
    };
    let mut alone = cell(Spinlock::Pvspin, 1);
    run(&mut alone, session)?;
    let times = calibrate(&mut alone, share, settings.rounds, session)?;
    for &vcpus in &settings.contenders {
        for &lock in &settings.spinlocks {
            let mut cell = cell(lock, vcpus);
            run(&mut cell, session)?;
            cell.section_ns = times.held_ns;
            times.clone_into_config(&mut cell.config);
            predict(vec![cell], settings.rounds, session.call_off)?
                .into_iter()
                .for_each(&mut *session.keep);
        }
    }
    Ok(())
}

/// The times of a section and of what is between two sections.
#[derive(Clone, Copy, Debug)]
struct Times {
    held_ns: u64,
    think_ns: u64,
}

impl Times {
    fn clone_into_config(self, config: &mut Config) {
        let contend = contend(config);
        (contend.held_ns, contend.think_ns) = (self.held_ns, self.think_ns);
    }
}

/// Divides the measured time of a call. What the simulated guest adds to a call, its lock and its system call, is taken
/// from the time outside the lock, so that the row of `alone` is predicted as it was measured.
fn calibrate(alone: &mut Cell, share: Share, rounds: u32, session: &mut Session<'_>) -> Result<Times, Failure> {
    let section_ns = 1e9 / alone.median().max(1.0) / share.sections;
    let mut times = Times {
        held_ns: (section_ns * share.held) as u64,
        think_ns: (section_ns * (1.0 - share.held)) as u64,
    };
    alone.section_ns = times.held_ns;
    for last in [false, true] {
        times.clone_into_config(&mut alone.config);
        let rows = predict(vec![alone.clone()], rounds, session.call_off)?;
        if last {
            rows.into_iter().for_each(&mut *session.keep);
        } else if let Some(rate) = rows.first().and_then(|row| row.predicted) {
            let longer = 1e9 / rate.max(1.0) / share.sections - section_ns;
            times.think_ns = (times.think_ns as f64 - longer).max(0.0) as u64;
        }
    }
    Ok(times)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_of_dup_and_close_takes_the_lock_of_the_file_table_twice() {
        for file in KERNELS {
            let share = share(file);
            assert!((1.9..2.2).contains(&share.sections), "{}: {share:?}", file.name);
            assert!((0.05..0.4).contains(&share.held), "{}: {share:?}", file.name);
        }
    }

    #[test]
    fn a_release_names_its_series() {
        for (release, name) in [
            ("6.1.0-56-cloud-amd64", "linux-6.1"),
            ("6.12.107+deb13-cloud-amd64", "linux-6.12"),
            ("7.3.4+deb13-cloud-amd64", "linux-7.3"),
            ("5.10.0", "linux-7.3"),
        ] {
            assert_eq!(kernel_of(release).name, name);
        }
    }
}
