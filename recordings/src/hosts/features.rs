//! Paravirtual features of a VM that its VMM or its guest's kernel was told to have or to leave off.

use serde::Serialize;

/// Most characters that are kept of what says a feature.
const FROM_MAX: usize = 120;
/// Most features of a VM.
const FEATURES_MAX: usize = 64;

/// A switch of the guest's kernel that leaves PV spinlocks off (Linux: `nopvspin`; `nopv`: all features).
const GUEST_SWITCHES: [&str; 2] = ["nopvspin", "nopv"];

/// Keys of `holdfast kvm run`, and QEMU's names of the features.
const OWN_KEYS: [(&str, &str); 6] = [
    ("pv_unhalt", "kvm-pv-unhalt"),
    ("steal_time", "kvm-steal-time"),
    ("pv_sched_yield", "kvm-pv-sched-yield"),
    ("pv_send_ipi", "kvm-pv-ipi"),
    ("pv_tlb_flush", "kvm-pv-tlb-flush"),
    ("nopvspin", "nopvspin"),
];

/// A switch of a paravirtual feature.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Feature {
    /// QEMU's name of a feature, such as `kvm-pv-unhalt`; `kvm`: all of them. Or a switch of the guest's kernel:
    /// `nopvspin`, `nopv`.
    pub name: String,
    /// It is on.
    pub on: bool,
    /// It is the default of the VMM, and no file says it.
    pub is_default: bool,
    /// The words that say it.
    pub from: String,
}

impl Feature {
    pub(super) fn known(name: &str, on: bool, from: &str) -> Feature {
        Feature {
            name: name.chars().take(FROM_MAX).collect::<String>().replace('_', "-"),
            on,
            is_default: false,
            from: from.chars().take(FROM_MAX).collect(),
        }
    }

    /// Returns whether the guest's kernel has the switch. `false`: the VMM has it.
    pub fn is_of_guest(&self) -> bool {
        GUEST_SWITCHES.contains(&self.name.as_str())
    }

    /// Returns whether it leaves the guest without PV spinlocks.
    pub fn forbids_pv_locks(&self) -> bool {
        self.on == self.is_of_guest() && (self.is_of_guest() || ["kvm", "kvm-pv-unhalt"].contains(&self.name.as_str()))
    }
}

/// Adds `feature` to `features`, in place of an earlier one of its name.
pub(super) fn add(features: &mut Vec<Feature>, feature: Feature) {
    features.retain(|known| known.name != feature.name);
    if features.len() < FEATURES_MAX {
        features.push(feature);
    }
}

fn is_on(value: &str) -> Option<bool> {
    match value {
        "on" | "true" | "yes" | "1" => Some(true),
        "off" | "false" | "no" | "0" => Some(false),
        _ => None,
    }
}

/// Returns what the arguments of a VMM's process, each ended by a NUL, say of its guest's features. Of an argument that
/// is given twice, the last one counts.
pub(super) fn of_command(command: &str) -> Vec<Feature> {
    let mut features = Vec::new();
    let mut before = "";
    for argument in command.split('\0') {
        if before == "-cpu" {
            of_qemu_cpu(&mut features, argument);
        }
        of_own_key(&mut features, argument);
        of_kernel(&mut features, argument);
        before = argument;
    }
    features
}

/// Adds the switches in the command line of a guest's kernel.
pub(super) fn of_kernel(features: &mut Vec<Feature>, words: &str) {
    for switch in GUEST_SWITCHES {
        if words.split_ascii_whitespace().any(|word| word == switch) {
            add(features, Feature::known(switch, true, switch));
        }
    }
}

/// Adds what QEMU's `-cpu` says: a model, and properties as `name=on`, `+name` or `-name`.
fn of_qemu_cpu(features: &mut Vec<Feature>, value: &str) {
    let (model, properties) = value.split_once(',').unwrap_or((value, ""));
    // QEMU passes all features of the host for these two only. Of those that a named model has, PV spinlocks are none.
    if !["host", "max"].contains(&model) {
        add(
            features,
            Feature {
                is_default: true,
                ..Feature::known(
                    "kvm-pv-unhalt",
                    false,
                    &format!("-cpu {model}, whose default is without it"),
                )
            },
        );
    }
    for property in properties.split(',') {
        let (name, on) = match property.split_once('=') {
            Some((name, value)) => (name, is_on(value)),
            None => match property.strip_prefix('-') {
                Some(name) => (name, Some(false)),
                None => (property.trim_start_matches('+'), Some(true)),
            },
        };
        let name = name.replace('_', "-");
        if let Some(on) = on.filter(|_| name == "kvm" || name.starts_with("kvm-")) {
            add(features, Feature::known(&name, on, &format!("-cpu {model},{property}")));
        }
    }
}

/// Adds what `vm.NAME.KEY=VALUE` says, an argument of `holdfast kvm run --set`.
fn of_own_key(features: &mut Vec<Feature>, argument: &str) {
    let Some((path, value)) = argument.split_once('=').filter(|(path, _)| path.starts_with("vm.")) else {
        return;
    };
    let key = path.rsplit('.').next().unwrap_or_default();
    let name = OWN_KEYS.iter().find(|(known, _)| *known == key);
    if let (Some((_, name)), Some(on)) = (name, is_on(value)) {
        add(features, Feature::known(name, on, argument));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(arguments: &[&str]) -> Vec<(String, bool, bool)> {
        let features = of_command(&arguments.join("\0"));
        features
            .into_iter()
            .map(|feature| (feature.name, feature.on, feature.is_default))
            .collect()
    }

    fn known(name: &str, on: bool) -> (String, bool, bool) {
        (name.to_owned(), on, false)
    }

    #[test]
    fn arguments_say_features_and_the_last_one_counts() {
        let default = ("kvm-pv-unhalt".to_owned(), false, true);
        for (arguments, expected) in [
            (
                &["qemu", "-cpu", "host,kvm-pv-unhalt=off"][..],
                vec![known("kvm-pv-unhalt", false)],
            ),
            (
                &["qemu", "-cpu", "host,-kvm_pv_unhalt"],
                vec![known("kvm-pv-unhalt", false)],
            ),
            (
                &["qemu", "-cpu", "host,kvm=off,+kvm-steal-time"],
                vec![known("kvm", false), known("kvm-steal-time", true)],
            ),
            (&["qemu", "-cpu", "host,migratable=on,pmu=off"], vec![]),
            (&["qemu", "-cpu", "EPYC-Rome,x2apic=on"], vec![default]),
            (
                &["qemu", "-cpu", "EPYC-Rome,kvm-pv-unhalt=on"],
                vec![known("kvm-pv-unhalt", true)],
            ),
            (
                &["qemu", "-append", "root=/dev/vda quiet nopvspin"],
                vec![known("nopvspin", true)],
            ),
            (
                &["holdfast", "kvm", "--set", "vm.web.pv_unhalt=false"],
                vec![known("kvm-pv-unhalt", false)],
            ),
            (
                &[
                    "holdfast",
                    "--set",
                    "vm.web.nopvspin=true",
                    "--set",
                    "vm.web.nopvspin=false",
                ],
                vec![known("nopvspin", false)],
            ),
            // A file of this name, a key without such a value.
            (
                &["qemu", "-drive", "file=nopvspin.img", "vm.web.pv_unhalt=maybe", "-cpu"],
                vec![],
            ),
        ] {
            assert_eq!(said(arguments), expected, "{arguments:?}");
        }
    }

    #[test]
    fn pv_locks_are_forbidden_by_the_vmm_and_by_the_guests_kernel() {
        let forbids = |name: &str, on| Feature::known(name, on, "").forbids_pv_locks();
        assert!(forbids("kvm", false) && forbids("kvm_pv_unhalt", false) && forbids("nopvspin", true));
        assert!(!forbids("kvm-steal-time", false) && !forbids("kvm-pv-unhalt", true) && !forbids("nopvspin", false));
    }
}
