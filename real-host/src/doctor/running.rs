//! Guests that run on the examined machine: their vCPU threads, where these may run, what limits them, and how long
//! they wait.

use super::check::{Check, Verdict};
use super::files::Files;
use super::machine::count;
use super::processes::{Guest, guests, limit};

/// Guests that a finding names.
const NAMES_MAX: usize = 4;
/// Share of a vCPU's runnable time that it waits for a CPU, from which the finding is a lack. VMware's "CPU ready" is
/// bad above 300 ms of 20 s for each vCPU, that is 1.5 % (from memory). Single bursts reach that; the mean does not.
const READY_MAX: f64 = 0.05;

/// The area of these findings.
const AREA: &str = "running guests";

/// Adds all checks of running guests, and of this machine as a guest.
pub fn examine(files: &Files, checks: &mut Vec<Check>) {
    let guests = guests(files);
    checks.push(overcommit(files, &guests));
    if !guests.is_empty() {
        checks.push(pinning(&guests));
        checks.push(quotas(files, &guests));
        checks.push(ready(&guests));
    }
    checks.push(pressure(files));
    checks.push(balancing(files));
    checks.extend(as_guest(files));
}

fn listed(names: &[String]) -> String {
    match names.len() {
        more if more > NAMES_MAX => format!("{} and {} more", names[..NAMES_MAX].join("; "), more - NAMES_MAX),
        _ => names.join("; "),
    }
}

fn overcommit(files: &Files, guests: &[Guest]) -> Check {
    let name = "guests and vCPUs";
    if guests.is_empty() {
        return Check::new(AREA, name, "none is seen", Verdict::Note)
            .means("threads of other users may be hidden: run the doctor as root to see their guests");
    }
    let vcpus: usize = guests.iter().map(|guest| guest.vcpus.len()).sum();
    let online = files.line("/sys/devices/system/cpu/online").as_deref().and_then(count);
    let of = |cpus: u64| format!(" on {cpus} CPUs: {:.2} for each", vcpus as f64 / cpus as f64);
    let cpus = online.filter(|cpus| *cpus > 0);
    let count = guests.len();
    let plural = if count == 1 { "" } else { "s" };
    let found = format!(
        "{count} guest{plural}, {vcpus} vCPUs{}",
        cpus.map_or_else(String::new, of)
    );
    let check = Check::new(AREA, name, found, Verdict::Note);
    match cpus {
        Some(cpus) if vcpus as u64 > cpus => check.means(
            "more vCPUs than CPUs: a vCPU that waits can hold a lock, for which others spin or halt (holdfast keys overcommit)",
        ),
        _ => check,
    }
}

fn pinning(guests: &[Guest]) -> Check {
    let name = "pinning";
    let mut alone: Vec<String> = Vec::new();
    let mut crowded: Vec<String> = Vec::new();
    for guest in guests {
        let sets = || guest.vcpus.iter().filter_map(|vcpu| vcpu.allowed.as_deref());
        let single: Vec<&str> = sets().filter(|list| count(list) == Some(1)).collect();
        let twice = single
            .iter()
            .enumerate()
            .find(|(at, list)| single[..*at].contains(list));
        if let Some((_, list)) = twice {
            crowded.push(format!("{}: several vCPUs on CPU {list} only", guest.name));
        }
        let first = sets().next().unwrap_or_default();
        let cpus = count(first).unwrap_or(0);
        if sets().all(|list| list == first) && cpus > 0 && (guest.vcpus.len() as u64) > cpus {
            crowded.push(format!(
                "{}: {} vCPUs on {cpus} CPUs ({first})",
                guest.name,
                guest.vcpus.len()
            ));
        } else if !single.is_empty() {
            alone.push(format!(
                "{}: {} vCPUs on a CPU of their own choice",
                guest.name,
                single.len()
            ));
        }
    }
    match (crowded.is_empty(), alone.is_empty()) {
        (false, _) => Check::new(AREA, name, listed(&crowded), Verdict::Lacking)
            .means("vCPUs of one guest wait for each other: the holder of a lock stands behind those that spin for it")
            .change(
                "pin to as many CPUs as there are vCPUs, or to a set that all share, and keep I/O threads elsewhere",
            ),
        (true, false) => Check::new(AREA, name, listed(&alone), Verdict::Note)
            .means("a pinned vCPU waits for its own CPU although others are idle"),
        (true, true) => Check::new(AREA, name, "vCPUs float", Verdict::Note),
    }
}

fn quotas(files: &Files, guests: &[Guest]) -> Check {
    let name = "quotas";
    let limits = guests.iter().filter_map(|guest| {
        let (max, throttled) = guest
            .vcpus
            .iter()
            .find_map(|vcpu| limit(files, vcpu.cgroup.as_deref()?))?;
        Some((
            format!("{}: cpu.max {max}, throttled {throttled} times", guest.name),
            throttled,
        ))
    });
    let limits: Vec<(String, u64)> = limits.collect();
    let names: Vec<String> = limits.iter().map(|(name, _)| name.clone()).collect();
    if names.is_empty() {
        return Check::new(AREA, name, "none", Verdict::Good);
    }
    if limits.iter().all(|(_, throttled)| *throttled == 0) {
        return Check::new(AREA, name, listed(&names), Verdict::Note);
    }
    Check::new(AREA, name, listed(&names), Verdict::Lacking)
        .means("a throttled vCPU can hold a lock to the end of the period, and its siblings spin for it")
        .change("a higher cpu.max, cpu.max.burst, or cpu.weight instead of a limit")
}

fn ready(guests: &[Guest]) -> Check {
    let name = "waiting for a CPU";
    let share = |guest: &Guest| {
        let ran: f64 = guest.vcpus.iter().map(|vcpu| vcpu.ran as f64).sum();
        let waited: f64 = guest.vcpus.iter().map(|vcpu| vcpu.waited as f64).sum();
        (ran + waited > 0.0).then(|| waited / (ran + waited))
    };
    let mut shares: Vec<(f64, &str)> = guests
        .iter()
        .filter_map(|guest| Some((share(guest)?, guest.name.as_str())))
        .collect();
    if shares.is_empty() {
        return Check::new(AREA, name, "not reported", Verdict::Unknown)
            .means("it is not known how long vCPUs wait: /proc/PID/task/TID/schedstat is missing");
    }
    shares.sort_by(|one, other| other.0.total_cmp(&one.0));
    let names = shares
        .iter()
        .map(|(share, name)| format!("{name} {:.1} %", share * 100.0));
    let found = format!("since their start: {}", listed(&names.collect::<Vec<_>>()));
    match shares.first() {
        Some((most, _)) if *most > READY_MAX => Check::new(AREA, name, found, Verdict::Lacking)
            .means("of their runnable time vCPUs waited so long: guests see it as steal")
            .change("fewer vCPUs or guests, other weights, or another host"),
        _ => Check::new(AREA, name, found, Verdict::Good),
    }
}

fn pressure(files: &Files) -> Check {
    let name = "CPU pressure";
    let text = files.text("/proc/pressure/cpu").unwrap_or_default();
    let some = text.lines().find(|line| line.starts_with("some"));
    let average = some.and_then(|line| {
        let value = line
            .split_ascii_whitespace()
            .find_map(|word| word.strip_prefix("avg60="));
        value?.parse::<f64>().ok().filter(|value| value.is_finite())
    });
    match average {
        None => Check::new(AREA, name, "not reported", Verdict::Unknown)
            .means("it is not known whether threads of this machine wait for CPUs (PSI, /proc/pressure/cpu)")
            .change("boot with psi=1"),
        Some(average) if average > 10.0 => Check::new(
            AREA,
            name,
            format!("{average:.1} % of the last minute"),
            Verdict::Lacking,
        )
        .means("for this share of the time some thread waited for a CPU")
        .change("see which guests wait, above"),
        Some(average) => Check::new(AREA, name, format!("{average:.1} % of the last minute"), Verdict::Good),
    }
}

fn balancing(files: &Files) -> Check {
    let name = "NUMA balancing";
    match files.number("/proc/sys/kernel/numa_balancing") {
        Some(0) => Check::new(AREA, name, "off", Verdict::Good),
        Some(_) => Check::new(AREA, name, "on", Verdict::Note)
            .means("memory is unmapped now and then to see who uses it: each such page of a guest is an exit")
            .change("echo 0 > /proc/sys/kernel/numa_balancing, if guests are pinned with their memory"),
        None => Check::new(AREA, name, "not in this kernel", Verdict::Good),
    }
}

/// Returns what this machine loses to its own host, if it is a guest.
fn as_guest(files: &Files) -> Option<Check> {
    let flags = super::kvm::field(files, "flags").unwrap_or_default();
    flags.split_ascii_whitespace().find(|flag| *flag == "hypervisor")?;
    let name = "this machine as a guest";
    let stat = files.text("/proc/stat").unwrap_or_default();
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "));
    let times: Vec<f64> = line
        .unwrap_or_default()
        .split_ascii_whitespace()
        .map(|number| number.parse().unwrap_or(0.0))
        .collect();
    let clocks = files
        .line("/sys/devices/system/clocksource/clocksource0/available_clocksource")
        .unwrap_or_default();
    let host = if clocks.split(' ').any(|clock| clock == "kvm-clock") {
        "KVM"
    } else {
        "another hypervisor, or KVM without its clock"
    };
    // user, nice, system, idle, iowait, irq, softirq, steal: proc(5). What follows is in user and nice already.
    let total: f64 = times.iter().take(8).sum();
    let steal = times.get(7).copied().filter(|_| total > 0.0).map(|steal| steal / total);
    Some(match steal {
        None => Check::new(
            AREA,
            name,
            format!("of {host}; steal is not reported"),
            Verdict::Unknown,
        )
        .means("it is not known how much time its host takes from it"),
        Some(0.0) => Check::new(AREA, name, format!("of {host}; no steal"), Verdict::Note)
            .means("either it has its CPUs alone, or it is offered no steal time"),
        Some(steal) if steal > 0.01 => Check::new(
            AREA,
            name,
            format!("of {host}; steal {:.1} % since its start", steal * 100.0),
            Verdict::Lacking,
        )
        .means("its host gives its CPUs to others for this share of the time; guests inside wait twice")
        .change("ask for fewer neighbors, or measure when they are quiet"),
        Some(steal) => Check::new(
            AREA,
            name,
            format!("of {host}; steal {:.2} % since its start", steal * 100.0),
            Verdict::Note,
        ),
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;

    fn root(written: &[(&str, &str)]) -> tempfile::TempDir {
        let root = crate::scratch();
        for (path, text) in written {
            let path = root.path().join(path.trim_start_matches('/'));
            if fs::create_dir_all(path.parent().unwrap_or(Path::new("/"))).is_ok() {
                let _ = fs::write(path, text);
            }
        }
        root
    }

    fn found(written: &[(&str, &str)]) -> Vec<Check> {
        let root = root(written);
        let mut checks = Vec::new();
        examine(&Files::new(root.path()), &mut checks);
        checks
    }

    fn check<'c>(checks: &'c [Check], name: &str) -> &'c Check {
        checks
            .iter()
            .find(|check| check.name == name)
            .unwrap_or_else(|| panic!("no {name}"))
    }

    /// Files of a guest of two vCPUs.
    fn two() -> Vec<(&'static str, &'static str)> {
        vec![
            ("/sys/devices/system/cpu/online", "0"),
            (
                "/proc/70/cmdline",
                "qemu-system-x86_64\0-name\0guest=db,debug-threads=on\0",
            ),
            ("/proc/70/task/70/comm", "qemu-system-x86"),
            ("/proc/70/task/71/comm", "CPU 0/KVM\n"),
            ("/proc/70/task/71/status", "Name:\tx\nCpus_allowed_list:\t0\n"),
            ("/proc/70/task/71/schedstat", "900 100 5\n"),
            ("/proc/70/task/71/cgroup", "0::/machine.slice/db/vcpu0\n"),
            ("/proc/70/task/72/comm", "CPU 1/KVM\n"),
            ("/proc/70/task/72/status", "Cpus_allowed_list:\t0\n"),
            ("/proc/70/task/72/schedstat", "800 200 5\n"),
            ("/sys/fs/cgroup/machine.slice/db/cpu.max", "150000 100000\n"),
            (
                "/sys/fs/cgroup/machine.slice/db/cpu.stat",
                "usage_usec 5\nnr_throttled 12\n",
            ),
            (
                "/proc/pressure/cpu",
                "some avg10=40.00 avg60=35.50 avg300=2.00 total=1\n",
            ),
            ("/proc/sys/kernel/numa_balancing", "1\n"),
        ]
    }

    #[test]
    fn a_running_guest_is_seen_with_what_limits_it() {
        let checks = found(&two());
        let of = |name: &str| (check(&checks, name).found.as_str(), check(&checks, name).verdict);
        assert_eq!(
            of("guests and vCPUs"),
            ("1 guest, 2 vCPUs on 1 CPUs: 2.00 for each", Verdict::Note)
        );
        assert_eq!(of("pinning").1, Verdict::Lacking);
        assert_eq!(
            of("quotas"),
            ("db: cpu.max 150000 100000, throttled 12 times", Verdict::Lacking)
        );
        assert_eq!(
            of("waiting for a CPU"),
            ("since their start: db 15.0 %", Verdict::Lacking)
        );
        assert_eq!(of("CPU pressure"), ("35.5 % of the last minute", Verdict::Lacking));
        assert_eq!(of("NUMA balancing").1, Verdict::Note);
    }

    #[test]
    fn a_guest_learns_what_its_host_takes() {
        let info = ("/proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu hypervisor\n");
        let stolen = found(&[info, ("/proc/stat", "cpu  80 0 10 0 0 0 0 10 5 0\n")]);
        let stolen = check(&stolen, "this machine as a guest");
        assert!(
            stolen.found.ends_with("steal 10.0 % since its start"),
            "{}",
            stolen.found
        );
        assert_eq!(stolen.verdict, Verdict::Lacking);
        let metal = found(&[("/proc/stat", "cpu  80 0 10 0 0 0 0 10 5 0\n")]);
        assert!(metal.iter().all(|check| check.name != "this machine as a guest"));
    }

    const PATHS: [&str; 14] = [
        "/proc/7/cmdline",
        "/proc/7/task/7/comm",
        "/proc/7/task/7/status",
        "/proc/7/task/7/schedstat",
        "/proc/7/task/7/cgroup",
        "/proc/7/task/8/comm",
        "/proc/7/task",
        "/sys/fs/cgroup/a/cpu.max",
        "/sys/fs/cgroup/a/cpu.stat",
        "/proc/pressure/cpu",
        "/proc/stat",
        "/proc/cpuinfo",
        "/sys/devices/system/cpu/online",
        "/proc/sys/kernel/numa_balancing",
    ];

    proptest! {
        #[test]
        fn no_files_make_it_fail(
            texts in prop::collection::vec(
                (0..PATHS.len(), "(CPU 0/KVM|vcpu1|0::/a/b|0::/../..|Cpus_allowed_list:|flags : hypervisor|cpu |some avg60=|\
                    nr_throttled |NaN|-|,|[0-9]{1,20}|max| |\n|\u{0}|é){0,12}"),
                0..14,
            ),
        ) {
            let files: Vec<(&str, &str)> = texts.iter().map(|(path, text)| (PATHS[*path], text.as_str())).collect();
            for check in found(&files) {
                prop_assert!(!check.found.is_empty() && check.found.lines().count() == 1, "{check:?}");
                // What is lacking or unknown says what that means.
                let says = matches!(check.verdict, Verdict::Good | Verdict::Note) || check.means.is_some();
                prop_assert!(says, "{check:?}");
            }
        }
    }
}
