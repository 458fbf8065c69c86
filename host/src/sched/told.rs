//! What guests are told of the end of their slices.

use super::Scheduler;
use super::policy::Rules;

impl Scheduler {
    /// Returns when the slice of the running thread of `pcpu` ends as things stand now, or `None` if no other thread
    /// waits there. Nanoseconds. A wakeup may end it earlier.
    pub(crate) fn slice_told(&self, pcpu: u32) -> Option<u64> {
        let queue = self.rq(pcpu);
        let curr = queue.curr.filter(|_| self.nr_running(pcpu) > 1)?;
        let (on, now) = (&self.hierarchy, self.now());
        if let Some(own) = self.seam.slice_until(pcpu) {
            return Some(own);
        }
        let contended = on
            .path(self.threads[curr].entity)
            .filter(|&at| on.queues[on.entities[at].queue].nr > 1);
        let rest = |at| {
            let entity = &on.entities[at];
            let since = now.saturating_sub(entity.exec_start);
            match on.policy {
                Rules::Cfs(cfs) => {
                    let ran = entity.sum_exec - entity.prev_sum_exec + since;
                    cfs.slice(on, at).saturating_sub(ran)
                }
                Rules::Eevdf(eevdf) => eevdf.rest(on, at).saturating_sub(since),
            }
        };
        let end = now + contended.map(rest).min()?;
        if self.features.slice_timer {
            return Some(end);
        }
        // It ends on the first tick from then on.
        let tick = 1_000_000_000 / self.hz;
        let after = end.saturating_sub(queue.ticked_at).div_ceil(tick).max(1);
        Some(queue.ticked_at + after * tick)
    }
}
