//! Versions of Linux, and the numbers of pCPUs.

use holdfast_host::{HostConfig, Linux, Preempt, SchedulerKind, VmConfig};
use holdfast_workloads::{MmapLock, OwnerSpinning, RwLocks};

use super::*;

#[test]
fn every_version_sets_a_host_and_a_guest() {
    for version in Linux::ALL {
        let name = version.name();
        let planned = plan(&format!("{SMALL}[host]\nkernel = \"{name}\"\n"));
        let config = &planned.cells[0].config;
        let expected = HostConfig::of(version);
        assert_eq!(config.host.kernel, version);
        assert_eq!(config.host.sched, expected.sched, "{name}");
        assert_eq!(config.host.pause, expected.pause, "{name}");
        assert_eq!(planned.cells[0].parameters["host.kernel"], name);
        let guest = plan(&SMALL.replace(
            "vcpus = 4\nlock = \"ticket\"",
            &format!("vcpus = 4\nkernel = \"{name}\""),
        ));
        assert_eq!(guest.cells[0].parameters["vm.*.kernel"], name);
    }
}

#[test]
fn a_host_of_today_is_one_of_6_12_and_so_are_its_guests() {
    let text = SMALL.replace("lock = \"ticket\"\n", "");
    let config = &plan(&text).cells[0].config;
    assert_eq!(config.host.sched.kind, SchedulerKind::Eevdf612);
    assert_eq!((config.host.halt_poll_ns, config.host.halt_poll_shrink), (200_000, 2));
    assert!(config.host.apicv.enable && config.host.pause.kick_yields);
    let vm = &config.vms[0];
    let kernel = &vm.boot.kernel;
    assert_eq!(kernel.lock, LockKind::HybridPvQspin);
    assert_eq!(kernel.mmap_lock, MmapLock::PerVma);
    assert_eq!(kernel.rwlocks, RwLocks::Queued);
    assert_eq!(kernel.owner_spinning, OwnerSpinning::PreemptionAware);
    assert_eq!(
        kernel.profile.as_ref().map(|profile| profile.name.as_str()),
        Some("linux-6.12")
    );
    assert!(vm.host.pv_send_ipi && vm.host.pv_tlb_flush);
}

#[test]
fn an_older_host_offers_a_guest_no_later_feature() {
    for (host, guest, offers) in [
        ("linux-4.12", "linux-6.12", false),
        ("linux-6.12", "linux-4.12", false),
        ("linux-6.1", "linux-7.3", true),
    ] {
        let text = SMALL.replace("lock = \"ticket\"", &format!("kernel = \"{guest}\""));
        let config = &plan(&format!("{text}[host]\nkernel = \"{host}\"\n")).cells[0].config;
        let VmConfig {
            pv_send_ipi,
            pv_tlb_flush,
            pv_sched_yield,
            ..
        } = config.vms[0].host;
        assert_eq!(
            [pv_send_ipi, pv_tlb_flush, pv_sched_yield],
            [offers; 3],
            "{guest} on {host}"
        );
    }
}

#[test]
fn other_keys_refine_a_version_in_any_order() {
    let text = format!("{SMALL}[host]\npreempt = \"full\"\nhalt_poll = \"50 us\"\nkernel = \"linux-7.3\"\n");
    let host = &plan(&text).cells[0].config.host;
    assert_eq!((host.sched.preempt, host.halt_poll_ns), (Preempt::Full, 50_000));
    assert_eq!(host.sched.kind, SchedulerKind::Eevdf73);
    let lazy = &plan(&format!("{SMALL}[host]\nkernel = \"linux-7.3\"\n")).cells[0]
        .config
        .host;
    assert_eq!(lazy.sched.preempt, Preempt::Lazy);
}

#[test]
fn a_cpuset_of_a_server_means_the_same_cores() {
    // Two cores with both threads, and the same by the other two numberings.
    for (numbering, cpus) in [
        ("linux", "0,1,32,33"),
        ("siblings-adjacent", "0-3"),
        ("sockets-alternate", "0,2,32,34"),
    ] {
        let text = SMALL.replace("vcpus = 4", &format!("vcpus = 4\naffinity = \"{cpus}\""));
        let config = &plan(&format!("{text}[machine]\nnumbering = \"{numbering}\"\n")).cells[0].config;
        assert_eq!(config.vms[0].affinity, [[0, 1, 2, 3]; 4], "{numbering}");
    }
}
