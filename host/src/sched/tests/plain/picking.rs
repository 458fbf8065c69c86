//! Which thread EEVDF picks.

use super::*;

/// An entity: its weight, its virtual runtime and its deadline.
type Row = (u64, u64, u64);

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1_024) })]

    /// `pick_eevdf`: of the entities without negative lag the one with the earliest deadline. The one that ran until
    /// now keeps the pCPU while it is protected and eligible, and gives way to another with the same deadline.
    #[test]
    fn the_eligible_entity_with_the_earliest_deadline_is_picked(
        rows in prop::collection::vec((prop_oneof![Just(1_024u64), 15u64..3_000], 0u64..12, 0u64..6), 1..7),
        prev in prop::option::of(0usize..6), parity in any::<bool>(), protected in any::<bool>(),
    ) {
        let mut config = HostConfig { sched: SchedConfig::of(SchedulerKind::Eevdf66), ..HostConfig::default() };
        config.sched.features.run_to_parity = parity;
        let mut bench = Bench::new(&config, 1, 1);
        let tasks: Vec<TaskId> = rows.iter().map(|row: &Row| bench.sched.add_thread(row.0, ROOT, None)).collect();
        let entities: Vec<EntityId> = tasks.iter().map(|&task| bench.sched.threads[task].entity).collect();
        let hierarchy = &mut bench.sched.hierarchy;
        let root = hierarchy.root(0);
        let prev = prev.filter(|&prev| prev < rows.len());
        for (index, (&id, &(_, vruntime, deadline))) in entities.iter().zip(&rows).enumerate() {
            let entity = &mut hierarchy.entities[id];
            (entity.vruntime, entity.deadline, entity.on_rq) = (vruntime, deadline, true);
            entity.protected = (protected && prev == Some(index)).then_some(deadline);
            hierarchy.tree_insert(root, id);
            hierarchy.queues[root].nr += 1;
        }
        let weight: u64 = rows.iter().map(|row| row.0).sum();
        let mean = rows.iter().map(|row| row.0 * row.1).sum::<u64>() as f64 / weight as f64;
        let eligible = |index: usize| rows[index].1 as f64 <= mean;
        // Of equal deadlines that of the lower virtual runtime, then that of the first in the queue.
        let others = (0..rows.len()).filter(|&index| Some(index) != prev && eligible(index));
        let best = others.min_by_key(|&index| (rows[index].2, rows[index].1, index));
        let expected = match prev.filter(|&prev| eligible(prev)) {
            Some(prev) if parity && protected => prev,
            Some(prev) => best.filter(|&best| rows[best].2 <= rows[prev].2).unwrap_or(prev),
            None => best.expect("not all are behind their mean"),
        };
        let policy = hierarchy.policy;
        let found = policy.pick(hierarchy, root, prev.map(|prev| entities[prev]));
        prop_assert_eq!(found, Some(entities[expected]), "{:?}, mean {}", rows, mean);
    }
}
