//! What this host tells of the guests that run on it: KVM's counters, and the kernel's tracepoints.

use super::check::{Check, Verdict};
use super::files::Files;
use super::probe::Probe;
use super::scheduler::kernel_version;
use crate::tracing::events::{EVENTS, TRACEFS};

/// Both.
pub fn examine(files: &Files, probe: Option<&Probe>, checks: &mut Vec<Check>) {
    checks.push(counters(files, probe));
    checks.push(tracepoints(files, probe.is_some()));
}

/// The first version with KVM_CAP_BINARY_STATS_FD (Documentation/virt/kvm/api.rst, KVM_GET_STATS_FD).
const BINARY_STATISTICS_SINCE: (u32, u32) = (5, 14);

/// What a lack of counters means.
const UNCOUNTED: &str =
    "results of `holdfast kvm run` have no counters of KVM: neither exits and halts nor directed yields";

fn counters(files: &Files, probe: Option<&Probe>) -> Check {
    let name = "KVM's counters";
    match probe.and_then(|probe| probe.statistics) {
        Some(true) => {
            return Check::new(
                "statistics",
                name,
                "told to the program that runs the guest",
                Verdict::Good,
            );
        }
        Some(false) => {
            return Check::new(
                "statistics",
                name,
                "not told to the program that runs the guest",
                Verdict::Lacking,
            )
            .means(UNCOUNTED)
            .change("Linux 5.14 or later");
        }
        None => {}
    }
    let release = files.shown("/proc/sys/kernel/osrelease");
    match release.as_deref().map(|release| (release, kernel_version(release))) {
        Some((release, Some(version))) if version >= BINARY_STATISTICS_SINCE => Check::new(
            "statistics",
            name,
            format!("Linux {release} has them for programs"),
            Verdict::Note,
        )
        .means("as far as its version tells: no guest was asked"),
        Some((release, Some(_))) => {
            let debugfs = if files.exists("/sys/kernel/debug/kvm") {
                "in debugfs only"
            } else {
                "none for programs"
            };
            Check::new(
                "statistics",
                name,
                format!("Linux {release}: {debugfs}"),
                Verdict::Lacking,
            )
            .means(UNCOUNTED)
            .change("Linux 5.14 or later")
        }
        _ => Check::new("statistics", name, "not told", Verdict::Unknown)
            .means(format!("where KVM has none, {UNCOUNTED}")),
    }
}

/// What a lack of tracepoints means.
const UNTRACED: &str = "`holdfast kvm run --trace` cannot record who has each CPU, exits and kicks; all else works";

/// Whether `--trace` can record; `here` if the files are this machine's own, whose permissions count.
fn tracepoints(files: &Files, here: bool) -> Check {
    let lacking = |found: String, change: &str| {
        Check::new("statistics", "tracepoints", found, Verdict::Lacking)
            .means(UNTRACED)
            .change(change)
    };
    let lockdown = files.shown("/sys/kernel/security/lockdown");
    if lockdown.is_some_and(|modes| modes.contains("[confidentiality]")) {
        let found = "locked down: the kernel keeps them from everybody".to_owned();
        return lacking(found, "lockdown=integrity on the kernel's command line, or none");
    }
    let at = |path: &str| format!("{TRACEFS}/{path}");
    let on = at("tracing_on");
    // Whoever may not look into the directory finds nothing there: that nothing is mounted is the other reason.
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
            "load the KVM modules; a kernel with CONFIG_FTRACE",
        ),
        (true, true) => {
            let found = format!("all {}, and this user may record them", EVENTS.len());
            Check::new("statistics", "tracepoints", found, Verdict::Good)
        }
        (true, false) => Check::new(
            "statistics",
            "tracepoints",
            format!("all {}", EVENTS.len()),
            Verdict::Note,
        )
        .means("who may record them is for that machine to say: root, as a rule"),
    }
}

fn denied(lacking: impl Fn(String, &str) -> Check) -> Check {
    lacking(
        "there, not for this user".to_owned(),
        "look as root; or mount -o remount,mode=770,gid=GROUP /sys/kernel/tracing, for a group that you are in",
    )
}
