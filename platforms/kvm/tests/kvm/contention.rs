//! Contention for every lock without a kernel, with fewer and with more vCPUs than CPUs. The guest itself checks that
//! the lock excludes.

use holdfast_kvm::{Contention, Feature, Host, Options, Task, Vm, VmReport};
use holdfast_locks::LockKind;

use crate::lost::{is_emulated, run_again_if_lost};
use crate::quiet::is_quiet;

fn contend(vcpus: u32, contention: Contention, change: impl FnOnce(Vm) -> Vm) -> VmReport {
    let vm = change(Vm::new("vm1", vcpus, Task::Contention(contention)));
    let report =
        run_again_if_lost(&[vm], &Options::default()).unwrap_or_else(|error| panic!("{contention:?}: {error}"));
    report.vms.into_iter().next().expect("one vm")
}

fn brief(lock: LockKind) -> Contention {
    Contention {
        lock,
        duration_ns: 300_000_000,
        ..Contention::default()
    }
}

#[test]
#[ignore = "needs a real KVM"]
fn every_lock_excludes_and_every_kick_is_a_hypercall() {
    for &lock in LockKind::ALL {
        for vcpus in [2, 4, 8] {
            let report = contend(vcpus, brief(lock), |vm| vm);
            let sum = |of: fn(&holdfast_kvm::VcpuReport) -> u64| report.vcpus.iter().map(of).sum::<u64>();
            let (kicks, halts) = (sum(|vcpu| vcpu.kicks), sum(|vcpu| vcpu.halts));
            println!(
                "{lock} {vcpus}: {:.0}/s, {kicks} kicks, {halts} halts, {} directed yields tried, {} done",
                report.per_second().unwrap_or(0.0),
                report.stat("directed_yield_attempted"),
                report.stat("directed_yield_successful"),
            );
            assert!(report.acquisitions() > 0);
            assert_eq!(report.operations, Some(report.acquisitions()));
            assert!(lock.halts() || halts == 0, "{lock} halts");
            assert!(lock.kicks() || kicks == 0, "{lock} kicks");
            if report.vcpus.iter().any(|vcpu| vcpu.stats.contains_key("hypercalls")) {
                assert_eq!(
                    report.stat("hypercalls"),
                    kicks,
                    "{lock}, {vcpus} vcpus: kicks are hypercalls"
                );
                // At the end each vCPU halts for the last time, and once more if it was kicked while it ran: a latched
                // kick ends the next halt at once.
                let vcpus = u64::from(vcpus);
                let halted = halts..=halts + vcpus + kicks.min(vcpus);
                assert!(halted.contains(&report.stat("halt_exits")), "{lock}: {halted:?} halts");
                // Each kick attempts a directed yield on hosts since Linux 5.13. Nothing else here does, since there is
                // no pause filter.
                assert!(report.stat("directed_yield_successful") <= report.stat("directed_yield_attempted"));
            }
        }
    }
}

#[test]
#[ignore = "needs a real KVM"]
fn more_vcpus_than_cpus_make_ticket_locks_collapse_and_paravirtual_ones_not() {
    let cpus = std::thread::available_parallelism().map_or(2, |count| count.get() as u32);
    // Sorted, since the results of single runs vary strongly.
    let per_second = |lock, vcpus| {
        let run = |_| contend(vcpus, brief(lock), |vm| vm).per_second().unwrap_or(0.0);
        let mut rates = [0, 1, 2, 3, 4].map(run);
        rates.sort_by(f64::total_cmp);
        rates
    };
    if !is_quiet("ticket locks collapse under overcommit, paravirtual ones do not") {
        return;
    }
    let [[_, _, ticket, _, _], [_, _, pv_ticket, _, _], [_, _, pv_qspin, _, _]] =
        [LockKind::Ticket, LockKind::PvTicket, LockKind::PvQspin].map(|lock| per_second(lock, 2 * cpus));
    let [_, _, fits, _, _] = per_second(LockKind::Ticket, cpus);
    if !is_quiet("ticket locks collapse under overcommit, paravirtual ones do not") {
        return;
    }
    println!("ticket {fits:.0}/s, overcommitted {ticket:.0}/s; pv-ticket {pv_ticket:.0}/s, pv-qspin {pv_qspin:.0}/s");
    // The effects are factors of 10 to 100, so a factor of a few proves them.
    assert!(
        ticket * 5.0 < fits,
        "ticket: {ticket:.0}/s overcommitted, {fits:.0}/s not"
    );
    // 2^15 PAUSEs last longer than a time slice of an emulated host, so pv-ticket collapses there too, in some series
    // in each run.
    if !is_emulated() {
        assert!(
            pv_ticket > ticket * 2.0,
            "pv-ticket {pv_ticket:.0}/s, ticket {ticket:.0}/s"
        );
    }
    assert!(
        pv_qspin > ticket * 3.0,
        "pv-qspin {pv_qspin:.0}/s, ticket {ticket:.0}/s"
    );
}

#[test]
#[ignore = "needs a real KVM"]
fn a_guest_without_the_kick_falls_back_as_kernels_do() {
    let lock_of = |report: &VmReport| {
        let found = report.counters.keys().find_map(|name| name.strip_prefix("guest.lock."));
        found.map(str::to_owned)
    };
    let asked = brief(LockKind::PvTicket);
    let without = contend(4, asked, |vm| vm.without(Feature::PvUnhalt));
    assert_eq!(lock_of(&without).as_deref(), Some("ttas"));
    assert_eq!(without.stat("hypercalls"), 0);
    let realtime = contend(2, asked, Vm::realtime);
    assert_eq!(lock_of(&realtime).as_deref(), Some("ticket"));
    let declined = contend(
        2,
        Contention {
            nopvspin: true,
            ..asked
        },
        |vm| vm,
    );
    assert_eq!(lock_of(&declined).as_deref(), Some("ticket"));
    if Host::open().is_ok_and(|host| host.offers(Feature::PvUnhalt)) {
        assert_eq!(lock_of(&contend(2, asked, |vm| vm)).as_deref(), Some("pv-ticket"));
    }
}

#[test]
#[ignore = "needs a real KVM"]
fn several_vms_run_together_each_with_its_lock_beside_a_hog() {
    let vms = [
        Vm::new("one", 2, Task::Contention(brief(LockKind::PvTicket))).pinned(vec![vec![0], vec![1]]),
        Vm::new("two", 2, Task::Contention(brief(LockKind::Ttas))),
        Vm::new("hog", 1, Task::Hog).background().memory(32 << 20),
    ];
    let report = run_again_if_lost(&vms, &Options::default()).unwrap_or_else(|error| panic!("{error}"));
    let locks: Vec<bool> = ["pv-ticket", "ttas"]
        .iter()
        .zip(&report.vms)
        .map(|(lock, vm)| vm.counters.contains_key(&format!("guest.lock.{lock}")))
        .collect();
    assert_eq!(locks, [true, true]);
    assert!(
        report
            .vms
            .iter()
            .take(2)
            .all(|vm| vm.acquisitions() > 0 && vm.elapsed_ns.is_some())
    );
    assert_eq!((report.vms[2].operations, report.vms[2].elapsed_ns), (None, None));
    assert!(report.vms[2].vcpus[0].run_ns > 0, "the hog has run");
}

#[test]
#[ignore = "needs a real KVM"]
fn two_vcpus_execute_their_workload_within_100_ms() {
    if !is_quiet("a guest of two vcpus is up within 100 ms") {
        return;
    }
    let mut boots: Vec<_> = (0..5)
        .filter_map(|_| contend(2, brief(LockKind::Ttas), |vm| vm).boot)
        .collect();
    boots.sort();
    println!("up in {boots:?}");
    if is_quiet("a guest of two vcpus is up within 100 ms") {
        assert!(boots[boots.len() / 2].as_millis() <= 100, "{boots:?}");
    }
}
