//! Files beside a recording: copies of `/proc` and `/sys` in a folder, at their own paths, as they were after the
//! events; in `before/`, as they were before. Any of them can be missing.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use super::copy::text;
use super::features::{self, Feature};
use super::groups::{self, Groups};
use super::libvirt::Domain;
use super::topology::{self, Place};
use crate::event::Tid;

/// Limit on the number of entries of a folder.
const ENTRIES_MAX: usize = 200_000;
/// Flag of a kernel thread in `/proc/PID/stat` (`PF_KTHREAD`).
const KERNEL_THREAD: u64 = 0x0020_0000;

/// What files say of one VM.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VmFiles {
    /// Its name.
    pub name: Option<String>,
    /// The smallest quota of a control group above a vCPU, in pCPUs; `Some(None)`: none of them has one.
    pub quota: Option<Option<f64>>,
    /// Time for which its control groups were throttled between the two copies, in ns.
    pub throttled: Option<u64>,
    /// pCPUs to which vCPUs are pinned, by number.
    pub pins: BTreeMap<u32, String>,
    /// pCPUs to which the monitor's own threads are pinned.
    pub emulator_pin: Option<String>,
    /// Paravirtual features that its VMM was told to have or to leave off.
    pub features: Vec<Feature>,
}

/// What files beside a recording say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Beside {
    /// Processes of threads.
    pub processes: BTreeMap<Tid, Tid>,
    /// Kernel threads. Empty if no file says it.
    pub kernel_threads: BTreeSet<Tid>,
    /// VMs, by their process.
    pub vms: BTreeMap<Tid, VmFiles>,
    /// Time for which threads waited for a pCPU between the two copies, by the kernel's own count, in ns.
    pub run_delays: BTreeMap<Tid, u64>,
    /// pCPUs that threads may use.
    pub allowed: BTreeMap<Tid, String>,
    /// Places of the pCPUs.
    pub places: Vec<Place>,
    /// Release of the kernel.
    pub kernel: Option<String>,
    /// Its model of preemption.
    pub preemption: Option<String>,
    /// Longest time for which a halted vCPU polls, in ns.
    pub halt_poll_ns: Option<u64>,
    /// Control groups of processes.
    pub groups: BTreeMap<Tid, Groups>,
    /// Counters of KVM, summed over the vCPUs of each process.
    pub counters: BTreeMap<Tid, BTreeMap<String, u64>>,
    /// Domains that are not yet matched with a process.
    domains: Vec<Domain>,
    /// Files that could not be understood, each with the reason.
    pub faults: Vec<String>,
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.take(ENTRIES_MAX);
    let mut names: Vec<String> = names.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

fn numbers(folder: &Path) -> Vec<Tid> {
    names(folder).iter().filter_map(|name| name.parse().ok()).collect()
}

/// Returns the value of `key` in lines as `key value`.
fn value(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(char::is_whitespace)?;
        (name == key).then(|| value.trim().parse().ok()).flatten()
    })
}

/// Returns the second number of `schedstat`: time waited for a pCPU, in ns.
fn run_delay(text: &str) -> Option<u64> {
    text.split_whitespace().nth(1)?.parse().ok()
}

/// Returns the flags in `/proc/PID/stat`. The name before them can have any character.
fn flags(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(6)?.parse().ok()
}

/// Returns the name of a VM in the path of its control group: `machine-qemu\x2d3\x2dweb.scope` is `web`.
fn name_in_group(path: &str) -> Option<String> {
    let part = path
        .split('/')
        .find_map(|part| part.strip_prefix("machine-")?.strip_suffix(".scope"))?;
    let mut plain = String::new();
    let mut rest = part;
    while let Some((before, after)) = rest.split_once("\\x") {
        plain.push_str(before);
        let byte = after.get(..2).and_then(|code| u8::from_str_radix(code, 16).ok())?;
        plain.push(char::from(byte));
        rest = &after[2..];
    }
    plain.push_str(rest);
    // Driver and number come first.
    let name = plain.splitn(3, '-').nth(2)?;
    (!name.is_empty()).then(|| name.chars().take(256).collect())
}

/// Returns the quota that a folder of a control group has, in pCPUs; `Some(None)` if it has none.
fn quota(group: &Path) -> Option<Option<f64>> {
    let ratio = |quota: &str, period: &str| -> Option<f64> {
        let (quota, period): (f64, f64) = (quota.trim().parse().ok()?, period.trim().parse().ok()?);
        (quota > 0.0 && period > 0.0).then_some(quota / period)
    };
    if let Some(text) = text(&group.join("cpu.max")) {
        let (quota, period) = text.trim().split_once(' ')?;
        return Some(ratio(quota, period));
    }
    let quota = text(&group.join("cpu.cfs_quota_us"))?;
    Some(ratio(&quota, &text(&group.join("cpu.cfs_period_us"))?))
}

/// Returns for how long a control group was throttled, in ns.
fn throttled(group: &Path) -> Option<u64> {
    let text = text(&group.join("cpu.stat"))?;
    let of_v2 = value(&text, "throttled_usec").map(|us| us.saturating_mul(1000));
    of_v2.or_else(|| value(&text, "throttled_time"))
}

impl Beside {
    /// Adds a file of any kind that is known: a domain of libvirt or a list of `lscpu -J`.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn add_file(&mut self, path: &Path) -> Result<(), String> {
        let text = text(path).ok_or("cannot be read")?;
        if text.trim_start().starts_with('<') {
            self.domains.push(Domain::read(&text)?);
        } else if topology::is_lscpu(&text) {
            self.places.extend(topology::of_lscpu(&text).unwrap_or_default());
        } else {
            return Err("neither a domain of libvirt nor a list of `lscpu -J`".to_owned());
        }
        Ok(())
    }

    /// Adds a folder with copies. What is missing in it is left out.
    pub fn add_folder(&mut self, root: &Path) {
        let before = root.join("before");
        self.machine(root);
        for process in numbers(&root.join("proc")) {
            let stat = text(&root.join(format!("proc/{process}/stat"))).unwrap_or_default();
            if flags(&stat).is_some_and(|flags| flags & KERNEL_THREAD != 0) {
                self.kernel_threads.insert(process);
            }
            self.process(root, &before, process);
        }
        self.kvm(root);
        for folder in ["", "libvirt", "run/libvirt/qemu", "etc/libvirt/qemu"] {
            for name in names(&root.join(folder)) {
                let lists = folder.is_empty() && name.starts_with("lscpu") && name.ends_with(".json");
                if name.ends_with(".xml") || lists {
                    let path = root.join(folder).join(&name);
                    if let Err(fault) = self.add_file(&path) {
                        self.faults.push(format!("{name}: {fault}"));
                    }
                }
            }
        }
    }

    /// Matches domains with processes. Call it when all files are added.
    pub fn complete(&mut self) {
        for domain in std::mem::take(&mut self.domains) {
            let of_thread = domain
                .vcpus
                .values()
                .find_map(|thread| self.processes.get(thread).copied());
            let named = || {
                let mut same = self.vms.iter().filter(|(_, vm)| vm.name.as_ref() == Some(&domain.name));
                same.next().map(|(process, _)| *process)
            };
            let Some(process) = domain.process.or(of_thread).or_else(named) else {
                let fault = format!("domain {}: no process is known to be it", domain.name);
                self.faults.push(fault);
                continue;
            };
            for thread in domain.vcpus.values().chain([&process]) {
                self.processes.insert(*thread, process);
            }
            let vm = self.vms.entry(process).or_default();
            vm.name = Some(domain.name);
            vm.pins = domain.pins;
            vm.emulator_pin = domain.emulator_pin;
            for feature in domain.features {
                features::add(&mut vm.features, feature);
            }
            if vm.quota.is_none() && domain.vcpu_quota.is_some_and(|quota| quota < 0) {
                vm.quota = Some(None);
            }
        }
    }

    /// Adds a guest whose vCPUs a recording names by their threads (`trace-cmd record -A`).
    pub fn add_guest(&mut self, name: &str, threads: impl Iterator<Item = Tid> + Clone) {
        // Where its process is not known, its first thread stands for it.
        let known = threads.clone().find_map(|thread| self.processes.get(&thread).copied());
        let Some(process) = known.or_else(|| threads.clone().min()) else {
            return;
        };
        self.processes.extend(threads.map(|thread| (thread, process)));
        self.vms
            .entry(process)
            .or_default()
            .name
            .get_or_insert_with(|| name.to_owned());
    }

    /// Returns the name of the VM with `process`.
    pub fn vm_name(&self, process: Option<Tid>) -> String {
        let Some(process) = process else {
            return "VMs not known".to_owned();
        };
        let named = self.vms.get(&process).and_then(|vm| vm.name.clone());
        named.unwrap_or_else(|| format!("vm {process}"))
    }

    fn machine(&mut self, root: &Path) {
        let line = |path: &str| text(&root.join(path)).map(|text| text.trim().to_owned());
        self.kernel = line("proc/sys/kernel/osrelease").or_else(|| {
            let version = line("proc/version")?;
            version.split_whitespace().nth(2).map(str::to_owned)
        });
        // The one that is chosen stands in parentheses: "none voluntary (full) lazy".
        let chosen = line("sys/kernel/debug/sched/preempt").and_then(|models| {
            let (_, rest) = models.split_once('(')?;
            Some(rest.split_once(')')?.0.to_owned())
        });
        self.preemption = chosen;
        self.halt_poll_ns = line("sys/module/kvm/parameters/halt_poll_ns").and_then(|ns| ns.parse().ok());
        let folder = root.join("sys/devices/system/cpu");
        for name in names(&folder) {
            let Some(cpu) = name.strip_prefix("cpu").and_then(|number| number.parse().ok()) else {
                continue;
            };
            let number = |file: &str| {
                text(&folder.join(&name).join("topology").join(file))?
                    .trim()
                    .parse()
                    .ok()
            };
            let (core, package) = (number("core_id"), number("physical_package_id"));
            if core.is_some() || package.is_some() {
                self.places.push(Place {
                    cpu,
                    core,
                    package,
                    node: None,
                });
            }
        }
        for name in names(&root.join("sys/devices/system/node")) {
            let Some(node) = name.strip_prefix("node").and_then(|number| number.parse().ok()) else {
                continue;
            };
            let path = root.join("sys/devices/system/node").join(&name).join("cpulist");
            let cpus = text(&path).and_then(|text| topology::list(&text)).unwrap_or_default();
            for place in self.places.iter_mut().filter(|place| cpus.contains(&place.cpu)) {
                place.node = Some(node);
            }
        }
        self.places.sort_by_key(|place| place.cpu);
    }

    fn process(&mut self, root: &Path, before: &Path, process: Tid) {
        let mut groups = BTreeSet::new();
        let (mut places, mut within) = (&[][..], Vec::new());
        let mut named = None;
        for thread in numbers(&root.join(format!("proc/{process}/task"))) {
            self.processes.insert(thread, process);
            let path = format!("proc/{process}/task/{thread}");
            let delay = |root: &Path| run_delay(&text(&root.join(&path).join("schedstat"))?);
            if let (Some(from), Some(to)) = (delay(before), delay(root))
                && to >= from
            {
                self.run_delays.insert(thread, to - from);
            }
            let status = text(&root.join(&path).join("status")).unwrap_or_default();
            let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
            if let Some(allowed) = allowed {
                self.allowed.insert(thread, allowed.trim().chars().take(1024).collect());
            }
            let group = text(&root.join(&path).join("cgroup")).unwrap_or_default();
            for line in group.lines() {
                let mut parts = line.splitn(3, ':').skip(1);
                let (Some(controllers), Some(group)) = (parts.next(), parts.next()) else {
                    continue;
                };
                named = named.or_else(|| name_in_group(group));
                let mounted: &[&str] = match controllers {
                    "" => &["sys/fs/cgroup", "sys/fs/cgroup/unified"],
                    _ if controllers.split(',').any(|name| name == "cpu") => {
                        &["sys/fs/cgroup/cpu", "sys/fs/cgroup/cpu,cpuacct"]
                    }
                    _ => continue,
                };
                let group = Path::new(group.trim_start_matches('/'));
                let is_plain = group
                    .components()
                    .all(|part| matches!(part, std::path::Component::Normal(_)));
                // With both, the CPU controller is in the older hierarchy.
                if is_plain && (within.is_empty() || places == mounted || !controllers.is_empty()) {
                    if places != mounted {
                        within.clear();
                    }
                    places = mounted;
                    within.push(group.to_owned());
                }
                for above in group
                    .ancestors()
                    .filter(|above| is_plain && !above.as_os_str().is_empty())
                {
                    groups.extend(mounted.iter().map(|place| Path::new(place).join(above)));
                }
            }
        }
        if let Some(found) = groups::common(root, places, &within) {
            self.groups.insert(process, found);
        }
        let quotas: Vec<Option<f64>> = groups.iter().filter_map(|group| quota(&root.join(group))).collect();
        let mut files = VmFiles {
            name: named,
            features: features::of_command(&text(&root.join(format!("proc/{process}/cmdline"))).unwrap_or_default()),
            ..VmFiles::default()
        };
        if !quotas.is_empty() {
            files.quota = Some(quotas.into_iter().flatten().reduce(f64::min));
        }
        let spans = groups.iter().filter_map(|group| {
            let limited = quota(&root.join(group)).flatten().is_some();
            let (from, to) = (throttled(&before.join(group))?, throttled(&root.join(group))?);
            limited.then(|| to.saturating_sub(from))
        });
        files.throttled = spans.reduce(u64::saturating_add);
        if files != VmFiles::default() {
            self.vms.insert(process, files);
        }
    }

    /// Reads KVM's folder of each VM, `PROCESS-DESCRIPTOR`, with a folder of each vCPU.
    fn kvm(&mut self, root: &Path) {
        let folder = root.join("sys/kernel/debug/kvm");
        for vm in names(&folder) {
            let Some(process) = vm.split_once('-').and_then(|(process, _)| process.parse().ok()) else {
                continue;
            };
            self.processes.insert(process, process);
            self.vms.entry(process).or_default();
            for vcpu in names(&folder.join(&vm)).iter().filter(|name| name.starts_with("vcpu")) {
                let folder = folder.join(&vm).join(vcpu);
                if let Some(thread) = text(&folder.join("pid")).and_then(|text| text.trim().parse().ok()) {
                    self.processes.insert(thread, process);
                }
                let sums = self.counters.entry(process).or_default();
                for name in names(&folder).iter().filter(|name| name.as_str() != "pid") {
                    let count: Option<u64> = text(&folder.join(name)).and_then(|text| text.trim().parse().ok());
                    let past = || {
                        let before = root.join("before/sys/kernel/debug/kvm").join(&vm).join(vcpu).join(name);
                        text(&before)?.trim().parse::<u64>().ok()
                    };
                    if let Some(count) = count
                        && sums.len() < 1024
                    {
                        let sum = sums.entry(name.clone()).or_default();
                        *sum = sum.saturating_add(count.saturating_sub(past().unwrap_or(0)));
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a new folder");
        fs::write(path, text).expect("a new file");
    }

    #[test]
    fn copies_say_processes_quotas_and_delays() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path();
        let group = "machine.slice/machine-qemu\\x2d3\\x2dweb\\x2d1.scope/libvirt/vcpu0";
        write(root, "proc/100/task/101/cgroup", &format!("0::/{group}\n"));
        write(
            root,
            "proc/100/task/101/status",
            "Name:\tCPU 0/KVM\nCpus_allowed_list:\t0-1\n",
        );
        write(root, "proc/100/task/101/schedstat", "50 900 7\n");
        write(root, "before/proc/100/task/101/schedstat", "20 400 3\n");
        write(root, "proc/7/stat", "7 (a (b) c) S 2 0 0 0 -1 2129984 0 0");
        write(root, &format!("sys/fs/cgroup/{group}/cpu.max"), "50000 100000\n");
        write(root, "sys/fs/cgroup/machine.slice/cpu.max", "max 100000\n");
        write(
            root,
            &format!("sys/fs/cgroup/{group}/cpu.stat"),
            "usage_usec 9\nthrottled_usec 12\n",
        );
        write(
            root,
            &format!("before/sys/fs/cgroup/{group}/cpu.stat"),
            "throttled_usec 2\n",
        );
        write(root, "sys/kernel/debug/sched/preempt", "none voluntary full (lazy) \n");
        write(root, "sys/kernel/debug/kvm/100-12/vcpu0/exits", "10\n");
        write(root, "before/sys/kernel/debug/kvm/100-12/vcpu0/exits", "4\n");
        write(root, "sys/kernel/debug/kvm/200-3/vcpu0/pid", "205\n");
        let mut beside = Beside::default();
        beside.add_folder(root);
        beside.complete();
        assert_eq!(beside.processes.get(&101), Some(&100));
        assert_eq!(beside.processes.get(&205), Some(&200));
        assert_eq!(beside.run_delays.get(&101), Some(&500));
        assert_eq!(beside.kernel_threads, BTreeSet::from([7]));
        assert_eq!(beside.preemption.as_deref(), Some("lazy"));
        assert_eq!(beside.allowed.get(&101).map(String::as_str), Some("0-1"));
        let vm = &beside.vms[&100];
        assert_eq!(vm.name.as_deref(), Some("web-1"));
        assert_eq!((vm.quota, vm.throttled), (Some(Some(0.5)), Some(10_000)));
        assert_eq!(beside.counters[&100]["exits"], 6);
    }

    #[test]
    fn domains_are_matched_by_process_thread_or_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path();
        write(root, "proc/9/task/10/cgroup", "0::/machine-qemu\\x2d1\\x2ddb.scope\n");
        write(
            root,
            "libvirt/db.xml",
            "<domain id='1'><name>db</name><cputune><vcpupin vcpu='0' cpuset='3'/></cputune></domain>",
        );
        write(root, "libvirt/other.xml", "<domain><name>other</name></domain>");
        write(root, "libvirt/broken.xml", "<domain><name>");
        let mut beside = Beside::default();
        beside.add_folder(root);
        beside.complete();
        assert_eq!(beside.vms[&9].pins.get(&0).map(String::as_str), Some("3"));
        assert_eq!(beside.faults.len(), 2, "{:?}", beside.faults);
    }
}
