//! Where a guest's memory lies. User code whose memory is on another node waits longer at each miss of its caches.
//!
//! The host gives a guest each page on the node of the vCPU that touches it first. A guest that knows no nodes gives
//! its tasks pages without regard to that, so its memory is taken to be spread evenly over the sockets on which its
//! vCPUs may run. With nodes, a task's memory is on the sockets of its own node's vCPUs. Kernel code pays nothing
//! here, and neither do the bare-metal kernel and threads of a program: their memory is where they first ran.

use std::collections::BTreeMap;

use holdfast_machine::{Picos, Topology};

/// Returns for each vCPU the time by which a microsecond of user code takes longer on each socket. A microsecond with
/// all memory on another node takes `remote` longer. `affinity`: the pCPUs of each vCPU, all if empty. `domains`: its
/// node, one for all if empty.
pub fn delays(
    topology: &Topology,
    remote: Picos,
    vcpus: u32,
    affinity: &[Vec<u32>],
    domains: &[u32],
) -> Vec<Box<[Picos]>> {
    let domain_of = |vcpu: usize| domains.get(vcpu).copied().unwrap_or(0);
    let mut memory: BTreeMap<u32, Vec<bool>> = BTreeMap::new();
    for vcpu in 0..vcpus as usize {
        let sockets = memory.entry(domain_of(vcpu)).or_default();
        sockets.resize(topology.sockets as usize, false);
        match affinity.get(vcpu).filter(|pcpus| !pcpus.is_empty()) {
            Some(own) => own
                .iter()
                .for_each(|&pcpu| sockets[topology.socket_of(pcpu) as usize] = true),
            None => sockets.fill(true),
        }
    }
    let on_each = |vcpu: usize| {
        let sockets = &memory[&domain_of(vcpu)];
        let nodes = sockets.iter().filter(|has| **has).count() as u64;
        let delay = |has: &bool| Picos(remote.0 * (nodes - u64::from(*has)) / nodes);
        sockets.iter().map(delay).collect()
    };
    (0..vcpus as usize).map(on_each).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: Topology = Topology {
        sockets: 2,
        cores: 2,
        threads: 1,
    };
    const REMOTE: Picos = Picos(100);

    fn of(affinity: &[&[u32]], domains: &[u32]) -> Vec<[u64; 2]> {
        let affinity: Vec<Vec<u32>> = affinity.iter().map(|pcpus| pcpus.to_vec()).collect();
        let delays = delays(&TWO, REMOTE, 2, &affinity, domains);
        delays.iter().map(|delays| [delays[0].0, delays[1].0]).collect()
    }

    #[test]
    fn memory_without_nodes_is_spread_over_the_sockets_that_the_guest_may_use() {
        assert_eq!(of(&[], &[]), [[50, 50]; 2]);
        assert_eq!(of(&[&[0], &[1]], &[]), [[0, 100]; 2]);
        assert_eq!(of(&[&[0], &[2]], &[]), [[50, 50]; 2]);
        // An empty set is all pCPUs.
        assert_eq!(of(&[&[0], &[]], &[]), [[50, 50]; 2]);
    }

    #[test]
    fn memory_of_a_node_is_on_the_sockets_of_its_vcpus() {
        assert_eq!(of(&[&[0], &[2]], &[0, 1]), [[0, 100], [100, 0]]);
        assert_eq!(of(&[&[0], &[2]], &[5, 5]), [[50, 50]; 2]);
    }

    #[test]
    fn one_socket_has_no_other_node() {
        let one = Topology { sockets: 1, ..TWO };
        assert_eq!(delays(&one, REMOTE, 1, &[], &[]), [[Picos::ZERO].into()]);
    }
}
