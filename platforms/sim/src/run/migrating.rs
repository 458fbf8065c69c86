//! A run with live migrations and moves between pCPUs, in which all interrupts are audited.

use std::rc::Rc;

use holdfast_guest::GuestImage;
use holdfast_host::Nic;

use crate::books::audit::{Audit, Fate};
use crate::config::{Config, Vm as VmConfig};
use crate::core::failure::{CallOff, Failure};
use crate::engine::handle::EngineCell;
use crate::guests::machine::SimMachine;
use crate::migration::{Migrations, journey::Journey};
use crate::run::build::in_order;
use crate::run::outcome::Outcome;

/// Result of the audit of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Audited {
    /// Number of migrations.
    pub migrations: u64,
    /// Number of moves of vCPUs to another pCPU.
    pub sent: u64,
    /// Number of entries of a vCPU on another pCPU than before.
    pub moves: u64,
    /// What became of each vector's interrupts, of all guests' vCPUs together.
    pub by_vector: Vec<(u8, Fate)>,
}

/// As [`run_images`](crate::run_images), with live migrations and moves between pCPUs, and an audit of all interrupts.
///
/// # Errors
/// As [`run_images`](crate::run_images), and [`Failure::LostInterrupt`] or [`Failure::DoubledInterrupt`] for the first
/// faulty interrupt.
pub fn run_migrating(
    config: &Config,
    call_off: &CallOff,
    journey: &Journey,
    image: impl Fn(&VmConfig, SimMachine) -> Box<dyn GuestImage>,
) -> Result<(Outcome, Audited), Failure> {
    let cell = prepare(config, journey, image)?;
    let outcome = crate::run::execute(&cell, config, call_off)?;
    let audited = cell.with(|engine| {
        let (Some(audit), Some(migrations)) = (&engine.books.audit, &engine.migrations) else {
            unreachable!("`prepare` has set both")
        };
        Audited {
            migrations: migrations.done,
            sent: migrations.sent,
            moves: audit.moves,
            by_vector: audit.by_vector(),
        }
    });
    Ok((outcome, audited))
}

/// Builds the machine of a run with live migrations and moves, in which all interrupts are audited.
///
/// # Errors
/// [`Failure::Invalid`] if a guest cannot migrate, and the errors of a build.
pub(super) fn prepare(
    config: &Config,
    journey: &Journey,
    image: impl Fn(&VmConfig, SimMachine) -> Box<dyn GuestImage>,
) -> Result<Rc<EngineCell>, Failure> {
    if config.vms.iter().any(|vm| vm.bare_metal) {
        let what = "the bare-metal kernel cannot migrate".to_owned();
        return Err(Failure::Invalid(what));
    }
    if config.vms.iter().any(|vm| vm.inside.is_some()) {
        let what = "a guest inside of another cannot migrate".to_owned();
        return Err(Failure::Invalid(what));
    }
    let assigned = config.vms.iter().any(|vm| vm.host.nic == Nic::Assigned);
    if assigned && journey.migrates() {
        let what = "a guest with an assigned device cannot migrate".to_owned();
        return Err(Failure::Invalid(what));
    }
    let mut config = config.clone();
    config.host.traces_interrupts = true;
    let cell = crate::run::build::build(&config, image)?;
    let there = crate::run::build::build_destination(&config)?;
    cell.with(|engine| {
        engine.books.audit = Some(Box::new(Audit::new(engine.vcpus.len())));
        let here = (engine.host.clone(), engine.hardware.part());
        let mut migrations = Migrations::new(journey, here, there, config.seed);
        migrations.migrated = in_order(&config).map(|vm| vm.vmm.migrated).collect();
        engine.migrations = Some(Box::new(migrations));
        engine.plan_migration();
        engine.plan_move();
    });
    Ok(cell)
}
