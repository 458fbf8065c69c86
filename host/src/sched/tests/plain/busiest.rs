//! The busiest group and its busiest pCPU.

use super::*;

/// A group in a pass.
#[derive(Clone, Debug)]
struct Sums {
    members: Vec<usize>,
    power: u64,
    /// Loads with their history, and present ones.
    loads: Vec<u64>,
    now: u64,
    running: u64,
    idle: usize,
    capacity: u64,
    has_capacity: bool,
    uneven: bool,
}

impl Sums {
    fn new(pcpus: &[Pcpu], group: &[usize], local: bool, history: Option<usize>) -> Sums {
        let members: Vec<usize> = group.iter().copied().filter(|&at| !pcpus[at].excluded).collect();
        let power = group.iter().map(|&at| power(pcpus, at)).sum();
        let loads = members.iter().map(|&at| {
            let past = history.map_or(pcpus[at].load, |index| pcpus[at].past[index]);
            let mut both = [past, pcpus[at].load];
            both.sort_unstable();
            both[usize::from(local)]
        });
        let loads: Vec<u64> = loads.collect();
        let running: Vec<u64> = members.iter().map(|&at| pcpus[at].running).collect();
        let now = members.iter().map(|&at| pcpus[at].load).sum();
        let all = running.iter().sum();
        // Rounded to the nearest number of whole pCPUs.
        let capacity = ((power as f64 / 1_024.0).round() as u64).max(1);
        let spread = |values: &[u64]| {
            values
                .iter()
                .max()
                .zip(values.iter().min())
                .map_or(0, |(most, least)| most - least)
        };
        let per_task: u64 = u64::checked_div(now, all).unwrap_or(0);
        Sums {
            idle: members.iter().filter(|&&at| pcpus[at].idle).count(),
            uneven: !local && !members.is_empty() && spread(&loads) >= per_task && spread(&running) >= 2,
            has_capacity: all < capacity,
            members,
            power,
            loads,
            now,
            running: all,
            capacity,
        }
    }

    fn average(&self) -> u64 {
        self.loads.iter().sum::<u64>() * 1_024 / self.power
    }

    fn per_task(&self) -> u64 {
        self.now.checked_div(self.running).unwrap_or(0)
    }
}

/// Linux 3.3, `find_busiest_group` and `find_busiest_queue`, in plain words.
pub(super) fn busiest(bench: &Bench, pcpus: &[Pcpu], pcpu: usize, level: usize, idle: Idleness) -> Verdict {
    let groups = &domains(pcpus, pcpu)[level];
    let config = bench.sched.topology.span_of(pcpu as u32, level).config;
    let home = groups
        .iter()
        .position(|group| group.contains(&pcpu))
        .expect("its group");
    let first_idle = groups[home].iter().find(|&&at| pcpus[at].idle);
    if idle != Idleness::NewlyIdle && *first_idle.unwrap_or(&groups[home][0]) != pcpu {
        return Verdict::NotMine;
    }
    let index = match idle {
        Idleness::Busy => config.busy_index,
        Idleness::Idle => config.idle_index,
        Idleness::NewlyIdle => 0,
    };
    let history = index.checked_sub(1).filter(|_| bench.sched.features.lb_bias);
    let local = Sums::new(pcpus, &groups[home], true, history);
    let crosses_sockets = groups
        .iter()
        .flatten()
        .any(|&at| pcpus[at].place.socket != pcpus[pcpu].place.socket);
    // The others in turn, beginning with the next one.
    let others: Vec<Sums> = (1..groups.len())
        .map(|step| Sums::new(pcpus, &groups[(home + step) % groups.len()], false, history))
        .collect();
    let (mut load, mut whole_power) = (local.loads.iter().sum::<u64>(), local.power);
    let mut best: Option<Sums> = None;
    for mut other in others {
        load += other.loads.iter().sum::<u64>();
        whole_power += other.power;
        if crosses_sockets && local.has_capacity {
            other.capacity = 1;
        }
        let busier = other.average() > best.as_ref().map_or(0, Sums::average);
        if busier && (other.running > other.capacity || other.uneven) {
            best = Some(other);
        }
    }
    let Some(best) = best.filter(|best| best.running > 0) else {
        return Verdict::Balanced;
    };
    let average = load * 1_024 / whole_power;
    let urgent = best.uneven || idle == Idleness::NewlyIdle && local.has_capacity && !best.has_capacity;
    let lighter = local.average() < best.average() && local.average() < average;
    let enough = match idle {
        Idleness::Idle => local.idle > best.idle + 1 || best.running > best.members.len() as u64,
        _ => best.average() * 100 > local.average() * config.imbalance_pct,
    };
    if !(urgent || lighter && enough) {
        return Verdict::Balanced;
    }
    let amount = amount(&local, &best, average, bench.sched.halves_differences);
    let candidates = best.members.iter().filter(|&&at| match pcpus[at].running {
        0 => false,
        1 => pcpus[at].load <= amount,
        _ => true,
    });
    let per_capacity = |at: usize| pcpus[at].load * 1_024 / power(pcpus, at);
    // Of equal ones the first.
    let mut from: Option<usize> = None;
    for &at in candidates {
        if per_capacity(at) > from.map_or(0, per_capacity) {
            from = Some(at);
        }
    }
    match from {
        Some(from) if amount > 0 => Verdict::Pull {
            from: from as u32,
            imbalance: amount,
        },
        _ => Verdict::Balanced,
    }
}

/// `calculate_imbalance` and `fix_small_imbalance`.
fn amount(local: &Sums, best: &Sums, average: u64, halves: bool) -> u64 {
    let (here, there) = (local.average(), best.average());
    let into = average.saturating_sub(here) * local.power / 1_024;
    if halves {
        return into.min(there.saturating_sub(average) * best.power / 1_024);
    }
    let per_task = if best.uneven {
        best.per_task().min(average)
    } else {
        best.per_task()
    };
    if there >= average {
        let crowd = best.running.saturating_sub(best.capacity) * 1_024 * 1_024 / best.power;
        let over = if best.uneven {
            there - average
        } else {
            crowd.min(there - average)
        };
        let amount = into.min(over * best.power / 1_024);
        if amount >= per_task {
            return amount;
        }
    }
    // Less than a thread: one whole thread, if that is right or gains capacity.
    let scaled = per_task * 1_024 / best.power;
    let lightest = if local.running > 0 && local.per_task() < per_task {
        scaled
    } else {
        2 * scaled
    };
    if (there + scaled).saturating_sub(here) >= lightest {
        return per_task;
    }
    let used = |power: u64, thread: u64, load: u64| power * thread.min(load);
    let before = used(best.power, per_task, there) + used(local.power, local.per_task(), here);
    let arrives = there.min(scaled) * best.power / local.power;
    let after =
        used(best.power, per_task, there.saturating_sub(scaled)) + used(local.power, local.per_task(), here + arrives);
    if after / 1_024 > before / 1_024 { per_task } else { 0 }
}

const STATES: [Idleness; 3] = [Idleness::Busy, Idleness::Idle, Idleness::NewlyIdle];

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

    #[test]
    fn every_pass_finds_the_busiest_pcpu_of_the_busiest_group(
        shape in shape(),
        kind in prop::sample::select(&[SchedulerKind::Cfs33, SchedulerKind::Eevdf66][..]),
    ) {
        let (bench, pcpus) = host(kind, &shape);
        for pcpu in 0..pcpus.len() {
            let levels = domains(&pcpus, pcpu).len();
            prop_assert_eq!(bench.sched.topology.domains[pcpu].len(), levels);
            for (level, idle) in (0..levels).flat_map(|level| STATES.map(|idle| (level, idle))) {
                let found = bench.sched.find_busiest(pcpu as u32, level, idle);
                let expected = busiest(&bench, &pcpus, pcpu, level, idle);
                prop_assert_eq!(found, expected, "pcpu {}, level {}, {:?}: {:?}", pcpu, level, idle, pcpus);
            }
        }
    }
}
