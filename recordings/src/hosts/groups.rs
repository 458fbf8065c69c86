//! Control groups of processes, from copies of `/proc` and `/sys/fs/cgroup`.

use std::path::{Path, PathBuf};

use super::copy::text;

/// A level of the control groups above all threads of a process.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Level {
    /// The name of the group.
    pub name: String,
    /// Its `cpu.weight`, if a file says it; `cpu.shares` in the same unit.
    pub weight: Option<u64>,
}

/// The control groups of a process: of the CPU controller, or of the only hierarchy.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Groups {
    /// The groups that all its threads are in, from the root's child on. Empty in the root group.
    pub levels: Vec<Level>,
    /// vCPUs have groups of their own below, as libvirt makes them.
    pub of_vcpus: bool,
}

/// Returns the weight of a control group.
fn weight(group: &Path) -> Option<u64> {
    let number = |file: &str| text(&group.join(file))?.trim().parse::<u64>().ok();
    number("cpu.weight").or_else(|| Some(number("cpu.shares")?.saturating_mul(100).div_ceil(1024)))
}

/// Returns the control groups that all of `paths` are in. They are below one of the folders `mounted`.
pub(super) fn common(root: &Path, mounted: &[&str], paths: &[PathBuf]) -> Option<Groups> {
    let (first, others) = paths.split_first()?;
    let is_common = |above: &Path| others.iter().all(|path| path.starts_with(above));
    let common = first.ancestors().find(|above| is_common(above))?;
    let mut above: Vec<&Path> = common
        .ancestors()
        .filter(|above| !above.as_os_str().is_empty())
        .collect();
    above.reverse();
    let levels = above.into_iter().map(|group| Level {
        name: group.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        weight: mounted.iter().find_map(|place| weight(&root.join(place).join(group))),
    });
    let is_of_vcpu = |path: &PathBuf| {
        let below = path.strip_prefix(common).ok().and_then(|below| below.iter().next());
        below.is_some_and(|name| name.to_string_lossy().starts_with("vcpu"))
    };
    Some(Groups {
        levels: levels.collect(),
        of_vcpus: paths.iter().any(is_of_vcpu),
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::Beside;
    use super::*;

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a new folder");
        fs::write(path, text).expect("a new file");
    }

    #[test]
    fn control_groups_of_a_process_are_those_of_all_its_threads_with_their_weights() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path();
        for (thread, group) in [(100, "emulator"), (101, "vcpu0"), (102, "vcpu1")] {
            let path = format!("proc/100/task/{thread}/cgroup");
            write(root, &path, &format!("0::/machine.slice/web.scope/libvirt/{group}\n"));
        }
        write(root, "proc/200/task/200/cgroup", "0::/\n");
        write(root, "proc/300/task/300/cgroup", "4:cpu,cpuacct:/db\n0::/other\n");
        write(root, "sys/fs/cgroup/machine.slice/web.scope/cpu.weight", "250\n");
        write(root, "sys/fs/cgroup/cpu,cpuacct/db/cpu.shares", "2048\n");
        let mut beside = Beside::default();
        beside.add_folder(root);
        let level = |name: &str, weight| Level {
            name: name.to_owned(),
            weight,
        };
        let web = [
            level("machine.slice", None),
            level("web.scope", Some(250)),
            level("libvirt", None),
        ];
        assert_eq!(beside.groups[&100].levels, web);
        assert!(beside.groups[&100].of_vcpus);
        assert_eq!(beside.groups[&200], Groups::default());
        assert_eq!(beside.groups[&300].levels, [level("db", Some(200))]);
    }
}
