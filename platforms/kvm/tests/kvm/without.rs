//! Tests that need no KVM.

use std::time::Duration;

use holdfast_kvm::{Error, Host, Image, Options, Task, Vm, run};

#[test]
fn a_machine_without_kvm_is_told_so() {
    match Host::open() {
        Ok(host) => assert!(host.vcpus_max() > 0),
        Err(error @ (Error::NoKvm | Error::NoPermission | Error::Unsupported(_))) => {
            assert!(error.to_string().contains("kvm"), "{error}");
        }
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn vms_that_cannot_be_are_refused_before_anything_starts() {
    let refused = |vm: Vm| match run(&[vm], &Options::default()) {
        Err(Error::NoKvm | Error::NoPermission) => println!("SKIPPED: no kvm"),
        Err(Error::TooManyVcpus { .. } | Error::Invalid { .. }) => {}
        other => panic!("{other:?}"),
    };
    refused(Vm::new("none", 0, Task::Hog));
    refused(Vm::new("many", 100_000, Task::Hog));
    refused(Vm::new("small", 1, Task::Hog).memory(4096));
    refused(Vm::new("odd", 1, Task::Hog).memory((64 << 20) + 1));
    refused(Vm::new("large", 1, Task::Hog).memory(1 << 40));
    refused(Vm::new("crowded", 250, Task::Hog).memory(16 << 20));
    let second = Duration::from_secs(1);
    refused(Vm::new("leaving", 1, Task::Hog).until(second));
    refused(Vm::new("gone", 1, Task::Hog).background().from(second).until(second));
    refused(Vm::new("pinned", 1, Task::Hog).pinned(vec![vec![0], vec![0]]));
}

#[test]
fn guests_platform_is_the_only_code_that_knows_kvm() {
    // The source of the guest names no platform.
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for room in ["guest/src", "workloads/src", "locks/src"] {
        let mut folders = vec![root.join(room)];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(&folder).expect("a room of the house") {
                let path = entry.expect("a file of it").path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                let text = std::fs::read_to_string(&path).expect("source");
                for line in text
                    .lines()
                    .filter(|line| line.contains("cfg(") && !line.trim_start().starts_with("//"))
                {
                    assert!(line.contains("test"), "{}: {line}", path.display());
                }
            }
        }
    }
    assert!(Image::embedded().symbol(0).is_none());
}
