//! Keys that earlier versions had, each with what sets the same today.

/// Keys that are gone, with a setting in their place.
const RENAMED: &[(&str, &str)] = &[
    ("vm.*.auto_eoi", "vm.*.apic_inhibits = [\"hyperv\"]"),
    ("vm.*.pit_reinject", "vm.*.apic_inhibits = [\"pit_reinj\"]"),
    ("vm.*.sev", "vm.*.apic_inhibits = [\"sev\"]"),
    (
        "vm.*.boot_timer",
        "vm.*.apic_inhibits = [\"pit_reinj\"] for what the PIT does to AVIC: the PIT itself is not simulated",
    ),
];

/// Returns what an unknown key with this `pattern`, as `vm.*.sev`, has become.
pub(super) fn renamed(pattern: &str) -> Option<&'static str> {
    let mut known = RENAMED.iter();
    known.find(|(old, _)| *old == pattern).map(|(_, new)| *new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Experiment;
    use crate::keys::KEYS;
    use crate::options::Options;
    use crate::plan::Plan;

    /// Plans a guest with `setting`.
    fn plan(setting: &str) -> Result<Plan, String> {
        let head =
            "name = \"x\"\ntitle = \"x\"\nmetric = \"elapsed\"\n[[vm]]\nname = \"web\"\nworkload = \"kernbench\"\n";
        let experiment = Experiment::parse("x.toml", head).expect("an experiment");
        let options = Options {
            set: vec![setting.to_owned()],
            ..Options::default()
        };
        Plan::new(experiment, &options).map_err(|problems| problems.to_string())
    }

    #[test]
    fn a_key_that_is_gone_names_what_sets_the_same() {
        for (old, new) in RENAMED {
            assert!(KEYS.iter().all(|key| key.path != *old), "{old} is a key");
            for named in [old.replace('*', "web"), old.replace("vm.*", "guest")] {
                let refused = plan(&format!("{named}=true")).expect_err("it is gone");
                assert!(refused.contains(&format!("now {new}")), "{named}: {refused}");
            }
            let setting = new.split(" for ").next().expect("a setting");
            let (key, value) = setting.split_once(" = ").expect("a key and its value");
            if let Err(refused) = plan(&format!("{}={value}", key.replace('*', "web"))) {
                panic!("{new}: {refused}");
            }
        }
    }
}
