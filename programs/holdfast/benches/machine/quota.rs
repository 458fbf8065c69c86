//! Control groups with a quota of CPU time, in which a benchmark or a test runs.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A control group with a quota, which this process is in until it is dropped.
pub struct Quota {
    group: PathBuf,
    /// The group that the process was in before.
    before: PathBuf,
}

impl Quota {
    /// Moves this process into a new group that may use `cpus` CPUs on average, below the group that it is in.
    ///
    /// # Errors
    /// If there is no controller of CPU time, or no right to make a group.
    pub fn of(cpus: f64) -> io::Result<Quota> {
        const PERIOD_US: u32 = 100_000;
        let quota_us = (cpus * f64::from(PERIOD_US)) as u64;
        let (before, second) = own_group()?;
        let group = before.join(format!("holdfast-{}", std::process::id()));
        if second {
            // Fails if the group has processes and is not the root: then the file below is missing.
            let _ = fs::write(before.join("cgroup.subtree_control"), "+cpu");
        }
        fs::create_dir(&group)?;
        let made = Quota { group, before };
        if second {
            fs::write(made.group.join("cpu.max"), format!("{quota_us} {PERIOD_US}"))?;
        } else {
            fs::write(made.group.join("cpu.cfs_period_us"), PERIOD_US.to_string())?;
            fs::write(made.group.join("cpu.cfs_quota_us"), quota_us.to_string())?;
        }
        enter(&made.group)?;
        Ok(made)
    }

    /// Returns how often the group was stopped because its quota was used up.
    ///
    /// # Errors
    /// If the group's statistics cannot be read.
    #[allow(dead_code, reason = "a test asks, the benchmark does not")]
    pub fn stops(&self) -> io::Result<u64> {
        let statistics = fs::read_to_string(self.group.join("cpu.stat"))?;
        let stops = statistics.lines().find_map(|line| line.strip_prefix("nr_throttled "));
        stops
            .and_then(|stops| stops.parse().ok())
            .ok_or_else(|| io::Error::other("no number of stops"))
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        let left = enter(&self.before).and_then(|()| fs::remove_dir(&self.group));
        if let Err(error) = left {
            eprintln!("the control group {} stays: {error}", self.group.display());
        }
    }
}

fn enter(group: &Path) -> io::Result<()> {
    fs::write(group.join("cgroup.procs"), std::process::id().to_string())
}

/// Returns the group of this process that may have quotas, and whether it is of the second version of control groups.
fn own_group() -> io::Result<(PathBuf, bool)> {
    let groups = fs::read_to_string("/proc/self/cgroup")?;
    for line in groups.lines() {
        // Number, controllers, path. The second version has no controllers in this file.
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next().unwrap_or(""), parts.next().unwrap_or("/"));
        let path = path.trim_start_matches('/');
        if controllers.split(',').any(|controller| controller == "cpu") {
            return Ok((Path::new("/sys/fs/cgroup").join(controllers).join(path), false));
        }
        let second = Path::new("/sys/fs/cgroup").join(path);
        if controllers.is_empty() && second.join("cgroup.controllers").exists() {
            return Ok((second, true));
        }
    }
    Err(io::Error::other("no controller of CPU time is mounted"))
}
