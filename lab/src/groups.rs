//! Task groups of the host while keys are being set: who stands beneath whom, and how much CPU time they may have.

use holdfast_host::{GROUP_DEPTH_MAX, Quota, SchedConfig, VmGroup};
use holdfast_sim::Group;

use crate::amount::show_nanos;
use crate::diagnostic::{Findings, Place, one_of};
use crate::draft::Draft;

/// Weight of a task group by default (`cpu.shares`).
pub const SHARES_DEFAULT: u64 = 1024;
/// Most task groups of an experiment.
pub const GROUPS_MAX: usize = 256;

/// A limit of CPU time while keys are being set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Nanoseconds in each period; `None`: no limit.
    pub quota_ns: Option<u64>,
    /// Nanoseconds.
    pub period_ns: u64,
}

impl Default for Limit {
    fn default() -> Limit {
        Limit {
            quota_ns: None,
            // The kernel's default.
            period_ns: 100_000_000,
        }
    }
}

impl Limit {
    /// As the host takes it.
    pub(crate) fn quota(self) -> Option<Quota> {
        let period_ns = self.period_ns;
        self.quota_ns.map(|quota_ns| Quota { quota_ns, period_ns })
    }
}

/// A task group while keys are being set.
#[derive(Clone, Debug)]
pub struct DraftGroup {
    /// Its name.
    pub name: String,
    /// The group beneath which it stands; `None`: the root group.
    pub parent: Option<String>,
    /// `cpu.shares`.
    pub shares: u64,
    /// How much CPU time it may have.
    pub limit: Limit,
}

impl DraftGroup {
    /// A group of default shares beneath the root group.
    pub fn new(name: &str) -> DraftGroup {
        DraftGroup {
            name: name.to_owned(),
            parent: None,
            shares: SHARES_DEFAULT,
            limit: Limit::default(),
        }
    }
}

/// Where the keys of a draft were set, and what was wrong with them.
struct Check<'c> {
    groups: &'c [DraftGroup],
    sched: &'c SchedConfig,
    pcpus: u32,
    place: &'c dyn Fn(&str) -> Place,
    findings: &'c mut Findings,
}

impl Draft {
    /// Checks the tree of task groups and all limits.
    pub(crate) fn check_groups(&self, place: &dyn Fn(&str) -> Place, findings: &mut Findings) {
        let mut check = Check {
            groups: &self.groups,
            sched: &self.host.sched,
            pcpus: self.machine.topology.pcpus(),
            place,
            findings,
        };
        for group in &self.groups {
            let path = format!("group.{}", group.name);
            check.parent(&format!("{path}.parent"), group.parent.as_deref());
            check.ancestors(group);
            check.limit(&path, "", group.limit);
        }
        for vm in &self.vms {
            let path = format!("vm.{}", vm.name);
            let levels = match vm.host.group {
                VmGroup::Root => 0,
                VmGroup::Own { .. } => 1,
                VmGroup::OwnWithVcpuGroups { .. } => 2,
            };
            let parent_key = format!("{path}.parent");
            if check.parent(&parent_key, vm.group.as_deref()) {
                check.depth(&parent_key, vm.group.as_deref(), levels);
            }
            check.limit(&path, "", vm.limit);
            check.limit(&path, "vcpu_", vm.vcpu_limit);
        }
        for task in &self.tasks {
            check.parent(&format!("task.{}.parent", task.name), task.group.as_deref());
        }
    }

    /// The groups, parents first.
    pub(crate) fn ordered_groups(&self) -> Vec<Group> {
        let mut ordered: Vec<Group> = Vec::new();
        // Each round adds those whose parents are there; without cycles there are as many rounds as levels.
        while ordered.len() < self.groups.len() {
            let before = ordered.len();
            for group in &self.groups {
                let known = |name: &String| ordered.iter().any(|other| other.name == *name);
                if !known(&group.name) && group.parent.as_ref().is_none_or(known) {
                    ordered.push(Group {
                        name: group.name.clone(),
                        parent: group.parent.clone(),
                        shares: group.shares,
                        quota: group.limit.quota(),
                    });
                }
            }
            if ordered.len() == before {
                break;
            }
        }
        ordered
    }
}

impl<'c> Check<'c> {
    fn find(&self, name: &str) -> Option<&'c DraftGroup> {
        self.groups.iter().find(|group| group.name == name)
    }

    /// From `name` upwards, as far as there are groups of those names; without end if there is a cycle.
    fn up(&self, name: Option<&'c str>) -> impl Iterator<Item = &'c DraftGroup> + use<'_, 'c> {
        let first = name.and_then(|name| self.find(name));
        std::iter::successors(first, |group| {
            group.parent.as_deref().and_then(|parent| self.find(parent))
        })
    }

    /// Whether `parent`, set by `key`, exists.
    fn parent(&mut self, key: &str, parent: Option<&str>) -> bool {
        let Some(name) = parent.filter(|name| self.find(name).is_none()) else {
            return true;
        };
        let names = self.groups.iter().map(|group| group.name.as_str());
        let expected = one_of(name, names.chain(["root"]));
        self.findings
            .add(&(self.place)(key), key, format!("{name:?}"), expected);
        false
    }

    fn ancestors(&mut self, group: &'c DraftGroup) {
        let key = format!("group.{}.parent", group.name);
        let above = || self.up(group.parent.as_deref()).take(self.groups.len());
        if above().any(|other| other.name == group.name) {
            let mut round = vec![group.name.as_str()];
            round.extend(
                above()
                    .map(|other| other.name.as_str())
                    .take_while(|name| *name != group.name),
            );
            round.push(&group.name);
            let found = format!("a cycle: {}", round.join(" beneath "));
            let expected = "a group that does not stand beneath this one, or \"root\"";
            self.findings.add(&(self.place)(&key), &key, found, expected);
            return;
        }
        self.depth(&key, group.parent.as_deref(), 1);
    }

    /// Checks that `levels` levels of groups fit beneath `parent`.
    fn depth(&mut self, key: &str, parent: Option<&'c str>, levels: usize) {
        let depth = self.up(parent).take(self.groups.len() + 1).count() + levels;
        if depth > GROUP_DEPTH_MAX as usize {
            let expected = format!("at most {GROUP_DEPTH_MAX} levels");
            self.findings.add(
                &(self.place)(key),
                key,
                format!("{depth} levels of task groups"),
                expected,
            );
        }
    }

    /// Checks a limit whose keys begin with `path` and `prefix`.
    fn limit(&mut self, path: &str, prefix: &str, limit: Limit) {
        const MS: u64 = 1_000_000;
        let Some(quota_ns) = limit.quota_ns else { return };
        let (quota, period) = (format!("{path}.{prefix}quota"), format!("{path}.{prefix}period"));
        let (place, pcpus) = (self.place, self.pcpus);
        if !(MS..=1_000 * MS).contains(&limit.period_ns) {
            let found = show_nanos(limit.period_ns);
            self.findings
                .add(&place(&period), &period, found, "a period of 1 ms to 1 s");
            return;
        }
        let most = limit.period_ns.saturating_mul(u64::from(pcpus));
        if !(MS..=most).contains(&quota_ns) {
            let expected = format!(
                "1 ms to {}, a period of {} for each of {pcpus} pCPUs",
                show_nanos(most),
                show_nanos(limit.period_ns)
            );
            self.findings
                .add(&place(&quota), &quota, show_nanos(quota_ns), expected);
        }
        if !self.sched.has_bandwidth() {
            let expected = "no quota with host.scheduler = \"cfs-2.6.37\": bandwidth control came with 3.2";
            self.findings
                .add(&place(&quota), &quota, show_nanos(quota_ns), expected);
        }
    }
}
