//! Search for keys by the words of operators: part of a path, a synonym, or a word of the documentation.

/// Words of the field, and parts of the paths of the keys that they mean. A word may have several parts, separated by
/// spaces.
const SYNONYMS: &[(&str, &[&str])] = &[
    (
        "affinity pin pinning vcpupin cpuset cpuset.cpus taskset isolcpus cputune",
        &[".affinity"],
    ),
    ("emulatorpin iothreadpin emulator", &[".vmm_period", "task.*.affinity"]),
    ("weight priority cpu.shares cpu_shares", &[".shares", ".cpu.weight"]),
    (
        "limit cap throttle throttled bandwidth cfs_quota_us cpu.cfs_quota_us",
        &[".quota", ".period", ".cpu.max"],
    ),
    (
        "cgroup cgroups slice group libvirt",
        &[
            "vm.*.cgroup",
            "vm.*.parent",
            ".shares",
            ".quota",
            ".cpu.max",
            ".cpu.weight",
            ".affinity",
            "machine.topology",
        ],
    ),
    (
        "steal st stolen",
        &["vm.*.steal_time", ".shares", ".quota", "vm.*.vcpus", ".affinity"],
    ),
    (
        "ready runnable contention waiting cpu-ready",
        &[".shares", ".quota", "vm.*.vcpus", ".affinity", "host.scheduler"],
    ),
    (
        "overcommit overcommitment oversubscription ratio",
        &["vm.*.vcpus", "machine.sockets", "machine.cores", "machine.threads"],
    ),
    (
        "numa node nodes numatune socket",
        &[
            "vm.*.numa",
            "machine.sockets",
            "machine.numbering",
            "machine.topology",
            ".affinity",
        ],
    ),
    (
        "smt hyperthreading hyper-threading ht siblings sibling lscpu",
        &["machine.threads", "machine.numbering", "machine.topology", "smt_"],
    ),
    (
        "cpu cpus cores pcpus pcpu",
        &[
            "machine.cpu",
            "machine.cores",
            "machine.sockets",
            "machine.threads",
            "vm.*.vcpus",
        ],
    ),
    (
        "kernel version release linux distribution uname",
        &["host.kernel", "vm.*.kernel", "host.scheduler", "host.pause_exit"],
    ),
    (
        "cfs eevdf scheduler sched slice",
        &["host.scheduler", "host.base_slice", "host.latency", "host.preempt"],
    ),
    ("preemption lazy", &["host.preempt"]),
    (
        "tick ticks timer jiffies nohz frequency",
        &["host.hz", "vm.*.hz", "host.tick_phase", "machine.frequency"],
    ),
    (
        "polling poll halt",
        &["host.halt_poll", "vm.*.idle", "vm.*.poll_control"],
    ),
    (
        "ple pause_loop spin spinning pause",
        &[
            "machine.ple",
            "machine.pause_filter",
            "host.pause_exit",
            "host.pause_window",
        ],
    ),
    (
        "apic interrupts posted",
        &["host.avic", "host.x2avic", "host.apicv", "host.ipiv", "apic_inhibits"],
    ),
    ("ipi ipis", &["vm.*.pv_send_ipi", "host.ipiv", "host.avic", "vm.*.ipi."]),
    ("tlb shootdown invlpg", &["vm.*.pv_tlb_flush", "vm.*.mmap_lock"]),
    (
        "spinlock spinlocks mutex qspinlock pvspin",
        &["vm.*.lock", "vm.*.pv_unhalt", "vm.*.nopvspin", "vm.*.owner_spinning"],
    ),
    ("migration migrate evacuate downtime", &["host.migration."]),
    ("memory ram ballooning hugepages", &["vm.*.fresh_memory", "vm.*.numa"]),
    (
        "database postgres postgresql mysql oltp",
        &["vm.*.workload", "vm.*.pgbench."],
    ),
    ("build builder compile ci", &["vm.*.workload", "vm.*.kernbench."]),
    (
        "noise neighbour neighbor",
        &["host.noise", "vm.*.workload", "vm.*.hog."],
    ),
    (
        "start boot begin end stop",
        &["vm.*.from", "vm.*.until", "vm.*.workload"],
    ),
    ("nested nesting", &["vm.*.inside"]),
    ("nice renice", &[".nice"]),
];

/// Returns whether `key`, or a cost of this path, is one that a synonym `word` means.
fn is_meant(word: &str, path: &str) -> bool {
    let has = |words: &str| words.split(' ').any(|known| known == word);
    let rows = SYNONYMS.iter().filter(|(words, _)| has(words));
    rows.flat_map(|(_, parts)| *parts)
        .any(|part| match part.strip_prefix('.') {
            // The last components of a path.
            Some(last) if !part.ends_with('.') => path.ends_with(part) && path.len() > last.len(),
            _ => path.contains(part),
        })
}

/// How well something fits a search; the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fit {
    /// The path contains the words.
    Path,
    /// A synonym means it.
    Meaning,
    /// The documentation contains the words.
    Documentation,
}

/// Returns how `path` with its documentation fits `words`, if it does. Upper and lower case are the same.
pub fn fit(words: &str, path: &str, documentation: &str) -> Option<Fit> {
    let words = words.trim().to_lowercase();
    let each = || words.split_whitespace();
    if path.to_lowercase().contains(&words) {
        Some(Fit::Path)
    } else if is_meant(&words, path) || (each().count() > 1 && each().all(|word| is_meant(word, path))) {
        Some(Fit::Meaning)
    } else if words.chars().count() > 1 && each().all(|word| documentation.to_lowercase().contains(word)) {
        Some(Fit::Documentation)
    } else {
        None
    }
}

/// Returns those of the paths `known` that an unknown `path` may mean by its last component, a word of operators: at
/// most three, of the same section.
pub(super) fn meant<'k>(path: &str, known: impl Iterator<Item = &'k str> + Clone) -> Vec<&'k str> {
    let (section, word) = path.rsplit_once('.').unwrap_or(("", path));
    // `cpu.shares` is a word of two components.
    let last = path.rsplit('.').take(2).collect::<Vec<_>>();
    let pair = last.iter().rev().copied().collect::<Vec<_>>().join(".");
    let section = section.split('.').next().unwrap_or_default();
    let of_section = |path: &&str| section.is_empty() || path.split('.').next() == Some(section);
    let by = |word: &str| {
        known
            .clone()
            .filter(of_section)
            .filter(|path| is_meant(word, path))
            .take(3)
            .collect::<Vec<_>>()
    };
    match by(&pair.to_lowercase()) {
        found if !found.is_empty() => found,
        _ => by(&word.to_lowercase()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extensions::Extensions;
    use crate::keys::{KEYS, search};

    fn meant(path: &str) -> Vec<&'static str> {
        super::meant(path, KEYS.iter().map(|key| key.path))
    }

    #[test]
    fn every_synonym_means_some_key_and_every_part_exists() {
        for (words, parts) in SYNONYMS {
            for part in *parts {
                let known = KEYS.iter().any(|key| key.path.contains(part));
                assert!(known || *part == "smt_", "{part}");
            }
            for word in words.split(' ') {
                assert!(!search(word, Extensions::shipped()).is_empty(), "{word}");
            }
        }
    }

    #[test]
    fn words_of_operators_find_their_keys() {
        for (words, first) in [
            ("vcpupin", "vm.*.affinity"),
            ("cpu.weight", "vm.*.cpu.weight"),
            ("cpu.max", "vm.*.cpu.max"),
            ("overcommit", "vm.*.vcpus"),
            ("Kernel Version", "host.kernel"),
            ("hyperthreading", "machine.threads"),
            ("libvirt", "vm.*.cgroup"),
            ("steal", "vm.*.steal_time"),
        ] {
            let found: Vec<&str> = search(words, Extensions::shipped())
                .iter()
                .map(|key| key.path)
                .collect();
            assert!(found.contains(&first), "{words}: {found:?}");
        }
    }

    #[test]
    fn unknown_keys_are_understood_by_their_meaning() {
        for (path, expected) in [
            ("vm.*.pin", "vm.*.affinity"),
            ("vm.*.cpuset", "vm.*.affinity"),
            ("vm.*.weight", "vm.*.shares"),
            ("group.*.weight", "group.*.shares"),
            ("host.version", "host.kernel"),
            ("machine.smt", "machine.threads"),
        ] {
            let found = meant(path);
            assert!(found.contains(&expected), "{path}: {found:?}");
            let section = path.split('.').next();
            assert!(
                found.iter().all(|path| path.split('.').next() == section),
                "{path}: {found:?}"
            );
        }
        assert!(meant("vm.*.xyzzy").is_empty());
    }
}
