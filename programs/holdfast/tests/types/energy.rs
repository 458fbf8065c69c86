//! The reader of energy counters, with folders like the kernel's.

use std::fs;
use std::path::{Path, PathBuf};

#[path = "../../benches/machine/energy.rs"]
mod meter;

use meter::Meter;

/// A folder like the kernel's, which is removed when it is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Folder {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("energy-{test}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("the target's folder can be written");
        Folder(folder)
    }

    fn zone(&self, zone: &str, name: &str, energy_uj: u64) {
        let zone = self.0.join(zone);
        fs::create_dir_all(&zone).expect("a folder of this test");
        for (file, text) in [
            ("name", format!("{name}\n")),
            ("energy_uj", format!("{energy_uj}\n")),
            ("max_energy_range_uj", "1000\n".to_owned()),
        ] {
            fs::write(zone.join(file), text).expect("a folder of this test");
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn the_energy_of_packages_is_added_and_that_of_their_parts_is_not() {
    let folder = Folder::new("packages");
    folder.zone("intel-rapl:0", "package-0", 10);
    folder.zone("intel-rapl:0:0", "core", 5);
    folder.zone("intel-rapl:1", "package-1", 20);
    folder.zone("intel-rapl:2", "psys", 100);
    let meter = Meter::of(&folder.0).expect("two packages");
    let before = meter.read().expect("readable");
    folder.zone("intel-rapl:0", "package-0", 17);
    folder.zone("intel-rapl:0:0", "core", 9);
    folder.zone("intel-rapl:1", "package-1", 21);
    let after = meter.read().expect("readable");
    assert_eq!(meter.between(&before, &after), 8);
}

#[test]
fn a_counter_that_has_begun_again_counts_on() {
    let folder = Folder::new("wraps");
    folder.zone("intel-rapl:0", "package-0", 990);
    let meter = Meter::of(&folder.0).expect("a package");
    let before = meter.read().expect("readable");
    folder.zone("intel-rapl:0", "package-0", 5);
    let after = meter.read().expect("readable");
    assert_eq!(meter.between(&before, &after), 15);
}

#[test]
fn without_packages_there_is_no_meter() {
    let folder = Folder::new("none");
    assert!(Meter::of(&folder.0).is_none());
    assert!(Meter::of(&folder.0.join("missing")).is_none());
    folder.zone("intel-rapl:2", "psys", 1);
    assert!(Meter::of(&folder.0).is_none());
}

#[test]
fn a_counter_that_cannot_be_read_ends_the_measurement() {
    let folder = Folder::new("gone");
    folder.zone("intel-rapl:0", "package-0", 1);
    let meter = Meter::of(&folder.0).expect("a package");
    fs::remove_file(folder.0.join("intel-rapl:0/energy_uj")).expect("written above");
    assert!(meter.read().is_none());
    assert!(Meter::of(&folder.0).is_none());
}
