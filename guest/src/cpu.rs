//! The lowest layer of the kernel: the machine, the boot parameters, each CPU's own state, and the CPU that runs the
//! caller.
//!
//! Everything in here is lock-free: spinlocks are built on top of it.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use core::cell::Cell;
use core::sync::atomic::Ordering::{Acquire, Relaxed};

use holdfast_abi::hypercall;
use holdfast_locks::{Budget, CpuId, LockKind, Paravirt, Platform, Word};

use crate::apic::LocalApic;
use crate::average::Average;
use crate::class::{Event, LockClass};
use crate::config::{Assists, Config};
use crate::haltpoll::HaltPoll;
use crate::ids::{CpuTable, LocalId, TaskId};
use crate::local::{Local, Local32, Shared32};
use crate::machine::{Caches, Cpu, Machine, Mode, Report};
use crate::mask::CpuMask;
use crate::numa::NumaMap;
use crate::policy::GuestPolicy;
use crate::profile::LineProfile;
use crate::word::Says;

/// The machine with the boot parameters and the state of its CPUs.
pub(crate) struct System<M: Machine> {
    pub(crate) machine: M,
    pub(crate) config: Config,
    /// `None`: the kernel decides everything.
    pub(crate) policy: Option<Box<dyn GuestPolicy>>,
    pub(crate) numa: NumaMap,
    /// The state of each CPU. Other CPUs may use only what is documented as shared or as a hint.
    pub(crate) cpus: CpuTable<CpuState>,
    /// What was chosen at boot. It is final before a second CPU runs.
    pub(crate) chosen: Cell<Chosen>,
    /// Whether the kernel checks for preempted vCPUs: its CPUs have registered their steal-time records, and it has
    /// paravirtual locks. Each CPU sets it at its start, all of them to the same value.
    pub(crate) sees_preempted: Cell<bool>,
    /// The word of each CPU: [`WATCHED`] while it is idle and looks for work itself, or 0. A CPU that halts looks
    /// before and after HLT, one that waits for a write to its word all the time.
    pub(crate) idle_words: CpuTable<<M::Cpu as Platform>::Word>,
}

/// What the kernel chose at boot, by the features that the host offers.
#[derive(Clone, Copy)]
pub(crate) struct Chosen {
    /// The algorithm of every spinlock.
    pub(crate) lock: LockKind,
    pub(crate) assists: Assists,
    /// Whether it uses process-context identifiers.
    pub(crate) pcids: bool,
    /// How its idle CPUs wait.
    pub(crate) idle: IdleWait,
}

/// How an idle CPU waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IdleWait {
    /// By HLT, for an interrupt.
    Halt,
    /// By MWAIT, for an interrupt or a write to its word.
    Monitor,
    /// In a loop, for a write to its word.
    Poll,
    /// In such a loop for a while, then by HLT.
    HaltPoll,
    /// In a loop that reads an emulated timer.
    PollTimer,
}

/// Value of the word of an idle CPU that needs no reschedule IPI now (`TIF_POLLING_NRFLAG`).
pub(crate) const WATCHED: u32 = 1;

impl<M: Machine> System<M> {
    pub(crate) fn new(machine: M, config: Config) -> Self {
        let cpus = machine.cpus();
        let most = config.cpus_max();
        assert!(cpus <= most, "a guest has {cpus} cpus: expected at most {most}");
        System {
            policy: config.policy.make(),
            numa: NumaMap::read(&machine),
            cpus: CpuTable::new(cpus, |cpu| CpuState::new(idle_task(cpu))),
            chosen: Cell::new(Chosen {
                lock: config.lock,
                assists: Assists::default(),
                pcids: false,
                idle: IdleWait::Halt,
            }),
            sees_preempted: Cell::new(false),
            idle_words: CpuTable::new(cpus, |_| <M::Cpu as Platform>::Word::new(0)),
            machine,
            config,
        }
    }

    /// The CPU that executes the caller. The value is valid until the caller blocks or can be preempted.
    #[inline(always)]
    pub(crate) fn this_cpu(&self) -> ThisCpu<'_, M> {
        let cpu = self.machine.cpu();
        let id = cpu.cpu();
        ThisCpu {
            system: self,
            local: &self.cpus[id],
            cpu,
            id,
        }
    }

    /// The number of CPUs.
    #[inline(always)]
    pub(crate) fn cpu_count(&self) -> u32 {
        self.cpus.count()
    }

    /// Returns `true` if every CPU has started.
    pub(crate) fn all_booted(&self) -> bool {
        self.cpus.iter().all(|cpu| cpu.online.get() != 0)
    }

    /// The number of tasks that run or are ready on `cpu`. A hint.
    #[inline(always)]
    pub(crate) fn load_of(&self, cpu: CpuId) -> u32 {
        self.cpus[cpu].load.get()
    }

    /// Returns the CPUs that have started, without `cpu`.
    pub(crate) fn online_others(&self, cpu: CpuId) -> CpuMask {
        let mut others = CpuMask::EMPTY;
        let online = (0..self.cpu_count())
            .map(CpuId)
            .filter(|&other| other != cpu && self.is_online(other));
        online.for_each(|other| others.insert(other));
        others
    }

    pub(crate) fn is_online(&self, cpu: CpuId) -> bool {
        self.cpus[cpu].online.get() != 0
    }

    /// The CPUs other than `cpu`, in ascending order from `cpu` and around.
    pub(crate) fn others(&self, cpu: CpuId) -> impl DoubleEndedIterator<Item = CpuId> + use<M> {
        let cpus = self.cpu_count();
        (1..cpus).map(move |step| CpuId((cpu.0 + step) % cpus))
    }

    /// Returns `true` if the two CPUs share a last-level cache.
    #[inline]
    pub(crate) fn share_cache(&self, one: CpuId, other: CpuId) -> bool {
        self.config.shared_cache || one == other
    }

    /// Returns the device that the machine has `found`, of the kind `what`. Stops the machine if there is none.
    pub(crate) fn device<'d, D>(&self, found: Option<&'d D>, what: &str) -> &'d D {
        match found {
            Some(device) => device,
            None => self.panic(format!("no {what} device was found")),
        }
    }

    /// Stops the machine with a message.
    pub(crate) fn panic(&self, message: String) -> ! {
        self.machine.report(Report::Panic(message));
        let on = self.this_cpu();
        on.cpu.irq_disable();
        loop {
            on.cpu.halt_masked();
        }
    }
}

/// The idle task of `cpu`. Idle tasks come first: task `i` is CPU `i`'s.
#[inline(always)]
pub(crate) fn idle_task(cpu: CpuId) -> TaskId {
    TaskId(cpu.0)
}

/// The state of one CPU that needs no lock. Only that CPU uses it, except for hints and [`Shared32`]s.
pub(crate) struct CpuState {
    /// The task that runs here.
    pub(crate) current: LocalId<TaskId>,
    /// Not 0: the CPU must call the scheduler at the next chance (`TIF_NEED_RESCHED`). Written under the run queue's
    /// lock.
    pub(crate) need_resched: Shared32,
    /// Not 0: this CPU takes part in scheduling.
    pub(crate) online: Shared32,
    /// Tasks that run or are ready here. A copy of the run queue's count for others, written under the queue's lock.
    pub(crate) load: Local32,
    /// The average of the loads of tasks here, as [`Placement`](crate::config::Placement) says of which.
    pub(crate) average: Average,
    /// The run queue's smallest virtual run time, for tasks on their way to or from this CPU. A copy like `load`.
    pub(crate) min_vruntime: Local,
    /// The number of spinlocks held.
    pub(crate) preempt_count: Local32,
    /// What the CPU says to the host.
    pub(crate) says: Says,
    /// The nesting depth of interrupt handlers.
    pub(crate) interrupts: Local32,
    pub(crate) apic: LocalApic,
    /// Until when this CPU's RCU callbacks keep the tick running in idle, in nanoseconds.
    pub(crate) callbacks_until: Local,
    mode: Local32,
    /// Since when the CPU has been in its mode, in nanoseconds.
    mode_since: Local,
    /// Nanoseconds spent in each [`Mode`], without the current stretch.
    pub(crate) spent: [Local; 3],
    /// Acquisitions of each [`LockClass`] on this CPU.
    pub(crate) acquired: [Local; LockClass::COUNT],
    /// Those that had to wait.
    pub(crate) contended: [Local; LockClass::COUNT],
    /// Nanoseconds of these waits, by class.
    pub(crate) waited: [Local; LockClass::COUNT],
    /// Nanoseconds for which this CPU held spinlocks of each class.
    pub(crate) held: [Local; LockClass::COUNT],
    /// Nanoseconds that the other acquisitions took.
    pub(crate) at_once: Local,
    /// Which of the other CPUs it has fetched cache lines from last, in turn.
    pub(crate) fetched_from: Local32,
    /// The [`Caches`] in which it took its last spinlock, plus 1. 0: it has taken none.
    pub(crate) caches: Local32,
    /// How many times each [`Event`] happened on this CPU.
    pub(crate) events: [Local; Event::COUNT],
    /// How many answers of the guest's policy were refused on this CPU.
    pub(crate) refused: Local,
    /// For how long it polls when it is idle, if it does.
    pub(crate) halt_poll: HaltPoll,
}

impl CpuState {
    fn new(idle: TaskId) -> Self {
        CpuState {
            current: LocalId::new(idle),
            need_resched: Shared32::new(0),
            online: Shared32::new(0),
            load: Local32::new(0),
            average: Average::default(),
            min_vruntime: Local::new(0),
            preempt_count: Local32::new(0),
            says: Says::default(),
            interrupts: Local32::new(0),
            apic: LocalApic::new(),
            callbacks_until: Local::new(0),
            mode: Local32::new(Mode::Kernel as u32),
            mode_since: Local::new(0),
            spent: core::array::from_fn(|_| Local::default()),
            acquired: core::array::from_fn(|_| Local::default()),
            contended: core::array::from_fn(|_| Local::default()),
            waited: core::array::from_fn(|_| Local::default()),
            held: core::array::from_fn(|_| Local::default()),
            at_once: Local::default(),
            fetched_from: Local32::new(0),
            caches: Local32::new(0),
            events: core::array::from_fn(|_| Local::default()),
            refused: Local::default(),
            halt_poll: HaltPoll::default(),
        }
    }

    /// Returns `true` if the CPU spends its time in `mode`.
    #[inline(always)]
    pub(crate) fn is_in(&self, mode: Mode) -> bool {
        self.mode.get() == mode as u32
    }

    #[inline(always)]
    pub(crate) fn count(&self, event: Event) {
        self.events[event as usize].add(1);
    }

    #[inline(always)]
    pub(crate) fn count_lock(&self, class: LockClass, contended: bool, ns: u64) {
        self.acquired[class as usize].add(1);
        if contended {
            self.contended[class as usize].add(1);
            self.waited[class as usize].add(ns);
        } else {
            self.at_once.add(ns);
        }
    }

    /// Sets the counters of events and of locks by class to zero.
    pub(crate) fn zero_statistics(&self) {
        let locks = [&self.acquired, &self.contended, &self.waited, &self.held];
        locks.into_iter().flatten().for_each(|counter| counter.set(0));
        self.events.iter().for_each(|counter| counter.set(0));
        self.refused.set(0);
    }
}

/// The CPU that took a lock last.
#[derive(Clone, Copy)]
pub(crate) struct Holder {
    /// Its number plus 1. 0: none has taken the lock.
    pub(crate) cpu: u32,
    /// The [`Caches`] in which it took the lock, plus 1.
    pub(crate) caches: u32,
}

/// The CPU that executes the caller, with its own state.
pub(crate) struct ThisCpu<'k, M: Machine> {
    pub(crate) system: &'k System<M>,
    pub(crate) local: &'k CpuState,
    pub(crate) cpu: M::Cpu,
    pub(crate) id: CpuId,
}

impl<M: Machine> ThisCpu<'_, M> {
    /// Does kernel work of `ns` nanoseconds.
    #[inline(always)]
    pub(crate) fn work(&self, ns: u64) {
        self.cpu.compute(ns);
    }

    /// Changes what this CPU says to the host, if the host reads it.
    #[inline]
    pub(crate) fn say(&self, change: impl FnOnce(&Says)) {
        if self.system.chosen.get().assists.word {
            change(&self.local.says);
            let word = self.word(self.local.says.word());
            // ORDERING: Relaxed: a hint, which the host reads when this CPU is out of its guest.
            self.cpu.steal_time(self.id).word.store(word, Relaxed);
        }
    }

    /// Says that a spinlock has been released. If the host lets this CPU run on only for what it said, it leaves now.
    #[inline]
    pub(crate) fn say_released(&self) {
        self.say(Says::releases);
        let local = &self.local.says;
        if self.system.chosen.get().assists.word && !local.is_busy() {
            // ORDERING: Relaxed: a hint, which the host wrote on this pCPU before it entered the guest.
            if self.cpu.steal_time(self.id).granted.load(Relaxed) != 0 {
                self.cpu
                    .hypercall(hypercall::SCHED_YIELD as u32, [u64::from(self.id.0), 0, 0, 0]);
            }
        }
    }

    /// Returns this CPU as the holder of a lock that it has just taken.
    #[inline]
    pub(crate) fn take_caches(&self) -> Holder {
        let caches = self.cpu.caches().0 + 1;
        self.local.caches.set(caches);
        Holder {
            cpu: self.id.0 + 1,
            caches,
        }
    }

    /// Touches the lines of a section whose lock `before` took. If that was this CPU, the lines are those of the other
    /// CPUs in turn.
    #[inline]
    pub(crate) fn fetch(&self, before: Holder, lines: LineProfile) {
        let (caches, milli) = if before.cpu == self.id.0 + 1 {
            let others = self.system.cpus.count() - 1;
            if lines.stayed_milli == 0 || others == 0 {
                return;
            }
            let turn = &self.local.fetched_from;
            turn.set((turn.get() + 1) % others);
            let other = CpuId((self.id.0 + 1 + turn.get()) % (others + 1));
            (self.system.cpus[other].caches.get(), lines.stayed_milli)
        } else {
            (before.caches, lines.moved_milli)
        };
        if caches != 0 && milli != 0 {
            self.cpu.fetch_lines(Caches(caches - 1), milli, lines.chained);
        }
    }

    /// Waits until `is_over` holds for the value of `word`, however long that takes. Acquires the write of that value.
    #[track_caller]
    pub(crate) fn wait_for(&self, word: &<M::Cpu as Platform>::Word, is_over: impl Fn(u32) -> bool) {
        let waited = self.cpu.wait_until(word, Budget::UNBOUNDED, Acquire, is_over);
        assert!(waited.is_ok(), "an unbounded wait of cpu {} ended early", self.id.0);
    }

    /// Returns `true` if the scheduler wants this CPU (`need_resched`).
    #[inline(always)]
    pub(crate) fn wants_to_reschedule(&self) -> bool {
        match self.system.machine.threads() {
            Some(threads) => threads.wants_to_reschedule(),
            None => self.local.need_resched.get() != 0,
        }
    }

    /// The task that runs here.
    #[inline(always)]
    pub(crate) fn current(&self) -> TaskId {
        self.local.current.get()
    }

    /// Accounts this CPU's time to `mode` from now on (`CONFIG_VIRT_CPU_ACCOUNTING`). Time that the host steals is
    /// included.
    #[inline(always)]
    pub(crate) fn execute(&self, mode: Mode) {
        let (local, now) = (self.local, self.now());
        local.spent[local.mode.get() as usize].add(now.wrapping_sub(local.mode_since.get()));
        local.mode_since.set(now);
        local.mode.set(mode as u32);
        self.cpu.executing(mode);
    }

    /// Nanoseconds since boot.
    #[inline(always)]
    pub(crate) fn now(&self) -> u64 {
        self.cpu.now_ns()
    }

    /// Ends the interrupt in service.
    pub(crate) fn end_of_interrupt(&self) {
        // A scheduler on the machine itself also has the interrupt controller.
        if self.system.machine.threads().is_none() && self.local.apic.end_of_interrupt(&self.cpu) {
            self.local.count(Event::PvEois);
        }
    }

    /// Sets this CPU's timer for `at` nanoseconds, or switches it off for `u64::MAX`. Interrupts are masked.
    pub(crate) fn set_timer(&self, at: u64) {
        if self.local.apic.set_timer(&self.cpu, at) {
            self.local.count(Event::TimerPrograms);
        }
    }
}
