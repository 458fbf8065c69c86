//! Guests that come later and that leave before the end of the run.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use holdfast_kvm::{Contention, Options, Report, Task, Vm};

use crate::faults::left;
use crate::lost::run_again_if_lost;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Runs a measured guest of one vCPU beside `other`. Returns the report, and the numbers of vCPU threads and of
/// descriptors of VMs that were there one after another.
fn beside(other: Vm) -> (Report, Vec<(usize, usize)>) {
    let contention = Contention {
        duration_ns: 4_000_000_000,
        ..Contention::default()
    };
    let measured = Vm::new("measured", 1, Task::Contention(contention));
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut seen = vec![left()];
            while !ended.load(Ordering::Acquire) {
                let now = left();
                if seen.last() != Some(&now) {
                    seen.push(now);
                }
                thread::sleep(ms(2));
            }
            seen
        });
        let report = run_again_if_lost(&[measured, other], &Options::default());
        ended.store(true, Ordering::Release);
        let seen = watcher.join().expect("it only looks");
        (report.unwrap_or_else(|error| panic!("{error}")), seen)
    })
}

#[test]
#[ignore = "needs a real KVM"]
fn a_guest_that_comes_and_goes_has_threads_only_between_and_leaves_its_counts() {
    let (report, seen) = beside(
        Vm::new("other", 2, Task::Hog)
            .background()
            .from(ms(1_000))
            .until(ms(2_000)),
    );
    println!("threads and VMs: {seen:?}");
    let threads: Vec<usize> = seen.iter().map(|&(threads, _)| threads).collect();
    let with = threads.iter().position(|&threads| threads == 3).expect("all vCPUs run");
    assert!(threads[..with].contains(&1), "the measured guest runs alone before");
    let after = threads[with..].iter().position(|&threads| threads == 1);
    let after = with + after.expect("the measured guest runs alone afterwards");
    // The VM, and for each vCPU a descriptor, with their statistics.
    assert!(seen[after].1 < seen[with].1, "the VM is destroyed");
    let other = &report.vms[1];
    assert!(other.vcpus.iter().all(|vcpu| vcpu.run_ns > 0), "{other:?}");
    assert!(other.stat("exits") > 0, "KVM's counts are kept");
    assert!(report.vms[0].acquisitions() > 0);
}

#[test]
#[ignore = "needs a real KVM"]
fn a_guest_that_would_come_after_the_end_never_runs() {
    let (report, seen) = beside(Vm::new("other", 2, Task::Hog).background().from(ms(3_600_000)));
    assert!(seen.iter().all(|&(threads, _)| threads <= 1), "{seen:?}");
    let other = &report.vms[1];
    assert!(other.vcpus.iter().all(|vcpu| vcpu.thread == 0 && vcpu.run_ns == 0));
    assert_eq!(left(), (0, 0));
}
