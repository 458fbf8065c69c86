//! The busiest group and its busiest pCPU (Linux 3.3: `find_busiest_group`, `find_busiest_queue`).

use super::super::Scheduler;
use super::super::topology::POWER;
use super::Idleness;

/// The result of examining a domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sched) enum Verdict {
    /// Another pCPU of the same group balances this domain.
    NotMine,
    /// The domain is balanced.
    Balanced,
    /// Load `imbalance` should move here from this pCPU.
    Pull { from: u32, imbalance: u64 },
}

/// The load of a group in a pass.
#[derive(Clone, Copy, Debug, Default)]
struct Stats {
    /// Load per capacity.
    avg_load: u64,
    /// Sum of the loads with their history.
    load: u64,
    /// Sum of the present loads.
    weighted_load: u64,
    nr_running: u64,
    /// The number of threads that it can run well.
    capacity: u64,
    power: u64,
    pcpus: u64,
    idle_pcpus: u64,
    /// It has fewer threads than its capacity.
    has_capacity: bool,
    /// Its pCPUs have very different loads.
    uneven: bool,
}

impl Stats {
    fn load_per_task(&self) -> u64 {
        self.weighted_load.checked_div(self.nr_running).unwrap_or(0)
    }
}

impl Scheduler {
    /// Finds the pCPU from which `pcpu` should pull in its domain number `level`.
    pub(in crate::sched) fn find_busiest(&self, pcpu: u32, level: usize, idle: Idleness) -> Verdict {
        let domain = &self.topology.domains[pcpu as usize][level];
        let span = &self.topology.spans[domain.span];
        let index = match idle {
            Idleness::Busy => span.config.busy_index,
            Idleness::NewlyIdle => 0,
            Idleness::Idle => span.config.idle_index,
        };
        // In a newly idle pass every pCPU may pull. In others one pCPU per group does it for all.
        if idle != Idleness::NewlyIdle && !self.is_responsible(pcpu, span.group(domain.group)) {
            return Verdict::NotMine;
        }
        let local = self.group_stats(domain.span, domain.group, index, true);
        let (mut total_load, mut total_power) = (local.load, local.power);
        let mut busiest: Option<(usize, Stats)> = None;
        for group in span.groups_from(domain.group).skip(1) {
            let mut stats = self.group_stats(domain.span, group, index, false);
            if span.spreads && local.has_capacity {
                stats.capacity = stats.capacity.min(1);
            }
            total_load += stats.load;
            total_power += stats.power;
            let least = busiest.map_or(0, |(_, most)| most.avg_load);
            if stats.avg_load > least && (stats.nr_running > stats.capacity || stats.uneven) {
                busiest = Some((group, stats));
            }
        }
        let Some((group, busiest)) = busiest.filter(|(_, stats)| stats.nr_running > 0) else {
            return Verdict::Balanced;
        };
        let average = Self::per_power(total_load, total_power);
        if !Self::worth_pulling(&local, &busiest, average, idle, span.config.imbalance_pct) {
            return Verdict::Balanced;
        }
        let imbalance = self.imbalance(&local, &busiest, average);
        if imbalance == 0 {
            return Verdict::Balanced;
        }
        match self.busiest_pcpu(span.group(group), imbalance) {
            Some(from) => Verdict::Pull { from, imbalance },
            None => Verdict::Balanced,
        }
    }

    /// Returns whether `pcpu` balances its domain number `level` for its group.
    pub(super) fn balances(&self, pcpu: u32, level: usize) -> bool {
        let domain = &self.topology.domains[pcpu as usize][level];
        self.is_responsible(pcpu, self.topology.spans[domain.span].group(domain.group))
    }

    /// Returns whether `pcpu` balances for its group. The first idle pCPU does, or the first pCPU if none is idle.
    fn is_responsible(&self, pcpu: u32, group: &[u32]) -> bool {
        let first_idle = group.iter().find(|&&at| self.is_idle(at));
        first_idle.or(group.first()) == Some(&pcpu)
    }

    fn group_stats(&self, span: usize, group: usize, index: usize, local: bool) -> Stats {
        let span = &self.topology.spans[span];
        let power = span.groups[group].power;
        let mut stats = Stats {
            power,
            ..Stats::default()
        };
        let (mut most_load, mut least_load) = (0, u64::MAX);
        let (mut most_running, mut least_running) = (0, u32::MAX);
        for &at in span.group(group) {
            if self.excluded.contains(&at) {
                continue;
            }
            let load = if local {
                self.target_load(at, index)
            } else {
                self.source_load(at, index)
            };
            let running = self.nr_running(at);
            stats.load += load;
            stats.weighted_load += self.load(at);
            stats.nr_running += u64::from(running);
            stats.pcpus += 1;
            stats.idle_pcpus += u64::from(self.is_idle(at));
            (most_load, least_load) = (most_load.max(load), least_load.min(load));
            most_running = most_running.max(running);
            least_running = least_running.min(running);
        }
        stats.avg_load = Self::per_power(stats.load, power);
        stats.capacity = ((power + POWER / 2) / POWER).max(1);
        stats.has_capacity = stats.capacity > stats.nr_running;
        if !local && stats.pcpus > 0 {
            let spread = most_load.saturating_sub(least_load);
            stats.uneven = spread >= stats.load_per_task() && most_running.saturating_sub(least_running) > 1;
        }
        stats
    }

    fn worth_pulling(local: &Stats, busiest: &Stats, average: u64, idle: Idleness, imbalance_pct: u64) -> bool {
        if busiest.uneven {
            return true;
        }
        if idle == Idleness::NewlyIdle && local.has_capacity && !busiest.has_capacity {
            return true;
        }
        if local.avg_load >= busiest.avg_load || local.avg_load >= average {
            return false;
        }
        if idle == Idleness::Idle {
            // An idle pCPU pulls whenever that helps, unless the other group has idle pCPUs and no excess of threads.
            let as_idle = local.idle_pcpus <= busiest.idle_pcpus + 1;
            !(as_idle && busiest.nr_running <= busiest.pcpus)
        } else {
            100 * busiest.avg_load > imbalance_pct * local.avg_load
        }
    }

    /// Returns how much load to pull so that neither side ends above the average.
    fn imbalance(&self, local: &Stats, busiest: &Stats, average: u64) -> u64 {
        if self.halves_differences {
            // `calculate_imbalance` of 5.5 and later.
            let out = busiest.avg_load.saturating_sub(average) * busiest.power;
            let into = average.saturating_sub(local.avg_load) * local.power;
            return out.min(into) / POWER;
        }
        let mut per_task = busiest.load_per_task();
        if busiest.uneven {
            per_task = per_task.min(average);
        }
        if busiest.avg_load < average {
            return Self::small_imbalance(local, busiest, per_task);
        }
        let mut above_capacity = u64::MAX;
        if !busiest.uneven {
            // Taking more than the excess over its capacity would only make pCPUs idle there.
            let crowd = busiest.nr_running.saturating_sub(busiest.capacity);
            above_capacity = Self::per_power(crowd * POWER, busiest.power);
        }
        let over = (busiest.avg_load - average).min(above_capacity);
        let out = over * busiest.power;
        let into = average.saturating_sub(local.avg_load) * local.power;
        let imbalance = out.min(into) / POWER;
        if imbalance < per_task {
            Self::small_imbalance(local, busiest, per_task)
        } else {
            imbalance
        }
    }

    /// Handles an imbalance below one thread. Returns the load of a thread if moving one gains capacity, or 0.
    fn small_imbalance(local: &Stats, busiest: &Stats, per_task: u64) -> u64 {
        let here_per_task = local.load_per_task();
        let factor = if local.nr_running > 0 && per_task > here_per_task {
            1
        } else {
            2
        };
        let scaled = Self::per_power(per_task, busiest.power);
        if (busiest.avg_load + scaled).saturating_sub(local.avg_load) >= scaled * factor {
            return per_task;
        }
        let useful = |power: u64, per_task: u64, load: u64| power * per_task.min(load);
        let before =
            useful(busiest.power, per_task, busiest.avg_load) + useful(local.power, here_per_task, local.avg_load);
        let there = useful(busiest.power, per_task, busiest.avg_load.saturating_sub(scaled));
        let moved = busiest.avg_load.min(scaled) * busiest.power / local.power.max(1);
        let here = useful(local.power, here_per_task, local.avg_load + moved);
        if (there + here) / POWER > before / POWER {
            per_task
        } else {
            0
        }
    }

    /// Returns the pCPU of `group` with the most load per capacity that can give some away.
    fn busiest_pcpu(&self, group: &[u32], imbalance: u64) -> Option<u32> {
        let mut busiest = None;
        let mut most = 0;
        for &at in group {
            if self.excluded.contains(&at) {
                continue;
            }
            let load = self.load(at);
            let running = self.nr_running(at);
            // A single thread heavier than the imbalance stays where it is.
            if running == 0 || (running == 1 && load > imbalance) {
                continue;
            }
            let load = Self::per_power(load, self.topology.power[at as usize]);
            if load > most {
                (busiest, most) = (Some(at), load);
            }
        }
        busiest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boundary::PcpuPlace;
    use crate::config::HostConfig;

    fn load(avg_load: u64) -> Stats {
        Stats {
            avg_load,
            ..Stats::default()
        }
    }

    #[test]
    fn an_idle_pcpu_pulls_unless_the_others_are_as_idle() {
        // Idle pCPUs here and there, and threads there on two pCPUs.
        for (here, there, threads, pulls) in [
            (1, 1, 2, false),
            (2, 1, 2, false),
            (3, 1, 2, true),
            (1, 1, 3, true),
            (3, 1, 3, true),
        ] {
            let local = Stats {
                idle_pcpus: here,
                ..load(100)
            };
            let busiest = Stats {
                idle_pcpus: there,
                nr_running: threads,
                pcpus: 2,
                ..load(300)
            };
            let found = Scheduler::worth_pulling(&local, &busiest, 200, Idleness::Idle, 125);
            assert_eq!(found, pulls, "{here} and {there} idle, {threads} threads");
        }
    }

    #[test]
    fn a_busy_pcpu_pulls_beyond_the_percentage_only() {
        for (here, there, average, pulls) in [
            (100, 125, 110, false),
            (100, 126, 110, true),
            (100, 300, 100, false),
            (300, 300, 400, false),
            (301, 300, 400, false),
        ] {
            let found = Scheduler::worth_pulling(&load(here), &load(there), average, Idleness::Busy, 125);
            assert_eq!(found, pulls, "{here}, {there}, {average}");
        }
    }

    #[test]
    fn uneven_and_overfull_groups_are_relieved_whatever_the_average() {
        let full = |has_capacity| Stats {
            has_capacity,
            ..load(300)
        };
        for (local, busiest, idle, pulls) in [
            (true, false, Idleness::NewlyIdle, true),
            (true, true, Idleness::NewlyIdle, false),
            (false, false, Idleness::NewlyIdle, false),
            (true, false, Idleness::Busy, false),
        ] {
            let found = Scheduler::worth_pulling(&full(local), &full(busiest), 300, idle, 125);
            assert_eq!(found, pulls, "{local}, {busiest}, {idle:?}");
        }
        let uneven = Stats {
            uneven: true,
            ..load(0)
        };
        assert!(Scheduler::worth_pulling(&load(300), &uneven, 300, Idleness::Busy, 125));
    }

    /// A group of `nr_running` threads on `capacity` pCPUs of `power` together: its loads per capacity and per thread.
    fn group(avg_load: u64, per_task: u64, nr_running: u64, capacity: u64, power: u64) -> Stats {
        Stats {
            weighted_load: per_task * nr_running,
            nr_running,
            capacity,
            power,
            ..load(avg_load)
        }
    }

    fn scheduler(halves_differences: bool) -> Scheduler {
        let place = |core| PcpuPlace {
            socket: 0,
            core,
            thread: 0,
        };
        let mut sched = Scheduler::new(&HostConfig::linux_3_3(), &[place(0), place(1)]).expect("a valid scheduler");
        sched.halves_differences = halves_differences;
        sched
    }

    #[test]
    fn a_pull_leaves_neither_side_beyond_the_average() {
        // Loads of a group here and there, and the average. Weights of 1024 make a thread's load a round number.
        let here = |avg_load, power| group(avg_load, 0, 0, 1, power);
        for (classic, halving, local, busiest, average) in [
            // Both sides come to the average.
            (2_048, 2_048, here(0, POWER), group(4_096, 1_024, 4, 1, POWER), 2_048),
            (
                1_280,
                1_280,
                here(1_536, POWER),
                group(4_096, 1_024, 4, 1, POWER),
                2_816,
            ),
            // One side does first.
            (1_200, 1_200, here(800, POWER), group(4_096, 1_024, 4, 1, POWER), 2_000),
            (1_096, 1_096, here(0, POWER), group(4_096, 1_024, 4, 1, POWER), 3_000),
            // A larger side takes or gives more.
            (
                2_000,
                2_000,
                here(0, 2 * POWER),
                group(4_096, 1_024, 4, 1, POWER),
                1_000,
            ),
            (
                1_096,
                1_096,
                here(0, POWER),
                group(2_048, 1_024, 4, 2, 2 * POWER),
                1_500,
            ),
            // No more than the threads above the capacity.
            (1_024, 2_048, here(0, POWER), group(4_096, 1_024, 4, 3, POWER), 2_048),
            (
                1_024,
                1_096,
                here(0, POWER),
                group(2_048, 1_024, 4, 3, 2 * POWER),
                1_500,
            ),
        ] {
            for (halves, expected) in [(false, classic), (true, halving)] {
                let found = scheduler(halves).imbalance(&local, &busiest, average);
                assert_eq!(
                    found, expected,
                    "{local:?} from {busiest:?}, average {average}, {halves}"
                );
            }
        }
        // Pinned threads may make a group uneven. Then its capacity says nothing.
        let uneven = Stats {
            uneven: true,
            ..group(4_096, 1_024, 4, 3, POWER)
        };
        assert_eq!(scheduler(false).imbalance(&here(0, POWER), &uneven, 2_048), 2_048);
        // A group below the average gives a thread if that gains capacity, and nothing since 5.5.
        let below = group(1_000, 500, 2, 1, POWER);
        assert_eq!(scheduler(false).imbalance(&here(100, POWER), &below, 1_500), 500);
        assert_eq!(scheduler(true).imbalance(&here(100, POWER), &below, 1_500), 0);
    }

    #[test]
    fn less_than_a_thread_moves_only_as_a_whole_thread_that_gains_capacity() {
        for (expected, local, busiest) in [
            // The difference is at least two threads, or one if the threads here are lighter.
            (1_200, group(0, 0, 0, 1, POWER), group(1_200, 1_200, 1, 1, POWER)),
            (0, group(1, 0, 0, 1, POWER), group(1_200, 1_200, 1, 1, POWER)),
            (1_024, group(2_047, 512, 1, 1, POWER), group(2_048, 1_024, 2, 2, POWER)),
            (1_024, group(2_048, 512, 1, 1, POWER), group(2_048, 1_024, 2, 2, POWER)),
            (0, group(2_049, 512, 1, 1, POWER), group(2_048, 1_024, 2, 2, POWER)),
            (600, group(448, 600, 1, 1, POWER), group(1_048, 600, 2, 2, POWER)),
            (0, group(449, 600, 1, 1, POWER), group(1_048, 600, 2, 2, POWER)),
            // Half of the capacity here would do nothing, and the thread is not needed there.
            (
                1_050,
                group(1_100, 2_048, 1, 2, 2 * POWER),
                group(2_100, 1_050, 2, 1, POWER),
            ),
            // It is needed there just as much.
            (
                0,
                group(1_100, 2_048, 1, 2, 2 * POWER),
                group(1_050, 1_050, 1, 1, POWER),
            ),
            // What is here has enough to do.
            (0, group(2_048, 2_048, 1, 1, POWER), group(2_100, 1_050, 2, 1, POWER)),
        ] {
            let per_task = busiest.load_per_task();
            let found = Scheduler::small_imbalance(&local, &busiest, per_task);
            assert_eq!(found, expected, "{local:?} from {busiest:?}");
        }
    }
}
