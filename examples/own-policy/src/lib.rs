//! Balance scheduling (Sukwong and Kim, EuroSys 2011): the vCPUs of a guest are kept on different pCPUs, so that no
//! vCPU waits for the pCPU that a sibling spins on. The other published ideas are in [`ideas`].

pub mod guest;
pub mod ideas;

use holdfast_host::{PcpuId, Policy, TaskId, View};

/// The policy.
#[derive(Clone, Debug, Default)]
pub struct Balance;

impl Policy for Balance {
    fn about(&self) -> &'static str {
        "keeps the vCPUs of a guest on different pCPUs (2011)"
    }

    fn place(&mut self, view: &View<'_>, task: TaskId, kernel: PcpuId) -> PcpuId {
        if !view.has_sibling(task, kernel) {
            return kernel;
        }
        let free = |&pcpu: &PcpuId| view.may_run_on(task, pcpu) && !view.has_sibling(task, pcpu);
        let apart = view.pcpus().filter(free);
        apart.min_by_key(|&pcpu| view.runnable(pcpu)).unwrap_or(kernel)
    }

    fn moves(&mut self, view: &View<'_>, task: TaskId, to: PcpuId) -> bool {
        !view.has_sibling(task, to)
    }
}
