//! Siblings apart and slices aligned, with vCPUs that compute and sleep next to another guest's.

use super::rig::{ALL, Habit, Rig};
use super::*;

/// Two guests of `vcpus` each on two sockets of `cores`, which compute for `busy` at most and sleep.
fn guests(config: &HostConfig, cores: u32, vcpus: u32, busy: u64, watch: Option<fn(&Scheduler)>) -> Rig {
    let mut rig = Rig::with(config, 2, cores);
    rig.watch = watch;
    for index in 0..2 * vcpus {
        let number = u64::from(index);
        let habit = match busy {
            0 => Habit::HOG,
            _ => Habit {
                busy: busy / 2 + number * busy / 37,
                sleep: busy / 3 + number * busy / 53,
            },
        };
        rig.add_vcpu(VmId(index / vcpus), VcpuId(index), habit);
    }
    // Not all begin at once, and not all of one guest before those of the other.
    for vcpu in 0..vcpus {
        for vm in [vcpu % 2, 1 - vcpu % 2] {
            rig.start(TaskId(vm * vcpus + vcpu));
            let next = rig.now + 130_000 * u64::from(vcpu + 1);
            rig.run_until(next);
        }
    }
    rig
}

fn config(kind: SchedulerKind, apart: bool, aligned: Option<u64>) -> HostConfig {
    HostConfig {
        hz: 250,
        sched: SchedConfig::of(kind),
        siblings_apart: apart,
        slices_aligned_ns: aligned,
        ..HostConfig::default()
    }
}

/// Returns a thread that is on a pCPU with a sibling although another pCPU has none.
fn stacked(sched: &Scheduler) -> Option<TaskId> {
    let parts = seam::parts!(sched);
    sched.seam.with_view(parts, |view| {
        let mut tasks = sched.threads.ids();
        tasks.find(|&task| {
            let thread = &sched.threads[task];
            let here = matches!(thread.state, ThreadState::Runnable | ThreadState::Waking);
            let free = |pcpu| view.may_run_on(task, pcpu) && !view.has_sibling(task, pcpu);
            here && view.has_sibling(task, PcpuId(thread.pcpu)) && view.pcpus().any(free)
        })
    })
}

#[test]
fn no_two_siblings_are_on_one_pcpu_while_another_is_free_of_them() {
    for kind in ALL {
        for (vcpus, busy) in [(8, 0), (8, 3 * MS), (8, MS / 3), (5, 7 * MS)] {
            let watch = |sched: &Scheduler| assert_eq!(stacked(sched), None, "{:?}", sched.now());
            let mut rig = guests(&config(kind, true, None), 4, vcpus, busy, Some(watch));
            rig.run_until(500 * MS);
        }
    }
}

#[test]
fn without_the_switch_some_are() {
    for kind in ALL {
        let mut rig = guests(&config(kind, false, None), 4, 8, 3 * MS, None);
        let begun = rig.now;
        let seen = (1..2_000).filter(|round| {
            rig.run_until(begun + round * 100_000);
            stacked(&rig.sched).is_some()
        });
        assert!(seen.count() > 0, "{kind:?}");
    }
}

/// More vCPUs than pCPUs: load balancing goes on.
#[test]
fn siblings_that_cannot_be_apart_share_all_pcpus() {
    for kind in ALL {
        let mut rig = guests(&config(kind, true, None), 2, 6, 0, None);
        rig.run_until(3_000 * MS);
        let counts: Vec<u32> = (0..4).map(|pcpu| rig.sched.nr_running(pcpu)).collect();
        assert!(
            counts.iter().all(|count| (2..=4).contains(count)),
            "{kind:?}: {counts:?}"
        );
    }
}

/// Returns in how many of 1000 moments the vCPUs of the first guest neither all run nor all wait.
fn split(kind: SchedulerKind, aligned: Option<u64>) -> usize {
    let mut rig = guests(&config(kind, true, aligned), 2, 4, 0, None);
    let begun = 1_000 * MS;
    rig.run_until(begun);
    let runs = |sched: &Scheduler, task| sched.threads[TaskId(task)].on_cpu;
    let moments = (1..=1_000).filter(|round| {
        rig.run_until(begun + round * 730_000);
        let running = (0..4).filter(|&task| runs(&rig.sched, task)).count();
        running % 4 != 0
    });
    moments.count()
}

#[test]
fn slices_of_siblings_end_together_and_a_guest_leaves_as_a_whole() {
    for kind in ALL {
        let every = 12 * MS;
        let watch = |sched: &Scheduler| {
            let now = sched.now();
            let ends = (0..4).filter_map(|pcpu| sched.seam.slice_until(pcpu).filter(|&end| end > now));
            let ends: Vec<u64> = ends.collect();
            let (first, last) = (ends.iter().min(), ends.iter().max());
            assert!(
                first
                    .zip(last)
                    .is_none_or(|(first, last)| last - first <= 4 * MS || first - now <= 10_000),
                "at {now}: {ends:?}"
            );
        };
        let mut rig = guests(&config(kind, false, Some(every)), 2, 4, 5 * MS, Some(watch));
        rig.run_until(300 * MS);
        let (aligned, without) = (split(kind, Some(every)), split(kind, None));
        assert!(
            aligned < 10 && without > 900,
            "{kind:?}: {aligned} of 1000, {without} without"
        );
    }
}

#[test]
fn aligned_slices_keep_shares() {
    for kind in ALL {
        for every in [MS, 6 * MS, 20 * MS] {
            let mut rig = guests(&config(kind, true, Some(every)), 2, 4, 0, None);
            rig.run_until(1_000 * MS);
            let times =
                |rig: &Rig| [0, 4].map(|first| (first..first + 4).map(|task| rig.ran(TaskId(task))).sum::<u64>());
            let before = times(&rig);
            rig.run_until(3_000 * MS);
            let [one, other] = [0, 1].map(|vm| times(&rig)[vm] - before[vm]);
            let whole = 4 * 2_000 * MS;
            assert!(
                one.abs_diff(other) <= whole / 100,
                "{kind:?}, {every}: {one} and {other} ns"
            );
        }
    }
}
