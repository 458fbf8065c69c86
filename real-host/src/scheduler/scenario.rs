//! Scenarios: data that both schedulers play.

use std::fmt::{self, Write as _};

use serde::Deserialize;

/// The shipped scenarios.
pub const SHIPPED: &str = include_str!("../../scheduler/scenarios.toml");

/// Most CPUs of a scenario: the width of an affinity in the plan of the real kernel's player.
const CPUS_MAX: u32 = 64;
/// Most threads of a scenario (`PROCESSES` in platforms/kvm/testhost/player.c).
const THREADS_MAX: u32 = 512;
/// Longest name: the kernel keeps 15 bytes of a thread's name, four of them for the number.
const NAME_MAX: usize = 10;

/// Scripted threads.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// The group's name.
    pub name: String,
    /// What it shows.
    pub about: String,
    /// CPUs of the machine.
    #[serde(default = "four")]
    pub cpus: u32,
    /// Length from the common start, in milliseconds.
    #[serde(default = "two_seconds")]
    pub ms: u32,
    /// Control groups below the root group.
    #[serde(default)]
    pub groups: Vec<Group>,
    /// The threads of the scenario.
    pub threads: Vec<Threads>,
}

/// A control group.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// The group's name.
    pub name: String,
    /// The value of `cpu.weight`.
    #[serde(default = "default_weight")]
    pub weight: u32,
    /// The quota of `cpu.max`; 0 is none.
    #[serde(default)]
    pub quota_us: u32,
    /// The period of `cpu.max`.
    #[serde(default = "default_period")]
    pub period_us: u32,
}

/// Threads that do the same.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Threads {
    /// Their name, to which their number is added.
    pub name: String,
    /// Their number.
    pub count: u32,
    /// CPU time between two sleeps or wakeups; 0: they never sleep.
    #[serde(default)]
    pub compute_us: u32,
    /// Length of a sleep.
    #[serde(default)]
    pub sleep_us: u32,
    /// Nice level.
    #[serde(default)]
    pub nice: i8,
    /// Their group; `None` for the root group.
    #[serde(default)]
    pub group: Option<String>,
    /// The CPUs that they may use; empty for all.
    #[serde(default)]
    pub cpus: Vec<u32>,
    /// Each wakes its partner and waits for it, instead of sleeping.
    #[serde(default)]
    pub paired: bool,
    /// Each yields its CPU (`sched_yield`), instead of sleeping.
    #[serde(default)]
    pub yields: bool,
}

const fn four() -> u32 {
    4
}
const fn two_seconds() -> u32 {
    2_000
}
const fn default_weight() -> u32 {
    100
}
const fn default_period() -> u32 {
    100_000
}

/// A mistake in a file of scenarios.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake(String);

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Mistake {}

/// Reads a file of scenarios.
///
/// # Errors
/// [`Mistake`] names the scenario and what is wrong with it.
pub fn parse(text: &str) -> Result<Vec<Scenario>, Mistake> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct File {
        scenario: Vec<Scenario>,
    }
    let file: File = toml::from_str(text).map_err(|error| Mistake(error.to_string()))?;
    for scenario in &file.scenario {
        scenario
            .check()
            .map_err(|wrong| Mistake(format!("scenario \"{}\": {wrong}", scenario.name)))?;
    }
    Ok(file.scenario)
}

/// Returns the shipped scenarios.
///
/// # Panics
/// If they are wrong. A test reads them.
pub fn shipped() -> Vec<Scenario> {
    parse(SHIPPED).unwrap_or_else(|mistake| panic!("the shipped scenarios: {mistake}"))
}

impl Scenario {
    fn check(&self) -> Result<(), String> {
        let is_name = |name: &str, most: usize| {
            let all = name
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
            !name.is_empty() && name.len() <= most && name != "-" && all
        };
        if !is_name(&self.name, 40) {
            return Err("a name has 1 to 40 lowercase letters, digits and dashes".to_owned());
        }
        if !(1..=CPUS_MAX).contains(&self.cpus) {
            return Err(format!("{} CPUs, expected 1 to {CPUS_MAX}", self.cpus));
        }
        if !(1_000..=60_000).contains(&self.ms) {
            return Err(format!("{} ms, expected 1000 to 60000", self.ms));
        }
        let count: u64 = self.threads.iter().map(|threads| u64::from(threads.count)).sum();
        if !(1..=u64::from(THREADS_MAX)).contains(&count) {
            return Err(format!("{count} threads, expected 1 to {THREADS_MAX}"));
        }
        for group in &self.groups {
            let name = &group.name;
            if !is_name(name, NAME_MAX) {
                return Err(format!(
                    "\"{name}\" is no name of a group: up to {NAME_MAX} lowercase letters"
                ));
            }
            if !(1..=10_000).contains(&group.weight) {
                return Err(format!(
                    "group \"{name}\": weight {}, expected 1 to 10000",
                    group.weight
                ));
            }
            if !(1_000..=1_000_000).contains(&group.period_us) || (group.quota_us > 0 && group.quota_us < 1_000) {
                return Err(format!(
                    "group \"{name}\": quota from 1000 us, period from 1000 to 1000000 us"
                ));
            }
        }
        let mut names: Vec<&str> = Vec::new();
        for threads in &self.threads {
            let name = &threads.name;
            if !is_name(name, NAME_MAX) || names.contains(&name.as_str()) {
                return Err(format!(
                    "\"{name}\" is no name of threads: different ones, up to {NAME_MAX} lowercase letters"
                ));
            }
            names.push(name);
            if let Some(group) = &threads.group
                && !self.groups.iter().any(|known| known.name == *group)
            {
                return Err(format!("threads \"{name}\": no group \"{group}\""));
            }
            if let Some(cpu) = threads.cpus.iter().find(|&&cpu| cpu >= self.cpus) {
                return Err(format!("threads \"{name}\": no CPU {cpu} among {}", self.cpus));
            }
            if !(-20..=19).contains(&threads.nice) {
                return Err(format!(
                    "threads \"{name}\": nice level {}, expected -20 to 19",
                    threads.nice
                ));
            }
            if threads.yields && (threads.compute_us == 0 || threads.sleep_us > 0 || threads.paired) {
                return Err(format!(
                    "threads \"{name}\": to yield they need compute_us, and nothing else"
                ));
            }
            if threads.paired && (threads.compute_us == 0 || threads.count % 2 == 1) {
                return Err(format!("threads \"{name}\": pairs need compute_us and an even count"));
            }
        }
        Ok(())
    }

    /// Returns the scenario for the real kernel's player (platforms/kvm/testhost/player.c).
    pub fn plan(&self) -> String {
        let mut text = format!("scenario {} {}\n", self.name, self.ms);
        for group in &self.groups {
            let Group {
                name,
                weight,
                quota_us,
                period_us,
            } = group;
            let _ = writeln!(text, "group {name} {weight} {quota_us} {period_us}");
        }
        for threads in &self.threads {
            let mask = threads.cpus.iter().fold(0u64, |mask, cpu| mask | 1 << cpu);
            let _ = writeln!(
                text,
                "threads {} {} {} {} {} {} {mask:x} {} {}",
                threads.name,
                threads.count,
                threads.compute_us,
                threads.sleep_us,
                threads.nice,
                threads.group.as_deref().unwrap_or("-"),
                u8::from(threads.paired),
                u8::from(threads.yields),
            );
        }
        text + "play\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shipped_scenarios_are_read_and_have_different_names() {
        let all = shipped();
        assert!(all.len() >= 8);
        for (index, scenario) in all.iter().enumerate() {
            assert!(
                all[..index].iter().all(|other| other.name != scenario.name),
                "{}",
                scenario.name
            );
        }
    }

    #[test]
    fn a_plan_has_a_line_for_everything() {
        let text = "[[scenario]]\nname = \"x\"\nabout = \"\"\ngroups = [{ name = \"g\", weight = 200 }]\n\
                    threads = [{ name = \"a\", count = 2, compute_us = 5, nice = 3, group = \"g\", cpus = [0, 2], paired = true }]";
        let plan = parse(text).expect("a scenario")[0].plan();
        assert_eq!(
            plan,
            "scenario x 2000\ngroup g 200 0 100000\nthreads a 2 5 0 3 g 5 1 0\nplay\n"
        );
    }

    #[test]
    fn mistakes_name_the_scenario_and_what_was_found() {
        let said = |threads: &str| {
            let text = format!("[[scenario]]\nname = \"x\"\nabout = \"\"\nthreads = [{{ name = \"a\", {threads} }}]");
            parse(&text).expect_err(threads).to_string()
        };
        assert!(said("count = 0").contains("scenario \"x\": 0 threads"));
        assert!(said("count = 1, cpus = [4]").contains("no CPU 4 among 4"));
        assert!(said("count = 1, group = \"g\"").contains("no group \"g\""));
        assert!(said("count = 3, compute_us = 1, paired = true").contains("an even count"));
        assert!(said("count = 1, yields = true").contains("to yield they need compute_us"));
        assert!(said("count = 2, compute_us = 1, paired = true, yields = true").contains("nothing else"));
        assert!(
            said("count = 1, weight = 3").contains("weight"),
            "an unknown key is named"
        );
    }
}
