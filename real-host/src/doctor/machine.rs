//! Checks of the machine itself: CPUs, clock, idle driver.

use super::check::Check;
use super::files::Files;
use super::kvm;

/// Adds all checks of the machine.
pub fn examine(files: &Files, checks: &mut Vec<Check>) {
    let model = kvm::field(files, "model name").unwrap_or_else(|| "unnamed".to_owned());
    checks.push(Check::note("machine", "CPU", model));
    checks.push(cpus(files));
    checks.push(threads(files));
    checks.push(clock(files));
    checks.push(idle(files));
}

/// Returns the number of CPUs in a list such as `0-3,8`, or `None` if the text is no such list.
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
    let online = files.line("/sys/devices/system/cpu/online");
    match online.as_deref().and_then(count) {
        Some(1) => Check::lacking("machine", "CPUs online", "1")
            .means("only one thread runs at a time: there is no contention between CPUs here"),
        Some(count) => Check::good("machine", "CPUs online", count.to_string()),
        None => Check::unknown(
            "machine",
            "CPUs online",
            online.unwrap_or_else(|| "not reported".to_owned()),
        )
        .means("it is not known how many vCPUs share a CPU"),
    }
}

fn threads(files: &Files) -> Check {
    match files.switch("/sys/devices/system/cpu/smt/active") {
        Some(true) => Check::note("machine", "hardware threads", "several for each core")
            .means("two CPUs may be one core: a spinning vCPU slows its sibling down"),
        Some(false) => Check::good("machine", "hardware threads", "one for each core"),
        None => Check::unknown("machine", "hardware threads", "not reported")
            .means("two CPUs may be one core: a spinning vCPU would slow its sibling down"),
    }
}

fn clock(files: &Files) -> Check {
    match files.line("/sys/devices/system/clocksource/clocksource0/current_clocksource") {
        Some(name) if name == "tsc" => Check::good("machine", "clock", "tsc"),
        Some(name) if name == "kvm-clock" => Check::good("machine", "clock", name),
        Some(name) => Check::lacking("machine", "clock", name)
            .means("reading the time is slow or causes an exit, which distorts measurements")
            .change("add clocksource=tsc to the kernel's command line if the counter is stable"),
        None => Check::unknown("machine", "clock", "not reported")
            .means("reading the time may be slow or cause an exit, which would distort measurements"),
    }
}

fn idle(files: &Files) -> Check {
    match files.line("/sys/devices/system/cpu/cpuidle/current_driver") {
        Some(name) => Check::note("machine", "idle driver", name)
            .means("the depth of idle states adds to every wakeup; `holdfast calibrate` measures it"),
        None => Check::unknown("machine", "idle driver", "not reported")
            .means("it is not known how deep an idle CPU sleeps; `holdfast calibrate` measures the cost of a wakeup"),
    }
}
