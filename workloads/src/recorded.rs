//! Threads of a recorded host, as a guest without a kernel: each vCPU repeats what one recorded thread did.
//!
//! A thread's time on a CPU is given, in whatever code it was spent; so another lock or another kernel cannot be asked
//! about. What is simulated is everything around it: when the host runs the thread, and when a thread that it woke goes
//! on.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use alloc::{format, vec};
use core::cell::{Cell, RefCell};
use core::fmt;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Release};

use holdfast_guest::{Cpu, GuestImage, LocalApic, Machine, Mode, Program, RESCHEDULE_VECTOR, Report};
use holdfast_locks::{Budget, CpuId, Interrupts, Paravirt, Platform, Word};
use serde::{Deserialize, Serialize};

use crate::workload::{Idle, Load};

/// Recorded threads, one for each vCPU. vCPUs beyond the last one do nothing.
#[derive(Clone, Default, PartialEq)]
pub struct Recorded {
    /// File with recorded threads, as `holdfast import --experiment` writes it, relative to the experiment's folder.
    pub file: String,
    /// Name of the recorded guest in that file.
    pub guest: String,
    /// Identity of the file's content. It is computed by the reader of the file.
    pub digest: String,
    /// What each thread did.
    pub threads: Arc<[Thread]>,
}

/// The threads of recorded guests, as files have them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedHost {
    /// The version of the file's form: [`RecordedHost::SCHEMA`].
    pub schema: String,
    /// How long the recording lasted, in nanoseconds.
    pub span_ns: u64,
    /// The threads of each guest, by its name.
    pub guests: BTreeMap<String, Vec<Thread>>,
}

impl RecordedHost {
    /// The version of the form of these files.
    pub const SCHEMA: &str = "holdfast.recorded/4";
    /// Name of the guest whose threads are the host's own.
    pub const HOST: &str = "host";
}

/// What one thread did, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thread {
    /// The pCPU where it was first, by Linux's number, if known.
    pub first_pcpu: Option<u32>,
    /// Its steps.
    pub steps: Vec<Step>,
    /// The recorded lengths in nanoseconds of those steps that something else ends: of each [`Step::Woken`],
    /// [`Step::At`] and [`Step::Spin`], in their order.
    #[serde(default)]
    pub lengths: Vec<u64>,
    /// The tick of its kernel, which comes while it waits in a [`Step::Woken`], too. Without it no timer does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tick: Option<Tick>,
    /// What a halt takes the host beside its poll, in nanoseconds on a CPU: to put the thread to sleep, or to see that
    /// the poll is over. The thread does it when it goes on, so that a wakeup meanwhile does not come before the sleep.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub halt_ns: u64,
}

fn is_nothing(ns: &u64) -> bool {
    *ns == 0
}

/// A timer that comes at all multiples of a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tick {
    /// The period in nanoseconds.
    pub period_ns: u64,
    /// What the thread then does takes so many nanoseconds on a CPU.
    pub takes_ns: u64,
}

/// One thing that a thread did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Runs for so many nanoseconds on a CPU.
    Run(u64),
    /// Ends a wait of another thread: the [`Step::Woken`] with this number, counted from 0 in that thread.
    Wake {
        /// The other thread.
        thread: u32,
        /// Which of its waits.
        wait: u32,
    },
    /// Waits for the [`Step::Wake`] of this wait. Does not wait if that has already happened.
    Woken,
    /// Spins until another thread has gone on from its [`Step::Woken`] with this number: for its answer.
    Spin {
        /// The other thread.
        thread: u32,
        /// Which of its waits.
        wait: u32,
    },
    /// Waits for so many nanoseconds: for a timer that was set shortly before.
    After(u64),
    /// Waits for so many nanoseconds, for a timer that came while it waited for another thread; and no longer than
    /// until the [`Step::Wake`] of its next [`Step::Woken`].
    Tick(u64),
    /// Waits until so many nanoseconds after the recording began: for something outside of these threads.
    At(u64),
    /// Leaves the guest for the host and returns, in no time. Under lazy preemption a waiting thread gets the CPU then.
    Exit,
    /// Runs until so many nanoseconds after the recording began: its last step, if it wanted a CPU when the recording
    /// ended. Threads of the host that have slept have none.
    Until(u64),
    /// The same for a thread that has waited: it does its steps again until then, with waits as long as recorded, and
    /// wakes no other thread. So one that gets more of the CPUs does more, and waits more.
    Again(u64),
}

impl Step {
    /// Returns whether the thread waits in it.
    pub fn is_wait(&self) -> bool {
        matches!(self, Step::Woken | Step::After(_) | Step::Tick(_) | Step::At(_))
    }
}

/// A stretch of [`Step::Until`] in nanoseconds: the thread looks at the clock this often.
const UNTIL_STRETCH_NS: u64 = 50_000;

/// Returns what is wrong with `threads`, if anything: a wait that none or two of them end, a thread or a wait that does
/// not exist.
pub fn fault(threads: &[Thread]) -> Option<String> {
    let mut ended: Vec<Vec<bool>> = threads.iter().map(|thread| vec![false; thread.waits()]).collect();
    for (number, thread) in threads.iter().enumerate() {
        for step in &thread.steps {
            let (Step::Wake { thread, wait } | Step::Spin { thread, wait }) = *step else {
                continue;
            };
            let waits = ended.get_mut(thread as usize);
            let Some(ended) = waits.and_then(|waits| waits.get_mut(wait as usize)) else {
                return Some(format!(
                    "thread {number} names wait {wait} of thread {thread}, which has none such"
                ));
            };
            if matches!(step, Step::Spin { .. }) {
                continue;
            }
            if core::mem::replace(ended, true) {
                return Some(format!("wait {wait} of thread {thread} is ended twice"));
            }
        }
    }
    ended.iter().enumerate().find_map(|(thread, waits)| {
        let wait = waits.iter().position(|ended| !ended)?;
        Some(format!("no thread ends wait {wait} of thread {thread}"))
    })
}

impl Thread {
    /// Returns how many of its waits are ended by other threads.
    fn waits(&self) -> usize {
        self.steps.iter().filter(|step| **step == Step::Woken).count()
    }
}

/// The content by its digest: a configuration's text stands for the configuration, and an hour has many steps.
impl fmt::Debug for Recorded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = (&self.guest, &self.digest, self.threads.len());
        f.debug_tuple("Recorded").field(&shown).finish()
    }
}

impl Load for Recorded {
    fn scale_work(&mut self, _: f64) {}

    /// A kernel has nothing to do for recorded threads.
    fn program<M: Machine>(&self, _: u32) -> Box<dyn Program<M>> {
        Box::new(Idle)
    }
}

/// Threads are shared by all copies of a configuration, and sent whole.
impl Serialize for Recorded {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (&self.file, &self.guest, &self.digest, &*self.threads).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Recorded {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (file, guest, digest, threads) = <(String, String, String, Vec<Thread>)>::deserialize(deserializer)?;
        let threads = threads.into();
        Ok(Recorded {
            file,
            guest,
            digest,
            threads,
        })
    }
}

/// The state of one thread.
struct Repeated<W> {
    /// Changes when a wait of the thread is ended, so that its vCPU looks again.
    woken: W,
    /// Which of its waits have been ended, by number. A vCPU reads it after the word, and writes it after the word, so
    /// that all see it in the order of the words.
    ended: RefCell<Vec<bool>>,
    /// How many of its waits it has gone on from, if another thread spins for that.
    answered: W,
    /// Another thread does.
    is_asked: bool,
    apic: LocalApic,
}

/// The guest.
struct Image<M: Machine> {
    machine: M,
    script: Arc<[Thread]>,
    threads: Box<[Repeated<<M::Cpu as Platform>::Word>]>,
    running: Cell<u32>,
}

/// Makes the guest of `recorded`, ready to boot on `machine`.
pub(crate) fn image<M: Machine>(machine: M, recorded: &Recorded) -> Box<dyn GuestImage> {
    let steps = || recorded.threads.iter().flat_map(|thread| &thread.steps);
    let asked = steps().filter_map(|step| match step {
        Step::Spin { thread, .. } => Some(*thread as usize),
        _ => None,
    });
    let asked: BTreeSet<usize> = asked.collect();
    let threads = (0..machine.cpus() as usize).map(|number| {
        let waits = recorded.threads.get(number).map_or(0, Thread::waits);
        Repeated {
            woken: Word::new(0),
            ended: RefCell::new(vec![false; waits]),
            answered: Word::new(0),
            is_asked: asked.contains(&number),
            apic: LocalApic::new(),
        }
    });
    Box::new(Image {
        script: Arc::clone(&recorded.threads),
        threads: threads.collect(),
        running: Cell::new(machine.cpus()),
        machine,
    })
}

impl<M: Machine> Image<M> {
    /// Repeats the steps of `thread`.
    fn repeat(&self, cpu: &M::Cpu, thread: usize) {
        let steps = self.script.get(thread).map_or(&[][..], |thread| &thread.steps);
        let mut wait = 0;
        for step in steps {
            match *step {
                Step::Run(ns) => self.run(cpu, ns),
                Step::Until(until) => {
                    self.run_until(cpu, u64::MAX, until);
                }
                // Any exit does.
                Step::Exit => _ = cpu.cpuid(0),
                Step::Again(until) => self.again(cpu, thread, until),
                Step::Wake { thread: other, wait } => self.wake(cpu, thread, other, wait as usize),
                Step::Woken => {
                    self.wait_for_wake(cpu, thread, wait);
                    wait += 1;
                    if self.threads[thread].is_asked {
                        // ORDERING: Release pairs with the Acquire of the thread that spins for it.
                        cpu.store(&self.threads[thread].answered, wait as u32, Release);
                    }
                }
                Step::Spin { thread: other, wait } => {
                    let answered = &self.threads[other as usize].answered;
                    cpu.executing(Mode::User);
                    // ORDERING: Acquire pairs with the Release above. A budget without bound ends with success.
                    let _ = cpu.wait_until(answered, Budget::UNBOUNDED, Acquire, |passed| passed > wait);
                    cpu.executing(Mode::Kernel);
                }
                Step::After(ns) => self.sleep(cpu, thread, cpu.now_ns().saturating_add(ns)),
                Step::Tick(ns) => {
                    let until = cpu.now_ns().saturating_add(ns);
                    // Without a later wait it is a sleep.
                    let is_woken = || self.threads[thread].ended.borrow().get(wait).copied().unwrap_or(false);
                    self.wait(cpu, thread, Some(until), || is_woken() || cpu.now_ns() >= until);
                }
                Step::At(ns) => self.sleep(cpu, thread, ns),
            }
        }
    }

    /// Halts until another thread ends `wait`. Ticks come meanwhile.
    fn wait_for_wake(&self, cpu: &M::Cpu, thread: usize, wait: usize) {
        let is_woken = || self.threads[thread].ended.borrow()[wait];
        let tick = self.script.get(thread).and_then(|thread| thread.tick);
        let Some(Tick { period_ns, takes_ns }) = tick.filter(|tick| tick.period_ns > 0) else {
            return self.wait(cpu, thread, None, is_woken);
        };
        loop {
            let until = (cpu.now_ns() / period_ns + 1).saturating_mul(period_ns);
            self.wait(cpu, thread, Some(until), || is_woken() || cpu.now_ns() >= until);
            if is_woken() {
                return;
            }
            self.run(cpu, takes_ns);
        }
    }

    fn run(&self, cpu: &M::Cpu, ns: u64) {
        cpu.executing(Mode::User);
        cpu.compute(ns);
        cpu.executing(Mode::Kernel);
    }

    /// Runs for `ns`, at most until `until`.
    fn run_until(&self, cpu: &M::Cpu, mut ns: u64, until: u64) {
        while let stretch @ 1.. = until.saturating_sub(cpu.now_ns()).min(UNTIL_STRETCH_NS).min(ns) {
            self.run(cpu, stretch);
            ns -= stretch;
        }
    }

    /// Does the steps of `thread` again until `until`.
    fn again(&self, cpu: &M::Cpu, thread: usize, until: u64) {
        let Some(Thread { steps, lengths, .. }) = self.script.get(thread) else {
            return;
        };
        let mut lengths = lengths.iter().copied().cycle();
        let mut takes_time = true;
        while takes_time {
            takes_time = false;
            for step in steps {
                let now = cpu.now_ns();
                if now >= until {
                    return;
                }
                let sleep = |ns: u64| self.sleep(cpu, thread, now.saturating_add(ns).min(until));
                match *step {
                    Step::Run(ns) => self.run_until(cpu, ns, until),
                    Step::Spin { .. } => self.run_until(cpu, lengths.next().unwrap_or(0), until),
                    Step::Woken | Step::At(_) => sleep(lengths.next().unwrap_or(0)),
                    Step::After(ns) | Step::Tick(ns) => sleep(ns),
                    Step::Exit => _ = cpu.cpuid(0),
                    Step::Wake { .. } | Step::Until(_) | Step::Again(_) => {}
                }
                takes_time |= cpu.now_ns() > now;
            }
        }
        self.run_until(cpu, u64::MAX, until);
    }

    /// Ends a wait of thread `other`, with an interrupt for its vCPU.
    fn wake(&self, cpu: &M::Cpu, thread: usize, other: u32, wait: usize) {
        let target = &self.threads[other as usize];
        // ORDERING: Release pairs with the Acquire of `wait`. Acquire is for the order of what follows.
        cpu.fetch_add(&target.woken, 1, AcqRel);
        target.ended.borrow_mut()[wait] = true;
        let enabled = cpu.irq_save();
        // A fixed interrupt for one APIC ID has no further bits.
        (self.threads[thread].apic).command(cpu, other, u32::from(RESCHEDULE_VECTOR));
        cpu.irq_restore(enabled);
    }

    /// Sleeps until `until`, in nanoseconds.
    fn sleep(&self, cpu: &M::Cpu, thread: usize, until: u64) {
        self.wait(cpu, thread, Some(until), || cpu.now_ns() >= until);
    }

    /// Halts until `is_over`, or a timer that is set for `until`.
    fn wait(&self, cpu: &M::Cpu, thread: usize, until: Option<u64>, is_over: impl Fn() -> bool) {
        let own = &self.threads[thread];
        let mut halts = false;
        cpu.irq_disable();
        loop {
            // ORDERING: Acquire pairs with the Release of `wake`. A wake after it sends its interrupt later, which ends
            // the halt.
            cpu.load(&own.woken, Acquire);
            if is_over() {
                break;
            }
            if let Some(until) = until {
                own.apic.set_timer(cpu, until);
            }
            cpu.executing(Mode::Idle);
            cpu.halt_unmasked();
            cpu.irq_disable();
            cpu.executing(Mode::Kernel);
            halts = true;
        }
        cpu.irq_enable();
        let takes_ns = self.script.get(thread).map_or(0, |thread| thread.halt_ns);
        if halts && takes_ns > 0 {
            self.run(cpu, takes_ns);
        }
    }
}

impl<M: Machine> GuestImage for Image<M> {
    fn boot(&self, number: CpuId) -> ! {
        let cpu = self.machine.cpu();
        if number.0 == 0 {
            self.machine.report(Report::Begin);
        }
        cpu.executing(Mode::Kernel);
        (self.threads[number.0 as usize].apic).enable(&cpu, number, self.machine.cpus(), false);
        cpu.irq_enable();
        self.repeat(&cpu, number.0 as usize);
        self.running.set(self.running.get() - 1);
        if self.running.get() == 0 {
            self.machine.report(Report::Done { operations: None });
        }
        cpu.executing(Mode::Idle);
        loop {
            cpu.halt_unmasked();
        }
    }

    fn interrupt(&self, _: u8) {
        let cpu = self.machine.cpu();
        let number = cpu.cpu().0 as usize;
        self.threads[number].apic.end_of_interrupt(&cpu);
    }
}
