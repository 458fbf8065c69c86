//! Checks of the KVM modules and their parameters.

use super::check::{Check, Verdict};
use super::files::Files;
use super::probe::Probe;

/// Name of the check of the device.
pub const DEVICE: &str = "/dev/kvm";

/// The module of a CPU vendor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Module {
    Intel,
    Amd,
    /// Neither: the hardware does not run the ring-0 code of guests directly.
    Other,
}

fn module(files: &Files) -> Option<(Module, String)> {
    let loaded = files.names("/sys/module");
    let loaded = loaded.into_iter().filter(|name| name.starts_with("kvm_"));
    let mut best = None;
    for name in loaded {
        match name.as_str() {
            "kvm_intel" => return Some((Module::Intel, name)),
            "kvm_amd" => return Some((Module::Amd, name)),
            _ => best = Some((Module::Other, name)),
        }
    }
    best
}

fn parameter(module: &str, name: &str) -> String {
    format!("/sys/module/{module}/parameters/{name}")
}

/// Adds the checks of the device, its module and the hardware below.
pub fn device(files: &Files, probe: Option<&Probe>, checks: &mut Vec<Check>) {
    checks.push(match probe {
        Some(Probe { refused: Some(why), .. }) => refused(files, why),
        Some(probe) => version(probe),
        None if files.exists("/dev/kvm") => {
            Check::good("kvm", DEVICE, "present, not opened").means("judged by its name only")
        }
        None => refused(files, "no such device"),
    });
    let vendor = vendor(files);
    checks.push(match module(files) {
        Some((Module::Other, name)) => Check::lacking("kvm", "module", name)
            .means("neither kvm_intel nor kvm_amd: without hardware virtualization guests may not run, and their timing means little")
            .change("run on a machine with VMX or SVM, or in the test host"),
        Some((_, name)) => Check::good("kvm", "module", name),
        None => Check::unknown("kvm", "module", "none loaded (perhaps built into the kernel)")
            .means("the settings for pauses, interrupts and nesting are parameters of the module, which cannot be read")
            .change(match vendor.as_deref() {
                Some("GenuineIntel") => "modprobe kvm_intel",
                Some("AuthenticAMD" | "HygonGenuine") => "modprobe kvm_amd",
                _ => "modprobe kvm_intel or kvm_amd",
            }),
    });
    checks.push(virtualization(files, vendor));
    checks.push(nested(files));
}

fn refused(files: &Files, why: &str) -> Check {
    let there = files.exists("/dev/kvm");
    let check = Check::lacking("kvm", DEVICE, why).means("no guest can run on this host");
    check.change(if there {
        "add your user to the group of /dev/kvm (often `kvm`), or change its mode"
    } else {
        "load kvm_intel or kvm_amd; enable VMX or SVM in the firmware; in a virtual machine, enable nesting on its host"
    })
}

fn version(probe: &Probe) -> Check {
    // Documentation/virt/kvm/api.rst, KVM_GET_API_VERSION: all stable kernels say 12.
    match probe.api_version {
        Some(12) => Check::good("kvm", DEVICE, "opens, API version 12"),
        Some(other) => Check::lacking("kvm", DEVICE, format!("API version {other}"))
            .means("programs must refuse any version but 12")
            .change("use a kernel newer than 2.6.22"),
        None => Check::unknown("kvm", DEVICE, "opens, but its version is not known")
            .means("programs must refuse any version but 12"),
    }
}

fn vendor(files: &Files) -> Option<String> {
    field(files, "vendor_id")
}

/// Returns the first value of `name` in /proc/cpuinfo.
pub fn field(files: &Files, name: &str) -> Option<String> {
    let text = files.text("/proc/cpuinfo")?;
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    let (_, value) = lines.find(|(key, _)| key.trim() == name)?;
    Some(value.trim().to_owned())
}

fn has_flag(flags: &str, name: &str) -> bool {
    flags.split_ascii_whitespace().any(|flag| flag == name)
}

fn virtualization(files: &Files, vendor: Option<String>) -> Check {
    let name = "hardware virtualization";
    let Some(flags) = field(files, "flags") else {
        return Check::unknown("kvm", name, "/proc/cpuinfo has no flags")
            .means("it is not known whether the hardware runs the guests' kernel code");
    };
    let vendor = vendor.unwrap_or_else(|| "unnamed vendor".to_owned());
    let within = if has_flag(&flags, "hypervisor") {
        ", itself a virtual machine"
    } else {
        ""
    };
    match (has_flag(&flags, "vmx"), has_flag(&flags, "svm")) {
        (false, false) => Check::lacking("kvm", name, format!("{vendor}: neither VMX nor SVM{within}"))
            .means("the kernel code of guests is interpreted, if there is a /dev/kvm at all")
            .change("enable it in the firmware; in a virtual machine, enable nesting on its host"),
        (vmx, _) => {
            let which = if vmx { "VMX" } else { "SVM" };
            let verdict = if within.is_empty() {
                Verdict::Good
            } else {
                Verdict::Note
            };
            let check = Check::new("kvm", name, format!("{vendor}: {which}{within}"), verdict);
            if within.is_empty() {
                check
            } else {
                check.means("each exit of a guest takes several exits of this machine to its own host: exits cost about 10 times as much, and this machine does not see when it loses its CPUs")
            }
        }
    }
}

/// Consequences of settings that are not known.
const NESTING_UNKNOWN: &str = "it is not known whether guests can run guests";
const PAUSES_UNKNOWN: &str = "spinning guests may use up their slices unnoticed";

fn nested(files: &Files) -> Check {
    let Some((_, module)) = module(files).filter(|(module, _)| *module != Module::Other) else {
        return Check::unknown("kvm", "nesting for guests", "unknown without its module").means(NESTING_UNKNOWN);
    };
    match files.switch(&parameter(&module, "nested")) {
        Some(true) => Check::note("kvm", "nesting for guests", "on"),
        Some(false) => Check::note("kvm", "nesting for guests", "off")
            .means("guests cannot run guests")
            .change(format!("modprobe {module} nested=1")),
        None => Check::unknown("kvm", "nesting for guests", "not reported").means(NESTING_UNKNOWN),
    }
}

/// Adds the check of the hardware that notices spinning guests.
pub fn pauses(files: &Files, checks: &mut Vec<Check>) {
    let check = match module(files) {
        Some((Module::Intel, module)) => {
            let window = files.number(&parameter(&module, "ple_window"));
            let gap = files.number(&parameter(&module, "ple_gap"));
            match (gap, window) {
                (Some(gap @ 1..), Some(window @ 1..)) => filter(
                    &format!("PLE: gap {gap}, window {window} cycles"),
                    &growth(files, &module, "ple_window"),
                ),
                (Some(0), _) | (_, Some(0)) => {
                    no_filter("PLE is off (ple_gap or ple_window 0)", &module, "ple_gap=128")
                }
                _ => Check::unknown("pauses", "pause-loop exiting", "not reported").means(PAUSES_UNKNOWN),
            }
        }
        Some((Module::Amd, module)) => {
            let count = files.number(&parameter(&module, "pause_filter_count"));
            let threshold = files.number(&parameter(&module, "pause_filter_thresh"));
            match (count, threshold) {
                (Some(count @ 1..), threshold) => filter(
                    &format!("pause filter: {count} PAUSEs, threshold {}", threshold.unwrap_or(0)),
                    &growth(files, &module, "pause_filter_count"),
                ),
                (Some(_), _) => no_filter("no pause filter (count 0)", &module, "pause_filter_count=3000"),
                _ => Check::unknown("pauses", "pause-loop exiting", "not reported").means(PAUSES_UNKNOWN),
            }
        }
        _ => Check::unknown("pauses", "pause-loop exiting", "unknown without its module").means(PAUSES_UNKNOWN),
    };
    checks.push(check);
}

fn growth(files: &Files, module: &str, name: &str) -> String {
    let setting = |suffix: &str| {
        let shown = files.line(&parameter(module, &format!("{name}_{suffix}")));
        shown.unwrap_or_else(|| "?".to_owned())
    };
    format!(
        "; grow {}, shrink {}, max {}",
        setting("grow"),
        setting("shrink"),
        setting("max")
    )
}

fn filter(found: &str, growth: &str) -> Check {
    Check::good("pauses", "pause-loop exiting", format!("{found}{growth}"))
        .means("a guest that spins in its kernel exits, and the host may yield to a preempted vCPU")
}

fn no_filter(found: &str, module: &str, setting: &str) -> Check {
    Check::lacking("pauses", "pause-loop exiting", found)
        .means("a vCPU that spins behind a preempted vCPU uses up its whole slice, unless the guest halts and kicks for locks")
        .change(format!("modprobe {module} {setting}, if the CPU model has it (nested hosts mostly do not)"))
}

/// Adds the checks of interrupts that reach guests without exits.
pub fn interrupts(files: &Files, checks: &mut Vec<Check>) {
    let Some((kind, module)) = module(files) else { return };
    let (name, parameter_name) = match kind {
        Module::Intel => ("APICv", "enable_apicv"),
        Module::Amd => ("AVIC", "avic"),
        Module::Other => return,
    };
    let path = parameter(&module, parameter_name);
    checks.push(match files.switch(&path) {
        Some(true) => Check::good("interrupts", name, "on"),
        Some(false) => Check::lacking("interrupts", name, "off")
            .means("each IPI and each end of interrupt of a guest takes an exit or more")
            .change(format!("modprobe {module} {parameter_name}=1, if the CPU model has it")),
        None => Check::unknown(
            "interrupts",
            name,
            files.line(&path).unwrap_or_else(|| "not reported".to_owned()),
        )
        .means("each IPI and each end of interrupt of a guest may take an exit or more"),
    });
    let ipiv = "enable_ipiv";
    checks.push(match files.switch(&parameter(&module, ipiv)) {
        Some(true) => Check::good("interrupts", "IPIs without exits", "on"),
        Some(false) => Check::note("interrupts", "IPIs without exits", "off")
            .means("a guest's IPI exits on the sender's side (deliberately on Zen 1 and 2: erratum 1235)")
            .change(format!("modprobe {module} {ipiv}=1, if the CPU model has it")),
        None => Check::unknown("interrupts", "IPIs without exits", "not reported").means(
            "the kernel is older than the parameter: on AMD the AVIC setting decides, Intel has no such feature",
        ),
    });
}

/// Adds the check of what the CPU of a halted vCPU does.
pub fn halting(files: &Files, checks: &mut Vec<Check>) {
    let value = |name: &str| files.number(&parameter("kvm", name));
    checks.push(match value("halt_poll_ns") {
        Some(0) => Check::note("halting", "halt polling", "off")
            .means(
                "every halt gives up the CPU at once; on a host with idle CPUs each wakeup costs 5-7 us more, and under \
                 lazy preemption a woken vCPU then waits for the tick of a busy CPU (docs/findings/lazy-preemption.md)",
            )
            .change("echo 200000 > /sys/module/kvm/parameters/halt_poll_ns"),
        Some(ns) => {
            let setting = |name: &str| value(name).map_or_else(|| "?".to_owned(), |value| value.to_string());
            let (grow, start, shrink) = (
                setting("halt_poll_ns_grow"),
                setting("halt_poll_ns_grow_start"),
                setting("halt_poll_ns_shrink"),
            );
            let found = format!("up to {ns} ns; grow {grow} from {start} ns, shrink {shrink}");
            Check::good("halting", "halt polling", found)
                .means("the CPU of a halted vCPU polls for a wakeup before it sleeps, unless another thread wants it")
        }
        None => Check::unknown("halting", "halt polling", "not reported")
            .means("it is not known whether the CPU of a halted vCPU polls for a wakeup before it sleeps")
            .change("modprobe kvm: its parameters can be read once it is loaded"),
    });
}
