//! The bounded search for an idle pCPU (docs/spec/host.md, "Wake placement", Linux 4.12 and later). Its cost is bounded
//! by the average idle time of the searching pCPU.

use super::Scheduler;
use super::topology::POWER;
use super::weight::mul_div;
use crate::boundary::TaskId;

/// Estimated cost of examining one pCPU in the bounded search, in nanoseconds. The kernel measures it.
const LOOK_NS: u64 = 50;

impl Scheduler {
    /// Returns an idle pCPU near `target`. It is `target`, the last pCPU of `task`, a completely idle core, any idle
    /// pCPU of the same last-level cache as far as the search goes, or a sibling.
    pub(super) fn scan_for_idle(&mut self, task: TaskId, target: u32, waker: u32) -> u32 {
        if self.is_idle(target) {
            return target;
        }
        let prev = self.threads[task].pcpu;
        if prev != target && self.topology.share_cache(prev, target) && self.is_idle(prev) {
            return prev;
        }
        if self.features.recently_used {
            let recent = core::mem::replace(&mut self.threads[task].recently_used, prev);
            if recent != prev
                && recent != target
                && self.topology.share_cache(recent, target)
                && self.is_idle(recent)
                && self.threads[task].may_run_on(recent)
            {
                return recent;
            }
        }
        let found = self.idle_core(task, target);
        let found = found.or_else(|| self.idle_of_cache(task, target, waker));
        found.or_else(|| self.idle_of_core(task, target)).unwrap_or(target)
    }

    /// Records that `pcpu` fell idle, if its whole core is idle now.
    pub(super) fn note_idle_core(&mut self, pcpu: u32) {
        if !self.features.bounded_scan {
            return;
        }
        if let Some(core) = self.topology.core_span(pcpu)
            && core.pcpus.iter().all(|&at| at == pcpu || self.is_idle(at))
        {
            let cache = self.topology.cache[pcpu as usize];
            self.idle_cores.set(cache, true);
        }
    }

    /// Updates the utilization of `pcpu` before it runs another thread, or none.
    pub(super) fn note_busy(&mut self, pcpu: u32) {
        if self.features.scan_by_utilization {
            let now = self.now();
            let queue = self.rq_mut(pcpu);
            let load = if queue.curr.is_some() { POWER } else { 0 };
            queue.busy.advance(now, load);
        }
    }

    /// Sets how many pCPUs a search for an idle one examines, when a pass balances the last-level cache of `pcpu`
    /// (`update_idle_cpu_scan`): all if the cache's pCPUs are idle, and none from 85 % utilization on.
    pub(super) fn update_idle_scan(&mut self, pcpu: u32, level: usize) {
        if !self.features.scan_by_utilization || level + 1 != self.topology.cache_levels[pcpu as usize] {
            return;
        }
        let now = self.now();
        let span = self.topology.span_of(pcpu, level);
        let busy = span.pcpus.iter().map(|&at| {
            let mut busy = self.rq(at).busy;
            busy.advance(now, if self.rq(at).curr.is_some() { POWER } else { 0 });
            busy.load()
        });
        let (sum, count, pct) = (busy.sum::<u64>(), span.pcpus.len() as u64, span.config.imbalance_pct);
        let each = sum / count;
        let taken = mul_div(each * each, pct * pct, 10_000 * POWER).min(POWER);
        let cache = self.topology.cache[pcpu as usize] as usize;
        self.idle_scans[cache] = (POWER - taken) * count / POWER;
    }

    /// Returns a completely idle core, if there are cores of several threads and one of them may be idle.
    fn idle_core(&mut self, task: TaskId, target: u32) -> Option<u32> {
        let cache = self.topology.cache[target as usize];
        if !self.idle_cores.has(cache) || self.topology.core_span(target).is_none() {
            return None;
        }
        let (span, from) = self.topology.position(target)?;
        for group in span.groups_from(from) {
            let core = span.group(group);
            if core.iter().all(|&pcpu| self.is_idle(pcpu)) {
                let allowed = core.iter().find(|&&pcpu| self.threads[task].may_run_on(pcpu));
                if let Some(&pcpu) = allowed {
                    return Some(pcpu);
                }
            }
        }
        self.idle_cores.set(cache, false);
        None
    }

    /// Returns any idle pCPU that shares the last-level cache, among as many as `waker` has time to examine.
    fn idle_of_cache(&mut self, task: TaskId, target: u32, waker: u32) -> Option<u32> {
        if self.features.scan_by_utilization {
            return self.idle_by_utilization(task, target);
        }
        let (span, group) = self.topology.position(target)?;
        let pcpus = &span.pcpus;
        let here = &span.groups[group];
        let start = (here.first..here.first + here.count).find(|&at| pcpus[at] == target)?;
        let queue = self.rq(waker);
        let time = pcpus.len() as u64 * (queue.avg_idle / 512);
        let most = if time > 4 * queue.avg_scan {
            time.checked_div(queue.avg_scan).unwrap_or(u64::MAX)
        } else {
            4
        };
        let mut looked = 0;
        let mut found = None;
        for step in 0..pcpus.len() {
            if looked == most {
                break;
            }
            looked += 1;
            let pcpu = pcpus[(start + step) % pcpus.len()];
            if self.threads[task].may_run_on(pcpu) && self.is_idle(pcpu) {
                found = Some(pcpu);
                break;
            }
        }
        let cost = looked * LOOK_NS;
        let queue = self.rq_mut(waker);
        queue.avg_scan = queue.avg_scan - queue.avg_scan / 8 + cost / 8;
        found
    }

    /// Returns any idle pCPU that shares the last-level cache, among as many as its utilization allows
    /// (`select_idle_cpu`).
    fn idle_by_utilization(&self, task: TaskId, target: u32) -> Option<u32> {
        let (span, _) = self.topology.position(target)?;
        let start = span.pcpus.iter().position(|&pcpu| pcpu == target)? + 1;
        let most = self.idle_scans[self.topology.cache[target as usize] as usize];
        let order = (0..span.pcpus.len()).map(|step| span.pcpus[(start + step) % span.pcpus.len()]);
        let mut allowed = order
            .filter(|&pcpu| self.threads[task].may_run_on(pcpu))
            .take(most as usize);
        allowed.find(|&pcpu| self.is_idle(pcpu))
    }

    /// Returns an idle thread of the core.
    fn idle_of_core(&self, task: TaskId, target: u32) -> Option<u32> {
        let core = &self.topology.core_span(target)?.pcpus;
        let allowed = |pcpu: &&u32| self.threads[task].may_run_on(**pcpu) && self.is_idle(**pcpu);
        core.iter().find(allowed).copied()
    }
}
