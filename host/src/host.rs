//! The host: it composes scheduler, vCPUs and interrupts. `filling.rs` fills it, `events.rs` routes events through it.

use alloc::vec;
use alloc::vec::Vec;

use crate::boundary::{Command, GroupId, Nanos, PcpuId, PcpuPlace, TaskId, VcpuId, VmId};
use crate::config::HostConfig;
use crate::counters::Counters;
use crate::error::{ConfigError, in_range};
use crate::pause::window;
use crate::pcpus::Pcpus;
use crate::sched::seam::{PolicyKind, SLICE_NS};
use crate::sched::{Scheduler, Throttling};
use crate::step::Step;
use crate::threads::{ThreadKind, Threads};
use crate::vcpu::migration;
use crate::vcpu::migration::{RestoreError, SavedVcpu};
use crate::wings::Wings;

/// A host: hypervisor and scheduler.
#[derive(Clone, Debug)]
pub struct Host {
    pub(crate) wings: Wings,
    pub(crate) pcpus: Pcpus,
    pub(crate) started: bool,
}

impl Host {
    /// Returns a host of `pcpus` without VMs and tasks.
    ///
    /// # Errors
    /// [`ConfigError`] names the parameter that is out of range.
    pub fn new(config: &HostConfig, pcpus: &[PcpuPlace]) -> Result<Host, ConfigError> {
        const SECOND: i64 = 1_000_000_000;
        in_range("hz", config.hz, 1, 10_000)?;
        config.sched.check()?;
        if let Some(every) = config.slices_aligned_ns {
            let (min, max) = (*SLICE_NS.start() as i64, *SLICE_NS.end() as i64);
            in_range("slices_aligned_ns", every, min, max)?;
        }
        in_range("halt_poll_ns", config.halt_poll_ns, 0, SECOND)?;
        in_range("halt_poll_grow", config.halt_poll_grow, 0, 1024)?;
        in_range("halt_poll_grow_start_ns", config.halt_poll_grow_start_ns, 0, SECOND)?;
        in_range("tsc_hz", config.tsc_hz, 1_000, 1_000 * SECOND)?;
        in_range("min_timer_period_ns", config.min_timer_period_ns, 1, SECOND)?;
        config.pause.check(&config.pause_controls)?;
        Ok(Host {
            wings: Wings::new(config, Threads::new(Scheduler::new(config, pcpus)?)),
            pcpus: Pcpus::new(config, pcpus.len()),
            started: false,
        })
    }

    pub(crate) fn check_not_started(&self) -> Result<(), ConfigError> {
        if self.started {
            return Err(ConfigError::Started);
        }
        Ok(())
    }

    /// Starts all threads and pCPUs, and appends the first [`Command::Run`] for each pCPU. Threads are placed one after
    /// another, as the kernel places newly forked ones.
    ///
    /// # Panics
    /// If the host runs already.
    pub fn start(&mut self, now: Nanos, out: &mut Vec<Command>) {
        let all: Vec<TaskId> = self.wings.threads.records.ids().collect();
        self.start_in(&all, now, out);
    }

    /// As [`Host::start`], for a host to which guests migrate. The threads of one VM start one after another, as its
    /// VMM starts them, and VMMs do not wait for each other: VMs and tasks take turns in an order that `draw` decides,
    /// which returns a random number below its argument. Threads are new here: they bring no claim on CPU time along.
    ///
    /// # Panics
    /// As [`Host::start`].
    pub fn start_migrated(&mut self, draw: &mut dyn FnMut(usize) -> usize, now: Nanos, out: &mut Vec<Command>) {
        let mut turns: Vec<Vec<TaskId>> = self.wings.guests.vms.ids().map(|_| Vec::new()).collect();
        for (task, record) in self.wings.threads.records.enumerate() {
            match record.kind {
                ThreadKind::Vcpu(vcpu) => turns[self.wings.guests.vcpus[vcpu].vm.0 as usize].push(task),
                ThreadKind::Plain | ThreadKind::Voluntary => turns.push(vec![task]),
            }
        }
        for last in (1..turns.len()).rev() {
            turns.swap(last, draw(last + 1));
        }
        self.start_in(&turns.concat(), now, out);
    }

    fn start_in(&mut self, order: &[TaskId], now: Nanos, out: &mut Vec<Command>) {
        assert!(!self.started, "a host can be started once");
        self.started = true;
        self.wings.threads.sched.begin(now.0);
        out.extend(self.wings.guests.vcpus.iter().map(|vcpu| Command::State {
            vcpu: vcpu.id,
            state: vcpu.state,
        }));
        window::set_pause_controls(&mut self.wings, out);
        // No pCPU needs an IPI yet: each picks its first thread below.
        let mut discarded = vec![];
        let threads = &mut self.wings.threads;
        for &task in order {
            if !threads.records[task].dormant {
                let mut step = Step::new(now, PcpuId(0), &mut discarded);
                threads.sched.start_thread(task, &mut step);
            }
        }
        for pcpu in self.pcpus.rows.ids() {
            let mut step = Step::new(now, pcpu, out);
            self.reschedule(&mut step);
            self.finish(&mut step);
        }
    }

    /// Returns the vCPUs of `vm` in the order of their APIC IDs.
    ///
    /// # Panics
    /// If there is no such VM.
    pub fn vcpus(&self, vm: VmId) -> impl Iterator<Item = VcpuId> + use<> {
        self.wings.guests.vcpus_of(vm)
    }

    /// Returns the thread of `vcpu`.
    ///
    /// # Panics
    /// If there is no such vCPU.
    pub fn thread(&self, vcpu: VcpuId) -> TaskId {
        self.wings.guests.vcpus[vcpu].thread.task
    }

    /// Returns the statistics of `vm`, summed over its vCPUs, by KVM's names where KVM has them. With a policy,
    /// `policy_refusals` is the whole host's ([`Host::policy_refusals`]).
    ///
    /// # Panics
    /// If there is no such VM.
    pub fn counters(&self, vm: VmId) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        let mut sum = Counters::default();
        let mut window_max = 0;
        for vcpu in self.vcpus(vm) {
            let vcpu = &self.wings.guests.vcpus[vcpu];
            sum.add(&vcpu.counters);
            window_max = window_max.max(u64::from(vcpu.spin.window_max));
        }
        let policy = self.wings.config.policy != PolicyKind::KERNEL;
        let refusals = policy.then(|| ("policy_refusals", self.policy_refusals()));
        sum.all().chain([("pause_window_max", window_max)]).chain(refusals)
    }

    /// Returns the number of answers of the host's [policy](crate::Policy) that were refused.
    pub fn policy_refusals(&self) -> u64 {
        self.wings.threads.sched.refused()
    }

    /// Returns how long `task` has had a pCPU until `now`. The time since power-on of all pCPUs is the sum over all
    /// tasks and of all [`Host::idle_time`].
    ///
    /// # Panics
    /// If there is no such task, or `now` is before the last event.
    pub fn cpu_time(&self, task: TaskId, now: Nanos) -> Nanos {
        Nanos(self.wings.threads.sched.ran(task, now.0))
    }

    /// Returns whether `task` sleeps, has not started, or has ended.
    ///
    /// # Panics
    /// If there is no such task.
    pub fn is_asleep(&self, task: TaskId) -> bool {
        self.wings.threads.sched.is_asleep(task)
    }

    /// Returns how long `pcpu` has had nothing to run until `now`.
    ///
    /// # Panics
    /// If there is no such pCPU, or `now` is before the last event.
    pub fn idle_time(&self, pcpu: PcpuId, now: Nanos) -> Nanos {
        Nanos(self.wings.threads.sched.idle_ns(pcpu.0, now.0))
    }

    /// Returns whether the scheduler wants the running task of `pcpu` to give it up (`TIF_NEED_RESCHED`).
    ///
    /// # Panics
    /// If there is no such pCPU.
    #[inline]
    pub fn wants_to_reschedule(&self, pcpu: PcpuId) -> bool {
        self.wings.threads.sched.need_resched(pcpu.0)
    }

    /// Returns what bandwidth control did to `group` until `now`, or `None` if it has no quota.
    pub fn throttling(&self, group: GroupId, now: Nanos) -> Option<Throttling> {
        self.wings.threads.sched.throttling(group, now.0)
    }

    /// Returns what bandwidth control did until `now` to the groups made for `vm`, summed, or `None` if none has a
    /// quota.
    ///
    /// # Panics
    /// If there is no such VM.
    pub fn vm_throttling(&self, vm: VmId, now: Nanos) -> Option<Throttling> {
        let groups = self.wings.guests.vms[vm].groups.iter();
        let all = groups.filter_map(|&group| self.throttling(group, now));
        all.reduce(|sum, counts| Throttling {
            periods: sum.periods + counts.periods,
            throttled_periods: sum.throttled_periods + counts.throttled_periods,
            throttled_ns: sum.throttled_ns + counts.throttled_ns,
            bursts: sum.bursts + counts.bursts,
            burst_ns: sum.burst_ns + counts.burst_ns,
        })
    }

    /// Makes the vCPUs of all VMs sleep for `percent` of the time, at most 99, from now on (QEMU `auto-converge`).
    pub fn throttle_guests(&mut self, percent: u32) {
        self.wings.guests.throttle_percent = percent.min(99);
    }

    /// Returns the state of `vcpu` at `now`. If it is in guest mode, the caller must set [`SavedVcpu::guest`].
    ///
    /// # Panics
    /// If there is no such vCPU.
    pub fn save_vcpu(&self, vcpu: VcpuId, now: Nanos) -> SavedVcpu {
        self.gather_posted(vcpu);
        self.wings.guests.save(vcpu, now)
    }

    /// Gives `vcpu` of a host that has not started the state `saved`. `now` is the time at which the host will be
    /// started.
    ///
    /// # Errors
    /// [`RestoreError`]: saved state may come from anywhere and is checked.
    pub fn restore_vcpu(&mut self, vcpu: VcpuId, saved: &SavedVcpu, now: Nanos) -> Result<(), RestoreError> {
        if self.started {
            return Err(RestoreError::Started);
        }
        migration::restore(&mut self.wings, vcpu, saved, now)
    }

    /// Continues the statistics of `before`, whose VMs migrate to this host.
    ///
    /// # Panics
    /// If `before` has other VMs than this host.
    pub fn continue_counters(&mut self, before: &Host) {
        self.wings.guests.continue_counters(&before.wings.guests);
    }
}
