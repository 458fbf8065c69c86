//! Profiles of measured kernels: read from TOML, in instructions; executed by guests, in time (`docs/kernels.md`).

use std::sync::{LazyLock, OnceLock};

use holdfast_workloads::{KernelProfile, LineProfile, LockClass, LockProfile, Operation, OperationProfile, Scope};

use crate::diagnostic::{Findings, Place, Problems};
use crate::document::{self, Reader, Table};
use crate::shipped::files::{KERNELS, find};
use crate::slot::Choice;

/// Time of an instruction of kernel code: one per cycle on a Xeon X5570, the CPU that all times of the guest kernel are
/// for. Page fault and open+close of Linux 6.1 then take 1.1 and 2.2 µs (lmbench on this CPU class: 0.5-1.2 and 1.5-2.5
/// µs).
const PS_PER_INSTRUCTION: f64 = 341.0;

/// The version of the files' form.
const SCHEMA: u32 = 1;

/// Classes of locks that the guest's statistics do not tell apart.
const WITHOUT_CLASS: &[&str] = &["other", "percpu_allocator", "percpu_counter", "pipe", "timer_base"];

/// The most instructions or acquisitions of an operation.
const MOST: f64 = 1e9;

/// A row of a file.
struct Row {
    class: LockClass,
    scope: Scope,
    count: f64,
    own: f64,
    under: Option<LockClass>,
    lines: Option<LineProfile>,
}

/// A measured kernel as in its file.
#[derive(Clone, Debug, PartialEq)]
pub struct MeasuredKernel {
    /// Linux's version, for example "6.1.0-50-cloud-amd64".
    pub release: String,
    /// What guests execute.
    pub profile: KernelProfile,
    /// Instructions, spinlocks and instructions held of each operation, in the order of [`Operation::ALL`].
    pub totals: Vec<[f64; 3]>,
}

impl MeasuredKernel {
    /// Reads a kernel profile.
    ///
    /// # Errors
    /// All mistakes in the file, each with its line, key, and what was found and expected.
    pub fn parse(file: &str, text: &str) -> Result<MeasuredKernel, Problems> {
        let document = document::parse(file, text)?;
        let mut findings = Findings::default();
        let mut reader = Reader::new(&document, Place::new(&file.into(), 1), &mut findings);
        reader.whole("schema", SCHEMA, SCHEMA);
        let (series, release) = (reader.text("series"), reader.text("release"));
        for key in ["background", "operation"] {
            if !reader.has(key) {
                reader.missing(key, "a table");
            }
        }
        reader.optional_table("background");
        let operations = reader.optional_table("operation");
        reader.finish();
        let mut profiles = Vec::new();
        let mut totals = Vec::new();
        if let Some((table, place)) = operations {
            for operation in Operation::ALL {
                let name = operation.name();
                let mut reader = Reader::new(table, place.clone(), &mut findings);
                let Some((table, place)) = reader.optional_table(name) else {
                    if !reader.has(name) {
                        reader.missing(name, "the table of this operation");
                    }
                    continue;
                };
                let (profile, total) = read_operation(table, place, &mut findings);
                profiles.push(profile);
                totals.push(total);
            }
        }
        findings.conclude(MeasuredKernel {
            release: release.unwrap_or_default().to_owned(),
            profile: KernelProfile {
                name: format!("linux-{}", series.unwrap_or_default()),
                operations: profiles,
            },
            totals,
        })
    }
}

fn read_operation(table: &Table, place: &Place, findings: &mut Findings) -> (OperationProfile, [f64; 3]) {
    let mut reader = Reader::new(table, place.clone(), findings);
    let mut number = |key| within(&mut reader, key);
    let total = [number("instructions"), number("spinlocks"), number("held")];
    number("kernel");
    for key in [
        "mutexes",
        "mutex_waits",
        "rwlocks",
        "rwsem_reads",
        "rwsem_writes",
        "vma_reads",
        "wakeups",
        "switches",
        "reschedule_ipis",
        "call_ipis",
    ] {
        reader.optional_number(key);
    }
    let mut rows = Vec::new();
    for (table, place) in reader.tables("locks") {
        rows.extend(read_row(table, place, reader.findings()));
    }
    reader.finish();
    let held: f64 = rows.iter().map(|row| row.count * row.own).sum();
    let profile = OperationProfile {
        work_ps: picos((total[0] - held).max(0.0)),
        locks: rows.iter().map(|row| lock(row, &rows)).collect(),
    };
    (profile, total)
}

fn picos(instructions: f64) -> u64 {
    (instructions * PS_PER_INSTRUCTION) as u64
}

fn lock(row: &Row, rows: &[Row]) -> LockProfile {
    let outer = |class| {
        rows.iter()
            .position(|other| other.under.is_none() && other.class == class)
    };
    LockProfile {
        class: row.class,
        scope: row.scope,
        per_million: (row.count * 1e6) as u64,
        own_ps: picos(row.own),
        under: row.under.and_then(outer).map(|index| index as u32),
        lines: row.lines,
    }
}

fn read_row(table: &Table, place: &Place, findings: &mut Findings) -> Option<Row> {
    let mut reader = Reader::new(table, place.clone(), findings);
    let of_class = reader.text("class").and_then(|text| class(&mut reader, "class", text));
    let scopes: Vec<(&str, Scope)> = Scope::ALL.iter().map(|scope| (scope.name(), *scope)).collect();
    let scope = reader
        .text("scope")
        .and_then(|text| reader.choose("scope", text, &scopes));
    reader.text("site");
    let (count, own) = (within(&mut reader, "count"), within(&mut reader, "own"));
    within(&mut reader, "hold");
    let under = reader
        .optional_text("under")
        .and_then(|text| class(&mut reader, "under", text));
    let lines = reader
        .optional_table("lines")
        .map(|(table, place)| read_lines(table, place, of_class, reader.findings()));
    reader.finish();
    Some(Row {
        class: of_class?,
        scope: scope?,
        count,
        own,
        under,
        lines,
    })
}

/// Reads the cache lines of a section. Lines that other CPUs have not changed (`own`, `cold`) are part of the pace of
/// instructions. If the lock always stayed, or always moved, both cases have the same lines.
fn read_lines(table: &Table, place: &Place, class: Option<LockClass>, findings: &mut Findings) -> LineProfile {
    let mut reader = Reader::new(table, place.clone(), findings);
    for key in ["own", "cold"] {
        within(&mut reader, key);
    }
    let shared = within(&mut reader, "shared");
    let mut optional = |key| reader.has(key).then(|| within(&mut reader, key));
    let (stayed, moved) = (optional("elsewhere"), optional("moved"));
    for key in ["pages", "per_page"] {
        reader.optional_number(key);
    }
    reader.finish();
    let milli = |lines: Option<f64>| ((shared + lines.unwrap_or(0.0)) * 1e3) as u32;
    LineProfile {
        stayed_milli: milli(stayed.or(moved)),
        moved_milli: milli(moved.or(stayed)),
        // The zone's free pages are on lists.
        chained: class == Some(LockClass::Zone),
    }
}

fn class(reader: &mut Reader<'_, '_>, key: &'static str, text: &str) -> Option<LockClass> {
    let mut classes: Vec<(&str, LockClass)> = LockClass::ALL.iter().map(|class| (class.name(), *class)).collect();
    classes.extend(WITHOUT_CLASS.iter().map(|name| (*name, LockClass::Other)));
    reader.choose(key, text, &classes)
}

/// Reads a number from 0 to [`MOST`].
fn within(reader: &mut Reader<'_, '_>, key: &'static str) -> f64 {
    let Some(number) = reader.number(key) else { return 0.0 };
    if !(0.0..=MOST).contains(&number) {
        reader.wrong(key, number.to_string(), format!("a number from 0 to {MOST:e}"));
    }
    number
}

/// Returns the profile of a shipped kernel. Each file is read once, since that takes milliseconds and every plan asks.
pub(crate) fn shipped(name: &str) -> Option<&'static KernelProfile> {
    static PROFILES: LazyLock<Vec<OnceLock<KernelProfile>>> =
        LazyLock::new(|| KERNELS.iter().map(|_| OnceLock::new()).collect());
    let at = KERNELS.iter().position(|file| file.name == name)?;
    let read =
        || MeasuredKernel::parse(KERNELS[at].file, KERNELS[at].text).expect("a test parses every shipped kernel");
    Some(PROFILES[at].get_or_init(|| read().profile))
}

/// The name of the guest kernel whose costs are estimates.
const ESTIMATED: &str = "estimated";

/// The kernel that a guest executes.
impl Choice for Option<Box<KernelProfile>> {
    fn names(&self) -> Vec<&'static str> {
        std::iter::once(ESTIMATED)
            .chain(KERNELS.iter().map(|file| file.name))
            .collect()
    }

    fn name(&self) -> &'static str {
        let shipped = self.as_ref().and_then(|profile| find(KERNELS, &profile.name));
        shipped.map_or(ESTIMATED, |file| file.name)
    }

    fn choose(&mut self, name: &str) -> bool {
        if name == ESTIMATED {
            *self = None;
            return true;
        }
        let Some(profile) = shipped(name) else { return false };
        *self = Some(Box::new(profile.clone()));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shipped_kernel_is_read_and_has_its_name() {
        for file in KERNELS {
            let kernel = MeasuredKernel::parse(file.file, file.text).unwrap_or_else(|problems| panic!("{problems}"));
            assert_eq!(kernel.profile.name, file.name);
            assert!(kernel.profile.operations.iter().all(|operation| operation.work_ps > 0));
            let mut chosen = None;
            assert!(Choice::choose(&mut chosen, file.name));
            assert_eq!(Choice::name(&chosen), file.name);
        }
        assert!(!Choice::choose(&mut None::<Box<KernelProfile>>, "linux-2.4"));
    }

    #[test]
    fn rows_add_up_to_the_totals_of_their_operation() {
        for file in KERNELS {
            let kernel = MeasuredKernel::parse(file.file, file.text).expect("a kernel");
            for (operation, totals) in kernel.profile.operations.iter().zip(&kernel.totals) {
                let count: u64 = operation.locks.iter().map(|lock| lock.per_million).sum();
                let difference = (count as f64 / 1e6 - totals[1]).abs();
                assert!(
                    difference < 0.01 * totals[1] + 0.01,
                    "{}: {count} millionths for {totals:?}",
                    file.name
                );
            }
        }
    }

    #[test]
    fn lines_of_a_section_are_those_that_other_cpus_have_used() {
        let lines_of = |lines: &str| {
            let text = find(KERNELS, "linux-6.1").expect("shipped").text;
            let (before, rest) = text.split_once(", lines = { ").expect("lines");
            let (_, after) = rest.split_once(" }").expect("their end");
            let text = format!("{before}, lines = {{ {lines} }}{after}");
            let kernel = MeasuredKernel::parse("k.toml", &text).unwrap_or_else(|problems| panic!("{problems}"));
            let mut locks = kernel.profile.operations.iter().flat_map(|operation| &operation.locks);
            let lines = locks.find_map(|lock| lock.lines).expect("a row with lines");
            (lines.stayed_milli, lines.moved_milli)
        };
        let both = "own = 5.0, cold = 9.0, shared = 0.5, elsewhere = 1.5, moved = 3.5, pages = 7.0, per_page = 0.2";
        assert_eq!(lines_of(both), (2_000, 4_000));
        assert_eq!(
            lines_of("own = 5.0, cold = 9.0, shared = 0.5, elsewhere = 1.5"),
            (2_000, 2_000)
        );
        assert_eq!(
            lines_of("own = 5.0, cold = 9.0, shared = 0.0, moved = 3.5"),
            (3_500, 3_500)
        );
    }

    #[test]
    fn mistakes_are_reported_with_line_key_found_and_expected() {
        let text = find(KERNELS, "linux-6.1").expect("shipped").text;
        for (good, bad, expected) in [
            ("schema = 1", "schema = 2", ["schema", "2"]),
            ("series = \"6.1\"", "series = 6.1", ["series", "a string"]),
            (
                "[operation.stat]",
                "[operation.state]",
                ["stat", "the table of this operation"],
            ),
            ("class = \"files\"", "class = \"file\"", ["\"file\"", "files"]),
            ("scope = \"node\"", "scope = \"nodes\"", ["\"nodes\"", "node"]),
            ("count = 1.0000", "count = -1.0", ["count", "from 0 to"]),
            (", own = ", ", owned = ", ["owned", "own"]),
            ("cold = 0.1", "cold = -0.1", ["cold", "from 0 to"]),
        ] {
            assert!(text.contains(good), "{good}");
            let problems = MeasuredKernel::parse("k.toml", &text.replacen(good, bad, 1))
                .expect_err(bad)
                .to_string();
            for part in expected {
                assert!(problems.contains(part), "{bad}: {problems}");
            }
            assert!(problems.contains("k.toml:"), "{problems}");
        }
    }
}
