//! Placement of new and woken threads (docs/spec/host.md, "Wake placement"), and affinities.

use super::runqueue::ThreadState;
use super::topology::DomainState;
use super::{Mask, Scheduler};
use crate::boundary::{Cost, TaskId};
use crate::step::Step;

impl Scheduler {
    /// Returns the load of `pcpu` with its history of `index`, with a low bias: for the source of a move.
    pub(super) fn source_load(&self, pcpu: u32, index: usize) -> u64 {
        self.load(pcpu).min(self.past_load(pcpu, index))
    }

    /// Returns the same load with a high bias: for the target of a move.
    pub(super) fn target_load(&self, pcpu: u32, index: usize) -> u64 {
        self.load(pcpu).max(self.past_load(pcpu, index))
    }

    /// Returns the average of `index` in the load history of `pcpu`, or the present load if no history is used.
    fn past_load(&self, pcpu: u32, index: usize) -> u64 {
        if index == 0 || !self.features.lb_bias {
            self.load(pcpu)
        } else {
            self.rq(pcpu).load[index - 1]
        }
    }

    /// Returns the pCPU on which `task`, woken from `waker`, shall run (`select_task_rq`).
    ///
    /// `sync`: the waker is about to sleep.
    pub(super) fn place_woken(&mut self, task: TaskId, waker: u32, sync: bool) -> u32 {
        let pcpu = self.prefer_woken(task, waker, sync);
        if self.threads[task].may_run_on(pcpu) {
            pcpu
        } else {
            self.fallback(task)
        }
    }

    fn prefer_woken(&mut self, task: TaskId, waker: u32, sync: bool) -> u32 {
        let thread = &self.threads[task];
        let prev = thread.pcpu;
        if thread.is_pinned() {
            return prev;
        }
        if thread.may_run_on(waker) && !self.wakes_widely(task, waker) {
            // Without a common domain there is nothing to compare, and no reason to search.
            let pct = match self.topology.common_level(waker, prev) {
                Some(level) => self.topology.span_of(waker, level).config.imbalance_pct,
                None if waker == prev => 100,
                None => return prev,
            };
            let target = if waker == prev || self.wake_affine(task, waker, prev, pct, sync) {
                waker
            } else {
                prev
            };
            self.idle_near(task, target, waker)
        } else if self.features.bounded_scan {
            self.idle_near(task, prev, waker)
        } else {
            prev
        }
    }

    /// Returns whether `waker` wakes so many threads, and `task` or the waker so varying ones, that they should stay
    /// apart.
    fn wakes_widely(&self, task: TaskId, waker: u32) -> bool {
        let Some(curr) = self.rq(waker).curr.filter(|_| self.features.wake_wide) else {
            return false;
        };
        let (one, other) = (self.threads[curr].wakes.flips, self.threads[task].wakes.flips);
        let (least, most) = (u64::from(one.min(other)), u64::from(one.max(other)));
        let near = self.topology.cache_span(waker).map_or(1, |span| span.pcpus.len()) as u64;
        least >= near && most >= least * near
    }

    /// Returns a pCPU that `task` may run on.
    pub(super) fn fallback(&self, task: TaskId) -> u32 {
        let thread = &self.threads[task];
        match &thread.affinity {
            Some(mask) if !mask.has(thread.pcpu) => mask.first().expect("an affinity is never empty"),
            _ => thread.pcpu,
        }
    }

    /// Returns whether `waker` is as good a place for `task` as `prev`.
    fn wake_affine(&self, task: TaskId, waker: u32, prev: u32, imbalance_pct: u64, sync: bool) -> bool {
        if self.features.wake_idle {
            self.wake_affine_idle(task, waker, prev, imbalance_pct, sync)
        } else {
            self.wake_affine_load(task, waker, prev, imbalance_pct)
        }
    }

    /// 4.14 and later: compares idleness first, then loads with `task` on either pCPU.
    ///
    /// `sync`: the waker is about to sleep. If it is alone on its pCPU, that pCPU is good, and otherwise its load does
    /// not count (`wake_affine_idle`, `wake_affine_weight`).
    fn wake_affine_idle(&self, task: TaskId, waker: u32, prev: u32, imbalance_pct: u64, sync: bool) -> bool {
        if self.is_idle(waker) && self.topology.share_cache(waker, prev) {
            return !self.is_idle(prev);
        }
        if sync && self.nr_running(waker) == 1 {
            return true;
        }
        let mut here = self.load(waker);
        if sync && let Some(curr) = self.rq(waker).curr {
            let leaves = self.hierarchy.hierarchical_task_load(self.threads[curr].entity);
            if leaves > here {
                return true;
            }
            here -= leaves;
        }
        let moved = self.hierarchy.entity_load(self.threads[task].entity);
        let power = |pcpu: u32| self.topology.power[pcpu as usize];
        let this_side = 100 * power(prev) * (here + moved);
        let prev_side = (100 + (imbalance_pct - 100) / 2) * power(waker) * self.load(prev).saturating_sub(moved);
        this_side < prev_side + u64::from(sync)
    }

    /// Until 4.13: compares loads, with the effect of groups.
    fn wake_affine_load(&self, task: TaskId, waker: u32, prev: u32, imbalance_pct: u64) -> bool {
        let (load, this_load) = (self.load(prev), self.load(waker));
        if this_load == 0 {
            return true;
        }
        let thread = &self.threads[task];
        let weight = self.hierarchy.entity_load(thread.entity) as i64;
        let power = |pcpu: u32| self.topology.power[pcpu as usize] as i64;
        let this_added = self.hierarchy.effective_load(thread.group, waker, weight, weight);
        let prev_added = self.hierarchy.effective_load(thread.group, prev, 0, weight);
        let this_side = 100 * power(prev) * (this_load as i64 + this_added);
        let prev_side = (100 + (imbalance_pct as i64 - 100) / 2) * power(waker) * (load as i64 + prev_added);
        this_side <= prev_side
    }

    /// Returns an idle pCPU near `target`, as far as the search goes.
    fn idle_near(&mut self, task: TaskId, target: u32, waker: u32) -> u32 {
        if self.features.bounded_scan {
            self.scan_for_idle(task, target, waker)
        } else {
            self.idle_sibling(task, target, waker)
        }
    }

    /// Until 4.11: returns an idle pCPU near `target`. It is `target` itself, a completely idle core, or an idle thread
    /// under the same last-level cache.
    fn idle_sibling(&self, task: TaskId, target: u32, waker: u32) -> u32 {
        let thread = &self.threads[task];
        if (target == waker || target == thread.pcpu) && self.is_idle(target) {
            return target;
        }
        let levels = self.topology.cache_levels[target as usize];
        for domain in self.topology.domains[target as usize][..levels].iter().rev() {
            let span = &self.topology.spans[domain.span];
            for group in span.groups_from(domain.group) {
                let pcpus = span.group(group);
                if pcpus.iter().all(|&pcpu| self.is_idle(pcpu))
                    && let Some(&allowed) = pcpus.iter().find(|&&pcpu| thread.may_run_on(pcpu))
                {
                    return allowed;
                }
            }
        }
        target
    }

    /// Has `task` start on `pcpu`, if it may run there.
    pub(crate) fn set_first(&mut self, task: TaskId, pcpu: u32) {
        self.threads[task].first = Some(pcpu);
    }

    /// Returns the pCPU on which `task` shall start, if that is given and it may run there.
    pub(super) fn take_first(&mut self, task: TaskId) -> Option<u32> {
        let thread = &mut self.threads[task];
        let first = thread.first.take()?;
        thread.may_run_on(first).then_some(first)
    }

    /// Returns the pCPU on which `task`, created on `creator`, shall start: the idlest of the idlest group, level by
    /// level.
    pub(super) fn place_new(&self, task: TaskId, creator: u32) -> u32 {
        let thread = &self.threads[task];
        let mut pcpu = creator;
        // At the new place the search continues in the domains that are smaller than the last one.
        let mut size = usize::MAX;
        let size_of = |state: &DomainState| self.topology.spans[state.span].pcpus.len();
        while let Some(domain) = self.topology.domains[pcpu as usize]
            .iter()
            .rfind(|&domain| size_of(domain) < size)
        {
            size = size_of(domain);
            let span = &self.topology.spans[domain.span];
            let Some(group) = self.idlest_group(task, domain.span, domain.group) else {
                continue;
            };
            let allowed = span.group(group).iter().filter(|&&at| thread.may_run_on(at));
            if let Some(&idlest) = allowed.min_by_key(|&&at| (self.load(at), at != pcpu)) {
                pcpu = idlest;
            }
        }
        if thread.may_run_on(pcpu) {
            pcpu
        } else {
            self.fallback(task)
        }
    }

    /// Returns the group of `span` with the least load per capacity, if it is clearly less loaded than group `local`.
    fn idlest_group(&self, task: TaskId, span: usize, local: usize) -> Option<usize> {
        let thread = &self.threads[task];
        let span = &self.topology.spans[span];
        let margin = 100 + (span.config.imbalance_pct - 100) / 2;
        let mut idlest: Option<(u64, usize)> = None;
        // The local group's load, if the thread can use it. Otherwise it is no reason to stay.
        let mut this_load = None;
        for group in span.groups_from(local) {
            let pcpus = span.group(group);
            let may = pcpus.iter().any(|&pcpu| thread.may_run_on(pcpu));
            let load: u64 = pcpus.iter().map(|&pcpu| self.load(pcpu)).sum();
            let load = load * super::topology::POWER / span.groups[group].power.max(1);
            if !may {
                continue;
            }
            if group == local {
                this_load = Some(load);
            } else if idlest.is_none_or(|(least, _)| load < least) {
                idlest = Some((load, group));
            }
        }
        idlest
            .filter(|&(least, _)| this_load.is_none_or(|load| 100 * load > margin * least))
            .map(|(_, group)| group)
    }

    /// Restricts `task` to `affinity` (`set_cpus_allowed_ptr`). `None`: it may run anywhere.
    ///
    /// A thread that runs elsewhere leaves at once, and one that waits elsewhere moves. If its group is throttled, it
    /// moves when it next loses its pCPU.
    pub(crate) fn set_affinity(&mut self, task: TaskId, affinity: Option<Mask>, step: &mut Step<'_>) {
        self.threads[task].affinity = affinity;
        let thread = &self.threads[task];
        let (pcpu, entity) = (thread.pcpu, thread.entity);
        if thread.state != ThreadState::Runnable || thread.may_run_on(pcpu) {
            return;
        }
        if thread.on_cpu {
            self.resched(pcpu, step);
        } else if !self.hierarchy.is_throttled(entity) {
            self.move_to(task, self.fallback(task), step);
        }
    }

    /// Sets where `task`, which has ended, may run from its next start on.
    pub(crate) fn set_mask(&mut self, task: TaskId, affinity: Option<Mask>) {
        self.threads[task].affinity = affinity;
    }

    /// Moves `task`, which does not run, away from a pCPU on which it may not run.
    pub(super) fn leave_forbidden(&mut self, task: TaskId, step: &mut Step<'_>) {
        let thread = &self.threads[task];
        if thread.state == ThreadState::Runnable
            && !thread.may_run_on(thread.pcpu)
            && !self.hierarchy.is_throttled(thread.entity)
        {
            // The stopper thread runs for a moment.
            step.charge(Cost::ContextSwitch, 1);
            self.move_to(task, self.fallback(task), step);
        }
    }
}
