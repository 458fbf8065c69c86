//! The machine beneath: CPUs, clocks, idle states.

use super::check::{Check, Verdict};
use super::files::Files;
use super::kvm;

/// All of it.
pub fn examine(files: &Files, checks: &mut Vec<Check>) {
    let model = kvm::field(files, "model name").unwrap_or_else(|| "unnamed".to_owned());
    checks.push(Check::new("machine", "CPU", model, Verdict::Note));
    checks.push(cpus(files));
    checks.push(threads(files));
    checks.push(clock(files));
    checks.push(idle(files));
}

/// How many CPUs a list such as `0-3,8` has; `None` if it is none.
pub fn count(list: &str) -> Option<u64> {
    let mut count = 0u64;
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u64, u64) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        count = count.checked_add(last.checked_sub(first)?.checked_add(1)?)?;
    }
    Some(count)
}

fn cpus(files: &Files) -> Check {
    let online = files.shown("/sys/devices/system/cpu/online");
    match online.as_deref().and_then(count) {
        Some(1) => Check::new("machine", "CPUs online", "1", Verdict::Lacking)
            .means("nothing can run beside anything else: contention between CPUs cannot be seen here"),
        Some(count) => Check::new("machine", "CPUs online", count.to_string(), Verdict::Good),
        None => Check::new(
            "machine",
            "CPUs online",
            online.unwrap_or_else(|| "not told".to_owned()),
            Verdict::Unknown,
        )
        .means("how many vCPUs share a CPU is not known"),
    }
}

fn threads(files: &Files) -> Check {
    match files.switch("/sys/devices/system/cpu/smt/active") {
        Some(true) => Check::new("machine", "hardware threads", "several for each core", Verdict::Note)
            .means("two CPUs may be one core: a spinner slows its neighbour down"),
        Some(false) => Check::new("machine", "hardware threads", "one for each core", Verdict::Good),
        None => Check::new("machine", "hardware threads", "not told", Verdict::Unknown)
            .means("two CPUs may be one core: a spinner would slow its neighbour down"),
    }
}

fn clock(files: &Files) -> Check {
    match files.shown("/sys/devices/system/clocksource/clocksource0/current_clocksource") {
        Some(name) if name == "tsc" => Check::new("machine", "clock", "tsc", Verdict::Good),
        Some(name) if name == "kvm-clock" => Check::new("machine", "clock", name, Verdict::Good),
        Some(name) => Check::new("machine", "clock", name, Verdict::Lacking)
            .means("reading the time is slow or an exit: measurements disturb what they measure")
            .change("clocksource=tsc on the kernel's command line, where the counter is stable"),
        None => Check::new("machine", "clock", "not told", Verdict::Unknown)
            .means("reading the time may be slow or an exit, and disturb what is measured"),
    }
}

fn idle(files: &Files) -> Check {
    match files.shown("/sys/devices/system/cpu/cpuidle/current_driver") {
        Some(name) => Check::new("machine", "idle driver", name, Verdict::Note)
            .means("how deep an idle CPU sleeps is part of every wake-up; `holdfast calibrate` measures it"),
        None => Check::new("machine", "idle driver", "not told", Verdict::Unknown)
            .means("how deep an idle CPU sleeps is not known; `holdfast calibrate` measures what a wake-up costs"),
    }
}
