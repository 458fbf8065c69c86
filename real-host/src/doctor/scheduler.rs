//! Checks of the host's scheduler and its settings.

use super::check::Check;
use super::files::Files;

/// Returns the major and minor number of a kernel's version.
pub fn kernel_version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release
        .split(|char: char| !char.is_ascii_digit())
        .map(|part| part.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

/// Adds all checks of the scheduler.
pub fn examine(files: &Files, checks: &mut Vec<Check>) {
    let release = files.line("/proc/sys/kernel/osrelease");
    let version = release.as_deref().and_then(kernel_version);
    checks.push(scheduler(release, version));
    checks.push(slice(files));
    checks.push(features(files));
    checks.push(tick(files));
    checks.push(preemption(files));
    checks.push(groups(files));
    checks.push(autogroup(files));
}

fn scheduler(release: Option<String>, version: Option<(u32, u32)>) -> Check {
    let name = "scheduler";
    let Some((release, version)) = release.zip(version) else {
        return Check::unknown("scheduler", name, "the kernel's version is not known")
            .means("it is not known whether directed yield has an effect");
    };
    match version {
        (0..=1, _) | (2, 0..=5) => {
            let found = format!("Linux {release}: a version without directed yield");
            Check::lacking("scheduler", name, found)
                .means("a vCPU that spins behind a preempted vCPU gets no help")
                .change("Linux 6.14 or later, or the newest 6.12")
        }
        (2..=5, _) | (6, 0..=5) => Check::good("scheduler", name, format!("CFS (Linux {release})"))
            .means("slices end on ticks; a directed yield is a hint, which fairness limits"),
        (6, 6..=11) => Check::lacking("scheduler", name, format!("EEVDF (Linux {release})"))
            .means("directed yield has no effect (6.6 to 6.11): a vCPU that spins behind a preempted vCPU gets no help")
            .change("Linux 6.14 or later, or the newest 6.12"),
        (6, 12..=13) => Check::unknown("scheduler", name, format!("EEVDF (Linux {release})"))
            .means("directed yield has no effect without the stable fix of December 2024")
            .change("the newest stable release of the series, or 6.14 and later"),
        _ => Check::good("scheduler", name, format!("EEVDF (Linux {release})")),
    }
}

/// How to make the settings of the scheduler readable.
const DEBUGFS: &str = "mount -t debugfs none /sys/kernel/debug, and run the doctor as root";

/// Files that hold the length of a slice in different kernel versions: name, path.
const SLICES: [(&str, &str); 6] = [
    ("base_slice", "/sys/kernel/debug/sched/base_slice_ns"),
    ("latency", "/sys/kernel/debug/sched/latency_ns"),
    ("min_granularity", "/sys/kernel/debug/sched/min_granularity_ns"),
    ("wakeup_granularity", "/sys/kernel/debug/sched/wakeup_granularity_ns"),
    ("latency", "/proc/sys/kernel/sched_latency_ns"),
    ("min_granularity", "/proc/sys/kernel/sched_min_granularity_ns"),
];

fn slice(files: &Files) -> Check {
    let told: Vec<String> = SLICES
        .iter()
        .filter_map(|(name, path)| Some(format!("{name} {} ns", files.number(path)?)))
        .collect();
    if told.is_empty() {
        return Check::unknown("scheduler", "slices", "not reported")
            .means("it is not known how long a preempted vCPU waits; `holdfast calibrate` measures it")
            .change(DEBUGFS);
    }
    Check::note("scheduler", "slices", told.join(", "))
        .means("a preempted vCPU waits about this long for each thread ahead of it")
}

fn features(files: &Files) -> Check {
    let paths = ["/sys/kernel/debug/sched/features", "/sys/kernel/debug/sched_features"];
    match paths.iter().find_map(|path| files.text(path)) {
        Some(text) => {
            let off: Vec<&str> = text
                .split_ascii_whitespace()
                .filter(|feature| feature.starts_with("NO_"))
                .take(32)
                .collect();
            Check::note("scheduler", "features", format!("off: {}", off.join(" ")))
        }
        None => Check::unknown("scheduler", "features", "not reported")
            .means("it is not known which rules of the scheduler are off, such as wakeup preemption")
            .change(DEBUGFS),
    }
}

fn tick(files: &Files) -> Check {
    let release = files.text("/proc/sys/kernel/osrelease").unwrap_or_default();
    let config = files
        .text(&format!("/boot/config-{release}"))
        .or_else(|| files.text("/proc/config"));
    let hz = config.as_deref().and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("CONFIG_HZ="))?;
        line.trim().parse::<u32>().ok()
    });
    match hz {
        Some(hz @ 1..) => Check::note("scheduler", "tick", format!("{hz} Hz"))
            .means("slices end on ticks: a slice lasts up to one tick longer than its setting"),
        _ => Check::unknown("scheduler", "tick", "no readable kernel configuration")
            .means("`holdfast calibrate` derives the tick from the clock instead"),
    }
}

fn preemption(files: &Files) -> Check {
    match files.line("/sys/kernel/debug/sched/preempt") {
        Some(found) if found.contains("(lazy)") => Check::lacking("scheduler", "preemption", found)
            .means(
                "a halted vCPU that an interrupt wakes on a busy CPU waits for the running thread's next exit or tick: \
                 50 times as long on 6.18, 8 times on 7.3 (docs/findings/lazy-preemption.md); halt polling hides it",
            )
            .change("preempt=full on the kernel's command line, or echo full > /sys/kernel/debug/sched/preempt"),
        Some(found) => Check::note("scheduler", "preemption", found),
        None => Check::unknown("scheduler", "preemption", "not reported")
            .means("it is not known where a thread in the kernel can be preempted")
            .change(DEBUGFS),
    }
}

fn groups(files: &Files) -> Check {
    let unified = files.text("/sys/fs/cgroup/cgroup.controllers");
    let has_cpu = |text: &str| text.split_ascii_whitespace().any(|name| name == "cpu");
    if unified.as_deref().is_some_and(has_cpu) {
        return Check::good("scheduler", "cpu controller", "cgroup v2");
    }
    if files.exists("/sys/fs/cgroup/cpu/cpu.shares") || files.exists("/sys/fs/cgroup/cpu,cpuacct/cpu.shares") {
        return Check::good("scheduler", "cpu controller", "cgroup v1");
    }
    Check::note("scheduler", "cpu controller", "none")
        .means("guests cannot have their own shares or quotas")
        .change("mount the cpu controller, or switch it on in cgroup.subtree_control")
}

fn autogroup(files: &Files) -> Check {
    match files.switch("/proc/sys/kernel/sched_autogroup_enabled") {
        Some(true) => Check::note("scheduler", "autogroup", "on")
            .means("CPU time is shared among terminal sessions first: two guests started from one terminal compete differently from two services")
            .change("echo 0 > /proc/sys/kernel/sched_autogroup_enabled, while measuring"),
        Some(false) => Check::good("scheduler", "autogroup", "off"),
        None => Check::good("scheduler", "autogroup", "not in this kernel"),
    }
}
