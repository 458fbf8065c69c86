//! Tables of an account, for the terminal and for the page.

use holdfast_recordings::account::{Account, Basis, Figure, Named, VmAccount, percent};

use crate::display::number;
use crate::sheet::Sheet;

/// How cells say how far their figures can be believed.
pub const NOTE: &str = "\
~: inferred, with an assumption or in spite of missing events. ?: unknown, since the recording does not have what it \
needs. All others are known.";

/// Returns a figure with its mark.
fn cell(figure: Option<&Figure>) -> String {
    match figure {
        None => "-".to_owned(),
        Some(figure) => match (figure.basis, figure.value) {
            (Basis::Known, Some(value)) => rounded(value),
            (Basis::Inferred, Some(value)) => format!("~{}", rounded(value)),
            _ => "?".to_owned(),
        },
    }
}

/// Returns `value` with three digits or so: a table of measurements has no use for more.
fn rounded(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size < 0.05 => format!("{value:.3}"),
        size if size < 10.0 => format!("{value:.2}"),
        size if size < 1000.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// Returns the head of a figure's column: its name in words, with its unit.
fn head(name: &str) -> String {
    const UNITS: [(&str, &str); 6] = [
        ("_ms_per_20s", ", ms per 20 s"),
        ("_percent", ", %"),
        ("_per_s", " per s"),
        ("_ms", ", ms"),
        ("_us", ", us"),
        ("_s", ", s"),
    ];
    let unit = UNITS.iter().find(|(end, _)| name.ends_with(end));
    let (bare, unit) = unit.map_or((name, ""), |(end, unit)| (name.trim_end_matches(end), *unit));
    format!(
        "{}{unit}",
        bare.replace('_', " ").replace("vms", "VMs").replace("vcpus", "vCPUs")
    )
}

/// The figures of the first table, with heads that fit next to each other.
const SUMMARY: [(&str, &str); 9] = [
    ("ready_ms_per_20s", "ready, ms per 20 s"),
    ("ready_of_wanted_percent", "of wanted, %"),
    ("behind_siblings_percent", "siblings, %"),
    ("behind_other_vms_percent", "other VMs, %"),
    ("behind_own_threads_percent", "own threads, %"),
    ("behind_kernel_percent", "kernel, %"),
    ("behind_other_threads_percent", "others, %"),
    ("longest_wait_ms", "longest, ms"),
    ("wake_to_run_p99_us", "wake p99, us"),
];

/// The figures of the table of vCPUs.
const VCPUS: [&str; 9] = [
    "ready_ms_per_20s",
    "ready_percent",
    "guest_percent",
    "host_percent",
    "polling_percent",
    "unknown_percent",
    "longest_wait_ms",
    "wake_to_run_p50_us",
    "wake_to_run_p99_us",
];

fn cells<'f>(figures: &'f [Figure], names: &'f [&str]) -> impl Iterator<Item = String> + 'f {
    names.iter().map(|name| cell(Account::figure(figures, name)))
}

/// Returns the table of the VMs: CPU ready, its share of the wanted CPU time, and the parts of it that were behind its
/// own vCPUs, other VMs, its own monitor, the kernel and other threads.
pub fn summary(account: &Account) -> Sheet {
    let heads = ["VM", "vCPUs"].map(str::to_owned).into_iter();
    let mut sheet = Sheet::new(heads.chain(SUMMARY.iter().map(|(_, head)| (*head).to_owned())), 1);
    for vm in &account.vms {
        let names = [vm.name.clone(), vm.vcpus.len().to_string()];
        sheet.rows.push(
            names
                .into_iter()
                .chain(cells(&vm.figures, &SUMMARY.map(|(name, _)| name)))
                .collect(),
        );
    }
    sheet
}

/// Returns the table of the vCPUs.
pub fn vcpus(account: &Account) -> Sheet {
    let heads = ["VM", "vCPU"].map(str::to_owned).into_iter();
    let mut sheet = Sheet::new(heads.chain(VCPUS.iter().map(|name| head(name))), 2);
    for vm in &account.vms {
        for vcpu in &vm.vcpus {
            let number = vcpu
                .number
                .map_or_else(|| format!("thread {}", vcpu.thread), |number| number.to_string());
            let names = [vm.name.clone(), number];
            sheet
                .rows
                .push(names.into_iter().chain(cells(&vcpu.figures, &VCPUS)).collect());
        }
    }
    sheet
}

/// Returns the table of all figures of the VMs, a row for each figure.
pub fn figures(account: &Account) -> Sheet {
    let heads = std::iter::once("figure".to_owned()).chain(account.vms.iter().map(|vm| vm.name.clone()));
    let mut sheet = Sheet::new(heads, 1);
    let names = account
        .vms
        .first()
        .map(|vm| vm.figures.iter().map(|figure| figure.name));
    for name in names.into_iter().flatten() {
        let cells = account.vms.iter().map(|vm| cell(Account::figure(&vm.figures, name)));
        sheet.rows.push(std::iter::once(head(name)).chain(cells).collect());
    }
    sheet
}

/// Returns a table of the named times of each VM: at most `rows` of each. `by_time`: shares are of the times, not
/// of the counts.
fn named<'a>(
    account: &'a Account,
    heads: [&str; 4],
    rows: usize,
    by_time: bool,
    of: impl Fn(&'a VmAccount) -> &'a [Named],
) -> Sheet {
    let mut sheet = Sheet::new(std::iter::once("VM").chain(heads), 2);
    for vm in &account.vms {
        let all = of(vm);
        let amount = |row: &Named| if by_time { row.ns } else { row.count };
        let whole: u64 = all.iter().map(amount).sum();
        for row in all.iter().take(rows) {
            sheet.rows.push(vec![
                vm.name.clone(),
                row.name.clone(),
                format!("{:.1}", percent(amount(row), whole)),
                number(row.ns as f64 / 1e6),
                if row.count == 0 {
                    "-".to_owned()
                } else {
                    row.count.to_string()
                },
            ]);
        }
    }
    sheet
}

/// Returns the table of what each VM waited behind.
pub fn behind(account: &Account, rows: usize) -> Sheet {
    named(account, ["behind", "share, %", "ms", "times"], rows, true, |vm| {
        &vm.behind
    })
}

/// Returns the table of the exits of each VM, with the time that the host needed for them.
pub fn exits(account: &Account, rows: usize) -> Sheet {
    named(
        account,
        ["exit", "share of host time, %", "ms", "exits"],
        rows,
        true,
        |vm| &vm.exits,
    )
}

/// Returns the table of what woke the vCPUs of each VM.
pub fn wakers(account: &Account, rows: usize) -> Sheet {
    named(
        account,
        ["woken by", "share, %", "ms until it ran", "wakeups"],
        rows,
        false,
        |vm| &vm.wakers,
    )
}

/// Returns the table of the pCPUs.
pub fn host(account: &Account) -> Sheet {
    let mut sheet = Sheet::new(["pCPU", "vCPUs, %", "other threads, %", "idle, %", "not known, %"], 1);
    for cpu in &account.cpus {
        let shares = [
            cpu.vcpus_percent,
            cpu.threads_percent,
            cpu.idle_percent,
            cpu.unknown_percent,
        ];
        let cells = shares.into_iter().map(|share| format!("{share:.1}"));
        sheet
            .rows
            .push(std::iter::once(cpu.cpu.to_string()).chain(cells).collect());
    }
    sheet
}

/// Returns a number with the words for one, or for more.
fn counted(count: impl Into<u64>, one: &str, more: &str) -> String {
    match count.into() {
        1 => format!("1 {one}"),
        count => format!("{count} {more}"),
    }
}

/// Returns what was wrong with the recording, each in a sentence.
pub fn warnings(account: &Account) -> Vec<String> {
    let faults = &account.faults;
    let mut warnings = Vec::new();
    if faults.gaps > 0 {
        let lost = match faults.lost_events {
            0 => "events are".to_owned(),
            lost => counted(lost, "event is", "events are"),
        };
        warnings.push(format!(
            "{lost} missing in {}: larger buffers lose fewer",
            counted(faults.gaps, "place", "places")
        ));
    }
    if faults.clock_back > 0 {
        warnings.push(format!(
            "the clock went back {}",
            counted(faults.clock_back, "time", "times")
        ));
    }
    if faults.clock_ahead > 0 {
        let times = counted(faults.clock_ahead, "time", "times");
        warnings.push(format!(
            "there was no event for more than 5 s, {times}: that time is not known"
        ));
    }
    if faults.contradictions > 0 {
        let events = counted(faults.contradictions, "event contradicts", "events contradict");
        warnings.push(format!("{events} what was known before: the time between is not known"));
    }
    if faults.ignored > 0 {
        warnings.push(format!(
            "{} ignored: impossible CPUs, or too many vCPUs",
            counted(faults.ignored, "event was", "events were")
        ));
    }
    if account.names_without_entry > 0 {
        let threads = counted(account.names_without_entry, "thread has", "threads have");
        warnings.push(format!(
            "{threads} the name of a vCPU and did not run, or entered no guest: not counted"
        ));
    }
    if account.vms.iter().any(|vm| vm.process.is_none()) {
        warnings.push(
            "which VM each vCPU is of is not known: record with perf or `holdfast record`, or add a copy of /proc"
                .to_owned(),
        );
    }
    let needed = [
        (account.seen.switches, "sched:sched_switch"),
        (account.seen.wakeups, "sched:sched_waking"),
        (account.seen.entries, "kvm:kvm_entry"),
        (account.seen.exits, "kvm:kvm_exit"),
        (account.seen.halt_ends, "kvm:kvm_vcpu_wakeup"),
    ];
    let missing: Vec<&str> = needed
        .iter()
        .filter(|(count, _)| *count == 0)
        .map(|(_, name)| *name)
        .collect();
    if !missing.is_empty() && !account.vms.is_empty() {
        warnings.push(format!(
            "the recording has no {}: figures that need it are unknown",
            missing.join(", ")
        ));
    }
    warnings.extend(account.file_faults.iter().cloned());
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_have_words_and_units() {
        assert_eq!(head("ready_ms_per_20s"), "ready, ms per 20 s");
        assert_eq!(head("behind_other_vms_percent"), "behind other VMs, %");
        assert_eq!(head("exits_per_s"), "exits per s");
        assert_eq!(head("wake_to_run_p99_us"), "wake to run p99, us");
    }

    #[test]
    fn cells_show_how_far_a_figure_can_be_believed() {
        assert_eq!(cell(Some(&Figure::known("a", 12.34))), "12.3");
        assert_eq!(cell(Some(&Figure::inferred("a", 0.5, "so"))), "~0.50");
        assert_eq!(cell(Some(&Figure::unknown("a", "so"))), "?");
        assert_eq!(cell(None), "-");
    }
}
