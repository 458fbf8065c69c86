//! A simulated host as a folder, such as `holdfast record` makes of a real one: its trace, and copies of the files that
//! explain it.

use holdfast_host::{Preempt, Quota, VmGroup};
use holdfast_recordings::event::Tid;
use holdfast_sim::timeline::{Thread, Timeline, Window};
use holdfast_sim::{CallOff, Config, Outcome};

use super::experiment::listed;
use super::ids::{TASKS, beside, process, process_of_task, thread_id};
use super::{ReplayError, events, text::text};

/// A file of a folder: its path in it, and its text.
pub type File = (String, String);

/// Runs `config`, and returns its outcome with the files of its recording.
///
/// # Errors
/// [`ReplayError::Run`], [`ReplayError::TooLong`].
pub fn recording(config: &Config, call_off: &CallOff) -> Result<(Outcome, Vec<File>), ReplayError> {
    let window = Window {
        from_ns: 0,
        to_ns: u64::MAX,
    };
    let (outcome, timeline) = holdfast_sim::record(config, call_off, window).map_err(ReplayError::Run)?;
    let outcome = outcome.map_err(ReplayError::Run)?;
    if timeline.truncated {
        return Err(ReplayError::TooLong);
    }
    let files = files(config, &outcome, &timeline);
    Ok((outcome, files))
}

/// Returns the files of the recording `timeline` of `config`, whose run had this `outcome`.
fn files(config: &Config, outcome: &Outcome, timeline: &Timeline) -> Vec<File> {
    let mut folder = Folder {
        config,
        timeline,
        files: Vec::new(),
    };
    let processes = beside(timeline, None).processes;
    let trace = text(&events(timeline, None), |thread| processes.get(&thread).copied());
    folder.add("trace.txt", trace);
    folder.machine();
    for vm in 0..config.vms.len() as u32 {
        let throttled = outcome.vms[vm as usize].counters.get("bandwidth_throttled_ns");
        folder.vm(vm, throttled.copied());
    }
    folder.tasks();
    folder.groups();
    folder.files
}

struct Folder<'f> {
    config: &'f Config,
    timeline: &'f Timeline,
    files: Vec<File>,
}

impl Folder<'_> {
    fn add(&mut self, path: impl Into<String>, text: impl Into<String>) {
        self.files.push((path.into(), text.into()));
    }

    /// Kernel, its settings, and the places of the pCPUs.
    fn machine(&mut self) {
        let host = &self.config.host;
        let version = host.kernel.name().trim_start_matches("linux-");
        self.add("proc/sys/kernel/osrelease", format!("{version}.0-simulated\n"));
        let models = [
            (Preempt::None, "none"),
            (Preempt::Voluntary, "voluntary"),
            (Preempt::Full, "full"),
            (Preempt::Lazy, "lazy"),
        ];
        let models = models.map(|(model, name)| match model == host.sched.preempt {
            true => format!("({name})"),
            false => name.to_owned(),
        });
        self.add("sys/kernel/debug/sched/preempt", models.join(" ") + "\n");
        let polling = format!("{}\n", host.halt_poll_ns);
        self.add("sys/module/kvm/parameters/halt_poll_ns", polling);
        let topology = self.config.machine.topology;
        for index in 0..topology.pcpus() {
            let number = self.config.machine.numbering.number(&topology, index);
            let place = format!("sys/devices/system/cpu/cpu{number}/topology");
            let core = index / topology.threads % topology.cores;
            self.add(format!("{place}/core_id"), format!("{core}\n"));
            let socket = topology.socket_of(index);
            self.add(format!("{place}/physical_package_id"), format!("{socket}\n"));
        }
    }

    /// A thread of `process` that may use the pCPUs `affinity`, all if there are none, in the control group `group`.
    fn thread(&mut self, process: Tid, thread: Tid, affinity: &[u32], group: &str) {
        let place = format!("proc/{process}/task/{thread}");
        let machine = &self.config.machine;
        let all: Vec<u32> = (0..machine.topology.pcpus()).collect();
        let indices = if affinity.is_empty() { &all } else { affinity };
        let numbers = indices
            .iter()
            .map(|index| machine.numbering.number(&machine.topology, *index));
        let allowed = listed(&numbers.collect::<Vec<u32>>());
        self.add(format!("{place}/status"), format!("Cpus_allowed_list:\t{allowed}\n"));
        self.add(format!("{place}/cgroup"), format!("0::/{group}\n"));
    }

    /// The threads of guest `vm` and its name; its own control groups, which were throttled for `throttled` ns.
    fn vm(&mut self, vm: u32, throttled: Option<u64>) {
        let of = &self.config.vms[vm as usize];
        let parent = self.path(of.group.as_deref());
        let (own, shares, of_vcpus) = match of.host.group {
            VmGroup::Root => (parent.clone(), None, false),
            VmGroup::Own { shares } => (join(&parent, &of.name), Some(shares), false),
            VmGroup::OwnWithVcpuGroups { shares } => (join(&parent, &of.name), Some(shares), true),
        };
        let mut vcpus = String::new();
        for (index, vcpu) in (0..).zip(&self.timeline.vcpus).filter(|(_, vcpu)| vcpu.vm == vm) {
            let thread = thread_id(self.timeline, Thread::Vcpu(index));
            let affinity = of.affinity.get(vcpu.number as usize);
            let affinity = affinity.map_or(&[][..], |set| set);
            let group = match of_vcpus {
                true => join(&own, &format!("vcpu{}", vcpu.number)),
                false => own.clone(),
            };
            vcpus += &format!("<vcpu id='{}' pid='{thread}'/>", vcpu.number);
            self.thread(process(vm), thread, affinity, &group);
            if let Some(quota) = of.host.vcpu_quota.as_ref().filter(|_| of_vcpus) {
                self.group(&group, Some(1024), Some(quota), throttled.filter(|_| vcpu.number == 0));
            }
        }
        if let Some(shares) = shares {
            self.group(&own, Some(shares), of.host.quota.as_ref(), throttled);
        }
        let locks = if of.host.pv_unhalt { "on" } else { "off" };
        let domain = format!(
            "<domstatus state='running' pid='{}'><vcpus>{vcpus}</vcpus><domain type='kvm' id='{}'><name>{}</name>\
             <features><pvspinlock state='{locks}'/></features></domain></domstatus>\n",
            process(vm),
            vm + 1,
            of.name
        );
        self.add(format!("libvirt/{}.xml", of.name), domain);
    }

    /// Host tasks other than vCPUs.
    fn tasks(&mut self) {
        for task in &self.timeline.tasks {
            let thread = TASKS + task.number;
            let process = process_of_task(self.timeline, &task.name).unwrap_or(thread);
            let known = self.config.tasks.iter().find(|known| known.name == task.name);
            let affinity = known.map_or(&[][..], |known| &known.affinity);
            let group = self.path(known.and_then(|known| known.group.as_deref()));
            self.thread(process, thread, affinity, &group);
        }
    }

    /// The control groups that hold those of guests.
    fn groups(&mut self) {
        for group in &self.config.groups {
            let path = self.path(Some(&group.name));
            self.group(&path, Some(group.shares), group.quota.as_ref(), None);
        }
    }

    fn group(&mut self, path: &str, shares: Option<u64>, quota: Option<&Quota>, throttled: Option<u64>) {
        let place = format!("sys/fs/cgroup/{path}");
        if let Some(shares) = shares {
            self.add(
                format!("{place}/cpu.weight"),
                format!("{}\n", (shares * 100).div_ceil(1024)),
            );
        }
        let max = quota.map_or("max 100000".to_owned(), |quota| {
            format!("{} {}", quota.quota_ns / 1000, quota.period_ns / 1000)
        });
        self.add(format!("{place}/cpu.max"), max + "\n");
        if let Some(ns) = throttled.filter(|_| quota.is_some()) {
            let stat = |us: u64| format!("throttled_usec {us}\n");
            self.add(format!("before/{place}/cpu.stat"), stat(0));
            self.add(format!("{place}/cpu.stat"), stat(ns / 1000));
        }
    }

    /// Returns the path of the control group called `name`, or that of the root group.
    fn path(&self, name: Option<&str>) -> String {
        let group = name.and_then(|name| self.config.groups.iter().find(|group| group.name == name));
        group.map_or_else(String::new, |group| {
            join(&self.path(group.parent.as_deref()), &group.name)
        })
    }
}

fn join(parent: &str, name: &str) -> String {
    match parent {
        "" => name.to_owned(),
        _ => format!("{parent}/{name}"),
    }
}
