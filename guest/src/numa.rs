//! NUMA nodes, read from the firmware's table at boot (`arch/x86/mm/srat.c`).

use alloc::vec::Vec;

use holdfast_locks::CpuId;

use crate::ids::CpuTable;
use crate::machine::Machine;

/// The node of each CPU. Nodes are numbered densely, in the order in which the table's proximity domains first appear
/// (`acpi_map_pxm_to_node`).
pub(crate) struct NumaMap {
    pub(crate) nodes: CpuTable<u32>,
    /// The number of nodes, at least one.
    pub(crate) count: u32,
}

impl NumaMap {
    /// Reads the firmware's table. A CPU that is missing from it is put on node 0. Without a table all CPUs are.
    pub(crate) fn read<M: Machine>(machine: &M) -> NumaMap {
        // A CPU's number is its APIC ID.
        NumaMap::of_domains(machine.cpus(), |cpu| machine.proximity_domain(cpu.0))
    }

    fn of_domains(cpus: u32, domain_of: impl Fn(CpuId) -> Option<u32>) -> NumaMap {
        let mut known: Vec<u32> = Vec::new();
        let mut node_of = |domain: u32| {
            let node = known.iter().position(|other| *other == domain);
            node.unwrap_or_else(|| {
                known.push(domain);
                known.len() - 1
            }) as u32
        };
        let nodes = CpuTable::new(cpus, |cpu| domain_of(cpu).map_or(0, &mut node_of));
        NumaMap {
            nodes,
            count: known.len().max(1) as u32,
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    fn nodes(domains: &[Option<u32>]) -> (Vec<u32>, u32) {
        let map = NumaMap::of_domains(domains.len() as u32, |cpu| domains[cpu.0 as usize]);
        (map.nodes.iter().copied().collect(), map.count)
    }

    #[test]
    fn nodes_are_dense_whatever_the_firmware_calls_them() {
        assert_eq!(nodes(&[Some(7), Some(7), Some(2), Some(900)]), (vec![0, 0, 1, 2], 3));
    }

    #[test]
    fn a_cpu_missing_from_the_table_is_on_node_0() {
        assert_eq!(nodes(&[Some(4), None, Some(5)]), (vec![0, 0, 1], 2));
        assert_eq!(nodes(&[None, None]), (vec![0, 0], 1));
    }
}
