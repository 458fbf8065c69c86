//! The ACPI tables that describe CPUs and interrupt controllers (ACPI 6.4, chapter 5). The machine is hardware-reduced:
//! it has no chip set of a PC and no legacy devices.

use holdfast_abi::{ioapic, msr};

/// Address of the tables, in the BIOS area, where kernels also search for the root pointer.
pub(crate) const ADDRESS: u64 = 0xe_0000;
/// Size in bytes of the area reserved for the tables.
pub(crate) const BYTES_MAX: u64 = 0x2_0000;

/// Flag `HW_REDUCED_ACPI`.
const FADT_REDUCED: u32 = 1 << 20;
/// The machine has no VGA and no CMOS clock.
const FADT_ARCHITECTURE: u16 = 1 << 2 | 1 << 5;
const FADT_BYTES: usize = 276;
const HEADER_BYTES: usize = 36;
/// The lowest APIC ID that needs a local x2APIC entry.
const X2APIC_FROM: u32 = 255;

/// Returns all tables for `cpus` CPUs, the root pointer first.
pub(crate) fn tables(cpus: u32) -> Vec<u8> {
    // The root pointer is 36 bytes long.
    let mut all = vec![0; 64];
    let mut place = |table: Vec<u8>| {
        let at = ADDRESS + all.len() as u64;
        all.extend(table);
        all.resize(all.len().next_multiple_of(16), 0);
        at
    };
    let dsdt = place(table(*b"DSDT", 2, &[]));
    let fadt = place(fadt(dsdt));
    let madt = place(madt(cpus));
    let entries: Vec<u8> = [fadt, madt].iter().flat_map(|at| at.to_le_bytes()).collect();
    let xsdt = place(table(*b"XSDT", 1, &entries));
    let root = root_pointer(xsdt);
    all[..root.len()].copy_from_slice(&root);
    all
}

/// Returns a table with its header and checksum.
fn table(signature: [u8; 4], revision: u8, body: &[u8]) -> Vec<u8> {
    let mut table = Vec::with_capacity(HEADER_BYTES + body.len());
    table.extend(signature);
    table.extend(((HEADER_BYTES + body.len()) as u32).to_le_bytes());
    table.extend([revision, 0]);
    table.extend(*b"HOLDFA");
    table.extend(*b"HOLDFAST");
    table.extend(1u32.to_le_bytes());
    table.extend(*b"HOLD");
    table.extend(1u32.to_le_bytes());
    table.extend(body);
    table[9] = checksum(&table);
    table
}

/// Returns the byte that makes all bytes sum to 0.
fn checksum(bytes: &[u8]) -> u8 {
    bytes
        .iter()
        .fold(0u8, |sum, byte| sum.wrapping_add(*byte))
        .wrapping_neg()
}

fn fadt(dsdt: u64) -> Vec<u8> {
    let mut body = vec![0; FADT_BYTES - HEADER_BYTES];
    let mut put = |at: usize, bytes: &[u8]| body[at - HEADER_BYTES..][..bytes.len()].copy_from_slice(bytes);
    put(109, &FADT_ARCHITECTURE.to_le_bytes());
    put(112, &FADT_REDUCED.to_le_bytes());
    put(131, &[4]);
    put(140, &dsdt.to_le_bytes());
    put(268, b"HOLDFAST");
    table(*b"FACP", 6, &body)
}

fn madt(cpus: u32) -> Vec<u8> {
    let mut body = Vec::new();
    body.extend((msr::APIC_BASE_ADDRESS as u32).to_le_bytes());
    body.extend(0u32.to_le_bytes());
    for cpu in 0..cpus.min(X2APIC_FROM) {
        // Local APIC: processor, APIC ID, enabled.
        body.extend([0, 8, cpu as u8, cpu as u8, 1, 0, 0, 0]);
    }
    // I/O APIC: number, address, first interrupt.
    body.extend([1, 12, 0, 0]);
    body.extend((ioapic::ADDRESS as u32).to_le_bytes());
    body.extend(0u32.to_le_bytes());
    table(*b"APIC", 4, &body)
}

fn root_pointer(xsdt: u64) -> Vec<u8> {
    let mut root = Vec::new();
    root.extend(*b"RSD PTR ");
    root.push(0);
    root.extend(*b"HOLDFA");
    root.push(2);
    root.extend(0u32.to_le_bytes());
    // The first checksum covers the fields of ACPI 1.0.
    root[8] = checksum(&root);
    root.extend(36u32.to_le_bytes());
    root.extend(xsdt.to_le_bytes());
    root.extend([0; 4]);
    root[32] = checksum(&root);
    root
}

#[cfg(test)]
mod tests {
    use super::*;

    fn u32_at(bytes: &[u8], at: usize) -> u32 {
        u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
    }

    #[test]
    fn tables_refer_to_each_other_and_sum_to_zero() {
        for cpus in [1, 2, 254] {
            let all = tables(cpus);
            assert!(all.len() as u64 <= BYTES_MAX);
            let sum = |bytes: &[u8]| bytes.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte));
            assert_eq!((sum(&all[..20]), sum(&all[..36])), (0, 0));
            let at = |address: u64| &all[usize::try_from(address - ADDRESS).expect("within")..];
            let table = |address: u64| &at(address)[..u32_at(at(address), 4) as usize];
            let u64_at = |bytes: &[u8], at: usize| u64::from(u32_at(bytes, at));
            let root = table(u64_at(&all, 24));
            assert_eq!((&root[..4], sum(root), root.len()), (&b"XSDT"[..], 0, 36 + 16));
            let fadt = table(u64_at(root, 36));
            assert_eq!((&fadt[..4], sum(fadt), fadt.len()), (&b"FACP"[..], 0, FADT_BYTES));
            let madt = table(u64_at(root, 44));
            assert_eq!((&madt[..4], sum(madt)), (&b"APIC"[..], 0));
            assert_eq!(madt.len(), 44 + 8 * cpus as usize + 12);
            let dsdt = table(u64_at(fadt, 140));
            assert_eq!((&dsdt[..4], sum(dsdt), dsdt.len()), (&b"DSDT"[..], 0, 36));
        }
    }
}
