//! NUMA nodes, as the firmware's table tells them at boot (`arch/x86/mm/srat.c`).

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::kernel::CpuIndex;
use crate::machine::Machine;

/// Which node each CPU belongs to. Nodes are dense, in the order in which the table's proximity domains first appear
/// (`acpi_map_pxm_to_node`).
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NumaMap {
    nodes: Box<[u32]>,
    count: u32,
}

impl NumaMap {
    /// Reads the firmware's table. A CPU that it lacks is put on node 0; without a table all are.
    pub(crate) fn read<M: Machine>(machine: &M) -> NumaMap {
        // A CPU's number is its APIC ID.
        NumaMap::of_domains((0..machine.cpus()).map(|cpu| machine.proximity_domain(cpu)))
    }

    fn of_domains(domains: impl Iterator<Item = Option<u32>>) -> NumaMap {
        let mut known: Vec<u32> = Vec::new();
        let mut node_of = |domain: u32| {
            let node = known.iter().position(|other| *other == domain);
            node.unwrap_or_else(|| {
                known.push(domain);
                known.len() - 1
            }) as u32
        };
        let nodes = domains.map(|domain| domain.map_or(0, &mut node_of)).collect();
        NumaMap {
            nodes,
            count: known.len().max(1) as u32,
        }
    }

    /// How many nodes there are; at least one.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// The node of `cpu`.
    pub(crate) fn node_of(&self, cpu: CpuIndex) -> u32 {
        self.nodes[cpu as usize]
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    fn nodes(domains: &[Option<u32>]) -> (Vec<u32>, u32) {
        let map = NumaMap::of_domains(domains.iter().copied());
        (
            (0..domains.len() as u32).map(|cpu| map.node_of(cpu)).collect(),
            map.count(),
        )
    }

    #[test]
    fn nodes_are_dense_whatever_the_firmware_calls_them() {
        assert_eq!(nodes(&[Some(7), Some(7), Some(2), Some(900)]), (vec![0, 0, 1, 2], 3));
    }

    #[test]
    fn a_cpu_that_the_table_lacks_is_on_node_0() {
        assert_eq!(nodes(&[Some(4), None, Some(5)]), (vec![0, 0, 1], 2));
        assert_eq!(nodes(&[None, None]), (vec![0, 0], 1));
    }
}
