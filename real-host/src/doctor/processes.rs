//! What files say of guests that run: the processes with vCPU threads, and what limits these.

use holdfast_recordings::hosts::names::is_vcpu;

use super::files::Files;
use super::machine::count;

/// Limit on the processes that are examined.
const PROCESSES_MAX: usize = 65_536;
/// Limit on the threads of a process that are examined.
const THREADS_MAX: usize = 4_096;

/// A vCPU thread.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Vcpu {
    /// CPUs that it may run on, as the kernel lists them.
    pub allowed: Option<String>,
    /// Nanoseconds that it ran.
    pub ran: u64,
    /// Nanoseconds that it waited for a CPU.
    pub waited: u64,
    /// Its cgroup of version 2.
    pub cgroup: Option<String>,
}

/// A process with vCPU threads.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Guest {
    /// Its name: that of QEMU's `-name`, or its process.
    pub name: String,
    /// Its vCPUs.
    pub vcpus: Vec<Vcpu>,
}

/// Returns the guests that run.
pub fn guests(files: &Files) -> Vec<Guest> {
    let is_number = |name: &String| name.bytes().all(|byte| byte.is_ascii_digit());
    let processes = files.names("/proc").into_iter().filter(is_number).take(PROCESSES_MAX);
    let guests = processes.filter_map(|process| {
        let tasks = files
            .names(&format!("/proc/{process}/task"))
            .into_iter()
            .take(THREADS_MAX);
        let vcpus = tasks.filter_map(|thread| vcpu(files, &format!("/proc/{process}/task/{thread}")));
        let vcpus: Vec<Vcpu> = vcpus.collect();
        (!vcpus.is_empty()).then(|| Guest {
            name: name(files, &process),
            vcpus,
        })
    });
    guests.collect()
}

/// Returns the vCPU whose thread has its files in `folder`, if the thread is one.
fn vcpu(files: &Files, folder: &str) -> Option<Vcpu> {
    let name = files.text(&format!("{folder}/comm"))?;
    if !is_vcpu(&name) {
        return None;
    }
    let status = files.text(&format!("{folder}/status")).unwrap_or_default();
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let times = files.text(&format!("{folder}/schedstat")).unwrap_or_default();
    let mut times = times.split_ascii_whitespace().map(|number| number.parse().unwrap_or(0));
    let groups = files.text(&format!("{folder}/cgroup")).unwrap_or_default();
    let group = groups.lines().find_map(|line| line.strip_prefix("0::"));
    Some(Vcpu {
        allowed: allowed
            .map(|list| list.trim().to_owned())
            .filter(|list| count(list).is_some()),
        ran: times.next().unwrap_or(0),
        waited: times.next().unwrap_or(0),
        // A path that leaves the tree is not followed.
        cgroup: group
            .map(str::to_owned)
            .filter(|path| !path.split('/').any(|part| part == "..")),
    })
}

/// Returns the guest's name: QEMU's `-name`, or the process.
fn name(files: &Files, process: &str) -> String {
    let line = files.text(&format!("/proc/{process}/cmdline")).unwrap_or_default();
    let mut words = line.split('\0');
    let named = words.by_ref().find(|word| *word == "-name").and_then(|_| words.next());
    let named = named.map(|name| name.trim_start_matches("guest=").split(',').next().unwrap_or_default());
    let shown: String = named
        .unwrap_or_default()
        .chars()
        .filter(|c| !c.is_control())
        .take(40)
        .collect();
    if shown.is_empty() {
        format!("process {process}")
    } else {
        shown
    }
}

/// Returns the limit and the throttled periods of the group at `path` or the nearest one above it with a limit.
pub fn limit(files: &Files, path: &str) -> Option<(String, u64)> {
    let mut path = path.trim_end_matches('/');
    loop {
        let folder = format!("/sys/fs/cgroup{path}");
        let max = files.line(&format!("{folder}/cpu.max"));
        if let Some(max) = max.filter(|max| !max.starts_with("max")) {
            let stat = files.text(&format!("{folder}/cpu.stat")).unwrap_or_default();
            let throttled = stat.lines().find_map(|line| line.strip_prefix("nr_throttled "));
            return Some((max, throttled.and_then(|count| count.trim().parse().ok()).unwrap_or(0)));
        }
        path = path.rsplit_once('/')?.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_of_every_vmm_are_known_by_their_names() {
        for name in ["CPU 0/KVM", "CPU 12/KVM", "vcpu3", "fc_vcpu 0", "crosvm_vcpu7"] {
            assert!(is_vcpu(name), "{name}");
        }
        for name in ["CPU x/KVM", "vcpu", "kvm-pit/7", "qemu-system-x86", "fc_vcpu"] {
            assert!(!is_vcpu(name), "{name}");
        }
    }
}
