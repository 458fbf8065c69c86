//! Task groups of the host while keys are being set: their tree, their weights and their limits on CPU time.

use holdfast_host::{GROUP_DEPTH_MAX, Quota, SchedConfig};
use holdfast_sim::Group;

use crate::amount::show_nanos;
use crate::diagnostic::{KeyFindings, one_of};

/// Default weight of a task group (`cpu.shares`).
pub const SHARES_DEFAULT: u64 = 1024;
/// Limit on the task groups of an experiment.
pub const GROUPS_MAX: usize = 256;

/// A limit of CPU time while keys are being set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// CPU time in each period. `None` is no limit.
    pub quota_ns: Option<u64>,
    /// Length of a period, from 1 ms to 1 s.
    pub period_ns: u64,
    /// Unused CPU time of earlier periods that may be used beyond the quota, at most the quota.
    pub burst_ns: u64,
}

impl Default for Limit {
    fn default() -> Limit {
        Limit {
            quota_ns: None,
            // The kernel's default (`default_cfs_period`).
            period_ns: 100_000_000,
            burst_ns: 0,
        }
    }
}

impl Limit {
    /// Returns the quota for the host's configuration.
    pub(crate) fn quota(self) -> Option<Quota> {
        let Limit {
            quota_ns,
            period_ns,
            burst_ns,
        } = self;
        quota_ns.map(|quota_ns| Quota {
            quota_ns,
            period_ns,
            burst_ns,
        })
    }
}

/// A task group while keys are being set.
#[derive(Clone, Debug)]
pub struct DraftGroup {
    /// Name of the group.
    pub name: String,
    /// The group above this one. At most 32 levels in all.
    ///
    /// `None` is the root group.
    pub parent: Option<String>,
    /// Weight of the group (cgroup v1 `cpu.shares`).
    pub shares: u64,
    /// Limit on its CPU time.
    pub limit: Limit,
}

impl DraftGroup {
    /// Returns a group of default weight below the root group.
    pub fn new(name: &str) -> DraftGroup {
        DraftGroup {
            name: name.to_owned(),
            parent: None,
            shares: SHARES_DEFAULT,
            limit: Limit::default(),
        }
    }
}

/// Returns the groups, each after its parent. Groups in a cycle are left out.
pub(crate) fn ordered(groups: &[DraftGroup]) -> Vec<Group> {
    let mut ordered: Vec<Group> = Vec::new();
    // Each round adds the groups whose parents are present. Without cycles there are as many rounds as levels.
    while ordered.len() < groups.len() {
        let before = ordered.len();
        for group in groups {
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

/// Checks of task groups and limits. Mistakes go to `findings`.
pub(crate) struct Check<'c, 'f> {
    pub(crate) groups: &'c [DraftGroup],
    pub(crate) sched: &'c SchedConfig,
    pub(crate) pcpus: u32,
    pub(crate) findings: &'c mut KeyFindings<'f>,
}

impl<'c> Check<'c, '_> {
    /// Checks the groups' parents and limits.
    pub(crate) fn tree(&mut self) {
        for group in self.groups {
            let path = format!("group.{}", group.name);
            self.parent(&format!("{path}.parent"), group.parent.as_deref());
            self.ancestors(group);
            self.limit(&path, "", group.limit);
        }
    }

    fn find(&self, name: &str) -> Option<&'c DraftGroup> {
        self.groups.iter().find(|group| group.name == name)
    }

    /// Returns the group called `name` and the groups above it, without end if there is a cycle.
    fn up(&self, name: Option<&str>) -> impl Iterator<Item = &'c DraftGroup> {
        let first = name.and_then(|name| self.find(name));
        std::iter::successors(first, |group| {
            group.parent.as_deref().and_then(|parent| self.find(parent))
        })
    }

    /// Checks that `parent`, set by `key`, exists; returns whether it does.
    pub(crate) fn parent(&mut self, key: &str, parent: Option<&str>) -> bool {
        let Some(name) = parent.filter(|name| self.find(name).is_none()) else {
            return true;
        };
        let names = self.groups.iter().map(|group| group.name.as_str());
        let expected = one_of(name, names.chain(["root"]));
        self.findings.add(key, format!("{name:?}"), expected);
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
            let found = format!("a cycle: {}", round.join(" below "));
            let expected = "a group that is not below this one, or \"root\"";
            self.findings.add(&key, found, expected);
            return;
        }
        self.depth(&key, group.parent.as_deref(), 1);
    }

    /// Checks that `levels` levels of groups fit below `parent`.
    pub(crate) fn depth(&mut self, key: &str, parent: Option<&str>, levels: usize) {
        let depth = self.up(parent).take(self.groups.len() + 1).count() + levels;
        if depth > GROUP_DEPTH_MAX as usize {
            let expected = format!("at most {GROUP_DEPTH_MAX} levels");
            self.findings
                .add(key, format!("{depth} levels of task groups"), expected);
        }
    }

    /// Checks a limit whose keys begin with `path` and `prefix`.
    pub(crate) fn limit(&mut self, path: &str, prefix: &str, limit: Limit) {
        const MS: u64 = 1_000_000;
        let burst = format!("{path}.{prefix}burst");
        let Some(quota_ns) = limit.quota_ns else {
            if limit.burst_ns > 0 {
                let expected = "a task group with a quota";
                self.findings.add(&burst, show_nanos(limit.burst_ns), expected);
            }
            return;
        };
        let (quota, period) = (format!("{path}.{prefix}quota"), format!("{path}.{prefix}period"));
        let pcpus = self.pcpus;
        if !(MS..=1_000 * MS).contains(&limit.period_ns) {
            self.findings
                .add(&period, show_nanos(limit.period_ns), "a period of 1 ms to 1 s");
            return;
        }
        let most = limit.period_ns.saturating_mul(u64::from(pcpus));
        if !(MS..=most).contains(&quota_ns) {
            let expected = format!(
                "1 ms to {}, a period of {} for each of {pcpus} pCPUs",
                show_nanos(most),
                show_nanos(limit.period_ns)
            );
            self.findings.add(&quota, show_nanos(quota_ns), expected);
        }
        if limit.burst_ns > quota_ns {
            let expected = format!("at most the quota, {}", show_nanos(quota_ns));
            self.findings.add(&burst, show_nanos(limit.burst_ns), expected);
        }
        if limit.burst_ns > 0 && !self.sched.has_bursts() {
            let expected = "no burst with this host.scheduler: bursts came with Linux 5.14";
            self.findings.add(&burst, show_nanos(limit.burst_ns), expected);
        }
        if !self.sched.has_bandwidth() {
            let expected = "no quota with host.scheduler = \"cfs-2.6.37\": bandwidth control came with 3.2";
            self.findings.add(&quota, show_nanos(quota_ns), expected);
        }
    }
}
