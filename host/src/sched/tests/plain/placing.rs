//! Where woken and new threads go.

use super::*;
use crate::sched::features::Features;
use crate::sched::pelt::Tracked;

/// A thread that sleeps, and what a wakeup depends on besides.
#[derive(Clone, Debug)]
struct Sleeper {
    prev: usize,
    /// The pCPU before that.
    recent: usize,
    weight: u64,
    allowed: Vec<bool>,
    sync: bool,
    /// Partners of the waker's running thread and of the sleeper.
    flips: (u32, u32),
    idle_cores: bool,
    /// Searches look at so many pCPUs where utilization bounds them.
    idle_scan: u64,
    avg_idle: u64,
    avg_scan: u64,
}

fn sleeper() -> impl Strategy<Value = Sleeper> {
    let most = 8usize;
    let flips = || prop_oneof![Just(0u32), 1u32..9, 9u32..70];
    (
        (
            (0..most, 0..most),
            prop_oneof![Just(1_024u64), Just(15), Just(3_000)],
            any::<bool>(),
        ),
        prop::collection::vec(prop::bool::weighted(0.8), most),
        (flips(), flips()),
        (any::<bool>(), 0u64..9, 0u64..6_000, 0u64..300),
    )
        .prop_map(
            |(((prev, recent), weight, sync), allowed, flips, (idle_cores, idle_scan, avg_idle, avg_scan))| Sleeper {
                prev,
                recent,
                weight,
                allowed,
                sync,
                flips,
                idle_cores,
                idle_scan,
                avg_idle,
                avg_scan,
            },
        )
}

/// Where plain code places a thread, and why.
struct Placing<'a> {
    features: Features,
    pcpus: &'a [Pcpu],
    sleeper: &'a Sleeper,
    prev: usize,
}

impl Placing<'_> {
    fn may(&self, at: usize) -> bool {
        self.sleeper.allowed[at]
    }

    fn allowed(&self) -> Vec<usize> {
        (0..self.pcpus.len()).filter(|&at| self.may(at)).collect()
    }

    fn or_fallback(&self, at: usize) -> usize {
        match (self.may(at), self.may(self.prev)) {
            (true, _) => at,
            (false, true) => self.prev,
            (false, false) => self.allowed()[0],
        }
    }

    fn socket(&self, at: usize) -> Vec<usize> {
        let socket = self.pcpus[at].place.socket;
        let mut pcpus: Vec<usize> = (0..self.pcpus.len())
            .filter(|&at| self.pcpus[at].place.socket == socket)
            .collect();
        pcpus.sort_by_key(|&at| self.pcpus[at].place);
        pcpus
    }

    fn core(&self, at: usize) -> Vec<usize> {
        let mut pcpus = self.socket(at);
        pcpus.retain(|&other| self.pcpus[other].place.core == self.pcpus[at].place.core);
        pcpus
    }

    /// The cores of a socket in turn, from that of `at` on.
    fn cores_from(&self, at: usize) -> Vec<Vec<usize>> {
        let mut cores: Vec<Vec<usize>> = self.socket(at).iter().map(|&at| self.core(at)).collect();
        cores.dedup();
        let here = cores.iter().position(|core| core.contains(&at)).expect("its core");
        cores.rotate_left(here);
        cores
    }

    /// `select_task_rq_fair` and what it calls.
    fn woken(&self, bench: &Bench, waker: usize) -> usize {
        let prev = self.prev;
        if self.allowed().len() == 1 {
            return self.or_fallback(prev);
        }
        let (one, other) = self.sleeper.flips;
        let (least, most) = (u64::from(one.min(other)), u64::from(one.max(other)));
        let near = self.socket(waker).len() as u64;
        let runs = self.pcpus[waker].running > 0;
        let wide = self.features.wake_wide && runs && least >= near && most >= least * near;
        let target = if self.may(waker) && !wide {
            let common = domains(self.pcpus, waker)
                .iter()
                .position(|groups| groups.iter().flatten().any(|&at| at == prev));
            let level = common.expect("every two pCPUs have a common domain");
            let pct = bench.sched.topology.span_of(waker as u32, level).config.imbalance_pct;
            if waker == prev || self.affine(waker, pct) {
                waker
            } else {
                prev
            }
        } else if self.features.bounded_scan {
            prev
        } else {
            return self.or_fallback(prev);
        };
        let found = if self.features.bounded_scan {
            self.scan(target)
        } else {
            self.sibling(target, waker)
        };
        self.or_fallback(found)
    }

    fn affine(&self, waker: usize, pct: u64) -> bool {
        let (here, there) = (&self.pcpus[waker], &self.pcpus[self.prev]);
        let weight = self.sleeper.weight;
        let (power, prev_power) = (power(self.pcpus, waker), power(self.pcpus, self.prev));
        let bias = bias_of(pct);
        if !self.features.wake_idle {
            return here.load == 0 || 100 * prev_power * (here.load + weight) <= bias * power * there.load;
        }
        let near = here.place.socket == there.place.socket;
        if here.idle && near {
            return !there.idle;
        }
        if self.sleeper.sync && here.running == 1 {
            return true;
        }
        let mut load = here.load;
        if self.sleeper.sync && here.running > 0 {
            if here.current > load {
                return true;
            }
            load -= here.current;
        }
        let (this, other) = (
            100 * prev_power * (load + weight),
            bias * power * there.load.saturating_sub(weight),
        );
        if self.sleeper.sync { this <= other } else { this < other }
    }

    /// Until 4.11: `select_idle_sibling`.
    fn sibling(&self, target: usize, waker: usize) -> usize {
        if (target == waker || target == self.prev) && self.pcpus[target].idle {
            return target;
        }
        let whole = |core: &Vec<usize>| core.iter().all(|&at| self.pcpus[at].idle);
        let cores = self.cores_from(target);
        let threads = {
            let mut core = self.core(target);
            let here = core.iter().position(|&at| at == target).expect("itself");
            core.rotate_left(here);
            core
        };
        let of_cores = cores
            .iter()
            .filter(|core| whole(core))
            .find_map(|core| core.iter().find(|&&at| self.may(at)));
        let of_core = threads.iter().find(|&&at| self.pcpus[at].idle && self.may(at));
        *of_cores.filter(|_| cores.len() > 1).or(of_core).unwrap_or(&target)
    }

    /// 4.12 and later: `select_idle_core`, `select_idle_cpu` and `select_idle_smt`.
    fn scan(&self, target: usize) -> usize {
        if self.pcpus[target].idle {
            return target;
        }
        let near = self.socket(target);
        if near.contains(&self.prev) && self.pcpus[self.prev].idle {
            return self.prev;
        }
        let good = |at: usize| self.pcpus[at].idle && self.may(at);
        let recent = self.sleeper.recent % self.pcpus.len();
        if self.features.recently_used && recent != self.prev && near.contains(&recent) && good(recent) {
            return recent;
        }
        if self.sleeper.idle_cores && self.core(target).len() > 1 {
            let idle = |core: &Vec<usize>| core.iter().all(|&at| self.pcpus[at].idle);
            for core in self.cores_from(target).iter().filter(|core| idle(core)) {
                if let Some(&at) = core.iter().find(|&&at| self.may(at)) {
                    return at;
                }
            }
        }
        let mut turn = near.clone();
        let here = turn.iter().position(|&at| at == target).expect("itself");
        turn.rotate_left(here);
        let found = if self.features.scan_by_utilization {
            // From the next one on; those that the thread may not use do not count.
            turn.rotate_left(1);
            turn.retain(|&at| self.may(at));
            turn.into_iter()
                .take(self.sleeper.idle_scan as usize)
                .find(|&at| good(at))
        } else {
            let time = near.len() as u64 * (self.sleeper.avg_idle / 512);
            let cost = self.sleeper.avg_scan;
            let most = match cost {
                _ if time <= 4 * cost => 4,
                0 => usize::MAX,
                _ => (time / cost) as usize,
            };
            turn.into_iter().take(most).find(|&at| good(at))
        };
        let alone = near.len() == 1;
        let of_core = self
            .core(target)
            .into_iter()
            .filter(|_| self.core(target).len() > 1)
            .find(|&at| good(at));
        found.filter(|_| !alone).or(of_core).unwrap_or(target)
    }

    /// `find_idlest_group` and `find_idlest_cpu`, level by level.
    fn started(&self, bench: &Bench, creator: usize) -> usize {
        let mut at = creator;
        let mut size = usize::MAX;
        loop {
            let all = domains(self.pcpus, at);
            let smaller = |groups: &Vec<Vec<usize>>| groups.concat().len() < size;
            let Some(level) = all.iter().rposition(smaller) else {
                break;
            };
            let groups = &all[level];
            size = groups.concat().len();
            let pct = bench.sched.topology.span_of(at as u32, level).config.imbalance_pct;
            let load = |group: &Vec<usize>| {
                let power: u64 = group.iter().map(|&at| power(self.pcpus, at)).sum();
                group.iter().map(|&at| self.pcpus[at].load).sum::<u64>() * 1_024 / power
            };
            let home = groups.iter().position(|group| group.contains(&at)).expect("its group");
            let usable = |group: &Vec<usize>| group.iter().any(|&at| self.may(at));
            let mut others: Vec<usize> = (0..groups.len()).collect();
            others.rotate_left(home);
            others.remove(0);
            others.retain(|&group| usable(&groups[group]));
            let Some(&best) = others.iter().min_by_key(|&&group| load(&groups[group])) else {
                continue;
            };
            let clearly = 100 * load(&groups[home]) > bias_of(pct) * load(&groups[best]);
            if usable(&groups[home]) && !clearly {
                continue;
            }
            let allowed: Vec<usize> = groups[best].iter().copied().filter(|&at| self.may(at)).collect();
            at = *allowed
                .iter()
                .min_by_key(|&&at| self.pcpus[at].load)
                .expect("a usable group");
        }
        self.or_fallback(at)
    }
}

/// Half of the percentage of a domain counts in comparisons of a wakeup.
fn bias_of(pct: u64) -> u64 {
    100 + (pct - 100) / 2
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

    #[test]
    fn threads_are_placed_as_plain_code_does(
        shape in shape(),
        sleeper in sleeper(),
        kind in prop::sample::select(&[SchedulerKind::Cfs33, SchedulerKind::Cfs412, SchedulerKind::Cfs61][..]),
    ) {
        let (mut bench, pcpus) = host(kind, &shape);
        let mut sleeper = sleeper;
        sleeper.allowed.truncate(pcpus.len());
        if !sleeper.allowed.contains(&true) {
            sleeper.allowed.fill(true);
        }
        let prev = sleeper.prev % pcpus.len();
        let mut affinity = Mask::new(pcpus.len());
        (0..).zip(&sleeper.allowed).for_each(|(pcpu, &may)| affinity.set(pcpu, may));
        let task = bench.sched.add_thread(sleeper.weight, ROOT, Some(affinity));
        bench.sched.rehome(task, prev as u32);
        let entity = bench.sched.threads[task].entity;
        bench.sched.hierarchy.entities[entity].tracked = Tracked::steady(sleeper.weight);
        bench.sched.threads[task].wakes.flips = sleeper.flips.1;
        let placing = Placing { features: bench.sched.features, pcpus: &pcpus, sleeper: &sleeper, prev };
        for waker in 0..pcpus.len() {
            if let Some(curr) = bench.sched.current(waker as u32) {
                bench.sched.threads[curr].wakes.flips = sleeper.flips.0;
            }
            bench.sched.threads[task].recently_used = (sleeper.recent % pcpus.len()) as u32;
            for cache in 0..bench.sched.idle_scans.len() {
                bench.sched.idle_cores.set(cache as u32, sleeper.idle_cores);
                bench.sched.idle_scans[cache] = sleeper.idle_scan;
            }
            let queue = bench.sched.rq_mut(waker as u32);
            (queue.avg_idle, queue.avg_scan) = (sleeper.avg_idle, sleeper.avg_scan);
            let found = bench.sched.place_woken(task, waker as u32, sleeper.sync);
            prop_assert_eq!(found as usize, placing.woken(&bench, waker), "woken from {}: {:?}", waker, pcpus);
            let found = bench.sched.place_new(task, waker as u32);
            prop_assert_eq!(found as usize, placing.started(&bench, waker), "new on {}: {:?}", waker, pcpus);
        }
    }
}
