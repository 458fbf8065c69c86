//! The host: what it consists of, and how it is built. Its step function is in `events.rs`.

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use crate::boundary::{Command, GroupId, Nanos, PcpuId, Run, TaskId, VcpuId, VcpuState, VmId};
use crate::config::{HostConfig, PcpuPlace, Quota, TaskConfig, TickPhase, VmConfig, VmGroup};
use crate::counters::Counters;
use crate::error::{ConfigError, in_range};
use crate::interrupts::apicv::VmApicv;
use crate::interrupts::avic::iommu::Iommu;
use crate::interrupts::avic::{Inhibits, VmAvic};
use crate::interrupts::ioapic::Ioapic;
use crate::interrupts::lapic::{RegisterPage, TimerBase};
use crate::sched::{Mask, Scheduler, Throttling, weight};
use crate::step::Step;
use crate::task::Early;
use crate::timer::Timers;
use crate::vcpu::Vcpu;

/// A pCPU, beside what the scheduler keeps of it.
#[derive(Clone, Debug)]
pub(crate) struct Pcpu {
    /// What it was last told to do; `None`: nothing yet.
    pub(crate) doing: Option<Run>,
    /// Offset of its ticks. Nanoseconds.
    pub(crate) tick_phase: u64,
    /// Its next tick; `None`: stopped, since it is idle.
    pub(crate) tick_at: Option<u64>,
    /// When its hardware timer is set to interrupt.
    pub(crate) programmed: Option<u64>,
}

/// What a thread is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ThreadKind {
    /// A vCPU's.
    Vcpu(VcpuId),
    /// A task that can be preempted anywhere.
    Plain,
    /// A task that is preempted where it says so.
    Voluntary,
}

/// A guest.
#[derive(Clone, Debug)]
pub(crate) struct Vm {
    pub(crate) config: VmConfig,
    /// Its first vCPU.
    pub(crate) first: u32,
    pub(crate) vcpus: u32,
    /// Task groups made for it.
    pub(crate) groups: Vec<GroupId>,
    /// Index of the vCPU that was last yielded to.
    pub(crate) last_boosted: u32,
    pub(crate) ioapic: Ioapic,
    /// Why hardware does not virtualise its LAPICs, whatever the host uses.
    pub(crate) inhibits: Inhibits,
    /// `None` if the host does not use AVIC.
    pub(crate) avic: Option<VmAvic>,
    /// `None` if it has no APICv.
    pub(crate) apicv: Option<VmApicv>,
    /// Ports at which devices are rung, and the threads that this wakes.
    pub(crate) doorbells: Vec<(u16, TaskId)>,
    /// vCPUs whose APIC ID the guest has changed.
    pub(crate) renamed: u32,
    /// vCPUs whose LAPIC is in x2APIC mode.
    pub(crate) x2apic: u32,
}

/// A host: hypervisor and scheduler.
#[derive(Clone, Debug)]
pub struct Host {
    pub(crate) config: HostConfig,
    pub(crate) timer_base: TimerBase,
    /// Nanoseconds between two ticks.
    pub(crate) tick_ns: u64,
    pub(crate) sched: Scheduler,
    pub(crate) timers: Timers,
    pub(crate) pcpus: Vec<Pcpu>,
    pub(crate) vms: Vec<Vm>,
    pub(crate) vcpus: Vec<Vcpu>,
    pub(crate) threads: Vec<ThreadKind>,
    /// For each thread the vCPU for which it was made.
    pub(crate) first_threads: Vec<Option<VcpuId>>,
    /// How many threads of each number have ended.
    pub(crate) lives: Vec<u32>,
    /// For each thread what came before it was ready for it.
    pub(crate) early: Vec<Option<Early>>,
    /// Threads that [`Host::start`] leaves alone.
    pub(crate) dormant: Vec<bool>,
    /// Polling pCPUs whose vCPU may have been woken: to be looked at before the step ends.
    pub(crate) poll_kicks: Vec<u32>,
    /// For each pCPU, the vCPUs that went to sleep there and are woken by the wake-up vector of posted interrupts.
    pub(crate) posted_sleepers: Vec<Vec<VcpuId>>,
    pub(crate) iommu: Iommu,
    pub(crate) started: bool,
}

impl Host {
    /// A host of `pcpus`, with nothing to run yet.
    ///
    /// # Errors
    /// [`ConfigError`] names the parameter that is out of range.
    pub fn new(config: &HostConfig, pcpus: &[PcpuPlace]) -> Result<Host, ConfigError> {
        const SECOND: i64 = 1_000_000_000;
        let ns = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        in_range("hz", i64::from(config.hz), 1, 10_000)?;
        config.sched.check()?;
        in_range("halt_poll_ns", ns(config.halt_poll_ns), 0, SECOND)?;
        in_range("halt_poll_grow", ns(config.halt_poll_grow), 0, 1024)?;
        in_range("halt_poll_grow_start_ns", ns(config.halt_poll_grow_start_ns), 0, SECOND)?;
        in_range("tsc_hz", ns(config.tsc_hz), 1_000, 1_000 * SECOND)?;
        in_range("min_timer_period_ns", ns(config.min_timer_period_ns), 1, SECOND)?;
        config.pause.check(&config.pause_controls)?;
        let tick_ns = 1_000_000_000 / u64::from(config.hz);
        let count = pcpus.len() as u64;
        let phase = |pcpu: u64| match config.tick_phase {
            TickPhase::Aligned => 0,
            TickPhase::HalfSkewed => tick_ns / 2 / count * pcpu,
            TickPhase::Spread => tick_ns * pcpu / count,
        };
        Ok(Host {
            sched: Scheduler::new(config, pcpus)?,
            timer_base: TimerBase {
                tsc_hz: config.tsc_hz,
                min_period_ns: config.min_timer_period_ns,
            },
            tick_ns,
            timers: Timers::new(pcpus.len() as u32),
            pcpus: (0..count)
                .map(|pcpu| Pcpu {
                    doing: None,
                    tick_phase: phase(pcpu),
                    tick_at: None,
                    programmed: None,
                })
                .collect(),
            config: config.clone(),
            vms: Vec::new(),
            vcpus: Vec::new(),
            threads: Vec::new(),
            first_threads: Vec::new(),
            lives: Vec::new(),
            early: Vec::new(),
            dormant: Vec::new(),
            poll_kicks: Vec::new(),
            posted_sleepers: vec![Vec::new(); pcpus.len()],
            iommu: Iommu::default(),
            started: false,
        })
    }

    /// Adds a task group below `parent` (`None`: the root group), with `cpu.shares` of 2 to 262144.
    ///
    /// # Errors
    /// Unknown parent, shares out of range, or a host that runs.
    pub fn add_group(&mut self, parent: Option<GroupId>, shares: u64) -> Result<GroupId, ConfigError> {
        self.check_not_started()?;
        let group = self.sched.add_group(parent, shares)?;
        self.timers.add_group();
        Ok(group)
    }

    /// Limits the CPU time of `group`, which has no quota yet.
    ///
    /// # Errors
    /// Unknown group, the root group, a quota out of range, a scheduler without bandwidth control, or a host that runs.
    pub fn set_quota(&mut self, group: GroupId, quota: Quota) -> Result<(), ConfigError> {
        self.check_not_started()?;
        self.sched.check_group(group)?;
        self.check_quota(Some(quota))?;
        if group == GroupId(0) || self.sched.throttling(group, 0).is_some() {
            return Err(ConfigError::UnknownGroup(group));
        }
        self.sched.set_quota(group, quota.quota_ns, quota.period_ns);
        Ok(())
    }

    fn check_quota(&self, quota: Option<Quota>) -> Result<(), ConfigError> {
        const MS: i64 = 1_000_000;
        let Some(quota) = quota else { return Ok(()) };
        if !self.config.sched.has_bandwidth() {
            return Err(ConfigError::NoBandwidth);
        }
        let ns = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        in_range("period_ns", ns(quota.period_ns), MS, 1_000 * MS)?;
        let most = ns(quota.period_ns) * self.pcpus.len() as i64;
        in_range("quota_ns", ns(quota.quota_ns), MS, most)
    }

    /// What bandwidth control did to the groups made for `vm` until `now`, added up; `None` if none has a quota.
    ///
    /// # Panics
    /// If there is no such VM.
    pub fn vm_throttling(&self, vm: VmId, now: Nanos) -> Option<Throttling> {
        let groups = self.vms[vm.0 as usize].groups.iter();
        let all = groups.filter_map(|&group| self.throttling(group, now));
        all.reduce(|sum, counts| Throttling {
            periods: sum.periods + counts.periods,
            throttled_periods: sum.throttled_periods + counts.throttled_periods,
            throttled_ns: sum.throttled_ns + counts.throttled_ns,
        })
    }

    /// What bandwidth control did to `group` until `now`; `None` without a quota.
    pub fn throttling(&self, group: GroupId, now: Nanos) -> Option<Throttling> {
        self.sched.throttling(group, now.0)
    }

    /// Adds a VM of `vcpus` vCPUs. vCPU ids are dense in order of creation; the APIC ID of a vCPU is its index in its VM.
    /// From [`Host::start`] on all vCPUs are runnable, or vCPU 0 alone ([`VmConfig::waits_for_sipi`]), interrupts masked, CPL 0.
    /// `affinity` gives the pCPUs that
    /// each may run on; an empty or missing entry means all.
    ///
    /// # Errors
    /// [`ConfigError`], and nothing was added.
    pub fn add_vm(&mut self, vm: &VmConfig, vcpus: u32, affinity: &[Vec<u32>]) -> Result<VmId, ConfigError> {
        self.check_not_started()?;
        in_range("vcpus", i64::from(vcpus), 1, 1 << 16)?;
        in_range("nice", i64::from(vm.nice), -20, 19)?;
        in_range(
            "halt_poll_cap_ns",
            vm.halt_poll_cap_ns.unwrap_or(0) as i64,
            0,
            1_000_000_000,
        )?;
        if affinity.len() > vcpus as usize {
            return Err(ConfigError::AffinityWithoutVcpu {
                found: affinity.len(),
                vcpus,
            });
        }
        let mut masks = Vec::with_capacity(vcpus as usize);
        for index in 0..vcpus as usize {
            masks.push(self.mask(affinity.get(index).map_or(&[], Vec::as_slice))?);
        }
        let first_group = self.sched.groups();
        let parent = vm.parent.unwrap_or(GroupId(0));
        self.sched.check_group(parent)?;
        self.check_quota(vm.quota)?;
        self.check_quota(vm.vcpu_quota)?;
        let (own, beneath) = match vm.group {
            VmGroup::Root => (None, false),
            VmGroup::Own { shares } => (Some(shares), false),
            VmGroup::OwnWithVcpuGroups { shares } => (Some(shares), true),
        };
        if beneath {
            // Before anything is added: there must be room beneath for the second level, too.
            self.sched.check_depth(parent, 2)?;
        }
        let group = match own {
            None => parent,
            Some(shares) => self.add_limited_group(parent, shares, vm.quota)?,
        };
        let id = VmId(self.vms.len() as u32);
        let first = self.vcpus.len() as u32;
        for (index, mask) in masks.into_iter().enumerate() {
            let group = if beneath {
                self.add_limited_group(group, weight::NICE_0, vm.vcpu_quota)?
            } else {
                group
            };
            let vcpu = VcpuId(self.vcpus.len() as u32);
            let task = self.add_thread(ThreadKind::Vcpu(vcpu), vm.nice, group, mask);
            self.vcpus.push(Vcpu::new(vcpu, id, index as u32, task));
            if vm.waits_for_sipi && index > 0 {
                self.await_init(vcpu);
            }
        }
        self.vms.push(Vm {
            inhibits: vm.apicv_inhibits,
            avic: None,
            apicv: None,
            config: *vm,
            first,
            vcpus,
            groups: (first_group..self.sched.groups()).map(GroupId).collect(),
            last_boosted: 0,
            ioapic: Ioapic::new(),
            doorbells: Vec::new(),
            renamed: 0,
            x2apic: 0,
        });
        self.avic_init_vm(id);
        self.apicv_init_vm(id);
        Ok(id)
    }

    fn add_limited_group(
        &mut self,
        parent: GroupId,
        shares: u64,
        quota: Option<Quota>,
    ) -> Result<GroupId, ConfigError> {
        let group = self.add_group(Some(parent), shares)?;
        if let Some(quota) = quota {
            self.set_quota(group, quota)?;
        }
        Ok(group)
    }

    /// Adds a host task that is no vCPU, runnable from [`Host::start`] on.
    ///
    /// # Errors
    /// [`ConfigError`], and nothing was added.
    pub fn add_task(&mut self, task: &TaskConfig) -> Result<TaskId, ConfigError> {
        self.check_not_started()?;
        in_range("nice", i64::from(task.nice), -20, 19)?;
        let mask = self.mask(&task.affinity)?;
        let group = task.group.unwrap_or(GroupId(0));
        self.sched.check_group(group)?;
        let kind = if task.voluntary {
            ThreadKind::Voluntary
        } else {
            ThreadKind::Plain
        };
        let id = self.add_thread(kind, task.nice, group, mask);
        self.sched.set_voluntary(id, task.voluntary);
        self.dormant[id.0 as usize] = task.dormant;
        Ok(id)
    }

    /// Has [`Host::start`] start `task`, which was added dormant.
    ///
    /// # Errors
    /// A host that runs: there, a task starts another one.
    ///
    /// # Panics
    /// If there is no such task.
    pub fn rouse(&mut self, task: TaskId) -> Result<(), ConfigError> {
        self.check_not_started()?;
        self.dormant[task.0 as usize] = false;
        Ok(())
    }

    fn add_thread(&mut self, kind: ThreadKind, nice: i8, group: GroupId, affinity: Option<Mask>) -> TaskId {
        self.threads.push(kind);
        self.lives.push(0);
        self.first_threads.push(match kind {
            ThreadKind::Vcpu(vcpu) => Some(vcpu),
            ThreadKind::Plain | ThreadKind::Voluntary => None,
        });
        self.early.push(None);
        self.dormant.push(false);
        self.timers.add_thread();
        self.sched.add_thread(weight::of_nice(nice), group, affinity)
    }

    pub(crate) fn check_not_started(&self) -> Result<(), ConfigError> {
        if self.started {
            Err(ConfigError::Started)
        } else {
            Ok(())
        }
    }

    /// An affinity list as a set; `None` for all.
    pub(crate) fn mask(&self, affinity: &[u32]) -> Result<Option<Mask>, ConfigError> {
        let pcpus = self.pcpus.len() as u32;
        if let Some(&found) = affinity.iter().find(|&&pcpu| pcpu >= pcpus) {
            return Err(ConfigError::UnknownPcpu { found, pcpus });
        }
        let mut mask = Mask::new(pcpus as usize);
        affinity.iter().for_each(|&pcpu| mask.set(pcpu, true));
        let all = affinity.is_empty() || mask.count() == pcpus;
        Ok((!all).then_some(mask))
    }

    /// The vCPUs of `vm`, in the order of their APIC IDs.
    ///
    /// # Panics
    /// If there is no such VM.
    pub fn vcpus(&self, vm: VmId) -> impl Iterator<Item = VcpuId> + use<> {
        let vm = &self.vms[vm.0 as usize];
        (vm.first..vm.first + vm.vcpus).map(VcpuId)
    }

    /// Starts all threads and pCPUs: the first [`Command::Run`] for each pCPU. Threads are placed one after another as the
    /// kernel places newly forked ones.
    ///
    /// # Panics
    /// If the host runs already.
    pub fn start(&mut self, now: Nanos, out: &mut Vec<Command>) {
        assert!(!self.started, "a host can be started once");
        self.started = true;
        self.sched.begin(now.0);
        out.extend(self.vcpus.iter().map(|vcpu| Command::State {
            vcpu: vcpu.id,
            state: VcpuState::Woken,
        }));
        self.set_pause_controls(out);
        // Nobody has to be interrupted yet: every pCPU picks its first thread below.
        let mut unheard = vec![];
        for task in (0..self.threads.len() as u32).filter(|&task| !self.dormant[task as usize]) {
            self.sched
                .start_thread(TaskId(task), &mut Step::new(now, PcpuId(0), &mut unheard));
        }
        for pcpu in 0..self.pcpus.len() as u32 {
            let mut step = Step::new(now, PcpuId(pcpu), out);
            self.reschedule(&mut step);
            self.finish(&mut step);
        }
    }

    /// Statistics of `vm`, by KVM's own names where it has them, summed over its vCPUs.
    ///
    /// # Panics
    /// If there is no such VM.
    pub fn counters(&self, vm: VmId) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        let mut sum = Counters::default();
        let mut window_max = 0;
        for vcpu in self.vcpus(vm) {
            let vcpu = &self.vcpus[vcpu.0 as usize];
            sum.add(&vcpu.counters);
            window_max = window_max.max(u64::from(vcpu.pause_window_max));
        }
        sum.all().chain([("pause_window_max", window_max)])
    }

    /// How long `task` has had a pCPU until `now`. The time since power-on of all pCPUs is the sum over all tasks and of
    /// all [`Host::idle_time`].
    ///
    /// # Panics
    /// If there is no such task, or `now` is before the last event.
    pub fn cpu_time(&self, task: TaskId, now: Nanos) -> Nanos {
        Nanos(self.sched.ran(task, now.0))
    }

    /// For how long `pcpu` has had nothing to run until `now`.
    ///
    /// # Panics
    /// If there is no such pCPU, or `now` is before the last event.
    pub fn idle_time(&self, pcpu: PcpuId, now: Nanos) -> Nanos {
        Nanos(self.sched.idle_ns(pcpu.0, now.0))
    }

    /// Whether the scheduler wants the task that runs on `pcpu` to give it up (`TIF_NEED_RESCHED`).
    ///
    /// # Panics
    /// If there is no such pCPU.
    #[inline]
    pub fn wants_to_reschedule(&self, pcpu: PcpuId) -> bool {
        self.sched.need_resched(pcpu.0)
    }

    /// From now on an EOI of the guest ends the assertion of `pin` of `vm`'s I/O APIC, and the device hears of it
    /// ([`Command::Resample`]).
    ///
    /// # Panics
    /// If there is no such VM or pin.
    pub fn resample_line(&mut self, vm: VmId, pin: u32) {
        assert!(pin < holdfast_abi::ioapic::PINS, "an I/O APIC has no pin {pin}");
        self.vms[vm.0 as usize].ioapic.resample(pin);
    }

    /// The LAPIC's register page of `vcpu`: the same one for the vCPU's whole life. It is AVIC's backing page.
    ///
    /// # Panics
    /// If there is no such vCPU.
    pub fn apic_page(&self, vcpu: VcpuId) -> &Arc<RegisterPage> {
        self.vcpus[vcpu.0 as usize].apic.registers()
    }

    /// The thread of `vcpu`.
    ///
    /// # Panics
    /// If there is no such vCPU.
    pub fn thread(&self, vcpu: VcpuId) -> TaskId {
        self.vcpus[vcpu.0 as usize].task
    }
}
