//! Host tasks of a simulated host: when they sleep, and where they wake.

use holdfast_sim::timeline::{TaskTimeline, Thread, Timeline};

/// Returns whether `task` sleeps from `at` on.
pub fn is_asleep(task: &TaskTimeline, at: u64) -> bool {
    let next = task.sleeps.partition_point(|sleep| sleep.end.0 <= at);
    task.sleeps.get(next).is_some_and(|sleep| sleep.start.0 <= at)
}

/// Returns when `task` wakes, in picoseconds, and the index of the pCPU that it then runs on. A wakeup after which it
/// never runs is left out: the pCPU that it waits for is not known.
pub fn wakeups(timeline: &Timeline, task: &TaskTimeline) -> Vec<(u64, usize)> {
    let this = Thread::Task(task.number);
    let mut runs: Vec<(u64, usize)> = (timeline.pcpus.iter().enumerate())
        .flat_map(|(index, pcpu)| {
            let own = pcpu.threads.iter().filter(|span| span.what == this);
            own.map(move |span| (span.end.0, index))
        })
        .collect();
    runs.sort_unstable();
    let ended = task.sleeps.iter().filter(|sleep| sleep.end < timeline.to);
    let woken = ended.filter_map(|sleep| {
        let at = sleep.end.0;
        let next = runs.partition_point(|(end, _)| *end <= at);
        Some((at, runs.get(next)?.1))
    });
    woken.collect()
}
