//! The energy that the CPU packages of this machine use, where the kernel shows it (`powercap`; Linux:
//! `Documentation/power/powercap/powercap.rst`).

use std::fs;
use std::path::{Path, PathBuf};

/// The counters of all CPU packages. Other zones, of parts of a package or of the whole machine, count the same energy
/// again.
#[derive(Debug)]
pub struct Meter(Vec<Package>);

#[derive(Debug)]
struct Package {
    counter: PathBuf,
    /// The largest value of the counter, after which it begins at 0, in microjoules.
    range_uj: u64,
}

/// The values of a [`Meter`]'s counters at some moment, in microjoules.
#[derive(Debug)]
pub struct Reading(Vec<u64>);

impl Meter {
    /// Returns the counters below `folder`, which is `/sys/class/powercap` outside of tests. `None` if there is none,
    /// or no right to read them.
    pub fn of(folder: &Path) -> Option<Meter> {
        let zones = fs::read_dir(folder).ok()?;
        let packages: Vec<Package> = zones.filter_map(|zone| package(&zone.ok()?.path())).collect();
        let meter = Meter(packages);
        (!meter.0.is_empty() && meter.read().is_some()).then_some(meter)
    }

    /// Reads the counters. `None` if one cannot be read.
    pub fn read(&self) -> Option<Reading> {
        let values: Option<_> = self.0.iter().map(|package| number(&package.counter)).collect();
        values.map(Reading)
    }

    /// Returns the energy that was used between two readings, in microjoules. Each counter may have begun again once.
    pub fn between(&self, before: &Reading, after: &Reading) -> u64 {
        let used = |((package, &before), &after): ((&Package, &u64), &u64)| {
            after
                .checked_sub(before)
                .unwrap_or((package.range_uj - before.min(package.range_uj)) + after)
        };
        self.0.iter().zip(&before.0).zip(&after.0).map(used).sum()
    }
}

fn package(zone: &Path) -> Option<Package> {
    let name = fs::read_to_string(zone.join("name")).ok()?;
    let range_uj = number(&zone.join("max_energy_range_uj"))?;
    let counter = zone.join("energy_uj");
    name.starts_with("package").then_some(Package { counter, range_uj })
}

fn number(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}
