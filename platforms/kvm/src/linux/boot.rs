//! The memory that a boot loader prepares for Linux (Linux `Documentation/arch/x86/boot.rst`, "64-bit Boot Protocol").
//!
//! ```text
//! 0x0000_6000  descriptor table with the boot protocol's code and data segments
//! 0x0000_7000  boot parameters
//! 0x0001_0000  page tables, which map memory one to one
//! 0x0002_0000  command line
//! 0x000e_0000  ACPI tables
//! 0x0100_0000  the kernel, at the address in its header
//! ...          the initial file system, at the end of memory
//! ```

use holdfast_protocol::{Hammer, Process, Program, encode, layout};

use super::Linux;
use super::acpi;
use super::initramfs::archive;
use crate::error::Error;
use crate::memory::Memory;
use crate::vcpu::Start;
use crate::vm::Vm;

/// The guest's first process, an ELF file.
static INIT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/init.elf"));

const DESCRIPTORS: u64 = 0x6000;
const PARAMETERS: u64 = 0x7000;
const COMMAND_LINE: u64 = 0x2_0000;
/// End of the memory below the BIOS area.
const CONVENTIONAL_END: u64 = 0x9_fc00;
/// Lowest address of a kernel.
pub(crate) const LOW_END: u64 = 0x10_0000;

/// Selectors of code and data: `__BOOT_CS` and `__BOOT_DS`.
const ENTRY_SELECTORS: (u16, u16) = (0x10, 0x18);
/// Descriptors of a 64-bit code segment and a data segment: both flat, present, of ring 0, accessed.
const ENTRY_DESCRIPTORS: [u64; 4] = [0, 0, 0x00af_9b00_0000_ffff, 0x00cf_9300_0000_ffff];

/// Offsets in the boot parameters ("zero page").
mod parameter {
    pub(super) const RSDP: u64 = 0x70;
    pub(super) const E820_ENTRIES: u64 = 0x1e8;
    pub(super) const LOADER: u64 = 0x210;
    pub(super) const RAMDISK: u64 = 0x218;
    pub(super) const RAMDISK_BYTES: u64 = 0x21c;
    pub(super) const COMMAND_LINE: u64 = 0x228;
    pub(super) const E820: u64 = 0x2d0;
}

/// Number of a boot loader without an assigned number.
const LOADER_UNDEFINED: u8 = 0xff;
const E820_MEMORY: u32 = 1;
const E820_RESERVED: u32 = 2;

/// Loads kernel, initial file system and boot data to `memory`. Returns the start state of the first vCPU.
pub(crate) fn load(memory: &Memory, vm: &Vm, linux: &Linux, tsc_khz: u32) -> Result<Start, Error> {
    let refuse = |what| Error::Invalid {
        vm: vm.name.clone(),
        what,
    };
    let (kernel, orders) = (&linux.kernel, orders(vm, linux, tsc_khz));
    check(&orders.program).map_err(refuse)?;
    let files = archive(&[("init", INIT), (Process::FILE, &encode(&orders))]);
    let needed = kernel.address() + kernel.init_bytes() + files.len() as u64;
    // Twice the size, so that the kernel has room to work.
    let ramdisk = memory.end().checked_sub(files.len() as u64);
    let ramdisk = ramdisk.map(|at| at / layout::PAGE * layout::PAGE);
    let Some(ramdisk) = ramdisk.filter(|_| needed * 2 <= memory.end()) else {
        return Err(refuse(format!(
            "{} bytes of memory, this kernel needs at least {}",
            memory.end(),
            needed * 2
        )));
    };
    let command_line = linux.command_line();
    if command_line.len() as u64 > u64::from(kernel.command_line_bytes()) {
        return Err(refuse(format!(
            "a command line of {} bytes, this kernel accepts at most {}",
            command_line.len(),
            kernel.command_line_bytes()
        )));
    }
    memory.write_tables()?;
    memory.write(DESCRIPTORS, &ENTRY_DESCRIPTORS.map(u64::to_le_bytes).concat())?;
    memory.write(COMMAND_LINE, command_line.as_bytes())?;
    memory.write(acpi::ADDRESS, &acpi::tables(vm.vcpus))?;
    memory.write(kernel.address(), kernel.kernel())?;
    memory.write(ramdisk, &files)?;
    write_parameters(memory, linux, (ramdisk, files.len() as u64))?;
    Ok(Start {
        entry: kernel.entry(),
        stack: PARAMETERS,
        arguments: (0, PARAMETERS),
        selectors: ENTRY_SELECTORS,
        descriptors: (DESCRIPTORS, size_of_val(&ENTRY_DESCRIPTORS) as u16 - 1),
    })
}

fn orders(vm: &Vm, linux: &Linux, tsc_khz: u32) -> Process {
    let cycles = u128::from(linux.think_ns) * u128::from(tsc_khz) / 1_000_000;
    let hammer = Hammer {
        threads: linux.threads.unwrap_or(vm.vcpus),
        path: linux.path,
        calls: linux.calls,
        duration_ns: linux.duration_ns,
        think_cycles: u64::try_from(cycles).unwrap_or(u64::MAX),
    };
    Process {
        cpus: vm.vcpus,
        program: linux
            .messages
            .clone()
            .map_or(Program::Hammer(hammer), Program::Messages),
    }
}

/// Checks that the process can run `program`.
fn check(program: &Program) -> Result<(), String> {
    match program {
        Program::Hammer(Hammer { threads, .. }) => match (1..=Hammer::THREADS_MAX).contains(threads) {
            true => Ok(()),
            false => Err(format!("{threads} threads, expected 1 to {}", Hammer::THREADS_MAX)),
        },
        Program::Messages(messages) if messages.threads => {
            Err("senders and receivers that are threads, expected processes".to_owned())
        }
        Program::Messages(messages) => {
            let (groups, pairs) = (messages.groups, messages.pairs);
            let processes = u64::from(groups).saturating_mul(2 * u64::from(pairs));
            match (2..=u64::from(Process::PROCESSES_MAX)).contains(&processes) && pairs <= Process::CHANNELS_MAX {
                true => Ok(()),
                false => Err(format!(
                    "{groups} groups of {pairs} senders and as many receivers, expected at most {} processes, and {} \
                     senders in a group",
                    Process::PROCESSES_MAX,
                    Process::CHANNELS_MAX
                )),
            }
        }
    }
}

fn write_parameters(memory: &Memory, linux: &Linux, (ramdisk, ramdisk_bytes): (u64, u64)) -> Result<(), Error> {
    let put = |at: u64, bytes: &[u8]| memory.write(PARAMETERS + at, bytes);
    let (at, header) = linux.kernel.header();
    put(at, header)?;
    put(parameter::LOADER, &[LOADER_UNDEFINED])?;
    put(parameter::RAMDISK, &(ramdisk as u32).to_le_bytes())?;
    put(parameter::RAMDISK_BYTES, &(ramdisk_bytes as u32).to_le_bytes())?;
    put(parameter::COMMAND_LINE, &(COMMAND_LINE as u32).to_le_bytes())?;
    put(parameter::RSDP, &acpi::ADDRESS.to_le_bytes())?;
    let map = [
        (0, CONVENTIONAL_END, E820_MEMORY),
        (acpi::ADDRESS, acpi::ADDRESS + acpi::BYTES_MAX, E820_RESERVED),
        (LOW_END, memory.end(), E820_MEMORY),
    ];
    put(parameter::E820_ENTRIES, &[map.len() as u8])?;
    for (index, (start, end, kind)) in (0..).zip(map) {
        let entry = [
            &u64::to_le_bytes(start)[..],
            &u64::to_le_bytes(end - start),
            &u32::to_le_bytes(kind),
        ];
        put(parameter::E820 + index * 20, &entry.concat())?;
    }
    Ok(())
}

const _: () = assert!(acpi::ADDRESS + acpi::BYTES_MAX <= LOW_END);
