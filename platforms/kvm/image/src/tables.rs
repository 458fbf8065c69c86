//! Descriptor tables: segments, the task state with its stacks, and interrupt gates.

#![expect(unsafe_code, reason = "loads the CPU's descriptor tables")]

use core::arch::asm;
use core::cell::UnsafeCell;

/// Selector of the code segment, with which the VMM starts CPUs.
pub(crate) const CODE: u16 = 0x08;
const TASK: u16 = 0x18;

const NULL_SEGMENT: u64 = 0;
/// Code segment: present, readable, 64-bit, limit 4 GiB (APM volume 2, section 4.8.1).
const CODE_SEGMENT: u64 = 0x00af_9b00_0000_ffff;
/// Data segment: present, writable.
const DATA_SEGMENT: u64 = 0x00cf_9300_0000_ffff;

/// Size in bytes of the stack on which interrupts start (IST 1). The entry leaves it at once.
const INTERRUPT_STACK: usize = 1024;
/// Size in bytes of the stack of exceptions (IST 2), which end the guest.
const EXCEPTION_STACK: usize = 8192;
const IST_INTERRUPT: u8 = 1;
const IST_EXCEPTION: u8 = 2;

/// The first vector that is not reserved for exceptions.
const FIRST_INTERRUPT: usize = 32;

/// Distance in bytes from one vector's stub to the next.
pub(crate) const STUB_BYTES: usize = 16;

/// The tables and stacks of one CPU.
#[derive(Debug)]
#[repr(C, align(16))]
pub(crate) struct Tables {
    interrupt_stack: [u8; INTERRUPT_STACK],
    exception_stack: [u8; EXCEPTION_STACK],
    segments: [u64; 5],
    task: TaskState,
}

/// The 64-bit task state segment (SDM volume 3, figure 9-11), without the permission map.
#[derive(Debug)]
#[repr(C, packed(4))]
struct TaskState {
    reserved0: u32,
    privilege_stacks: [u64; 3],
    reserved1: u64,
    interrupt_stacks: [u64; 7],
    reserved2: u64,
    reserved3: u16,
    permission_map: u16,
}

/// An interrupt gate.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Gate {
    offset_low: u16,
    selector: u16,
    stack: u8,
    kind: u8,
    offset_middle: u16,
    offset_high: u32,
    reserved: u32,
}

/// Type of a present 64-bit interrupt gate for CPL 0, which masks interrupts.
const INTERRUPT_GATE: u8 = 0x8e;

/// The gates, which all CPUs use and CPU 0 fills.
#[repr(C, align(16))]
struct Gates(UnsafeCell<[Gate; 256]>);

// SAFETY: CPU 0 writes the gates before any other CPU loads them.
unsafe impl Sync for Gates {}

static GATES: Gates = Gates(UnsafeCell::new(
    [Gate {
        offset_low: 0,
        selector: 0,
        stack: 0,
        kind: 0,
        offset_middle: 0,
        offset_high: 0,
        reserved: 0,
    }; 256],
));

/// The operand of LGDT and LIDT.
#[repr(C, packed)]
struct Pointer {
    limit: u16,
    base: u64,
}

impl Tables {
    pub(crate) const fn new() -> Tables {
        Tables {
            interrupt_stack: [0; INTERRUPT_STACK],
            exception_stack: [0; EXCEPTION_STACK],
            segments: [0; 5],
            task: TaskState {
                reserved0: 0,
                privilege_stacks: [0; 3],
                reserved1: 0,
                interrupt_stacks: [0; 7],
                reserved2: 0,
                reserved3: 0,
                permission_map: 0,
            },
        }
    }

    fn fill(&mut self) {
        let task = (&raw const self.task).addr() as u64;
        self.task.interrupt_stacks[usize::from(IST_INTERRUPT) - 1] = end_of(&self.interrupt_stack);
        self.task.interrupt_stacks[usize::from(IST_EXCEPTION) - 1] = end_of(&self.exception_stack);
        self.task.permission_map = size_of::<TaskState>() as u16;
        let [low, high] = task_segment(task);
        self.segments = [NULL_SEGMENT, CODE_SEGMENT, DATA_SEGMENT, low, high];
    }
}

/// Returns the address after a stack's last byte, aligned to 16 as entries need it.
fn end_of(stack: &[u8]) -> u64 {
    stack.as_ptr_range().end.addr() as u64 & !15
}

/// Returns the descriptor of the task state at `base`: present, available 64-bit TSS.
fn task_segment(base: u64) -> [u64; 2] {
    let limit = size_of::<TaskState>() as u64 - 1;
    let low = limit | (base & 0xff_ffff) << 16 | 0x89 << 40 | (base >> 24 & 0xff) << 56;
    [low, base >> 32]
}

fn gate(entry: usize, vector: usize) -> Gate {
    Gate {
        offset_low: entry as u16,
        selector: CODE,
        stack: if vector < FIRST_INTERRUPT {
            IST_EXCEPTION
        } else {
            IST_INTERRUPT
        },
        kind: INTERRUPT_GATE,
        offset_middle: (entry >> 16) as u16,
        offset_high: (entry >> 32) as u32,
        reserved: 0,
    }
}

/// Fills the gates with the entries of the vectors, of which the first is at `stubs`. CPU 0 calls this before [`load`].
pub(crate) fn fill_gates(stubs: *const u8) {
    // SAFETY: only CPU 0 runs code that uses the gates at this time.
    let gates = unsafe { &mut *GATES.0.get() };
    for (vector, place) in gates.iter_mut().enumerate() {
        *place = gate(stubs.addr() + vector * STUB_BYTES, vector);
    }
}

/// Loads `tables`, which must be the executing CPU's. Interrupts must be masked.
pub(crate) fn load(tables: &'static UnsafeCell<Tables>) {
    // SAFETY: only this CPU accesses its tables, and only once, here.
    let tables = unsafe { &mut *tables.get() };
    tables.fill();
    let segments = Pointer {
        limit: size_of_val(&tables.segments) as u16 - 1,
        base: tables.segments.as_ptr().addr() as u64,
    };
    let gates = Pointer {
        limit: size_of::<[Gate; 256]>() as u16 - 1,
        base: GATES.0.get().addr() as u64,
    };
    // SAFETY: the segments equal those that CS and SS already hold. The tables are static. The gates are filled, and
    // their stacks are this CPU's.
    unsafe {
        asm!("lgdt [{segments}]", "lidt [{gates}]", "ltr {task:x}",
            segments = in(reg) &raw const segments, gates = in(reg) &raw const gates, task = in(reg) TASK,
            options(nostack, preserves_flags));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_segment_names_its_base() {
        let [low, high] = task_segment(0x1234_5678_9abc_def0);
        let base = low >> 16 & 0xff_ffff | (low >> 56) << 24 | high << 32;
        assert_eq!(base, 0x1234_5678_9abc_def0);
        assert_eq!(low & 0xffff, 103);
    }
}
