//! The probe's records.

use std::collections::BTreeMap;

use crate::hooks::{HOOKS, Kind};

/// An entry of a hooked function.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    pub kind: Kind,
    /// Instructions that the CPU has executed in kernel mode.
    pub kernel: u64,
    /// The first argument: the lock.
    pub first: u64,
    /// The return address.
    pub caller: u64,
}

/// A section of code under a spinlock, as `platforms/kvm/testhost/locks/lines.h` counts its cache lines.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Section {
    /// The section's own instructions, without those of sections nested in it.
    pub instructions: u64,
    pub lock: u64,
    pub caller: u64,
    /// Distinct lines whose copy is valid and cached, that the cache has lost, that other CPUs have copies of, and that
    /// another CPU has changed.
    pub own: u16,
    pub cold: u16,
    pub shared: u16,
    pub elsewhere: u16,
    /// Struct pages that it stores to.
    pub pages: u16,
    /// Whether another CPU held the lock before.
    pub moved: bool,
    /// Whether the lock was waited for.
    pub waited: bool,
}

/// One measured operation on one CPU.
#[derive(Debug, Default)]
pub struct Run {
    pub operation: String,
    pub cpu: u32,
    pub iterations: u64,
    /// Instructions in kernel mode, and all.
    pub kernel: u64,
    pub instructions: u64,
    /// Calls on the run's CPU, with the begin of each iteration, in `kernel` instructions.
    pub calls: Vec<Call>,
    pub begins: Vec<u64>,
    /// Offsets of the variables of each CPU.
    pub offsets: Vec<u64>,
    /// Sections of all CPUs that end during the run.
    pub sections: Vec<Section>,
    /// How often functions were entered during the run on all CPUs, by number.
    pub counts: BTreeMap<u64, u64>,
}

const SIZE: usize = 48;
const MARK: u32 = 0xffff_ffff;
const PER_CPU: u32 = 0xffff_fffe;
const SECTION: u32 = 0xffff_fffd;
const COUNT: u32 = 0xffff_fffc;
const BEGIN: u64 = 0;
const END: u64 = 1;

/// Splits `bytes`, the probe's output, into operations. Calls between operations are dropped.
pub fn runs(bytes: &[u8]) -> Result<Vec<Run>, String> {
    let (mut runs, mut offsets, mut open) = (Vec::new(), Vec::new(), None::<(Run, u64, u64)>);
    // Counts since the machine's start, as of the next mark.
    let mut counted = BTreeMap::new();
    let (records, rest) = bytes.as_chunks::<SIZE>();
    if !rest.is_empty() {
        return Err(format!("{} bytes: expected records of {SIZE} bytes", bytes.len()));
    }
    for (index, record) in records.iter().enumerate() {
        let word = |at: usize| u64::from_le_bytes(record[8 * at..8 * at + 8].try_into().expect("8 bytes"));
        let (kernel, user, first, caller) = (word(0), word(1), word(2), word(4));
        let (cpu, hook) = (word(5) as u32, (word(5) >> 32) as u32);
        match hook {
            PER_CPU if cpu == 0 => offsets = vec![first],
            PER_CPU => offsets.push(first),
            MARK if caller & 3 == BEGIN => {
                let run = Run {
                    operation: name(&record[16..32]),
                    cpu,
                    iterations: caller >> 2,
                    begins: vec![kernel],
                    offsets: offsets.clone(),
                    counts: std::mem::take(&mut counted),
                    ..Run::default()
                };
                open = Some((run, kernel, user));
            }
            MARK if caller & 3 == END => {
                let (mut run, kernel_before, user_before) = open
                    .take()
                    .ok_or_else(|| format!("record {index}: the end of an operation that did not begin"))?;
                run.kernel = kernel - kernel_before;
                run.instructions = run.kernel + (user - user_before);
                // The begin of a program does not say how many operations it will carry out.
                run.iterations = caller >> 2;
                run.counts = entered(&run.counts, std::mem::take(&mut counted))
                    .map_err(|number| format!("record {index}: function {number} has a smaller count than before"))?;
                runs.push(run);
            }
            COUNT => {
                counted.insert(word(3), first);
            }
            SECTION => {
                let section = section(word).map_err(|found| format!("record {index}: {found}"))?;
                if let Some((run, ..)) = &mut open {
                    run.sections.push(section);
                }
            }
            MARK => {
                if let Some((run, ..)) = &mut open {
                    run.begins.push(kernel);
                }
            }
            _ => {
                let (_, kind) = HOOKS
                    .get(hook as usize)
                    .ok_or_else(|| format!("record {index}: hook {hook}: expected less than {}", HOOKS.len()))?;
                if let Some((run, ..)) = open.as_mut().filter(|(run, ..)| run.cpu == cpu) {
                    run.calls.push(Call {
                        kind: *kind,
                        kernel,
                        first,
                        caller,
                    });
                }
            }
        }
    }
    Ok(runs)
}

/// Returns the differences of two counts. An error is the number of a function that was entered less often than before.
fn entered(before: &BTreeMap<u64, u64>, after: BTreeMap<u64, u64>) -> Result<BTreeMap<u64, u64>, u64> {
    let lost = before.keys().find(|number| !after.contains_key(number));
    if let Some(number) = lost {
        return Err(*number);
    }
    let difference = |(number, count): (u64, u64)| {
        let before = before.get(&number).copied().unwrap_or(0);
        count.checked_sub(before).map(|count| (number, count)).ok_or(number)
    };
    after.into_iter().map(difference).collect()
}

/// Reads a section. Refuses counts that distinct lines cannot have: each line of a class was loaded or stored for the
/// first time, and each struct page stored.
fn section(word: impl Fn(usize) -> u64) -> Result<Section, String> {
    let count = |index: usize, at: u32| (word(index) >> (16 * at)) as u16;
    let (loaded, stored, flags) = (count(1, 0), count(1, 1), count(3, 3));
    let section = Section {
        instructions: word(0),
        lock: word(2),
        caller: word(4),
        own: count(1, 2),
        cold: count(1, 3),
        shared: count(3, 0),
        elsewhere: count(3, 1),
        pages: count(3, 2),
        moved: flags & 1 != 0,
        waited: flags & 2 != 0,
    };
    let classes = [section.own, section.cold, section.shared, section.elsewhere];
    let lines: u32 = classes.map(u32::from).iter().sum();
    // A count that the record cannot hold is the highest that it can.
    let is_full = loaded == u16::MAX || stored == u16::MAX;
    if !is_full && (lines > u32::from(loaded) + u32::from(stored) || section.pages > stored) {
        let pages = section.pages;
        return Err(format!(
            "a section of {lines} lines and {pages} struct pages that loads {loaded} lines and stores {stored}"
        ));
    }
    Ok(section)
}

fn name(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn record(counts: [u64; 2], first: [u64; 2], caller: u64, cpu: u32, hook: u32) -> Vec<u8> {
        let words = [
            counts[0],
            counts[1],
            first[0],
            first[1],
            caller,
            u64::from(hook) << 32 | u64::from(cpu),
        ];
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    pub fn mark(counts: [u64; 2], name: &[u8; 8], kind: u64, count: u64) -> Vec<u8> {
        record(counts, [u64::from_le_bytes(*name), 0], count << 2 | kind, 0, MARK)
    }

    #[test]
    fn calls_belong_to_the_operation_and_cpu_that_made_them() {
        let bytes = [
            record([50, 0], [1, 0], 0, 0, 0),
            record([0, 0], [0x1000, 0], 0, 0, PER_CPU),
            mark([100, 10], b"fork\0\0\0\0", BEGIN, 3),
            record([150, 10], [7, 0], 9, 0, 0),
            record([900, 10], [8, 0], 9, 1, 0),
            mark([200, 30], b"fork\0\0\0\0", END, 3),
        ]
        .concat();
        let runs = runs(&bytes).expect("records");
        assert_eq!(runs.len(), 1);
        let run = &runs[0];
        assert_eq!((run.operation.as_str(), run.iterations), ("fork", 3));
        assert_eq!((run.kernel, run.instructions), (100, 120));
        assert_eq!(run.calls.iter().map(|call| call.first).collect::<Vec<_>>(), [7]);
        assert_eq!(run.offsets, [0x1000]);
    }

    #[test]
    fn sections_of_all_cpus_have_the_counts_of_the_probe() {
        let packed = |counts: [u64; 4]| counts.iter().rev().fold(0, |packed, count| packed << 16 | count);
        let (loaded, classes) = (packed([9, 18, 7, 6]), packed([5, 4, 3, 2]));
        let bytes = [
            mark([100, 10], b"fork\0\0\0\0", BEGIN, 3),
            record([50, loaded], [0x77, classes], 9, 5, SECTION),
            mark([200, 30], b"fork\0\0\0\0", END, 3),
            record([50, loaded], [0x77, classes], 9, 5, SECTION),
        ]
        .concat();
        let runs = runs(&bytes).expect("records");
        let expected = Section {
            instructions: 50,
            lock: 0x77,
            caller: 9,
            own: 7,
            cold: 6,
            shared: 5,
            elsewhere: 4,
            pages: 3,
            moved: false,
            waited: true,
        };
        assert_eq!(runs[0].sections, [expected]);
    }

    #[test]
    fn lines_that_are_counted_twice_are_refused() {
        let packed = |counts: [u64; 4]| counts.iter().rev().fold(0, |packed, count| packed << 16 | count);
        let read = |loaded: [u64; 4], classes: [u64; 4]| {
            let bytes = record([50, packed(loaded)], [0x77, packed(classes)], 9, 5, SECTION);
            runs(&bytes)
        };
        // Loaded and stored lines, own and cold ones; then shared ones, those from elsewhere, and struct pages.
        for (loaded, classes, is_possible) in [
            // Five lines, of which two are loaded and then stored.
            ([4, 3, 2, 1], [1, 1, 3, 0], true),
            ([4, 3, 7, 0], [0, 0, 0, 0], true),
            // Each of these lines a second time.
            ([4, 3, 4, 2], [2, 2, 3, 0], false),
            ([4, 3, 8, 0], [0, 0, 0, 0], false),
            ([4, 3, 2, 1], [1, 1, 4, 0], false),
            // Full counts say nothing.
            ([0xffff, 3, 0xffff, 0xffff], [2, 2, 3, 0], true),
        ] {
            assert_eq!(read(loaded, classes).is_ok(), is_possible, "{loaded:?} {classes:?}");
        }
    }

    #[test]
    fn damaged_records_are_refused() {
        let end = mark([1, 1], b"fork\0\0\0\0", END, 1);
        assert_eq!(runs(&end[1..]).unwrap_err(), "47 bytes: expected records of 48 bytes");
        assert!(runs(&end).unwrap_err().contains("did not begin"));
        let unknown = record([1, 1], [0, 0], 0, 0, 1_000);
        assert!(runs(&unknown).unwrap_err().contains("hook 1000"));
    }
}
