//! The host's scheduler: which one, and how it is set.

use super::check::{Check, Verdict};
use super::files::Files;

/// Major and minor number of the kernel's version.
pub fn kernel_version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release
        .split(|char: char| !char.is_ascii_digit())
        .map(|part| part.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

/// All of it.
pub fn examine(files: &Files, checks: &mut Vec<Check>) {
    let release = files.shown("/proc/sys/kernel/osrelease");
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
        return Check::new("scheduler", name, "the kernel's version is not told", Verdict::Unknown)
            .means("whether directed yield has any effect is not known");
    };
    match version {
        (0..=1, _) | (2, 0..=5) => {
            let found = format!("Linux {release}: a version without directed yield");
            Check::new("scheduler", name, found, Verdict::Lacking)
                .means("who spins behind a preempted vCPU is not helped")
                .change("Linux 6.14 or later, or the newest 6.12")
        }
        (2..=5, _) | (6, 0..=5) => Check::new("scheduler", name, format!("CFS (Linux {release})"), Verdict::Good)
            .means("slices end on ticks; a directed yield is a hint that fairness bounds"),
        (6, 6..=11) => Check::new("scheduler", name, format!("EEVDF (Linux {release})"), Verdict::Lacking)
            .means("directed yield has no effect (6.6 to 6.11): who spins behind a preempted vCPU is not helped")
            .change("Linux 6.14 or later, or the newest 6.12"),
        (6, 12..=13) => Check::new("scheduler", name, format!("EEVDF (Linux {release})"), Verdict::Unknown)
            .means("directed yield has no effect unless the stable fix of December 2024 is in")
            .change("the newest stable release of the series, or 6.14 and later"),
        _ => Check::new("scheduler", name, format!("EEVDF (Linux {release})"), Verdict::Good),
    }
}

/// Where the scheduler tells how it is set.
const DEBUGFS: &str = "mount -t debugfs none /sys/kernel/debug, and look as root";

/// Files of the slice, by era: name, path.
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
        return Check::new("scheduler", "slices", "not told", Verdict::Unknown)
            .means("how long a preempted vCPU waits is not known; `holdfast calibrate` measures it")
            .change(DEBUGFS);
    }
    Check::new("scheduler", "slices", told.join(", "), Verdict::Note)
        .means("a vCPU that is preempted waits for about as long for each thread before it")
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
            Check::new(
                "scheduler",
                "features",
                format!("off: {}", off.join(" ")),
                Verdict::Note,
            )
        }
        None => Check::new("scheduler", "features", "not told", Verdict::Unknown)
            .means(
                "which rules of the scheduler are switched off, such as those for wake-ups that preempt, is not known",
            )
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
        Some(hz @ 1..) => Check::new("scheduler", "tick", format!("{hz} Hz"), Verdict::Note)
            .means("slices end on ticks: they are longer by up to one tick than they are set"),
        _ => Check::new(
            "scheduler",
            "tick",
            "no readable kernel configuration",
            Verdict::Unknown,
        )
        .means("`holdfast calibrate` asks the clock instead"),
    }
}

fn preemption(files: &Files) -> Check {
    match files.shown("/sys/kernel/debug/sched/preempt") {
        Some(found) => Check::new("scheduler", "preemption", found, Verdict::Note),
        None => Check::new("scheduler", "preemption", "not told", Verdict::Unknown)
            .means("where a thread that is in the kernel can be preempted is not known")
            .change(DEBUGFS),
    }
}

fn groups(files: &Files) -> Check {
    let unified = files.text("/sys/fs/cgroup/cgroup.controllers");
    let has_cpu = |text: &str| text.split_ascii_whitespace().any(|name| name == "cpu");
    if unified.as_deref().is_some_and(has_cpu) {
        return Check::new("scheduler", "cpu controller", "cgroup v2", Verdict::Good);
    }
    if files.exists("/sys/fs/cgroup/cpu/cpu.shares") || files.exists("/sys/fs/cgroup/cpu,cpuacct/cpu.shares") {
        return Check::new("scheduler", "cpu controller", "cgroup v1", Verdict::Good);
    }
    Check::new("scheduler", "cpu controller", "none", Verdict::Note)
        .means("guests cannot have shares or quotas of their own")
        .change("mount the cpu controller, or switch it on in cgroup.subtree_control")
}

fn autogroup(files: &Files) -> Check {
    match files.switch("/proc/sys/kernel/sched_autogroup_enabled") {
        Some(true) => Check::new("scheduler", "autogroup", "on", Verdict::Note)
            .means("threads share CPU time by terminal session first: two guests started from one terminal compete differently than two services do")
            .change("echo 0 > /proc/sys/kernel/sched_autogroup_enabled, while measuring"),
        Some(false) => Check::new("scheduler", "autogroup", "off", Verdict::Good),
        None => Check::new("scheduler", "autogroup", "not there", Verdict::Good),
    }
}
