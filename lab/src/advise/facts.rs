//! What rules ask of an account.

use std::collections::BTreeSet;

use holdfast_recordings::account::{Account, Basis, VmAccount};
use holdfast_recordings::hosts::list;

use crate::replay::listed;

/// Share of the wanted CPU time from which on waiting is worth advice, in percent.
pub const READY: f64 = 1.0;

/// The account of a host.
pub struct Facts<'a> {
    pub account: &'a Account,
    pub vms: Vec<Vm<'a>>,
}

/// The account of one VM.
pub struct Vm<'a> {
    pub account: &'a VmAccount,
    /// Its name in the experiment that repeats it.
    pub key: &'a str,
}

impl<'a> Facts<'a> {
    pub fn new(account: &'a Account, names: &'a [String]) -> Facts<'a> {
        let vms = account.vms.iter().zip(names).map(|(account, key)| Vm { account, key });
        Facts {
            account,
            vms: vms.collect(),
        }
    }

    /// Returns the VMs that wait.
    pub fn waiting(&self) -> impl Iterator<Item = &Vm<'a>> {
        let waits = |vm: &&Vm<'_>| vm.figure("ready_of_wanted_percent") >= READY;
        self.vms.iter().filter(waits)
    }

    /// Returns the numbers of the pCPUs, those with most idle time first.
    pub fn pcpus(&self) -> Vec<u32> {
        let mut cpus = self.account.cpus.clone();
        cpus.sort_by(|a, b| b.idle_percent.total_cmp(&a.idle_percent).then(a.cpu.cmp(&b.cpu)));
        cpus.iter().map(|cpu| cpu.cpu).collect()
    }

    /// Returns the mean idle share of the pCPUs in percent.
    pub fn idle(&self) -> f64 {
        let cpus = &self.account.cpus;
        cpus.iter().map(|cpu| cpu.idle_percent).sum::<f64>() / cpus.len().max(1) as f64
    }

    /// Returns CPU ready of all VMs together, in ms per 20 s.
    pub fn ready_ms(&self) -> f64 {
        self.vms.iter().map(Vm::ready_ms).sum()
    }
}

impl Vm<'_> {
    /// Returns the figure `name`, or 0 if it is not known.
    pub fn figure(&self, name: &str) -> f64 {
        let figure = Account::figure(&self.account.figures, name);
        figure.and_then(|figure| figure.value).unwrap_or(0.0)
    }

    /// Returns how the figure `name` came about.
    pub fn basis(&self, name: &str) -> Basis {
        Account::figure(&self.account.figures, name).map_or(Basis::Unknown, |figure| figure.basis)
    }

    /// Returns whether its vCPUs are pinned to a part of `pcpus`.
    pub fn are_confined(&self, pcpus: &[u32]) -> bool {
        self.allowed().is_some_and(|allowed| allowed.len() < pcpus.len())
    }

    /// Returns CPU ready in ms per 20 s, of all vCPUs together.
    pub fn ready_ms(&self) -> f64 {
        self.figure("ready_ms_per_20s")
    }

    /// Returns `percent` of the vCPUs' time in ms per 20 s.
    pub fn share_ms(&self, percent: f64) -> f64 {
        percent * self.account.vcpus.len() as f64 * 200.0
    }

    /// Returns the number of exits whose reason is one of `names`, in percent of all exits.
    pub fn exits_percent(&self, names: &[&str]) -> f64 {
        let count = |named: bool| -> u64 {
            let exits = self.account.exits.iter();
            let exits = exits.filter(|exit| !named || names.contains(&exit.name.as_str()));
            exits.map(|exit| exit.count).sum()
        };
        count(true) as f64 / count(false).max(1) as f64 * 100.0
    }

    /// Returns the pCPUs that each vCPU may use, if files say it for all of them.
    pub fn pins(&self) -> Option<Vec<Vec<u32>>> {
        let vcpus = self.account.vcpus.iter();
        vcpus.map(|vcpu| list(vcpu.allowed.as_deref()?)).collect()
    }

    /// Returns all pCPUs that its vCPUs may use, if files say it.
    pub fn allowed(&self) -> Option<BTreeSet<u32>> {
        Some(self.pins()?.into_iter().flatten().collect())
    }

    /// Returns the name of its domain, or `None` if libvirt does not know it.
    fn domain(&self) -> Option<&str> {
        let name = self.account.name.as_str();
        let made_up = self.account.process.map(|process| format!("vm {process}"));
        (made_up.as_deref() != Some(name)).then_some(name)
    }

    /// Returns the command that pins the vCPUs to `sets`.
    pub fn pin(&self, sets: &[Vec<u32>]) -> String {
        let pairs = self.account.vcpus.iter().zip(sets);
        match self.domain() {
            Some(domain) => {
                let pair = |(at, set): (usize, &Vec<u32>)| format!("{at}:{}", listed(set));
                let numbers = (self.account.vcpus.iter().enumerate())
                    .map(|(at, vcpu)| vcpu.number.map_or(at, |number| number as usize));
                let pairs: Vec<String> = numbers.zip(sets).map(pair).collect();
                format!(
                    "for p in {}; do virsh vcpupin {domain} ${{p%:*}} ${{p#*:}}; done",
                    pairs.join(" ")
                )
            }
            None => {
                let pairs: Vec<String> = pairs
                    .map(|(vcpu, set)| format!("{}:{}", vcpu.thread, listed(set)))
                    .collect();
                format!("for p in {}; do taskset -pc ${{p#*:}} ${{p%:*}}; done", pairs.join(" "))
            }
        }
    }

    /// Returns the command that pins the threads of its process that are no vCPUs to `set`.
    pub fn pin_own_threads(&self, set: &[u32]) -> String {
        if let Some(domain) = self.domain() {
            return format!("virsh emulatorpin {domain} {}", listed(set));
        }
        let vcpus: Vec<String> = (self.account.vcpus.iter().map(|vcpu| vcpu.thread.to_string())).collect();
        format!(
            "for t in $(ls /proc/{}/task | grep -vxE '{}'); do taskset -pc {} $t; done",
            self.process(),
            vcpus.join("|"),
            listed(set)
        )
    }

    /// Returns the command that writes `value` to the file `name` of its control group.
    pub fn write_group(&self, name: &str, value: &str) -> String {
        let process = self.process();
        format!("echo '{value}' > /sys/fs/cgroup$(cut -d: -f3- /proc/{process}/cgroup)/{name}")
    }

    /// Returns how to change its number of vCPUs to `count`.
    pub fn set_vcpus(&self, count: usize) -> String {
        match self.domain() {
            Some(domain) => format!("virsh setvcpus {domain} {count} --live"),
            None => format!("VMM of process {}: {count} vCPUs", self.process()),
        }
    }

    /// Returns how to move it from one host to another.
    pub fn migrate(&self, from: &str, to: &str) -> String {
        match self.domain() {
            Some(domain) => format!("on {from}: virsh migrate --live {domain} qemu+ssh://{to}/system"),
            None => format!("VMM of process {}: live migration from {from} to {to}", self.process()),
        }
    }

    fn process(&self) -> String {
        let process = self.account.process;
        process.map_or_else(|| "PID".to_owned(), |process| process.to_string())
    }
}
