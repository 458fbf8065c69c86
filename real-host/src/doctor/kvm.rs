//! The KVM modules: which they are, and how they are set.

use super::check::{Check, Verdict};
use super::files::Files;
use super::probe::Probe;

/// What the check of the device is called.
pub const DEVICE: &str = "/dev/kvm";

/// The vendor's module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Module {
    Intel,
    Amd,
    /// Neither: the ring-0 code of guests is not run by the hardware as such.
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

/// The device, its module, what is beneath.
pub fn device(files: &Files, probe: Option<&Probe>, checks: &mut Vec<Check>) {
    checks.push(match probe {
        Some(Probe { refused: Some(why), .. }) => refused(files, why),
        Some(probe) => version(probe),
        None if files.exists("/dev/kvm") => {
            Check::new("kvm", DEVICE, "there, not opened", Verdict::Good).means("as far as its name tells")
        }
        None => refused(files, "no such device"),
    });
    let vendor = vendor(files);
    checks.push(match module(files) {
        Some((Module::Other, name)) => Check::new("kvm", "module", name, Verdict::Lacking)
            .means("neither kvm_intel nor kvm_amd: no hardware virtualization beneath; guests work, their timing says little")
            .change("run on a machine with VMX or SVM, or in the test host"),
        Some((_, name)) => Check::new("kvm", "module", name, Verdict::Good),
        None => Check::new("kvm", "module", "none loaded (or built into the kernel)", Verdict::Unknown)
            .means("how pauses, interrupts and nesting are set is the module's parameters, which are not there")
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
    let check = Check::new("kvm", DEVICE, why, Verdict::Lacking).means("no guest can be run on this host");
    check.change(if there {
        "add yourself to the group of /dev/kvm (often `kvm`), or change its mode"
    } else {
        "load kvm_intel or kvm_amd; switch VMX or SVM on in the firmware; in a virtual machine ask its host for nesting"
    })
}

fn version(probe: &Probe) -> Check {
    // Documentation/virt/kvm/api.rst, KVM_GET_API_VERSION: all stable kernels say 12.
    match probe.api_version {
        Some(12) => Check::new("kvm", DEVICE, "opens, API version 12", Verdict::Good),
        Some(other) => Check::new("kvm", DEVICE, format!("API version {other}"), Verdict::Lacking)
            .means("programs must refuse any but 12")
            .change("a kernel newer than 2.6.22"),
        None => Check::new("kvm", DEVICE, "opens, does not tell its version", Verdict::Unknown)
            .means("programs must refuse any but 12"),
    }
}

fn vendor(files: &Files) -> Option<String> {
    field(files, "vendor_id")
}

/// The first value of `name` in /proc/cpuinfo.
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
        return Check::new("kvm", name, "/proc/cpuinfo has no flags", Verdict::Unknown)
            .means("whether hardware runs the guests' kernel code is not known");
    };
    let vendor = vendor.unwrap_or_else(|| "unnamed vendor".to_owned());
    let within = if has_flag(&flags, "hypervisor") {
        ", itself a virtual machine"
    } else {
        ""
    };
    match (has_flag(&flags, "vmx"), has_flag(&flags, "svm")) {
        (false, false) => Check::new(
            "kvm",
            name,
            format!("{vendor}: neither VMX nor SVM{within}"),
            Verdict::Lacking,
        )
        .means("guests' kernel code is interpreted, if /dev/kvm is there at all")
        .change("switch it on in the firmware; in a virtual machine ask its host for nesting"),
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
                check.means("each exit of a guest here is several exits of this machine to its own host: exits cost 10 times as much, and its CPUs may be taken away unseen")
            }
        }
    }
}

/// What it means that nobody tells.
const NESTING_UNKNOWN: &str = "whether guests can run guests is not known";
const PAUSES_UNKNOWN: &str = "spinning guests may burn their slices unseen";

fn nested(files: &Files) -> Check {
    let Some((_, module)) = module(files).filter(|(module, _)| *module != Module::Other) else {
        return Check::new(
            "kvm",
            "nesting for guests",
            "unknown without its module",
            Verdict::Unknown,
        )
        .means(NESTING_UNKNOWN);
    };
    match files.switch(&parameter(&module, "nested")) {
        Some(true) => Check::new("kvm", "nesting for guests", "on", Verdict::Note),
        Some(false) => Check::new("kvm", "nesting for guests", "off", Verdict::Note)
            .means("guests cannot run guests")
            .change(format!("modprobe {module} nested=1")),
        None => Check::new("kvm", "nesting for guests", "not told", Verdict::Unknown).means(NESTING_UNKNOWN),
    }
}

/// What notices that a guest spins.
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
                _ => Check::new("pauses", "pause-loop exiting", "not told", Verdict::Unknown).means(PAUSES_UNKNOWN),
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
                _ => Check::new("pauses", "pause-loop exiting", "not told", Verdict::Unknown).means(PAUSES_UNKNOWN),
            }
        }
        _ => Check::new(
            "pauses",
            "pause-loop exiting",
            "unknown without its module",
            Verdict::Unknown,
        )
        .means(PAUSES_UNKNOWN),
    };
    checks.push(check);
}

fn growth(files: &Files, module: &str, name: &str) -> String {
    let part = |suffix: &str| {
        let shown = files.shown(&parameter(module, &format!("{name}_{suffix}")));
        shown.unwrap_or_else(|| "?".to_owned())
    };
    format!(
        "; grow {}, shrink {}, max {}",
        part("grow"),
        part("shrink"),
        part("max")
    )
}

fn filter(found: &str, growth: &str) -> Check {
    Check::new(
        "pauses",
        "pause-loop exiting",
        format!("{found}{growth}"),
        Verdict::Good,
    )
    .means("a guest that spins in its kernel exits, and the host may yield to a vCPU that was preempted")
}

fn no_filter(found: &str, module: &str, setting: &str) -> Check {
    Check::new("pauses", "pause-loop exiting", found, Verdict::Lacking)
        .means("a vCPU that spins behind a preempted one burns its whole slice; only guests that halt and kick help themselves")
        .change(format!("modprobe {module} {setting}, where the part has it (nested ones mostly do not)"))
}

/// Interrupts that reach guests without exits.
pub fn interrupts(files: &Files, checks: &mut Vec<Check>) {
    let Some((kind, module)) = module(files) else { return };
    let (name, parameter_name) = match kind {
        Module::Intel => ("APICv", "enable_apicv"),
        Module::Amd => ("AVIC", "avic"),
        Module::Other => return,
    };
    let path = parameter(&module, parameter_name);
    checks.push(match files.switch(&path) {
        Some(true) => Check::new("interrupts", name, "on", Verdict::Good),
        Some(false) => Check::new("interrupts", name, "off", Verdict::Lacking)
            .means("each IPI and each end of interrupt of a guest is an exit, or several")
            .change(format!("modprobe {module} {parameter_name}=1, where the part has it")),
        None => Check::new(
            "interrupts",
            name,
            files.shown(&path).unwrap_or_else(|| "not told".to_owned()),
            Verdict::Unknown,
        )
        .means("each IPI and each end of interrupt of a guest may be an exit, or several"),
    });
    let ipiv = "enable_ipiv";
    checks.push(match files.switch(&parameter(&module, ipiv)) {
        Some(true) => Check::new("interrupts", "IPIs without exits", "on", Verdict::Good),
        Some(false) => Check::new("interrupts", "IPIs without exits", "off", Verdict::Note)
            .means("a guest's IPI exits on the sender's side (on Zen 1 and 2 on purpose: erratum 1235)")
            .change(format!("modprobe {module} {ipiv}=1, where the part has it")),
        None => Check::new("interrupts", "IPIs without exits", "not told", Verdict::Unknown)
            .means("older than the parameter: AVIC alone decides on AMD, and Intel has none"),
    });
}

/// What a halted vCPU's CPU does.
pub fn halting(files: &Files, checks: &mut Vec<Check>) {
    let value = |name: &str| files.number(&parameter("kvm", name));
    checks.push(match value("halt_poll_ns") {
        Some(0) => Check::new("halting", "halt polling", "off", Verdict::Note)
            .means("every halt gives the CPU away at once; on a host with idle CPUs each wake-up costs 5-7 us more")
            .change("echo 200000 > /sys/module/kvm/parameters/halt_poll_ns"),
        Some(ns) => {
            let part = |name: &str| value(name).map_or_else(|| "?".to_owned(), |value| value.to_string());
            let (grow, start, shrink) = (
                part("halt_poll_ns_grow"),
                part("halt_poll_ns_grow_start"),
                part("halt_poll_ns_shrink"),
            );
            let found = format!("up to {ns} ns; grow {grow} from {start} ns, shrink {shrink}");
            Check::new("halting", "halt polling", found, Verdict::Good)
                .means("a halted vCPU's CPU looks for a wake-up before it sleeps, unless another thread wants it")
        }
        None => Check::new("halting", "halt polling", "not told", Verdict::Unknown)
            .means("whether the CPU of a halted vCPU looks for a wake-up before it sleeps is not known")
            .change("modprobe kvm: its parameters are told when it is loaded"),
    });
}
