//! What a plan sets up, in a few lines: the machine and how its pCPUs are numbered, the kernels and what differs from
//! them, how far the host is overcommitted, and, after the runs, its load.

use holdfast_host::{HostConfig, Linux, SchedConfig};
use holdfast_machine::{Numbering, Profile};
use holdfast_sim::Vm;
use holdfast_workloads::Workload;
use serde_json::Value;

use crate::draft::DraftVm;
use crate::keys::{KEYS, Parameters, Target};
use crate::linux::IMPLIED;
use crate::plan::{Cell, Plan};
use crate::results::Results;

/// Longest line, in characters.
const WIDTH: usize = 100;
/// Width of the first column.
const INDENT: usize = 12;

/// Describes the set-up of `plan`.
pub fn lines(plan: &Plan) -> Vec<String> {
    let mut lines = Vec::new();
    let mut machines: Vec<String> = Vec::new();
    for cell in &plan.cells {
        let machine = machine(&cell.config.machine);
        if !machines.contains(&machine) {
            machines.push(machine);
        }
    }
    match &machines[..] {
        [] => {}
        [one] => lines.extend(wrapped("machine", one)),
        [first, ..] => lines.extend(wrapped(
            "machine",
            &format!("{first}; {} machines in all", machines.len()),
        )),
    }
    if let Some(pinned) = pinned(plan) {
        lines.extend(wrapped("pinned", &pinned));
    }
    lines.extend(wrapped("host", &kernels(plan, |cell| vec![host(cell)])));
    let guests = |cell: &Cell| {
        cell.config
            .vms
            .iter()
            .filter(|vm| !vm.bare_metal)
            .map(|vm| guest(cell, vm))
            .collect()
    };
    lines.extend(wrapped("guests", &kernels(plan, guests)));
    let ratios = plan.cells.iter().map(|cell| {
        let (vcpus, pcpus) = (vcpus(cell), cell.config.machine.topology.pcpus());
        f64::from(vcpus) / f64::from(pcpus)
    });
    if let Some(range) = range(ratios) {
        lines.extend(wrapped(
            "overcommit",
            &format!("{range} vCPUs of guests with work for each pCPU"),
        ));
    }
    lines
}

/// Describes the load of the simulated host in `results` of `plan`. Returns `None` for a real host, which has no books.
pub fn load(plan: &Plan, results: &Results) -> Option<String> {
    let shares = |cell: &Cell, vm: &Vm| {
        let is_it =
            |case: &str, variant: &str, name: &str| (case, variant, name) == (&cell.case, &cell.variant, &vm.name);
        let measured = results.cases.iter().find(|row| is_it(&row.case, &row.variant, &row.vm));
        let measured = measured.map(|row| &row.lost_time);
        let other = || {
            results
                .background
                .iter()
                .find(|row| is_it(&row.case, &row.variant, &row.vm))
        };
        let shares = measured.or_else(|| other().map(|row| &row.lost_time))?;
        let without = ["idle", "off", "halted_for_lock"].map(|cause| shares.get(cause).copied().unwrap_or(0.0));
        (!shares.is_empty()).then(|| 1.0 - without.iter().sum::<f64>())
    };
    let loads = plan.cells.iter().filter_map(|cell| {
        let vms = cell.config.vms.iter().filter(|vm| vm.inside.is_none());
        let loads = vms.map(|vm| shares(cell, vm).map(|share| share * f64::from(vm.vcpus)));
        let load: f64 = loads.collect::<Option<Vec<f64>>>()?.iter().sum();
        Some(load / f64::from(cell.config.machine.topology.pcpus()))
    });
    let range = range(loads)?;
    Some(format!(
        "{:INDENT$}{range} vCPUs that run or wait for each pCPU, on average",
        "load"
    ))
}

/// Returns "1.5", or "1 to 3" for several.
fn range(values: impl Iterator<Item = f64>) -> Option<String> {
    let (low, high) = values.fold(None, |range, value| match range {
        None => Some((value, value)),
        Some((low, high)) => Some((f64::min(low, value), f64::max(high, value))),
    })?;
    let shown = |value: f64| {
        format!("{value:.2}")
            .trim_end_matches('0')
            .trim_end_matches('.')
            .to_owned()
    };
    let (low, high) = (shown(low), shown(high));
    Some(if low == high { low } else { format!("{low} to {high}") })
}

/// Returns the vCPUs of the guests of the machine's own host that do some work.
fn vcpus(cell: &Cell) -> u32 {
    let work = |vm: &&Vm| vm.inside.is_none() && !vm.bare_metal && !matches!(vm.boot.workload, Workload::Idle);
    cell.config.vms.iter().filter(work).map(|vm| vm.vcpus).sum()
}

fn machine(machine: &Profile) -> String {
    let topology = &machine.topology;
    let size = format!(
        "{}: {} x {} x {}, {}",
        machine.name,
        counted(topology.sockets, "socket"),
        counted(topology.cores, "core"),
        counted(topology.threads, "thread"),
        counted(topology.pcpus(), "pCPU"),
    );
    let numbers = |indexes: std::ops::Range<u32>| {
        let mut numbers: Vec<u32> = indexes.map(|index| machine.numbering.number(topology, index)).collect();
        numbers.sort_unstable();
        listed(&numbers)
    };
    let siblings = match topology.threads {
        1 => String::new(),
        threads => format!("{} are siblings, ", numbers(0..threads)),
    };
    let socket = numbers(0..topology.cores * topology.threads);
    let is_plain = topology.threads == 1 && machine.numbering != Numbering::SocketsAlternate;
    match (topology.sockets, is_plain) {
        (1, true) => size,
        _ => format!("{size}; {siblings}the first socket is {socket}"),
    }
}

/// Most sets of pCPUs that are described.
const PINNED_MAX: usize = 4;

/// Describes where guests are pinned: what their pCPUs' numbers mean on this machine. `None` if none is.
fn pinned(plan: &Plan) -> Option<String> {
    let mut found: Vec<String> = Vec::new();
    for cell in &plan.cells {
        let (topology, numbering) = (&cell.config.machine.topology, cell.config.machine.numbering);
        for vm in cell.config.vms.iter().filter(|vm| vm.inside.is_none()) {
            let mut pcpus: Vec<u32> = vm.affinity.iter().flatten().copied().collect();
            pcpus.sort_unstable();
            pcpus.dedup();
            if pcpus.is_empty() || pcpus.len() == topology.pcpus() as usize {
                continue;
            }
            let distinct = |size: u32| {
                let mut parts: Vec<u32> = pcpus.iter().map(|pcpu| pcpu / size).collect();
                parts.dedup();
                parts.len()
            };
            let mut numbers: Vec<u32> = pcpus.iter().map(|index| numbering.number(topology, *index)).collect();
            numbers.sort_unstable();
            let cores = counted(distinct(topology.threads) as u32, "core");
            let sockets = counted(distinct(topology.threads * topology.cores) as u32, "socket");
            let text = format!("{} to {}, on {cores} of {sockets}", vm.name, listed(&numbers));
            if !found.contains(&text) {
                found.push(text);
            }
        }
    }
    let more = found.len().saturating_sub(PINNED_MAX);
    found.truncate(PINNED_MAX);
    if more > 0 {
        found.push(format!("and {more} more"));
    }
    (!found.is_empty()).then(|| found.join("; "))
}

/// Returns a number with its noun: "1 core", "2 cores".
fn counted(count: u32, one: &str) -> String {
    format!("{count} {one}{}", if count == 1 { "" } else { "s" })
}

/// Returns sorted numbers as Linux lists them: `0-15,32-47`.
fn listed(numbers: &[u32]) -> String {
    let runs = numbers.chunk_by(|one, next| one + 1 == *next);
    let shown = runs.map(|run| match run {
        [first, .., last] => format!("{first}-{last}"),
        _ => run.iter().map(u32::to_string).collect(),
    });
    shown.collect::<Vec<_>>().join(",")
}

/// A kernel, and the keys that differ from what its version implies, presets with their values.
type Kernel = (String, Vec<String>);

/// Describes the kernels that `of` finds in the cells of `plan`, each version once.
fn kernels(plan: &Plan, of: impl Fn(&Cell) -> Vec<Kernel>) -> String {
    let found: Vec<Kernel> = plan.cells.iter().flat_map(of).collect();
    let mut versions: Vec<&str> = Vec::new();
    for (version, _) in &found {
        if !versions.contains(&version.as_str()) {
            versions.push(version);
        }
    }
    let described = versions.into_iter().map(|version| {
        let of_it = || found.iter().filter(|(other, _)| other == version).map(|(_, keys)| keys);
        let mut keys: Vec<&str> = Vec::new();
        for key in of_it().flatten() {
            if !keys.contains(&key.as_str()) {
                keys.push(key);
            }
        }
        let is_always = |key: &&str| of_it().all(|keys| keys.iter().any(|other| other == key));
        let (always, sometimes): (Vec<&str>, Vec<&str>) = keys.into_iter().partition(is_always);
        let mut text = version.to_owned();
        if !always.is_empty() {
            text += &format!(", with another {}", always.join(", "));
        }
        if !sometimes.is_empty() {
            text += &format!(", in some cells another {}", sometimes.join(", "));
        }
        text
    });
    described.collect::<Vec<_>>().join("; ")
}

/// Returns the version of a cell's host and the keys that differ from it. What follows from another scheduler is one
/// difference.
fn host(cell: &Cell) -> Kernel {
    let host = &cell.config.host;
    let mut stock = HostConfig::of(host.kernel);
    let mut keys = Vec::new();
    // These two are named after kernels: which one belongs to what is mixed.
    let preset = |name: &str| match cell.parameters.get(&format!("host.{name}")).and_then(Value::as_str) {
        Some(value) => format!("{name} ({value})"),
        None => name.to_owned(),
    };
    if stock.sched.kind != host.sched.kind {
        keys.push(preset("scheduler"));
        stock.sched = SchedConfig {
            preempt: stock.sched.preempt,
            ..SchedConfig::of(host.sched.kind)
        };
    }
    if stock.pause != host.pause {
        keys.push(preset("pause_exit"));
        stock.pause = host.pause;
    }
    for key in KEYS.iter().filter(|key| key.form_of.is_empty()) {
        let (Target::Host(target), Some(name)) = (&key.target, key.path.strip_prefix("host.")) else {
            continue;
        };
        let shown = target(&mut stock).map(|slot| json(slot.show()));
        if shown.as_ref() != cell.parameters.get(key.path) && name != "kernel" {
            keys.push(name.to_owned());
        }
    }
    (host.kernel.name().to_owned(), keys)
}

/// Returns the version of a guest and the keys that differ from it.
fn guest(cell: &Cell, vm: &Vm) -> Kernel {
    let parameter = |name: &str| of_guest(&cell.parameters, &vm.name, name);
    let version = parameter("kernel").and_then(Value::as_str).and_then(Linux::by_name);
    let version = version.unwrap_or(cell.config.host.kernel);
    let mut stock = DraftVm::new("", cell.config.host.kernel);
    stock.set_kernel(version);
    let mut keys = Vec::new();
    for key in KEYS.iter() {
        let (Target::Vm(target), Some(name)) = (&key.target, key.path.strip_prefix("vm.*.")) else {
            continue;
        };
        if IMPLIED.contains(&name) {
            let shown = target(&mut stock).map(|slot| json(slot.show()));
            if shown.as_ref() != parameter(name) {
                keys.push(name.to_owned());
            }
        }
    }
    (version.name().to_owned(), keys)
}

/// Returns the value of a guest's key.
fn of_guest<'p>(parameters: &'p Parameters, vm: &str, name: &str) -> Option<&'p Value> {
    let own = parameters.get(&format!("vm.{vm}.{name}"));
    own.or_else(|| parameters.get(&format!("vm.*.{name}")))
}

/// Returns a shown value as it is among the parameters.
fn json(shown: String) -> Value {
    serde_json::from_str(&shown).unwrap_or(Value::String(shown))
}

/// Returns `text` in lines, the first of which begins with `head`.
fn wrapped(head: &str, text: &str) -> Vec<String> {
    let mut lines = vec![format!("{head:INDENT$}")];
    for word in text.split(' ') {
        let last = lines.last_mut().expect("there is a line");
        if last.chars().count() + word.chars().count() > WIDTH {
            lines.push(format!("{:INDENT$}{word} ", ""));
        } else {
            *last += &format!("{word} ");
        }
    }
    lines.iter().map(|line| line.trim_end().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Experiment;
    use crate::options::Options;

    fn of(text: &str) -> String {
        let head = "name = \"x\"\ntitle = \"x\"\nmetric = \"elapsed\"\n";
        let experiment = Experiment::parse("x.toml", &format!("{head}{text}")).expect("an experiment");
        lines(&Plan::new(experiment, &Options::default()).expect("a plan")).join("\n")
    }

    const GUEST: &str = "[[vm]]\nname = \"build\"\nworkload = \"kernbench\"\nvcpus = 96\n";

    #[test]
    fn a_host_of_today_is_described_with_its_numbers() {
        assert_eq!(
            of(GUEST),
            "machine     xeon-2x16: 2 sockets x 16 cores x 2 threads, 64 pCPUs; 0,32 are siblings, the first\n\
            \x20           socket is 0-15,32-47\n\
             host        linux-6.12\n\
             guests      linux-6.12\n\
             overcommit  1.5 vCPUs of guests with work for each pCPU"
        );
    }

    #[test]
    fn where_guests_are_pinned_is_said_in_cores() {
        let host = "[machine]\nprofile = \"generic-x86\"\nsockets = 1\ncores = 4\nthreads = 2\n";
        let cases = "[[cases]]\nname = \"one-core\"\nset = { \"vm.build.affinity\" = [[0], [1]] }\n\
            [[cases]]\nname = \"siblings\"\nset = { \"vm.build.affinity\" = [[0], [4]] }\n\
            [[cases]]\nname = \"free\"\n";
        let text = of(&format!("{host}{}{cases}", GUEST.replace("96", "2")));
        let expected = "pinned      build to 0-1, on 2 cores of 1 socket; build to 0,4, on 1 core of 1 socket\n";
        assert!(text.contains("0,4 are siblings") && text.contains(expected), "{text}");
    }

    #[test]
    fn a_mixture_of_versions_is_said() {
        let mixed = of(&format!(
            "{GUEST}lock = \"ticket\"\n[host]\nscheduler = \"cfs-3.3\"\nhz = 100\n"
        ));
        assert!(
            mixed.contains("host        linux-6.12, with another scheduler (cfs-3.3), hz"),
            "{mixed}"
        );
        assert!(mixed.contains("guests      linux-6.12, with another lock"), "{mixed}");
        let half = of(&format!(
            "{GUEST}[host]\nkernel = \"linux-3.3\"\npause_exit = \"linux-6.12\"\n"
        ));
        assert!(
            half.contains("host        linux-3.3, with another pause_exit (linux-6.12)\n"),
            "{half}"
        );
        let some = "[[variants]]\nname = \"a\"\n[[variants]]\nname = \"b\"\nset = { \"host.halt_poll\" = \"0 ns\" }\n";
        let some = of(&format!("{GUEST}{some}"));
        assert!(some.contains("linux-6.12, in some cells another halt_poll\n"), "{some}");
    }

    #[test]
    fn lines_fit_a_page() {
        let keys = "lock = \"ticket\"\nrwlocks = \"unqueued\"\nhz = 100\nowner_spinning = \"queued\"\npv_eoi = false\n\
            mmap_lock = \"sleeping\"\nttwu_queue = false\nwake_wide = false\nipi_shorthand = false\n";
        let text = of(&format!("{GUEST}{keys}"));
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        assert_eq!(listed(&[0, 1, 2, 5, 7, 8]), "0-2,5,7-8");
    }
}
