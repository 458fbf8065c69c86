//! Copies of system files that explain a recording: topology, KVM, scheduler, control groups, and the threads of VMs.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{ErrorKind, Read as _};
use std::path::{Component, Path, PathBuf};

use holdfast_recordings::hosts::names::is_vcpu;

/// Limit on what is copied of a file in bytes.
const BYTES_MAX: u64 = 1 << 20;
/// Limit on the number of files of one copy.
const FILES_MAX: usize = 200_000;
/// Depth to which folders are copied.
const DEPTH_MAX: usize = 4;

/// Files of the machine as a whole.
const MACHINE: &[&str] = &[
    "proc/cpuinfo",
    "proc/loadavg",
    "proc/meminfo",
    "proc/pressure/cpu",
    "proc/pressure/io",
    "proc/pressure/memory",
    "proc/schedstat",
    "proc/stat",
    "proc/sys/kernel/osrelease",
    "proc/sys/kernel/sched_autogroup_enabled",
    "proc/sys/kernel/sched_cfs_bandwidth_slice_us",
    "proc/sys/kernel/sched_rt_period_us",
    "proc/sys/kernel/sched_rt_runtime_us",
    "proc/sys/kernel/sched_schedstats",
    "proc/sys/kernel/version",
    "proc/uptime",
    "proc/version",
    "sys/devices/system/cpu/isolated",
    "sys/devices/system/cpu/nohz_full",
    "sys/devices/system/cpu/online",
    "sys/devices/system/cpu/possible",
    "sys/devices/system/cpu/present",
    "sys/devices/system/cpu/smt/active",
    "sys/devices/system/cpu/smt/control",
    "sys/devices/system/clocksource/clocksource0/current_clocksource",
    "sys/kernel/sched_ext/state",
    "sys/kernel/sched_ext/root/ops",
];
/// Folders whose files are copied.
const FOLDERS: &[&str] = &[
    "sys/kernel/debug/kvm",
    "sys/kernel/debug/sched",
    "sys/module/kvm/parameters",
    "sys/module/kvm_amd/parameters",
    "sys/module/kvm_intel/parameters",
];
/// Files of each CPU, below its folder.
const CPU: &[&str] = &[
    "cache/index2/shared_cpu_list",
    "cache/index3/shared_cpu_list",
    "cpufreq/scaling_governor",
    "topology/cluster_id",
    "topology/core_cpus_list",
    "topology/core_id",
    "topology/die_id",
    "topology/package_cpus_list",
    "topology/physical_package_id",
];
/// Files of each thread of a VM's process, below its folder. `schedstat` is copied apart from them.
const THREAD: &[&str] = &["cgroup", "comm", "sched", "stat", "status"];
/// Files of the control groups of VMs, of the second version and of the first.
const GROUP: &[&str] = &[
    "cpu.cfs_burst_us",
    "cpu.cfs_period_us",
    "cpu.cfs_quota_us",
    "cpu.idle",
    "cpu.max",
    "cpu.max.burst",
    "cpu.pressure",
    "cpu.shares",
    "cpu.stat",
    "cpu.weight",
    "cpuset.cpus",
    "cpuset.cpus.effective",
];

/// Copies files below one root directory.
#[derive(Debug)]
pub(super) struct Snapshot<'r> {
    root: &'r Path,
    /// Processes with vCPU threads, with their threads.
    vms: BTreeMap<u32, Vec<u32>>,
    /// Files that exist and cannot be read, and why.
    refused: BTreeSet<String>,
    files: usize,
}

impl<'r> Snapshot<'r> {
    /// Begins without copies of the machine at `root`.
    pub(super) fn new(root: &'r Path) -> Snapshot<'r> {
        Snapshot {
            root,
            vms: BTreeMap::new(),
            refused: BTreeSet::new(),
            files: 0,
        }
    }

    /// Copies all files into `to`. Finds the VMs first. Keeps the `schedstat` of threads that are there already.
    pub(super) fn all(&mut self, to: &Path) {
        self.files = 0;
        self.find();
        for file in MACHINE {
            self.copy(file, to);
        }
        for folder in FOLDERS {
            self.folder(folder, to, DEPTH_MAX);
        }
        self.cpus(to);
        for process in numbers(&self.root.join("proc")) {
            self.copy(&format!("proc/{process}/stat"), to);
        }
        let mut groups = BTreeSet::new();
        for (process, threads) in self.vms.clone() {
            // What the VMM was told, such as features that are off.
            self.copy(&format!("proc/{process}/cmdline"), to);
            for thread in threads {
                let folder = format!("proc/{process}/task/{thread}");
                for file in THREAD {
                    self.copy(&format!("{folder}/{file}"), to);
                }
                let delays = format!("{folder}/schedstat");
                if !to.join(&delays).exists() {
                    self.copy(&delays, to);
                }
                groups.extend(self.groups(&folder));
            }
        }
        for group in groups {
            for file in GROUP {
                self.copy(&format!("{group}/{file}"), to);
            }
        }
    }

    /// Returns the `schedstat` of the VMs' threads, with their paths below the root.
    pub(super) fn run_delays(&self) -> Vec<(String, Vec<u8>)> {
        let threads = self
            .vms
            .iter()
            .flat_map(|(process, threads)| threads.iter().map(move |thread| (process, thread)));
        let paths = threads.map(|(process, thread)| format!("proc/{process}/task/{thread}/schedstat"));
        // A thread that has ended has none.
        paths
            .filter_map(|path| fs::read(self.root.join(&path)).ok().map(|text| (path, text)))
            .collect()
    }

    /// Writes `delays` below `to`, in place of earlier ones.
    pub(super) fn keep(&mut self, delays: &[(String, Vec<u8>)], to: &Path) {
        for (path, text) in delays {
            let into = to.join(path);
            let written = fs::create_dir_all(into.parent().unwrap_or(to)).and_then(|()| fs::write(into, text));
            if let Err(error) = written {
                self.refused.insert(format!("/{path}: {error}"));
            }
        }
    }

    /// Returns the processes with vCPU threads.
    pub(super) fn vms(&self) -> Vec<u32> {
        self.vms.keys().copied().collect()
    }

    /// Returns what exists and could not be read, and why.
    pub(super) fn unreadable(&self) -> Vec<String> {
        let mut unreadable: Vec<String> = self.refused.iter().cloned().collect();
        if fs::read_dir(self.root.join("sys/kernel/debug")).is_ok_and(|mut entries| entries.next().is_none()) {
            unreadable.push(
                "/sys/kernel/debug is not mounted, so KVM's counters are missing: mount -t debugfs nodev \
                 /sys/kernel/debug"
                    .to_owned(),
            );
        }
        if self.files >= FILES_MAX {
            unreadable.push(format!("files after the first {FILES_MAX}"));
        }
        unreadable
    }

    /// Finds the processes with vCPU threads: by the names of their threads, and by KVM's own list.
    fn find(&mut self) {
        let listed = fs::read_dir(self.root.join("sys/kernel/debug/kvm"))
            .into_iter()
            .flatten()
            .flatten();
        // A VM's folder is named by process and file descriptor: 4711-12.
        let listed = listed.filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            name.split_once('-')?.0.parse::<u32>().ok()
        });
        let listed: BTreeSet<u32> = listed.collect();
        for process in numbers(&self.root.join("proc")) {
            let folder = self.root.join(format!("proc/{process}/task"));
            let threads = numbers(&folder);
            let runs_vcpu = |thread: &u32| {
                let name = fs::read_to_string(folder.join(format!("{thread}/comm")));
                name.is_ok_and(|name| is_vcpu(name.trim_end()))
            };
            if listed.contains(&process) || threads.iter().any(runs_vcpu) {
                let known = self.vms.entry(process).or_default();
                known.extend(threads);
                known.sort_unstable();
                known.dedup();
            }
        }
    }

    fn cpus(&mut self, to: &Path) {
        let folder = "sys/devices/system/cpu";
        let names = names(&self.root.join(folder));
        for cpu in names.iter().filter(|name| numbered(name, "cpu")) {
            for file in CPU {
                self.copy(&format!("{folder}/{cpu}/{file}"), to);
            }
        }
        let folder = "sys/devices/system/node";
        for node in self::names(&self.root.join(folder))
            .iter()
            .filter(|name| numbered(name, "node"))
        {
            self.copy(&format!("{folder}/{node}/cpulist"), to);
            self.copy(&format!("{folder}/{node}/distance"), to);
        }
    }

    /// Returns the folders of the control groups that a thread at `thread` is in, and of those above, without the root.
    fn groups(&self, thread: &str) -> Vec<String> {
        let text = fs::read_to_string(self.root.join(thread).join("cgroup")).unwrap_or_default();
        let mut groups = Vec::new();
        for line in text.lines() {
            let mut parts = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else {
                continue;
            };
            let path = Path::new(path.trim_start_matches('/'));
            // A group outside of this namespace begins with "..".
            if !path.components().all(|part| matches!(part, Component::Normal(_))) {
                continue;
            }
            let mounted = match controllers {
                "" => ["sys/fs/cgroup", "sys/fs/cgroup/unified"].to_vec(),
                _ if controllers.split(',').any(|name| name == "cpu") => {
                    ["sys/fs/cgroup/cpu", "sys/fs/cgroup/cpu,cpuacct"].to_vec()
                }
                _ => continue,
            };
            for above in path.ancestors().filter(|above| !above.as_os_str().is_empty()) {
                groups.extend(mounted.iter().filter_map(|place| {
                    let folder = Path::new(place).join(above);
                    self.root
                        .join(&folder)
                        .is_dir()
                        .then(|| folder.to_str().map(str::to_owned))?
                }));
            }
        }
        groups
    }

    /// Copies the files in `folder` and in the folders below, to `depth`.
    fn folder(&mut self, folder: &str, to: &Path, depth: usize) {
        for name in names(&self.root.join(folder)) {
            let path = format!("{folder}/{name}");
            let Ok(kind) = self.root.join(&path).symlink_metadata() else {
                continue;
            };
            if kind.is_dir() && depth > 0 {
                self.folder(&path, to, depth - 1);
            } else if kind.is_file() {
                self.copy(&path, to);
            }
        }
    }

    /// Copies the file at `path` below the root to the same path below `to`, up to a limit on its size. A file that
    /// does not exist is left out.
    fn copy(&mut self, path: &str, to: &Path) {
        if self.files >= FILES_MAX {
            return;
        }
        let copy = || {
            let from = self.root.join(path);
            // The open of a pipe would wait for a writer.
            if !fs::metadata(&from)?.is_file() {
                return Ok(());
            }
            let mut content = Vec::new();
            File::open(&from)?.take(BYTES_MAX).read_to_end(&mut content)?;
            let into: PathBuf = to.join(path);
            fs::create_dir_all(into.parent().unwrap_or(to))?;
            fs::write(into, content)
        };
        self.files += 1;
        match copy() {
            Ok(()) => {}
            // ESRCH: a thread has ended.
            Err(error) if error.kind() == ErrorKind::NotFound || error.raw_os_error() == Some(3) => {}
            // Some files of debugfs can only be written, or are of a device that is off.
            Err(_) if path.starts_with("sys/kernel/debug") => {}
            Err(error) => {
                self.refused.insert(format!("/{path}: {error}"));
            }
        }
    }
}

/// Returns whether `name` is `prefix` and a number.
fn numbered(name: &str, prefix: &str) -> bool {
    name.strip_prefix(prefix)
        .is_some_and(|number| number.parse::<u32>().is_ok())
}

/// Returns the names in `folder`, sorted. There are none if it cannot be read.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    names
}

/// Returns the numbers among the names in `folder`.
fn numbers(folder: &Path) -> Vec<u32> {
    names(folder).iter().filter_map(|name| name.parse().ok()).collect()
}
