//! Load balancing: its occasions, and one pass over one domain (docs/spec/host.md, "Load balancing").

mod busiest;
mod pull;

use super::Scheduler;
use super::weight::mul_div;
use crate::boundary::Cost;
use crate::step::Step;

pub(super) use busiest::Verdict;

/// The state of the pCPU for which a pass is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Idleness {
    /// It runs nothing.
    Idle,
    /// It runs a thread.
    Busy,
    /// It has just run out of threads.
    NewlyIdle,
}

impl Scheduler {
    /// Returns the ticks in `ms` milliseconds, at least one.
    fn ticks(&self, ms: u64) -> u64 {
        (ms * self.hz).div_ceil(1000).max(1)
    }

    /// Balances at a tick on `pcpu`, if it is time.
    pub(super) fn balance_at_tick(&mut self, pcpu: u32, tick: u64, step: &mut Step<'_>) {
        if tick >= self.rq(pcpu).next_balance {
            let idle = if self.rq(pcpu).curr.is_none() {
                Idleness::Idle
            } else {
                Idleness::Busy
            };
            self.rebalance(pcpu, idle, tick, step);
        }
        if tick >= self.next_idle_balance && self.should_call_idle(pcpu) {
            self.call_idle(step);
        }
    }

    /// Returns whether `pcpu` has work that an idle pCPU could take: a second thread, or a busy sibling.
    fn should_call_idle(&self, pcpu: u32) -> bool {
        if self.nr_running(pcpu) >= 2 {
            return true;
        }
        let levels = self.topology.cache_levels[pcpu as usize];
        self.topology.domains[pcpu as usize][..levels].iter().any(|domain| {
            let near = self.topology.spans[domain.span].group(domain.group);
            near.iter().filter(|&&at| self.rq(at).curr.is_some()).take(2).count() > 1
        })
    }

    /// Asks the first idle pCPU to balance for all idle ones, whose ticks are stopped.
    fn call_idle(&mut self, step: &mut Step<'_>) {
        let Some(idle) = self.idle.first() else { return };
        self.next_idle_balance += 1;
        let queue = self.rq_mut(idle);
        if !queue.balance_idle && idle != step.pcpu {
            queue.balance_idle = true;
            step.ipi(idle);
        }
    }

    /// Balances for all idle pCPUs that are due. `pcpu` is one of them and executes it.
    pub(super) fn balance_for_idle(&mut self, pcpu: u32, step: &mut Step<'_>) {
        let tick = self.jiffies();
        let mut next = u64::MAX;
        let mut from = 0;
        while let Some(idle) = self.idle.first_from(from) {
            from = idle + 1;
            if self.rq(pcpu).need_resched {
                // Work has come. The next tick of a busy pCPU calls another idle one.
                next = tick;
                break;
            }
            if tick >= self.rq(idle).next_balance {
                let load = self.load(idle);
                self.rq_mut(idle).update_load(tick, load);
                self.rebalance(idle, Idleness::Idle, tick, step);
            }
            next = next.min(self.rq(idle).next_balance);
            if from >= self.pcpus() {
                break;
            }
        }
        self.next_idle_balance = next.max(tick + 1);
    }

    /// Balances those domains of `pcpu` that are due.
    fn rebalance(&mut self, pcpu: u32, idle: Idleness, tick: u64, step: &mut Step<'_>) {
        self.hierarchy.refresh_shares(pcpu);
        let mut idle = idle;
        let mut next = tick + 60 * self.hz;
        let longest = (self.hz * u64::from(self.pcpus()) / 10).max(1);
        for level in 0..self.topology.domains[pcpu as usize].len() {
            let mut interval = self.interval(pcpu, level, idle).min(longest);
            let domain = &self.topology.domains[pcpu as usize][level];
            let due = domain.last_balance + interval;
            let mut mine = true;
            if tick >= due {
                match self.balance_domain(pcpu, level, idle, step) {
                    None => mine = false,
                    Some(true) => idle = Idleness::Busy,
                    Some(false) => {}
                }
                self.topology.domains[pcpu as usize][level].last_balance = tick;
                if self.halves_differences {
                    interval = self.interval(pcpu, level, idle).min(longest);
                }
            }
            next = next.min(self.topology.domains[pcpu as usize][level].last_balance + interval);
            if !mine {
                break;
            }
        }
        self.rq_mut(pcpu).next_balance = next;
    }

    /// Returns the ticks between two passes of `pcpu` over its domain number `level` (`get_sd_balance_interval`).
    fn interval(&self, pcpu: u32, level: usize, idle: Idleness) -> u64 {
        let domain = &self.topology.domains[pcpu as usize][level];
        if idle == Idleness::Idle {
            return self.ticks(domain.interval_ms);
        }
        let busy_factor = self.topology.spans[domain.span].config.busy_factor;
        let ticks = self.ticks(domain.interval_ms * busy_factor);
        if self.halves_differences {
            (ticks - 1).max(1)
        } else {
            ticks
        }
    }

    /// Searches for a thread to pull to `pcpu`, which has nothing to run. Skipped if `pcpu` is usually idle for a short
    /// time only.
    pub(super) fn balance_newly_idle(&mut self, pcpu: u32, step: &mut Step<'_>) {
        let now = self.now();
        self.rq_mut(pcpu).idle_since = Some(now);
        let hopeless = self.features.overload_gate && self.hierarchy.crowded_pcpus == 0;
        if hopeless || self.rq(pcpu).avg_idle < self.migration_cost_ns {
            return;
        }
        self.hierarchy.refresh_shares(pcpu);
        for level in 0..self.topology.domains[pcpu as usize].len() {
            if self.balance_domain(pcpu, level, Idleness::NewlyIdle, step) == Some(true) {
                self.rq_mut(pcpu).idle_since = None;
                return;
            }
        }
    }

    /// Makes one pass for `pcpu` over its domain number `level`. Returns whether it moved a thread. Returns `None` if
    /// another pCPU makes the pass: those over the domains above are then not this pCPU's either.
    fn balance_domain(&mut self, pcpu: u32, level: usize, idle: Idleness, step: &mut Step<'_>) -> Option<bool> {
        step.charge(Cost::Balance, 1);
        self.excluded.clear();
        if idle != Idleness::NewlyIdle && self.balances(pcpu, level) {
            self.update_idle_scan(pcpu, level);
        }
        loop {
            let (from, imbalance) = match self.find_busiest(pcpu, level, idle) {
                Verdict::NotMine => return None,
                Verdict::Balanced => {
                    self.balanced(pcpu, level, true);
                    return Some(false);
                }
                Verdict::Pull { from, imbalance } => (from, imbalance),
            };
            let pull = self.pull(pcpu, level, from, imbalance, step);
            if pull.all_pinned && self.nr_running(from) > 1 {
                self.excluded.push(from);
                continue;
            }
            if pull.moved > 0 {
                if pcpu != step.pcpu {
                    self.resched(pcpu, step);
                }
                self.balanced(pcpu, level, false);
                return Some(true);
            }
            self.failed(pcpu, level, from, idle, step);
            return Some(false);
        }
    }

    /// Adapts the interval after a pass that found balance (`stable`), or moved something.
    fn balanced(&mut self, pcpu: u32, level: usize, stable: bool) {
        let domain = &mut self.topology.domains[pcpu as usize][level];
        let config = &self.topology.spans[domain.span].config;
        domain.failed = 0;
        if !stable {
            domain.interval_ms = config.min_interval_ms;
        } else if domain.interval_ms < config.max_interval_ms {
            domain.interval_ms *= 2;
        }
    }

    /// Handles a pass that found imbalance and could move nothing. After several of them the running thread is pushed.
    fn failed(&mut self, pcpu: u32, level: usize, from: u32, idle: Idleness, step: &mut Step<'_>) {
        let domain = &mut self.topology.domains[pcpu as usize][level];
        let config = &self.topology.spans[domain.span].config;
        if idle == Idleness::NewlyIdle {
            return;
        }
        domain.failed += 1;
        domain.interval_ms = config.min_interval_ms;
        let tries = config.cache_nice_tries;
        if domain.failed <= tries + 2 {
            return;
        }
        domain.interval_ms = (2 * domain.interval_ms).min(config.max_interval_ms);
        let movable = self
            .rq(from)
            .curr
            .is_some_and(|curr| self.threads[curr].may_run_on(pcpu));
        if !movable {
            return;
        }
        self.topology.domains[pcpu as usize][level].failed = tries + 1;
        if self.rq(from).push_to.is_none() {
            self.rq_mut(from).push_to = Some(pcpu);
            self.resched(from, step);
        }
    }

    /// Returns `value` per capacity `power`, where 1024 is a whole pCPU.
    fn per_power(value: u64, power: u64) -> u64 {
        mul_div(value, super::topology::POWER, power)
    }
}
