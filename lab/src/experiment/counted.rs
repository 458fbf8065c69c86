//! Any guest of an experiment as one of several.

use super::Experiment;
use crate::keys::Family;

impl Experiment {
    /// Lets the key `vm.NAME.count` say how many guests there are of the one called `name`. Returns whether there is
    /// such a guest.
    pub fn let_count(&mut self, name: &str) -> bool {
        let names = &mut self.names;
        if names.families.iter().any(|family| family.name == name) {
            return true;
        }
        let Some(first) = names.vms.iter().position(|vm| vm == name) else {
            return false;
        };
        let settings = (self.cases.iter_mut().chain(&mut self.variants)).map(|layer| &mut layer.settings);
        for setting in settings.chain([&mut self.base]).flatten() {
            // The numbers of guests depend on the count.
            let rest = setting.path.strip_prefix("vm.").and_then(|rest| rest.split_once('.'));
            if let Some((number, key)) = rest
                && let Some(named) = number.parse().ok().and_then(|number: usize| names.vms.get(number))
            {
                setting.path = format!("vm.{named}.{key}");
            }
        }
        names.vms[first] = format!("{name}-1");
        names.families.push(Family {
            name: name.to_owned(),
            first,
            count: 1,
            stated: 1,
        });
        names.families.sort_by_key(|family| family.first);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options;
    use crate::plan::Plan;

    const TEXT: &str = "name = \"x\"\ntitle = \"x\"\nmetric = \"elapsed\"\n\
                        [[vm]]\nname = \"db\"\nvcpus = 3\n[[vm]]\nname = \"web\"\nvcpus = 2\nworkload = \"kernbench\"\n\
                        [[vm]]\nname = \"hog\"\nworkload = \"hog\"\n\
                        [[cases]]\nname = \"a\"\nset = { \"vm.2.vcpus\" = 5, \"vm.1.nice\" = 3 }\n";

    #[test]
    fn copies_of_a_guest_have_its_settings_and_the_others_keep_theirs() {
        let mut experiment = Experiment::parse("x.toml", TEXT).expect("an experiment");
        assert!(!experiment.let_count("none"));
        assert!(experiment.let_count("web") && experiment.let_count("web"));
        let options = Options {
            set: vec!["vm.web.count=3".to_owned()],
            ..Options::default()
        };
        let plan = Plan::new(experiment, &options).unwrap_or_else(|problems| panic!("{problems}"));
        let vms = &plan.cells[0].config.vms;
        let seen: Vec<(&str, u32)> = vms.iter().map(|vm| (vm.name.as_str(), vm.vcpus)).collect();
        assert_eq!(seen, [("db", 3), ("web-1", 2), ("web-2", 2), ("web-3", 2), ("hog", 5)]);
        assert!(vms[1..4].iter().all(|vm| vm.host.nice == vms[1].host.nice));
    }
}
