//! Where the engine feeds the recorder.

use holdfast_abi::{hypercall, lapic, msr};
use holdfast_guest::LockClass;
use holdfast_host::{Exit, Run, VcpuState};
use holdfast_machine::LineId;

use super::*;

/// Whom each bit of an IPI or a kick reaches, and with what.
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

/// Where the engine tells what happens. Each returns at once where nothing is recorded.
impl Engine {
    /// The lock in `line` is of `class`.
    pub fn record_class(&mut self, line: LineId, class: LockClass) {
        if let Some(recorder) = &mut self.timeline {
            recorder.classes.insert(line, class);
        }
    }

    /// `vcpu` waited for the lock in `line` up to now.
    #[inline]
    pub fn record_wait(&mut self, vcpu: u32, line: LineId) {
        if let Some(recorder) = &mut self.timeline {
            let behind = recorder.behind.get(&line).copied().unwrap_or(Behind::HandOver);
            let lock = recorder.lock(line);
            recorder.did(self.now, vcpu, Some(Doing::Spin { lock, behind }));
        }
    }

    /// Whoever waits for the lock in `line` has `culprit` to blame from now on.
    #[inline]
    pub fn record_blame(&mut self, line: LineId, culprit: Culprit) {
        if self.timeline.is_some() {
            self.record_blame_now(line, culprit);
        }
    }

    #[cold]
    fn record_blame_now(&mut self, line: LineId, culprit: Culprit) {
        let record = &self.records[line.0 as usize].lock;
        let waiters = record.contention().map_or(&[][..], |contention| &contention.waiters);
        let behind = match (culprit, record.holder(), waiters.first()) {
            (Culprit::RunningHolder, Some(holder), _) => Behind::RunningHolder(holder),
            (Culprit::PreemptedHolder, Some(holder), _) => Behind::PreemptedHolder(holder),
            (Culprit::ThrottledHolder, Some(holder), _) => Behind::ThrottledHolder(holder),
            (Culprit::PreemptedWaiter, _, Some(&waiter)) => Behind::PreemptedWaiter(waiter),
            (Culprit::ThrottledWaiter, _, Some(&waiter)) => Behind::ThrottledWaiter(waiter),
            _ => Behind::HandOver,
        };
        let Some(recorder) = &mut self.timeline else { return };
        let before = recorder.behind.insert(line, behind).unwrap_or(Behind::HandOver);
        if before == behind {
            return;
        }
        let doing = Doing::Spin {
            lock: recorder.lock(line),
            behind: before,
        };
        for &waiter in waiters {
            let this = &self.vcpus[waiter as usize];
            if this.pcpu.is_some() && this.contending == Some(line) {
                recorder.did(self.now, waiter, Some(doing));
            }
        }
    }

    /// `vcpu`, out of its guest, got nowhere up to now.
    #[inline]
    pub fn record_out(&mut self, vcpu: u32) {
        if let Some(recorder) = &mut self.timeline {
            let this = &self.vcpus[vcpu as usize];
            let doing = this.is_running().then_some(Doing::Out(this.out_cause));
            recorder.did(self.now, vcpu, doing);
        }
    }

    /// `vcpu` left `before` for its present state.
    #[inline]
    pub fn record_state(&mut self, vcpu: u32, before: VcpuState) {
        if self.timeline.is_some() {
            self.record_state_now(vcpu, before);
        }
    }

    #[cold]
    fn record_state_now(&mut self, vcpu: u32, before: VcpuState) {
        let Some(recorder) = &mut self.timeline else { return };
        let now = self.now;
        let this = &self.vcpus[vcpu as usize];
        let lock = |line: Option<LineId>| line.map(|line| recorder.lock(line));
        let place = match this.state {
            VcpuState::InGuest | VcpuState::HandlingExit => match recorder.places[vcpu as usize].what {
                Some(running @ Place::Running { .. }) => running,
                // Which pCPU, its `Run` will tell.
                _ => Place::Running { pcpu: u32::MAX },
            },
            VcpuState::Preempted => Place::Preempted {
                holds: lock(this.held.last().copied()),
                awaits: lock(this.contending),
            },
            VcpuState::Throttled => Place::Throttled {
                holds: lock(this.held.last().copied()),
                awaits: lock(this.contending),
            },
            VcpuState::Polling | VcpuState::Blocked => Place::Halted {
                awaits: lock(this.contending),
            },
            VcpuState::Woken => Place::Woken,
            VcpuState::PauseSleep => Place::PauseSleep,
            // The thread may have a pCPU; the vCPU has none.
            VcpuState::Userspace => Place::PauseSleep,
            VcpuState::Dead => Place::Off,
        };
        recorder.place(now, vcpu, place);
        let asleep = |state| matches!(state, VcpuState::Polling | VcpuState::Blocked | VcpuState::PauseSleep);
        if asleep(before) && !asleep(this.state) {
            recorder.woken(now, vcpu);
        }
        if this.is_running() {
            for (from, flow) in std::mem::take(&mut recorder.yields[vcpu as usize]) {
                let flow = Flow { id: flow, ends: true };
                recorder.moment(now, Track::Vcpu(vcpu), Happening::YieldedTo(from), Some(flow));
            }
        }
    }

    /// `pcpu` is whose `run` says, from now on.
    #[inline]
    pub fn record_run(&mut self, pcpu: u32, run: Run) {
        let Some(recorder) = &mut self.timeline else { return };
        let thread = match run {
            Run::Guest { vcpu, .. } => Thread::Vcpu(vcpu.0),
            Run::Poll(vcpu) => Thread::Poll(vcpu.0),
            Run::Task(task) => Thread::Task(task.0),
            Run::Idle => Thread::Idle,
        };
        recorder.thread(self.now, pcpu, thread);
        if let Thread::Vcpu(vcpu) = thread {
            let place = &mut recorder.places[vcpu as usize];
            if place.what == Some(Place::Running { pcpu: u32::MAX }) {
                place.what = Some(Place::Running { pcpu });
                place.join();
            } else {
                recorder.place(self.now, vcpu, Place::Running { pcpu });
            }
        }
    }

    /// `pcpu` executes host code from now on, or no longer.
    #[inline]
    pub fn record_host(&mut self, pcpu: u32, executes: bool) {
        if let Some(recorder) = &mut self.timeline {
            recorder.host_code(self.now, pcpu, executes);
        }
    }

    /// `vcpu` exits: what it sends to whom.
    #[inline]
    pub fn record_exit(&mut self, vcpu: u32, exit: &Exit) {
        if self.timeline.is_some() {
            self.record_exit_now(vcpu, exit);
        }
    }

    #[cold]
    fn record_exit_now(&mut self, vcpu: u32, exit: &Exit) {
        let Some(recorder) = &mut self.timeline else { return };
        if let Exit::ApicWrite {
            offset: lapic::ICR_HIGH,
            value,
        } = *exit
        {
            recorder.destinations[vcpu as usize] = value;
        }
        let vm = &self.vms[self.vcpus[vcpu as usize].vm.0 as usize];
        let Some((targets, vector)) = addressed(exit, recorder.destinations[vcpu as usize]) else {
            return;
        };
        for number in targets.into_iter().filter(|number| *number < vm.vcpus) {
            recorder.send(self.now, vcpu, vm.first_vcpu + number, vector);
        }
    }

    /// The step that an exit began is over: kicks that woke nobody came early.
    #[inline]
    pub fn record_exit_handled(&mut self) {
        let Some(recorder) = &mut self.timeline else { return };
        let early = recorder.sent.extract_if(.., |sent| sent.vector.is_none());
        for sent in early.collect::<Vec<Sent>>() {
            let flow = Flow {
                id: sent.flow,
                ends: true,
            };
            let what = Happening::KickedEarly(sent.from);
            recorder.moment(self.now, Track::Vcpu(sent.to), what, Some(flow));
        }
    }

    /// `vcpu` is entered with `vector`.
    #[inline]
    pub fn record_inject(&mut self, vcpu: u32, vector: u8) {
        let Some(recorder) = &mut self.timeline else { return };
        let taken = |sent: &mut Sent| sent.to == vcpu && sent.vector == Some(vector);
        let taken: Vec<Sent> = recorder.sent.extract_if(.., taken).collect();
        for Sent { from, flow, .. } in taken {
            let flow = Flow { id: flow, ends: true };
            let what = Happening::TakesIpi { from, vector };
            recorder.moment(self.now, Track::Vcpu(vcpu), what, Some(flow));
        }
    }

    /// A directed yield was tried.
    #[inline]
    pub fn record_yield(&mut self, from: u32, to: u32, done: bool) {
        let Some(recorder) = &mut self.timeline else { return };
        let to_holder = !self.vcpus[to as usize].held.is_empty();
        let what = Happening::Yield { to, done, to_holder };
        let flow = done.then(|| recorder.new_flow());
        let link = flow.map(|id| Flow { id, ends: false });
        recorder.moment(self.now, Track::Vcpu(from), what, link);
        if let Some(flow) = flow {
            let yields = &mut recorder.yields[to as usize];
            yields.retain(|(other, _)| *other != from);
            yields.push((from, flow));
        }
    }

    /// The host on pCPU `from` interrupts pCPU `to`.
    #[inline]
    pub fn record_host_ipi(&mut self, from: u32, to: u32) {
        let Some(recorder) = &mut self.timeline else { return };
        let id = recorder.new_flow();
        let link = Some(Flow { id, ends: false });
        recorder.moment(self.now, Track::Pcpu(from), Happening::HostIpi(to), link);
        recorder.ipis[to as usize].push((from, id));
    }

    /// Such an interrupt arrives.
    #[inline]
    pub fn record_host_ipi_arrives(&mut self, pcpu: u32) {
        let Some(recorder) = &mut self.timeline else { return };
        if !recorder.ipis[pcpu as usize].is_empty() {
            let (from, id) = recorder.ipis[pcpu as usize].remove(0);
            let link = Some(Flow { id, ends: true });
            recorder.moment(self.now, Track::Pcpu(pcpu), Happening::HostIpiArrives(from), link);
        }
    }

    /// The measured interval of guest `vm` begins, or is done.
    pub fn record_interval(&mut self, vm: u32, what: Happening) {
        if let Some(recorder) = &mut self.timeline {
            recorder.moment(self.now, Track::Vm(vm), what, None);
        }
    }

    /// Takes the recording. `closed`: the ledgers are.
    ///
    /// # Panics
    /// If nothing was recorded.
    pub fn take_timeline(&mut self, closed: bool) -> Timeline {
        if !closed {
            // Who still spins is what a failure's picture is about.
            for vcpu in 0..self.vcpus.len() as u32 {
                let this = &self.vcpus[vcpu as usize];
                if let (Some(line), Some(_)) = (this.contending, this.pcpu) {
                    self.record_wait(vcpu, line);
                }
            }
        }
        let recorder = self.timeline.take().expect("a recorder was set");
        let mut timeline = recorder.finish(self.now);
        timeline.begun = self.vms.iter().map(|vm| vm.begun).collect();
        timeline.vms = self.vms.iter().map(|vm| vm.name.clone()).collect();
        for (track, Vcpu { vm, number, .. }) in timeline.vcpus.iter_mut().zip(&self.vcpus) {
            (track.vm, track.number) = (vm.0, *number);
        }
        timeline
    }
}
