//! What a program does per operation: how often the kernel's functions are entered, on all CPUs.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::records::Run;
use crate::symbols::Symbols;

/// What a program is compared by: its name in the table, and the functions whose entries are summed up. Their names are
/// those of Linux 6.1.
const ROWS: &[(&str, &[&str])] = &[
    ("system calls", &["do_syscall_64"]),
    ("page faults", &["handle_mm_fault"]),
    ("mappings made", &["__x64_sys_mmap"]),
    ("mappings removed", &["__x64_sys_munmap"]),
    ("pages discarded", &["__x64_sys_madvise"]),
    ("shootdowns by IPI", &["native_flush_tlb_multi"]),
    ("TLB flushes on targets", &["flush_tlb_func"]),
    (
        "call IPIs received",
        &["__sysvec_call_function", "__sysvec_call_function_single"],
    ),
    ("reschedule IPIs sent", &["native_smp_send_reschedule"]),
    ("wakeups tried", &["try_to_wake_up"]),
    ("wakeups", &["ttwu_do_activate"]),
    ("switches", &["__switch_to"]),
    (
        "spinlocks taken",
        &[
            "_raw_spin_lock",
            "_raw_spin_lock_bh",
            "_raw_spin_lock_irq",
            "_raw_spin_lock_irqsave",
            "_raw_spin_trylock",
            "_raw_spin_trylock_bh",
        ],
    ),
    ("timer interrupts", &["__sysvec_apic_timer_interrupt"]),
];

/// Every system call has an entry of its own with this name.
const CALL: &str = "__x64_sys_";

/// A call that a program makes more rarely, per operation, is not printed.
const RARE: f64 = 0.002;

/// Returns the functions that are counted, by number: those of `ROWS` that this kernel has, and all system calls.
fn entries(symbols: &Symbols) -> Vec<(u64, String)> {
    let rows = ROWS.iter().flat_map(|(_, names)| names.iter());
    let rows = rows.filter_map(|name| Some((symbols.function_address(name)?, (*name).to_owned())));
    let calls = symbols.functions_that_begin_with(CALL);
    let all: BTreeMap<u64, String> = calls.chain(rows).collect();
    all.into_iter().collect()
}

/// Returns the lines `ADDRESS NUMBER KIND` for the probe.
pub fn listing(symbols: &Symbols) -> String {
    let mut lines = String::new();
    for (number, (address, _)) in entries(symbols).iter().enumerate() {
        writeln!(lines, "{address:x} {number} -").expect("a string takes every write");
    }
    lines
}

/// A program's counts, with its operations. Two runs of one name give the difference.
#[derive(Debug, PartialEq)]
struct Program {
    name: String,
    operations: u64,
    counts: BTreeMap<String, u64>,
}

fn programs(runs: &[Run], symbols: &Symbols) -> Result<Vec<Program>, String> {
    let entries = entries(symbols);
    let mut programs: Vec<Program> = Vec::new();
    for run in runs {
        let mut counts = BTreeMap::new();
        for (number, count) in &run.counts {
            let (_, name) = entries.get(*number as usize).ok_or_else(|| {
                format!(
                    "{}: function {number}: expected less than {}",
                    run.operation,
                    entries.len()
                )
            })?;
            counts.insert(name.clone(), *count);
        }
        let Some(shorter) = programs.iter_mut().find(|program| program.name == run.operation) else {
            programs.push(Program {
                name: run.operation.clone(),
                operations: run.iterations,
                counts,
            });
            continue;
        };
        let more = run.iterations.checked_sub(shorter.operations).filter(|more| *more > 0);
        shorter.operations = more.ok_or_else(|| format!("{}: the second run has no more operations", run.operation))?;
        for (name, count) in counts {
            let before = shorter.counts.entry(name).or_default();
            *before = count.saturating_sub(*before);
        }
    }
    Ok(programs)
}

/// Returns a table of what each program does per operation.
pub fn table(runs: &[Run], symbols: &Symbols) -> Result<String, String> {
    let programs = programs(runs, symbols)?;
    let mut text = String::from("| per operation |");
    for program in &programs {
        write!(text, " {} |", program.name).expect("a string takes every write");
    }
    text.push_str(&format!("\n| --- |{}\n", " --: |".repeat(programs.len())));
    let entries = entries(symbols);
    let calls = entries
        .iter()
        .filter_map(|(_, name)| Some((name.strip_prefix(CALL)?, vec![name.as_str()])));
    let rows = ROWS.iter().map(|(name, functions)| (*name, functions.to_vec()));
    let operations = ("operations", Vec::new());
    for (row, functions) in std::iter::once(operations).chain(rows).chain(calls) {
        let of = |program: &Program| -> u64 { functions.iter().filter_map(|name| program.counts.get(*name)).sum() };
        let each = |program: &Program| of(program) as f64 / program.operations.max(1) as f64;
        if !functions.is_empty() && programs.iter().all(|program| each(program) < RARE) {
            continue;
        }
        write!(text, "| {row} |").expect("a string takes every write");
        for program in &programs {
            match functions.is_empty() {
                true => write!(text, " {} |", program.operations),
                false => write!(text, " {:.3} |", each(program)),
            }
            .expect("a string takes every write");
        }
        text.push('\n');
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::{runs, tests::mark, tests::record};

    const BEGIN: u64 = 0;
    const END: u64 = 1;
    const COUNT: u32 = 0xffff_fffc;

    /// Function 0 is the entry of all system calls, 1 is madvise.
    fn symbols() -> Symbols {
        Symbols::parse(
            "ffffffff81000000 T do_syscall_64\nffffffff81000100 T __x64_sys_madvise\nffffffff81000200 T schedule\n",
        )
        .expect("symbols")
    }

    /// The records of a run of `operations`, with the counts of calls and of madvise before and after.
    fn run(operations: u64, before: [u64; 2], after: [u64; 2]) -> Vec<u8> {
        let counts = |counts: [u64; 2]| {
            [0, 1]
                .map(|at| record([0, 0], [counts[at], at as u64], 0, 0, COUNT))
                .concat()
        };
        [
            counts(before),
            mark([0, 0], b"heap\0\0\0\0", BEGIN, 0),
            counts(after),
            mark([0, 0], b"heap\0\0\0\0", END, operations),
        ]
        .concat()
    }

    #[test]
    fn the_probe_counts_what_a_table_needs() {
        assert_eq!(listing(&symbols()), "ffffffff81000000 0 -\nffffffff81000100 1 -\n");
    }

    #[test]
    fn a_second_run_takes_start_and_end_out_of_the_counts() {
        // 50 calls to start and end, then 3 calls for each operation, one of them madvise.
        let bytes = [run(10, [7, 0], [87, 10]), run(30, [90, 10], [230, 40])].concat();
        let programs = programs(&runs(&bytes).expect("records"), &symbols()).expect("programs");
        assert_eq!(programs.len(), 1);
        assert_eq!(programs[0].operations, 20);
        assert_eq!(programs[0].counts["do_syscall_64"], 60);
        assert_eq!(programs[0].counts["__x64_sys_madvise"], 20);
        let text = table(&runs(&bytes).expect("records"), &symbols()).expect("a table");
        for line in ["| operations | 20 |", "| system calls | 3.000 |", "| madvise | 1.000 |"] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn counts_that_cannot_be_are_refused() {
        let read = |bytes: Vec<u8>| runs(&bytes).and_then(|runs| table(&runs, &symbols()));
        let smaller = read(run(10, [80, 10], [79, 10]));
        assert!(smaller.unwrap_err().contains("function 0 has a smaller count"));
        let fewer = read([run(10, [7, 0], [87, 10]), run(10, [90, 10], [230, 40])].concat());
        assert!(fewer.unwrap_err().contains("no more operations"));
        let unknown = [
            mark([0, 0], b"heap\0\0\0\0", BEGIN, 0),
            record([0, 0], [1, 99], 0, 0, COUNT),
            mark([0, 0], b"heap\0\0\0\0", END, 1),
        ]
        .concat();
        assert!(read(unknown).unwrap_err().contains("function 99"));
    }
}
