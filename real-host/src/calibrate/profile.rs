//! Builds a machine profile from measured costs, and writes it as a file.

use std::fmt::Write as _;
use std::fs;

use holdfast_lab::amount::{Amount, Unit};
use holdfast_lab::profile::{Cost, MachineProfile, PauseDetection};
use holdfast_machine::{Costs, CpuModel, Topology};
use holdfast_peers::clock;

use super::calibration::Calibration;
use super::parameter::Parameter;
use crate::doctor::count_cpus;
use crate::machine::Machine;

/// Name of a calibrated profile.
const NAME: &str = "calibrated";

/// Returns the cost of `base` called `name`, in nanoseconds.
pub fn base_ns(base: &MachineProfile, name: &str) -> f64 {
    let mut costs = base.costs.clone();
    let cost = costs.by_name(name);
    let picos = cost.and_then(|cost| cost.amount.picos(base.frequency_hz));
    picos.map_or(0.0, |picos| picos.0 as f64 / 1000.0)
}

fn nanos(ns: f64) -> Amount {
    // The simulated machine counts in picoseconds.
    Amount::new((ns * 1000.0).round() / 1000.0, Unit::Nanos).unwrap_or(Amount::from_nanos(0))
}

/// Returns `base` with the measured costs in place of its own.
pub fn build(base: &MachineProfile, parameters: &[Parameter], machine: &Machine) -> MachineProfile {
    let mut profile = base.clone();
    profile.name = NAME.to_owned();
    let cpu = machine.cpu.as_deref().unwrap_or("an unnamed CPU");
    let kernel = machine.kernel.as_deref().unwrap_or("an unnamed kernel");
    profile.title = format!(
        "{cpu}, {} CPUs, {kernel}, measured by `holdfast calibrate`",
        machine.cpus
    );
    profile.topology = topology(machine.cpus as u32);
    profile.cpu = CpuModel::UNLISTED;
    profile.frequency_hz = (1e9 / clock::ns_per_tick()).round() as u64;
    // Copied costs were measured or estimated in cycles of another clock. They keep their time, not their cycles.
    for name in Costs::COSTS {
        let ns = base_ns(base, name);
        if let Some(cost) = profile.costs.by_name(name) {
            *cost = Cost {
                amount: nanos(ns),
                source: format!("copied from the profile {}: {}", base.name, cost.source),
                uncertain: true,
            };
        }
    }
    join(&mut profile);
    parameters.iter().for_each(|parameter| put(&mut profile, parameter));
    profile
}

/// Joins the shares of a wakeup that small benchmarks see as one sum: `wake` includes its cold share, and `idle_exit`
/// the exit from the idle state.
pub fn join(profile: &mut MachineProfile) {
    profile.idle_states.clear();
    if let Some(cost) = profile.costs.by_name("wake_cold") {
        *cost = Cost {
            amount: nanos(0.0),
            source: "part of wake".to_owned(),
            uncertain: false,
        };
    }
}

/// Sets the cost of `parameter` in `profile`, as measured.
pub fn put(profile: &mut MachineProfile, parameter: &Parameter) {
    if let Some(cost) = profile.costs.by_name(parameter.name) {
        *cost = Cost {
            amount: nanos(parameter.ns),
            source: format!("measured: {}; {}", parameter.how, parameter.samples.shown()),
            uncertain: false,
        };
    }
}

/// Returns the names of the costs that were not measured.
pub fn copied(parameters: &[Parameter]) -> Vec<&'static str> {
    let measured = |name: &str| parameters.iter().any(|parameter| parameter.name == name);
    Costs::COSTS.iter().copied().filter(|name| !measured(name)).collect()
}

/// Returns sockets, cores and threads of the `cpus` that may be used. Returns one socket of single-threaded cores if
/// the CPUs do not fill whole sockets.
fn topology(cpus: u32) -> Topology {
    let list = |name: &str| {
        let path = format!("/sys/devices/system/cpu/cpu0/topology/{name}");
        let text = fs::read_to_string(path).ok()?;
        u32::try_from(count_cpus(text.trim())?).ok()
    };
    let threads = list("thread_siblings_list").unwrap_or(1).max(1);
    let package = list("package_cpus_list").or_else(|| list("core_siblings_list"));
    let package = package.unwrap_or(cpus).max(1);
    if package.is_multiple_of(threads) && cpus.is_multiple_of(package) {
        return Topology {
            sockets: cpus / package,
            cores: package / threads,
            threads,
        };
    }
    Topology {
        sockets: 1,
        cores: cpus.max(1),
        threads: 1,
    }
}

/// Returns the text of a profile file for `calibration`.
pub fn to_toml(calibration: &Calibration) -> String {
    let profile = &calibration.profile;
    let mut text = String::new();
    let noise = &calibration.noise;
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "# Made by `holdfast calibrate` on the machine that this profile describes."
    );
    let _ = writeln!(
        text,
        "# Noise: a busy thread lost {:.1} % of its time in gaps above 200 us, the longest of {:.1} ms{}.",
        noise.lost * 100.0,
        noise.longest_ns as f64 / 1e6,
        if noise.is_noisy() {
            " (NOISY: the costs are uncertain)"
        } else {
            ""
        }
    );
    let _ = writeln!(text, "# Settings for the scheduler of that machine:");
    for setting in &calibration.settings {
        let _ = writeln!(text, "#   --set {}", quoted_setting(setting));
    }
    let _ = writeln!(text, "\nname = {}", quoted(&profile.name));
    let _ = writeln!(text, "title = {}", quoted(&profile.title));
    let Topology {
        sockets,
        cores,
        threads,
    } = profile.topology;
    let _ = writeln!(
        text,
        "\n[topology]\nsockets = {sockets}\ncores = {cores}\nthreads = {threads}"
    );
    let mhz = profile.frequency_hz as f64 / 1e6;
    let _ = writeln!(
        text,
        "\n[frequency]\nvalue = {mhz:.3}\nunit = \"MHz\"\nsource = \"measured: time-stamp counter compared with the system clock for 20 ms\""
    );
    write_pauses(&mut text, &profile.pauses, &calibration.base);
    let _ = writeln!(text, "\n[costs]");
    let mut costs = profile.costs.clone();
    for name in Costs::COSTS {
        if let Some(cost) = costs.by_name(name) {
            let _ = writeln!(text, "{name} = {}", shown_cost(cost));
        }
    }
    text
}

fn write_pauses(text: &mut String, pauses: &PauseDetection, base: &str) {
    let source = format!("copied from the profile {base}");
    let cost = |amount: &Amount| {
        shown_cost(&Cost {
            amount: *amount,
            source: source.clone(),
            uncertain: true,
        })
    };
    let _ = match pauses {
        PauseDetection::Ple { enabled, gap, window } => writeln!(
            text,
            "\n[ple]\nenabled = {enabled}\ngap = {}\nwindow = {}",
            cost(gap),
            cost(window)
        ),
        PauseDetection::Filter {
            enabled,
            count,
            threshold,
        } => writeln!(
            text,
            "\n[pause_filter]\nenabled = {enabled}\ncount = {count}\ncount_source = {}\nthreshold = {}",
            quoted(&source),
            cost(threshold)
        ),
    };
}

fn shown_cost(cost: &Cost) -> String {
    let amount = cost.amount.to_string();
    let (value, unit) = amount.split_once(' ').unwrap_or((&amount, "ns"));
    let uncertain = if cost.uncertain { ", uncertain = true" } else { "" };
    format!(
        "{{ value = {value}, unit = \"{unit}\", source = {}{uncertain} }}",
        quoted(&cost.source)
    )
}

/// Returns `text` as a basic string of TOML.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for char in text.chars() {
        match char {
            '"' | '\\' => quoted.extend(['\\', char]),
            control if control.is_control() => quoted.push(' '),
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

fn quoted_setting(setting: &str) -> String {
    if setting.contains(' ') {
        format!("\"{setting}\"")
    } else {
        setting.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::calibrate::host::Host;
    use crate::calibrate::noise::Noise;
    use crate::calibrate::sample::Sampled;
    use holdfast_lab::shipped;

    fn calibration(cpu: String, ns: f64) -> Calibration {
        let base = shipped::generic_machine();
        let sampled = Sampled::of(vec![ns]).expect("a sample");
        let parameters = vec![Parameter {
            name: "rmw_hit",
            ns,
            how: format!("by {cpu}"),
            samples: sampled,
        }];
        let machine = Machine {
            cpu: Some(cpu),
            cpus: 2,
            kernel: None,
            load_before: None,
            load_after: None,
        };
        Calibration {
            schema: crate::calibrate::SCHEMA,
            profile: build(&base, &parameters, &machine),
            machine,
            base: base.name,
            noise: Noise {
                lost: 0.0,
                longest_ns: 0,
                interrupts_ns: Vec::new(),
            },
            copied: copied(&parameters),
            parameters,
            closure: Vec::new(),
            settings: vec!["host.base_slice=700 us".to_owned()],
            host: Host::of(None, None),
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]
        #[test]
        fn a_written_profile_reads_back_unchanged_for_any_name_of_the_machine(
            cpu in any::<String>(), ns in 0.0..1e6f64
        ) {
            let calibration = calibration(cpu, ns);
            let text = to_toml(&calibration);
            let read = MachineProfile::parse("calibrated.toml", &text);
            let read = read.unwrap_or_else(|problems| panic!("{problems}\n{text}"));
            prop_assert_eq!(read.build().map(|machine| machine.costs), calibration.profile.build().map(|machine| machine.costs));
            prop_assert_eq!(read.topology, calibration.profile.topology);
        }
    }
}
