//! Checks of what this host reports about its guests: KVM's counters, and the kernel's tracepoints.

use super::check::Check;
use super::files::Files;
use super::probe::Probe;
use super::scheduler::kernel_version;
use crate::tracing::events::{EVENTS, TRACEFS};

/// Adds both checks.
pub fn examine(files: &Files, probe: Option<&Probe>, checks: &mut Vec<Check>) {
    checks.push(counters(files, probe));
    checks.push(tracepoints(files, probe.is_some()));
}

/// The first version with KVM_CAP_BINARY_STATS_FD (Documentation/virt/kvm/api.rst, KVM_GET_STATS_FD).
const BINARY_STATISTICS_SINCE: (u32, u32) = (5, 14);

/// Consequence of missing counters.
const UNCOUNTED: &str = "results of `holdfast kvm run` lack KVM's counters of exits, halts and directed yields";

fn counters(files: &Files, probe: Option<&Probe>) -> Check {
    let name = "KVM's counters";
    match probe.and_then(|probe| probe.statistics) {
        Some(true) => {
            return Check::good("statistics", name, "available to the program that runs the guest");
        }
        Some(false) => {
            return Check::lacking("statistics", name, "not available to the program that runs the guest")
                .means(UNCOUNTED)
                .change("Linux 5.14 or later");
        }
        None => {}
    }
    let release = files.line("/proc/sys/kernel/osrelease");
    match release.as_deref().map(|release| (release, kernel_version(release))) {
        Some((release, Some(version))) if version >= BINARY_STATISTICS_SINCE => {
            Check::note("statistics", name, format!("Linux {release} offers them to programs"))
                .means("judged by the version only: no guest was run")
        }
        Some((release, Some(_))) => {
            let debugfs = if files.exists("/sys/kernel/debug/kvm") {
                "in debugfs only"
            } else {
                "none for programs"
            };
            Check::lacking("statistics", name, format!("Linux {release}: {debugfs}"))
                .means(UNCOUNTED)
                .change("Linux 5.14 or later")
        }
        _ => Check::unknown("statistics", name, "not reported").means(format!("if there are none, {UNCOUNTED}")),
    }
}

/// Consequence of missing tracepoints.
const UNTRACED: &str = "`holdfast kvm run --trace` cannot record scheduling, exits and kicks; everything else works";

/// Checks whether `--trace` can record. `here`: the files are this machine's own, so their permissions count.
fn tracepoints(files: &Files, here: bool) -> Check {
    let lacking = |found: String, change: &str| {
        Check::lacking("statistics", "tracepoints", found)
            .means(UNTRACED)
            .change(change)
    };
    let lockdown = files.line("/sys/kernel/security/lockdown");
    if lockdown.is_some_and(|modes| modes.contains("[confidentiality]")) {
        let found = "locked down: the kernel denies them to all users".to_owned();
        return lacking(
            found,
            "set lockdown=integrity or no lockdown on the kernel's command line",
        );
    }
    let at = |path: &str| format!("{TRACEFS}/{path}");
    let on = at("tracing_on");
    // Without permission to read the directory its files are invisible too, which is not the same as no mounted
    // tracefs.
    if !files.exists(&on) {
        let readable = std::fs::read_dir(files.path(TRACEFS));
        return match readable.map(|mut names| names.next().is_some()) {
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => denied(lacking),
            _ => lacking(
                "no tracefs is mounted".to_owned(),
                "mount -t tracefs tracefs /sys/kernel/tracing, as root",
            ),
        };
    }
    if here && !files.writable(&on) {
        return denied(lacking);
    }
    let missing: Vec<&str> = EVENTS
        .into_iter()
        .filter(|event| !files.exists(&at(&format!("events/{event}"))))
        .collect();
    match (missing.is_empty(), here) {
        (false, _) => lacking(
            format!("{} of {} missing: {}", missing.len(), EVENTS.len(), missing.join(", ")),
            "load the KVM modules; use a kernel with CONFIG_FTRACE",
        ),
        (true, true) => {
            let found = format!("all {}, and this user may record them", EVENTS.len());
            Check::good("statistics", "tracepoints", found)
        }
        (true, false) => Check::note("statistics", "tracepoints", format!("all {}", EVENTS.len()))
            .means("permissions cannot be checked in a copy; usually only root may record"),
    }
}

fn denied(lacking: impl Fn(String, &str) -> Check) -> Check {
    lacking(
        "present, but not for this user".to_owned(),
        "run as root; or mount -o remount,mode=770,gid=GROUP /sys/kernel/tracing with a group of yours",
    )
}
