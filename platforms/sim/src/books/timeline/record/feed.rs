//! How the recorder draws what happens.

use holdfast_abi::{hypercall, lapic, msr};
use holdfast_host::{ApicRegisters, Exit, PcpuId, Run, VcpuId, VcpuState};
use holdfast_machine::LineId;
use holdfast_machine::avic::Targets;

use super::*;
use crate::books::blame::{Culprit, LockRecord};
use crate::books::happened::Happened;

/// The vCPUs that an IPI or a kick is addressed to, by their numbers in the guest, and the vector of an IPI.
fn addressed(exit: &Exit, destination: u32) -> Option<(Vec<u32>, Option<u8>)> {
    let fixed = |command: u64| {
        let plain = command & u64::from(lapic::ICR_MODE | lapic::ICR_SHORTHAND | lapic::ICR_LOGICAL) == 0;
        plain.then_some(Some(command as u8))
    };
    match *exit {
        Exit::Hypercall {
            number: hypercall::KICK_CPU,
            arguments,
        } => Some((vec![u32::try_from(arguments[1]).ok()?], None)),
        Exit::Hypercall {
            number: hypercall::SEND_IPI,
            arguments: [low, high, first, command],
        } => {
            let bits = u128::from(high) << 64 | u128::from(low);
            let first = u32::try_from(first).ok()?;
            let targets = (0..u128::BITS).filter(|bit| bits >> bit & 1 != 0);
            Some((targets.map(|bit| first.saturating_add(bit)).collect(), fixed(command)?))
        }
        Exit::WriteMsr {
            msr: msr::X2APIC_ICR,
            value,
        } => Some((vec![(value >> 32) as u32], fixed(value & 0xffff_ffff)?)),
        Exit::ApicWrite {
            offset: lapic::ICR_LOW,
            value,
        } => Some((vec![destination >> 24], fixed(u64::from(value))?)),
        _ => None,
    }
}

impl Recorder {
    /// Draws what `happened`.
    ///
    /// Inlined where it is called, as `Books::observe` is.
    #[inline(always)]
    pub fn observe(&mut self, view: &View<'_>, happened: &Happened<'_>) {
        let now = view.now;
        match *happened {
            Happened::Chosen { pcpu, run } => self.chosen(now, pcpu, run),
            Happened::HostRuns { pcpu, executes } => self.host_code(now, pcpu, executes),
            Happened::HostStepped => self.host_stepped(view),
            Happened::HostIpiSent { from, to } => self.host_ipi_sent(now, from, to),
            Happened::HostIpiArrived { pcpu } => self.host_ipi_arrived(now, pcpu),
            Happened::Entered {
                vcpu,
                vector: Some(vector),
                ..
            }
            | Happened::Taken { vcpu, vector } => self.takes(now, vcpu, vector),
            Happened::Exited {
                vcpu, exit: Some(exit), ..
            } => self.exited(view, vcpu, exit),
            Happened::ExitHandled => self.exit_handled(now),
            Happened::StateChanged { vcpu, before } => self.state_changed(view, vcpu, before),
            Happened::DirectedYield { from, to, done } => self.yielded(view, from, to, done),
            Happened::IpiPended {
                vcpu,
                targets,
                doorbells,
                exits,
            } => self.pended(view, vcpu, targets, doorbells, exits),
            Happened::IpiPosted { vcpu, .. } => self.posted(view, vcpu),
            Happened::HostRang { from, to } => {
                self.moment(now, Track::Pcpu(from.0), Happening::HostRings(to.0), None);
            }
            Happened::DoorbellMissed { vcpu } => {
                self.moment(now, Track::Vcpu(vcpu.0), Happening::DoorbellMissed, None);
            }
            Happened::LockNamed { line, class, .. } => {
                self.classes.insert(line, class);
            }
            Happened::IntervalBegan { vm } => self.moment(now, Track::Vm(vm.0), Happening::Begins, None),
            Happened::IntervalEnded { vm } => self.moment(now, Track::Vm(vm.0), Happening::Done, None),
            _ => {}
        }
    }

    /// `vcpu` waited for the lock in `line` up to `now`.
    pub fn waited(&mut self, now: Time, vcpu: VcpuId, line: LineId) {
        let behind = self.behind.get(&line).copied().unwrap_or(Behind::HandOver);
        let lock = self.lock(line);
        self.did(now, vcpu, Some(Doing::Spin { lock, behind }));
    }

    /// `vcpu` was out of its guest up to `now`; `cause` says why if it had a pCPU.
    pub fn was_out(&mut self, now: Time, vcpu: VcpuId, cause: Option<Cause>) {
        self.did(now, vcpu, cause.map(Doing::Out));
    }

    /// The waiters for the lock in `line` wait behind `culprit` from now on. `record` says who holds and awaits the
    /// lock.
    #[cold]
    pub fn blame(&mut self, view: &View<'_>, line: LineId, culprit: Culprit, record: &LockRecord) {
        let waiters = record
            .contention
            .as_ref()
            .map_or(&[][..], |contention| &contention.waiters);
        let behind = match (culprit, record.holder, waiters.first()) {
            (Culprit::RunningHolder, Some(holder), _) => Behind::RunningHolder(holder.0),
            (Culprit::PreemptedHolder, Some(holder), _) => Behind::PreemptedHolder(holder.0),
            (Culprit::ThrottledHolder, Some(holder), _) => Behind::ThrottledHolder(holder.0),
            (Culprit::PreemptedWaiter, _, Some(&waiter)) => Behind::PreemptedWaiter(waiter.0),
            (Culprit::ThrottledWaiter, _, Some(&waiter)) => Behind::ThrottledWaiter(waiter.0),
            _ => Behind::HandOver,
        };
        let before = self.behind.insert(line, behind).unwrap_or(Behind::HandOver);
        if before == behind {
            return;
        }
        let doing = Doing::Spin {
            lock: self.lock(line),
            behind: before,
        };
        for &waiter in waiters {
            let this = view.vcpu(waiter);
            if this.pcpu.is_some() && this.announced.contending == Some(line) {
                self.did(view.now, waiter, Some(doing));
            }
        }
    }

    fn state_changed(&mut self, view: &View<'_>, vcpu: VcpuId, before: VcpuState) {
        let now = view.now;
        let this = view.vcpu(vcpu);
        let lock = |line: Option<LineId>| line.map(|line| self.lock(line));
        let (held, awaited) = (this.announced.held.last().copied(), this.announced.contending);
        let place = match this.state {
            VcpuState::InGuest | VcpuState::HandlingExit => match self.vcpus[vcpu].places.what {
                Some(running @ Place::Running { .. }) => running,
                // The `Run` that follows names the pCPU.
                _ => Place::Running { pcpu: u32::MAX },
            },
            VcpuState::Preempted => Place::Preempted {
                holds: lock(held),
                awaits: lock(awaited),
            },
            VcpuState::Throttled => Place::Throttled {
                holds: lock(held),
                awaits: lock(awaited),
            },
            VcpuState::Polling | VcpuState::Blocked => Place::Halted { awaits: lock(awaited) },
            VcpuState::Woken => Place::Woken,
            VcpuState::PauseSleep => Place::PauseSleep,
            // The thread may have a pCPU; the vCPU has none.
            VcpuState::Userspace => Place::PauseSleep,
            VcpuState::Dead => Place::Off,
        };
        self.place(now, vcpu, place);
        let asleep = |state| matches!(state, VcpuState::Polling | VcpuState::Blocked | VcpuState::PauseSleep);
        if asleep(before) && !asleep(this.state) {
            self.woken(now, vcpu);
        }
        if this.is_running() {
            for (from, flow) in std::mem::take(&mut self.vcpus[vcpu].yields) {
                let flow = Flow { id: flow, ends: true };
                self.moment(now, Track::Vcpu(vcpu.0), Happening::YieldedTo(from.0), Some(flow));
            }
        }
    }

    fn chosen(&mut self, now: Time, pcpu: PcpuId, run: Run) {
        let thread = match run {
            Run::Guest { vcpu, .. } => Thread::Vcpu(vcpu.0),
            Run::Poll(vcpu) => Thread::Poll(vcpu.0),
            Run::Task(task) => Thread::Task(task.0),
            Run::Idle => Thread::Idle,
        };
        self.thread(now, pcpu, thread);
        if let Run::Guest { vcpu, .. } = run {
            let place = &mut self.vcpus[vcpu].places;
            if place.what == Some(Place::Running { pcpu: u32::MAX }) {
                place.what = Some(Place::Running { pcpu: pcpu.0 });
                place.join();
            } else {
                self.place(now, vcpu, Place::Running { pcpu: pcpu.0 });
            }
        }
    }

    fn exited(&mut self, view: &View<'_>, vcpu: VcpuId, exit: &Exit) {
        if let Exit::ApicWrite {
            offset: lapic::ICR_HIGH,
            value,
        } = *exit
        {
            self.vcpus[vcpu].destination = value;
        }
        let vm = &view.vms[view.vm_of(vcpu)];
        let Some((targets, vector)) = addressed(exit, self.vcpus[vcpu].destination) else {
            return;
        };
        for number in targets.into_iter().filter(|number| *number < vm.vcpus) {
            self.send(view.now, vcpu, vm.vcpu(number), vector);
        }
    }

    /// AVIC has set the requests of an IPI in the pages of `targets`, whatever its destination is written as.
    #[cold]
    fn pended(&mut self, view: &View<'_>, from: VcpuId, targets: &Targets, doorbells: u64, exits: bool) {
        let vm = &view.vms[view.vm_of(from)];
        for number in targets.others().filter(|number| *number < vm.vcpus) {
            self.send(view.now, from, vm.vcpu(number), Some(targets.vector()));
            if let Some(sent) = self.sent.last_mut() {
                sent.exits = exits;
            }
        }
        if doorbells > 0 {
            self.moment(view.now, Track::Vcpu(from.0), Happening::Doorbells(doorbells), None);
        }
    }

    /// APICv has posted the IPI in the ICR of `from`. In xAPIC mode the target is in the highest byte of ICR high, in
    /// x2APIC mode, whose IDs are below 2^24 here, in the whole.
    #[cold]
    fn posted(&mut self, view: &View<'_>, from: VcpuId) {
        let page = view.host.apic_page(from);
        let (low, high) = (page.load(lapic::ICR_LOW), page.load(lapic::ICR_HIGH));
        let number = if high >> 24 == 0 { high } else { high >> 24 };
        let vm = &view.vms[view.vm_of(from)];
        if number < vm.vcpus {
            self.send(view.now, from, vm.vcpu(number), Some(low as u8));
            if let Some(sent) = self.sent.last_mut() {
                // A sleeping target is woken by the notification, later.
                sent.exits = true;
            }
        }
    }

    /// The step that an exit began is over: kicks that woke no vCPU came before a halt.
    fn exit_handled(&mut self, now: Time) {
        let early = self.sent.extract_if(.., |sent| sent.vector.is_none());
        for sent in early.collect::<Vec<Sent>>() {
            let flow = Flow {
                id: sent.flow,
                ends: true,
            };
            let what = Happening::KickedEarly(sent.from.0);
            self.moment(now, Track::Vcpu(sent.to.0), what, Some(flow));
        }
    }

    fn takes(&mut self, now: Time, vcpu: VcpuId, vector: u8) {
        let taken = |sent: &mut Sent| sent.to == vcpu && sent.vector == Some(vector);
        let taken: Vec<Sent> = self.sent.extract_if(.., taken).collect();
        for Sent { from, flow, .. } in taken {
            let flow = Flow { id: flow, ends: true };
            let what = Happening::TakesIpi { from: from.0, vector };
            self.moment(now, Track::Vcpu(vcpu.0), what, Some(flow));
        }
    }

    fn yielded(&mut self, view: &View<'_>, from: VcpuId, to: VcpuId, done: bool) {
        let to_holder = !view.vcpu(to).announced.held.is_empty();
        let what = Happening::Yield {
            to: to.0,
            done,
            to_holder,
        };
        let flow = done.then(|| self.new_flow());
        let link = flow.map(|id| Flow { id, ends: false });
        self.moment(view.now, Track::Vcpu(from.0), what, link);
        if let Some(flow) = flow {
            let yields = &mut self.vcpus[to].yields;
            yields.retain(|(other, _)| *other != from);
            yields.push((from, flow));
        }
    }

    /// Tasks sleep from now on, or no longer.
    fn host_stepped(&mut self, view: &View<'_>) {
        let (from, to) = (self.from, self.to);
        let tracks = self.tasks.iter_mut();
        let kept = tracks.map(|task| {
            let sleeps = view.host.is_asleep(task.task).then_some(());
            task.sleeps.set(view.now, sleeps, from, to)
        });
        let kept = kept.filter(|kept| *kept).count();
        for _ in 0..kept {
            self.count(true, view.now);
        }
    }

    fn host_ipi_sent(&mut self, now: Time, from: PcpuId, to: PcpuId) {
        let id = self.new_flow();
        let link = Some(Flow { id, ends: false });
        self.moment(now, Track::Pcpu(from.0), Happening::HostIpi(to.0), link);
        self.pcpus[to].ipis.push((from, id));
    }

    fn host_ipi_arrived(&mut self, now: Time, pcpu: PcpuId) {
        if !self.pcpus[pcpu].ipis.is_empty() {
            let (from, id) = self.pcpus[pcpu].ipis.remove(0);
            let link = Some(Flow { id, ends: true });
            self.moment(now, Track::Pcpu(pcpu.0), Happening::HostIpiArrives(from.0), link);
        }
    }

    /// Draws the spins that go on when the run fails.
    pub fn close_spins(&mut self, view: &View<'_>) {
        for vcpu in view.vcpus.ids() {
            let this = view.vcpu(vcpu);
            if let (Some(line), Some(_)) = (this.announced.contending, this.pcpu) {
                self.waited(view.now, vcpu, line);
            }
        }
    }
}
