//! Filling a host before it starts: task groups, VMs and tasks.

use alloc::vec::Vec;

use crate::boundary::{GroupId, TaskId, VmId};
use crate::config::{TaskConfig, VCPUS_MAX, VmConfig, VmGroup};
use crate::error::{ConfigError, in_range};
use crate::guests::Vm;
use crate::host::Host;
use crate::quota::Quota;
use crate::sched::{Mask, weight};
use crate::threads::ThreadKind;
use crate::vcpu::{Activity, MpState, Vcpu};

impl Host {
    /// Adds a task group below `parent` (`None`: the root group), with `cpu.shares` of 2 to 262144.
    ///
    /// # Errors
    /// Fails if the parent is unknown, the shares are out of range, or the host runs.
    pub fn add_group(&mut self, parent: Option<GroupId>, shares: u64) -> Result<GroupId, ConfigError> {
        self.check_not_started()?;
        self.new_group(parent, shares)
    }

    fn new_group(&mut self, parent: Option<GroupId>, shares: u64) -> Result<GroupId, ConfigError> {
        let group = self.wings.threads.sched.add_group(parent, shares)?;
        self.wings.threads.timers.make_room(group.0);
        Ok(group)
    }

    /// Limits the CPU time of `group`, which has no quota yet.
    ///
    /// # Errors
    /// Fails if the group is unknown or the root group, the quota or its burst is out of range, the scheduler has no
    /// bandwidth control, or the host runs.
    pub fn set_quota(&mut self, group: GroupId, quota: Quota) -> Result<(), ConfigError> {
        self.check_not_started()?;
        self.limit(group, quota)
    }

    fn limit(&mut self, group: GroupId, quota: Quota) -> Result<(), ConfigError> {
        self.wings.threads.sched.check_group(group)?;
        self.check_quota(Some(quota))?;
        if group == GroupId(0) || self.wings.threads.sched.throttling(group, 0).is_some() {
            return Err(ConfigError::UnknownGroup(group));
        }
        self.wings.threads.sched.set_quota(group, quota);
        Ok(())
    }

    fn check_quota(&self, quota: Option<Quota>) -> Result<(), ConfigError> {
        const MS: i64 = 1_000_000;
        let Some(quota) = quota else { return Ok(()) };
        if !self.wings.config.sched.has_bandwidth() {
            return Err(ConfigError::NoBandwidth);
        }
        in_range("period_ns", quota.period_ns, MS, 1_000 * MS)?;
        let most = quota.period_ns as i64 * self.pcpus.rows.len() as i64;
        in_range("quota_ns", quota.quota_ns, MS, most)?;
        in_range("burst_ns", quota.burst_ns, 0, quota.quota_ns as i64)
    }

    /// Adds a VM of `vcpus` vCPUs.
    ///
    /// vCPU ids are dense in the order of creation. The APIC ID of a vCPU is its index in its VM. After [`Host::start`]
    /// all vCPUs are runnable, or only vCPU 0 ([`VmConfig::waits_for_sipi`]), with interrupts masked and CPL 0.
    /// `affinity` gives the pCPUs that each vCPU may run on; an empty or missing entry means all.
    ///
    /// If the host runs, [`VmmEvent::VmStarts`](crate::VmmEvent::VmStarts) must follow. The VM then gets the ids, the
    /// threads and the task groups of a VM that has ended, if there is one with as many vCPUs, the same nice level and
    /// the same groups.
    ///
    /// # Errors
    /// Fails with [`ConfigError`], and adds nothing.
    pub fn add_vm(&mut self, vm: &VmConfig, vcpus: u32, affinity: &[Vec<u32>]) -> Result<VmId, ConfigError> {
        let masks = self.check_vm(vm, vcpus, affinity)?;
        if let Some(id) = self.find_gone(vm, vcpus) {
            self.renew_vm(id, vm, masks);
            return Ok(id);
        }
        let first_group = self.wings.threads.sched.groups();
        let parent = vm.parent.unwrap_or_default();
        let group = match vm.group {
            VmGroup::Root => parent,
            VmGroup::Own { shares } | VmGroup::OwnWithVcpuGroups { shares } => {
                self.add_limited_group(parent, shares, vm.quota)?
            }
        };
        let per_vcpu = matches!(vm.group, VmGroup::OwnWithVcpuGroups { .. });
        let id = self.wings.guests.vms.next_id();
        let first = self.wings.guests.vcpus.len() as u32;
        for (index, mask) in masks.into_iter().enumerate() {
            let group = if per_vcpu {
                self.add_limited_group(group, weight::NICE_0, vm.vcpu_quota)?
            } else {
                group
            };
            let vcpu = self.wings.guests.vcpus.next_id();
            let task = self.add_thread(ThreadKind::Vcpu(vcpu), vm.nice, group, mask);
            self.wings.threads.sched.add_vcpu(id, vcpu, task);
            let mut row = Vcpu::new(vcpu, id, index as u32, task);
            row.halt.begin(vm.has_polled);
            if vm.waits_for_sipi && index > 0 {
                (row.mp_state, row.activity) = (MpState::Uninitialized, Activity::Block);
            }
            if vm.dormant || self.started {
                row.switch_off();
                self.wings.threads.records[task].dormant = true;
            }
            self.wings.guests.vcpus.push(row);
        }
        let groups = first_group..self.wings.threads.sched.groups();
        self.wings.guests.vms.push(Vm {
            config: *vm,
            first,
            vcpus,
            groups: groups.map(GroupId).collect(),
            inhibits: vm.apic_inhibits,
            ..Vm::default()
        });
        self.wings.init_vm(id);
        Ok(id)
    }

    /// Returns a VM that has ended and whose threads and groups suit `vm` with `vcpus` vCPUs.
    fn find_gone(&self, vm: &VmConfig, vcpus: u32) -> Option<VmId> {
        let threads = |vm: &VmConfig| (vm.nice, vm.group, vm.parent, vm.quota, vm.vcpu_quota);
        let guests = &self.wings.guests;
        let suits = |old: &Vm| old.ended && old.vcpus == vcpus && threads(&old.config) == threads(vm);
        let mut ended = guests.vms.enumerate().filter(|(_, old)| suits(old));
        ended.find_map(|(id, _)| guests.is_gone(id).then_some(id))
    }

    /// Makes `id`, which has ended, the new VM `vm`. Nothing of the old one is left but its threads and groups.
    fn renew_vm(&mut self, id: VmId, vm: &VmConfig, masks: Vec<Option<Mask>>) {
        for (vcpu, mask) in self.wings.guests.vcpus_of(id).zip(masks) {
            let row = &mut self.wings.guests.vcpus[vcpu];
            let (task, timer) = (row.thread.task, row.thread.timer);
            *row = Vcpu::new(vcpu, id, row.index, task);
            row.thread.timer = timer;
            row.halt.begin(vm.has_polled);
            row.switch_off();
            self.wings.threads.sched.set_mask(task, mask);
        }
        let old = &mut self.wings.guests.vms[id];
        *old = Vm {
            config: *vm,
            first: old.first,
            vcpus: old.vcpus,
            groups: core::mem::take(&mut old.groups),
            inhibits: vm.apic_inhibits,
            ..Vm::default()
        };
        self.wings.init_vm(id);
    }

    /// Checks all parameters of a VM, so that adding it cannot fail half-way. Returns the affinity of each vCPU.
    fn check_vm(&self, vm: &VmConfig, vcpus: u32, affinity: &[Vec<u32>]) -> Result<Vec<Option<Mask>>, ConfigError> {
        in_range("vcpus", vcpus, 1, i64::from(VCPUS_MAX))?;
        in_range("nice", vm.nice, -20, 19)?;
        in_range("halt_poll_cap_ns", vm.halt_poll_cap_ns.unwrap_or(0), 0, 1_000_000_000)?;
        if affinity.len() > vcpus as usize {
            return Err(ConfigError::AffinityWithoutVcpu {
                found: affinity.len(),
                vcpus,
            });
        }
        let list = |index: usize| affinity.get(index).map_or(&[][..], Vec::as_slice);
        let masks: Result<_, _> = (0..vcpus as usize).map(|index| self.mask(list(index))).collect();
        let masks = masks?;
        let parent = vm.parent.unwrap_or_default();
        self.wings.threads.sched.check_group(parent)?;
        self.check_quota(vm.quota)?;
        self.check_quota(vm.vcpu_quota)?;
        if matches!(vm.group, VmGroup::OwnWithVcpuGroups { .. }) {
            self.wings.threads.sched.check_depth(parent, 2)?;
        }
        Ok(masks)
    }

    fn add_limited_group(
        &mut self,
        parent: GroupId,
        shares: u64,
        quota: Option<Quota>,
    ) -> Result<GroupId, ConfigError> {
        let group = self.new_group(Some(parent), shares)?;
        if let Some(quota) = quota {
            self.limit(group, quota)?;
        }
        Ok(group)
    }

    /// Adds a host task that is not a vCPU. It is runnable after [`Host::start`], unless it is dormant.
    ///
    /// # Errors
    /// Fails with [`ConfigError`], and adds nothing.
    pub fn add_task(&mut self, task: &TaskConfig) -> Result<TaskId, ConfigError> {
        self.check_not_started()?;
        in_range("nice", task.nice, -20, 19)?;
        let mask = self.mask(&task.affinity)?;
        let group = task.group.unwrap_or_default();
        self.wings.threads.sched.check_group(group)?;
        let kind = if task.voluntary {
            ThreadKind::Voluntary
        } else {
            ThreadKind::Plain
        };
        let id = self.add_thread(kind, task.nice, group, mask);
        self.wings.threads.sched.set_voluntary(id, task.voluntary);
        self.wings.threads.records[id].dormant = task.dormant;
        Ok(id)
    }

    /// Makes [`Host::start`] start `task`, which was added dormant.
    ///
    /// # Errors
    /// Fails if the host runs. There, another task starts it ([`TaskEvent::Starts`](crate::TaskEvent::Starts)).
    ///
    /// # Panics
    /// If there is no such task.
    pub fn activate_task(&mut self, task: TaskId) -> Result<(), ConfigError> {
        self.check_not_started()?;
        self.wings.threads.records[task].dormant = false;
        Ok(())
    }

    /// Has the thread of `vcpu` start on `pcpu` in place of where the scheduler puts a new thread, if it may run there.
    ///
    /// # Errors
    /// Fails if there is no such pCPU.
    ///
    /// # Panics
    /// If there is no such vCPU.
    pub fn begin_on(&mut self, vcpu: crate::VcpuId, pcpu: u32) -> Result<(), ConfigError> {
        self.mask(&[pcpu])?;
        let task = self.wings.guests.vcpus[vcpu].thread.task;
        self.wings.threads.sched.set_first(task, pcpu);
        Ok(())
    }

    fn add_thread(&mut self, kind: ThreadKind, nice: i8, group: GroupId, affinity: Option<Mask>) -> TaskId {
        self.wings.threads.push(kind);
        self.wings
            .threads
            .sched
            .add_thread(weight::of_nice(nice), group, affinity)
    }

    /// Returns an affinity list as a set, or `None` if it allows all pCPUs.
    pub(crate) fn mask(&self, affinity: &[u32]) -> Result<Option<Mask>, ConfigError> {
        let pcpus = self.pcpus.rows.len() as u32;
        if let Some(&found) = affinity.iter().find(|&&pcpu| pcpu >= pcpus) {
            return Err(ConfigError::UnknownPcpu { found, pcpus });
        }
        let mut mask = Mask::new(pcpus as usize);
        affinity.iter().for_each(|&pcpu| mask.set(pcpu, true));
        let all = affinity.is_empty() || mask.count() == pcpus;
        Ok((!all).then_some(mask))
    }
}
