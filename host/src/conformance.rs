//! The contract of a [`Policy`], as properties that any crate can test of its own.
//!
//! [`check`] runs small guests on a host with the policy, under several kernels:
//!
//! - **No wakeup is lost**, and no thread starves: each that is ready runs within [`WAIT_MAX`].
//! - **Shares are kept**: guests of equal weight that always compute get equal time, to 1 % of the machine over one
//!   second. Next to guests that pause, kick and halt, such a guest gets at most 1 % less than the kernel alone gives
//!   it if vCPUs are pinned, and at most 5 % less otherwise, as next to guests that try everything.
//! - **A lie gains nothing**: guests that mask interrupts for good and say that they hold locks get no larger share.
//! - **Runs repeat**: two runs with the same seed have the same commands at the same times.
//! - **Answers follow the rules**: none is refused.
//! - **Guests break nothing**: no exit and no operand makes the policy panic. A panic is its own message.

mod machine;

use alloc::vec::Vec;
use core::fmt;

use crate::boundary::{Nanos, VmId};
use crate::config::HostConfig;
use crate::error::ConfigError;
use crate::linux::Linux;
use crate::sched::seam::{Policy, PolicyKind};
use machine::{Machine, PCPUS, Program};

/// The longest time for which a thread may be ready without running. There are at most four threads for a pCPU. The
/// kernels' own schedulers stay below half of it.
pub const WAIT_MAX: Nanos = Nanos(100 * MS);
/// The kernels under which a policy is checked.
pub const KERNELS: [Linux; 4] = [Linux::V3_3, Linux::V6_1, Linux::V6_12, Linux::V7_3];

const MS: u64 = 1_000_000;
/// The time over which shares are measured, after a tenth of it.
const SPAN: u64 = 1_000 * MS;

/// What a policy breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// Answers were refused.
    Rules {
        /// How many.
        refused: u64,
    },
    /// A thread was ready for longer than [`WAIT_MAX`].
    Starvation {
        /// For how long.
        waited: Nanos,
    },
    /// A guest got another share than it has to.
    Share {
        /// The guest.
        vm: VmId,
        /// Its part of the machine, in tenths of a percent.
        permille: u64,
        /// Its part by its weight, or under the kernel alone.
        expected: u64,
    },
    /// Two runs with the same seed differ.
    Determinism,
    /// The host cannot be built. No policy causes it.
    Host,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Broken::Rules { refused } => write!(f, "{refused} answers of the policy were refused: expected none"),
            Broken::Starvation { waited } => write!(
                f,
                "a thread was ready for {} us without running: expected at most {} us",
                waited.0 / 1000,
                WAIT_MAX.0 / 1000
            ),
            Broken::Share { vm, permille, expected } => write!(
                f,
                "guest {} got {permille} thousandths of the machine: expected {expected} at least, or to 10 if all compute",
                vm.0
            ),
            Broken::Determinism => write!(
                f,
                "two runs with the same seed differ: a policy has no clock and no statics"
            ),
            Broken::Host => write!(f, "the host cannot be built"),
        }
    }
}

impl core::error::Error for Broken {}

impl From<ConfigError> for Broken {
    fn from(_: ConfigError) -> Broken {
        Broken::Host
    }
}

/// Checks all properties of the policy `P`.
///
/// # Errors
/// The first property that does not hold, and under which kernel.
pub fn check<P: Policy + Default + 'static>() -> Result<(), (Linux, Broken)> {
    for kernel in KERNELS {
        for guests in WORLDS {
            let config = HostConfig {
                policy: PolicyKind::of::<P>("checked"),
                ..HostConfig::of(kernel)
            };
            check_one(&config, guests).map_err(|broken| (kernel, broken))?;
        }
    }
    Ok(())
}

/// Guests of equal weight with what each vCPU does. The first guest always computes.
struct World {
    guests: &'static [&'static [Program]],
    /// Whether each vCPU may run on one pCPU only.
    pinned: bool,
    /// How exact shares are, in thousandths of the machine. Next to guests that wake and yield, and may run anywhere,
    /// the kernels' own shares depend on the seed by as much as that.
    within: u64,
}

use Program::{Claims, Computes, Halts, Hostile, Kicks, Masks, Pauses};

const WORLDS: &[&World] = &[
    &World {
        guests: &[&[Computes, Computes], &[Computes, Computes], &[Computes, Computes]],
        pinned: false,
        within: 10,
    },
    &World {
        guests: &[&[Computes, Computes], &[Masks, Masks]],
        pinned: true,
        within: 10,
    },
    &World {
        guests: &[&[Computes, Computes], &[Masks, Masks], &[Masks, Masks]],
        pinned: false,
        within: 10,
    },
    &World {
        guests: &[&[Computes, Computes], &[Claims, Claims], &[Claims, Masks]],
        pinned: true,
        within: 10,
    },
    &World {
        guests: &[&[Computes, Computes], &[Pauses, Pauses], &[Kicks, Halts]],
        pinned: true,
        within: 10,
    },
    &World {
        guests: &[&[Computes, Computes], &[Pauses, Pauses], &[Kicks, Halts]],
        pinned: false,
        within: 50,
    },
    &World {
        guests: &[
            &[Computes, Computes],
            &[Hostile, Hostile, Hostile],
            &[Hostile, Hostile, Hostile],
        ],
        pinned: false,
        within: 50,
    },
];

/// What a run showed.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    hash: u64,
    refused: u64,
    waited: u64,
    /// CPU time of each guest within the span.
    times: Vec<u64>,
}

fn check_one(config: &HostConfig, world: &World) -> Result<(), Broken> {
    let seen = run(config, world, 1)?;
    if seen != run(config, world, 1)? {
        return Err(Broken::Determinism);
    }
    let Seen { refused, waited, .. } = seen;
    if refused > 0 {
        return Err(Broken::Rules { refused });
    }
    if waited > WAIT_MAX.0 {
        return Err(Broken::Starvation { waited: Nanos(waited) });
    }
    let permille = |time: u64| {
        let whole = u64::from(PCPUS) * SPAN;
        (1000 * time + whole / 2) / whole
    };
    let share = |vm: usize, time: u64, expected: u64| Broken::Share {
        vm: VmId(vm as u32),
        permille: permille(time),
        expected,
    };
    let fair = 1000 / world.guests.len() as u64;
    let wants_all = |program: &Program| matches!(program, Computes | Masks);
    if world.guests.concat().iter().all(wants_all) {
        let mut times = seen.times.iter().enumerate();
        let wrong = times.find(|&(_, &time)| permille(time).abs_diff(fair) > world.within);
        return wrong.map_or(Ok(()), |(vm, &time)| Err(share(vm, time, fair)));
    }
    // The others may want less than their shares, and the kernels themselves are not exact here.
    let kernel = HostConfig {
        policy: PolicyKind::KERNEL,
        ..config.clone()
    };
    let kernel = run(&kernel, world, 1)?;
    let expected = permille(kernel.times[0]).min(fair);
    match permille(seen.times[0]) + world.within < expected {
        true => Err(share(0, seen.times[0], expected)),
        false => Ok(()),
    }
}

fn run(config: &HostConfig, world: &World, seed: u64) -> Result<Seen, ConfigError> {
    let mut machine = Machine::new(config, world.guests, world.pinned, seed)?;
    machine.run_until(SPAN / 10);
    let before = machine.times();
    machine.run_until(SPAN / 10 + SPAN);
    let after = machine.times();
    Ok(Seen {
        hash: machine.hash(),
        refused: machine.host.policy_refusals(),
        waited: machine.longest_wait(),
        times: after.iter().zip(before).map(|(after, before)| after - before).collect(),
    })
}

#[cfg(test)]
mod tests;
