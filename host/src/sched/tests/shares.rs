//! How a group's shares divide among the pCPUs on which it has threads.

use super::super::config::ShareRule;
use super::rig::{ALL, Habit, Rig};
use super::*;

/// Returns the weight of the group's entity on `pcpu`.
fn weight_on(rig: &Rig, group: GroupId, pcpu: u32) -> f64 {
    let hierarchy = &rig.sched.hierarchy;
    let queue = hierarchy.groups[group].queues[pcpu as usize].expect("a queue of the group");
    let entity = hierarchy.queues[queue].entity.expect("an entity of the group");
    hierarchy.entities[entity].weight as f64
}

/// Returns by how much the shares of `group` are multiplied, which has `threads` on a host of `pcpus`. Linux rounds the
/// average number of threads down, so one less may count.
fn multiple_of(rig: &Rig, group: GroupId, threads: u64, pcpus: u64) -> u64 {
    let multiple = rig.sched.hierarchy.multiple(group);
    let most = match rig.sched.hierarchy.share_rule {
        ShareRule::Concurrent => threads.min(pcpus),
        _ => 1,
    };
    assert!(
        (most.saturating_sub(1).max(1)..=most).contains(&multiple),
        "{multiple} of {most}"
    );
    multiple
}

#[test]
fn each_pcpu_has_the_part_of_the_shares_that_its_load_has_of_the_groups() {
    for kind in ALL {
        for (shares, counts) in [
            (1024, [1, 1, 1]),
            (1024, [1, 2, 5]),
            (2048, [4, 0, 1]),
            (300, [0, 3, 3]),
            (5000, [0, 0, 2]),
        ] {
            let mut rig = Rig::new(kind, 3, 250);
            let upper = rig.sched.add_group(None, 1024).expect("a group");
            let groups = [None, Some(upper)].map(|parent| rig.sched.add_group(parent, shares).expect("a group"));
            for (pcpu, count) in (0..).zip(counts) {
                // Others to share with: a thread that is alone gets everything whatever its group weighs.
                rig.add(0, ROOT, Some(pcpu), Habit::HOG);
                for group in groups {
                    (0..count).for_each(|_| {
                        rig.add(0, group, Some(pcpu), Habit::HOG);
                    });
                }
            }
            rig.run_until(1_500 * MS);
            let total: u64 = counts.iter().sum();
            for (pcpu, count) in (0..).zip(counts).filter(|&(_, count)| count > 0) {
                for group in groups {
                    let multiple = multiple_of(&rig, group, total, 3);
                    let due = (shares * count * multiple) as f64 / total as f64;
                    let found = weight_on(&rig, group, pcpu);
                    assert!(
                        (found / due - 1.0).abs() < 0.04,
                        "{kind:?}, {counts:?}: {found} of {shares} on pcpu {pcpu}, {due} is due"
                    );
                }
            }
        }
    }
}

#[test]
fn a_group_that_leaves_a_pcpu_weighs_all_its_shares_on_the_others() {
    for kind in ALL {
        let mut rig = Rig::new(kind, 2, 250);
        let group = rig.sched.add_group(None, 1024).expect("a group");
        rig.add(0, ROOT, Some(0), Habit::HOG);
        rig.add(0, group, Some(0), Habit::HOG);
        let leaves = Habit {
            busy: 800 * MS,
            sleep: 10_000 * MS,
        };
        rig.add(0, group, Some(1), leaves);
        rig.run_until(700 * MS);
        let both = weight_on(&rig, group, 0) / multiple_of(&rig, group, 2, 2) as f64;
        assert!(
            (480.0..550.0).contains(&both),
            "{kind:?}: {both} of 1024 on one of two pcpus"
        );
        rig.run_until(2_000 * MS);
        let alone = weight_on(&rig, group, 0);
        assert!(alone > 980.0, "{kind:?}: {alone} of 1024 on the only pcpu");
    }
}

#[test]
fn a_new_weight_leaves_the_lag_of_a_group_that_waits_for_threads() {
    let mut bench = Bench::of(SchedulerKind::Eevdf612, 1);
    let group = bench.sched.add_group(None, 1024).expect("a group");
    let hierarchy = &mut bench.sched.hierarchy;
    let queue = hierarchy.queue_of(group, 0);
    let id = hierarchy.queues[queue].entity.expect("an entity of the group");
    for (old, lag) in [(512, -3_000), (64, 5_000)] {
        let entity = &mut hierarchy.entities[id];
        (entity.weight, entity.vlag) = (old, lag);
        assert!(!entity.on_rq);
        hierarchy.update_shares(queue);
        let entity = &hierarchy.entities[id];
        assert_eq!(entity.weight, MIN_SHARES, "without load");
        assert_eq!(entity.vlag * MIN_SHARES as i64, lag * old as i64);
    }
}
