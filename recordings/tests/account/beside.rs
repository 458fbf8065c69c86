//! Files beside a recording can say anything.

use std::fs;

use holdfast_recordings::hosts::{Beside, Domain};
use proptest::prelude::*;

/// The files of a folder that are read.
const FILES: [&str; 12] = [
    "proc/100/stat",
    "proc/100/task/101/cgroup",
    "proc/100/task/101/schedstat",
    "proc/100/task/101/status",
    "before/proc/100/task/101/schedstat",
    "proc/version",
    "sys/kernel/debug/sched/preempt",
    "sys/kernel/debug/kvm/100-12/vcpu0/exits",
    "sys/devices/system/cpu/cpu0/topology/core_id",
    "sys/devices/system/node/node0/cpulist",
    "libvirt/a.xml",
    "lscpu.json",
];

fn words() -> impl Strategy<Value = String> {
    let pieces = [
        "<domain>",
        "</domain>",
        "<name>",
        "a",
        "0-3,8",
        "0::/machine-qemu\\x2d1\\x2dweb.scope\n",
        "\\x",
        "(b) S ",
        "-1",
        "18446744073709551615 ",
        "\n",
        "{\"cpus\":[{\"cpu\":0}]}",
        "max 100000",
        "full (lazy)",
        "é",
        "<vcpu id='1' pid='2'/>",
        "2:cpu,cpuacct:/a/../b\n",
        "<!--",
        "&amp;",
        "'",
        "../",
    ];
    let piece = prop_oneof![8 => prop::sample::select(pieces.to_vec()).prop_map(str::to_owned), 1 => any::<String>()];
    prop::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn any_folder_is_read(contents in prop::collection::vec(words(), FILES.len())) {
        let folder = tempfile::tempdir().expect("a folder");
        for (file, content) in FILES.iter().zip(&contents) {
            let path = folder.path().join(file);
            fs::create_dir_all(path.parent().expect("a folder")).expect("a new folder");
            fs::write(path, content).expect("a new file");
        }
        let mut beside = Beside::default();
        beside.add_folder(folder.path());
        beside.complete();
        prop_assert!(beside.processes.contains_key(&101));
    }

    #[test]
    fn any_domain_is_read_or_refused(text in words()) {
        if let Ok(domain) = Domain::read(&text) {
            prop_assert!(text.contains("<domain") && domain.name.len() <= 1024);
        }
    }
}
