//! What threads did, for guests that repeat them in the simulator.
//!
//! A thread's time on CPUs stays as it was recorded. Its waits are repeated by who ended them:
//!
//! - **another thread of its guest**: an exit for an interrupt command, an MSR or a hypercall was in progress there;
//! - **its timer**, or an unknown waker: the wait keeps its recorded length;
//! - **the outside**: an interrupt of a device came, so the wait ends at the recorded time.
//!
//! The time for which the host polled for a halted vCPU is part of the wait: whether the host polls is its own matter.
//!
//! That another thread ended a wait does not say that no third one could have: a guest's kernel gives an idle vCPU what
//! work there is, and a lock goes to the first that comes. So these waits have two readings, tied and
//! timed ([`Reading`]), and a replay against the recording says which one holds.

use std::collections::{BTreeMap, HashMap};

use holdfast_workloads::{RecordedHost, Step, Thread};

use crate::event::{Event, Left, Tid, What};
use crate::timeline::reasons;

pub use repeated::{Reading, Repeated, Waits};

use followed::{Followed, Slept, Waker};
use repeated::Lengths;
use spins::Spins;

mod followed;
mod repeated;
mod spins;

/// Name of the guest that repeats threads of the host itself.
pub const HOST: &str = RecordedHost::HOST;

/// Collects what the threads of guests do.
#[derive(Debug)]
pub struct Repeats {
    guests: Vec<Guest>,
    /// Guest and number of each thread that is followed.
    places: HashMap<Tid, (usize, usize)>,
    begin: Option<u64>,
    end: u64,
    waits: Waits,
    /// Exits are repeated.
    with_exits: bool,
    /// Number of wakes so far. Each has its number as a mark until the wait that it ends has one.
    wakes: u32,
    /// Wait of the woken thread for each wake; `None` if it ended none.
    ended: Vec<Option<u32>>,
    /// Whether threads spin until those that they woke have gone on.
    spins: Spins,
}

#[derive(Debug)]
struct Guest {
    name: String,
    has_vcpus: bool,
    threads: Vec<Followed>,
    /// The thread of each vCPU by the vCPU's number, which is its APIC ID. Numbers can have gaps.
    numbers: HashMap<u32, usize>,
}

impl Repeats {
    /// Follows the vCPU threads of `guests`, each with its name, in the order of the vCPUs' numbers, and the threads
    /// `others` of the host, which become the guest [`HOST`] if there are any. The numbers are those of `kvm_entry`.
    pub fn new(guests: &[(String, Vec<Tid>)], others: &[Tid]) -> Repeats {
        let vcpus = guests.iter().map(|(name, threads)| (name.clone(), true, &threads[..]));
        let host = Some((HOST.to_owned(), false, others)).filter(|_| !others.is_empty());
        let mut places = HashMap::new();
        let guests = (vcpus.chain(host).enumerate()).map(|(guest, (name, has_vcpus, threads))| {
            places.extend((threads.iter().enumerate()).map(|(number, tid)| (*tid, (guest, number))));
            Guest {
                name,
                has_vcpus,
                threads: threads.iter().map(|_| Followed::default()).collect(),
                numbers: HashMap::new(),
            }
        });
        let guests = guests.collect();
        Repeats {
            guests,
            places,
            begin: None,
            end: 0,
            waits: Waits::default(),
            with_exits: false,
            wakes: 0,
            ended: Vec::new(),
            spins: Spins::default(),
        }
    }

    /// Also repeats exits, where `with_exits`: under lazy preemption a thread that waits gets the CPU at one. Exits for
    /// interrupts of the host are left out, since the host that repeats the guests has its own.
    pub fn with_exits(self, with_exits: bool) -> Repeats {
        Repeats { with_exits, ..self }
    }

    /// Takes the next event.
    pub fn take(&mut self, event: &Event) {
        let at = event.at;
        let begin = *self.begin.get_or_insert(at);
        self.end = at.max(self.end);
        if let Some(thread) = self.followed(event.thread) {
            thread.first_pcpu.get_or_insert(event.cpu);
            // It runs now, so unless another event has said otherwise it has run from the beginning.
            if !thread.seen {
                thread.seen = true;
                thread.on_cpu.get_or_insert(begin);
            }
        }
        match &event.what {
            What::Switch { prev, left, next, .. } => {
                self.leave(*prev, *left, at);
                self.resume(*next, at);
            }
            // The thread of a `sched_wakeup` need not be the waker.
            What::Waking { woken, queued, .. } if !queued => self.wake(event.thread, *woken, at),
            What::Entry { vcpu } => {
                if let Some(&(guest, thread)) = self.places.get(&event.thread) {
                    self.guests[guest].numbers.insert(*vcpu, thread);
                }
                self.finish_sleep(event.thread, None);
                self.finish_brief_halt(event.thread);
                if let Some(thread) = self.followed(event.thread) {
                    thread.exit = None;
                    thread.interrupt = None;
                    thread.wakeup = None;
                    thread.open = None;
                    thread.settle(at);
                }
            }
            What::Exit { reason, isa, .. } => {
                let repeats =
                    self.with_exits && !reasons::is_interrupt(*reason, *isa) && !reasons::is_halt(*reason, *isa);
                if let Some(thread) = self.followed(event.thread) {
                    thread.exit = Some((*isa, *reason));
                    thread.has_waited = false;
                    thread.settle(at);
                    if repeats {
                        thread.run();
                        thread.steps.push(Step::Exit);
                    }
                }
            }
            What::HaltEnd { ns, .. } => self.finish_sleep(event.thread, Some((at.saturating_sub(*ns), at))),
            What::PollTime { vcpu, ns, .. } => {
                if let Some(&(guest, _)) = self.places.get(&event.thread)
                    && let Some(&number) = self.guests[guest].numbers.get(vcpu)
                {
                    self.guests[guest].threads[number].poll_ns = Some(*ns);
                }
            }
            What::Interrupt { apic, vector } => self.interrupt(event.thread, *apic, *vector, at),
            What::Ended { ended } => self.leave(*ended, Left::Dead, at),
            _ => {}
        }
    }

    fn followed(&mut self, tid: Tid) -> Option<&mut Followed> {
        let (guest, number) = *self.places.get(&tid)?;
        self.guests[guest].threads.get_mut(number)
    }

    /// The APIC with the ID `apic` takes `vector`. It is one of the guest of `thread`, which a vCPU's own thread or the
    /// one that sends the interrupt names.
    fn interrupt(&mut self, thread: Tid, apic: u32, vector: u8, at: u64) {
        let place = self.places.get(&thread).copied();
        let Some((guest, sender)) = place.filter(|(guest, _)| self.guests[*guest].has_vcpus) else {
            return;
        };
        let Some(&number) = self.guests[guest].numbers.get(&apic) else {
            return;
        };
        let threads = &mut self.guests[guest].threads;
        if sender == number || !threads[sender].can_send() {
            let target = &mut threads[number];
            target.interrupt = Some(vector);
            target.interrupted(vector, &mut self.waits);
            if Followed::is_timer(vector) {
                target.timers.push(at);
            }
        }
        let target = &threads[number];
        // While the host polls for it, no thread is woken.
        if target.asleep.is_none() && target.slept.is_none() && target.is_halted() {
            self.end_wait(guest, Some(sender), number, at);
        }
    }

    /// A thread leaves its CPU.
    fn leave(&mut self, tid: Tid, left: Left, at: u64) {
        let halted = self.followed(tid).is_some_and(|thread| thread.is_halted());
        if !halted {
            self.finish_sleep(tid, None);
        }
        let begin = self.begin.unwrap_or(at);
        let Some(thread) = self.followed(tid) else { return };
        thread.pause(at);
        if left != Left::Ready
            && let Some(slept) = thread.slept.take()
        {
            // It woke for nothing, and its halt goes on.
            thread.halted = Some(slept.from);
        }
        // It ran, since it leaves.
        if !thread.seen {
            thread.seen = true;
            thread.recent.push((begin, at));
        }
        thread.is_gone |= left == Left::Dead;
        if left != Left::Ready {
            thread.asleep = Some(at);
            // What ends a halt can come while the thread is still on its way to sleep.
            if !halted {
                thread.wakeup = None;
            }
        }
    }

    /// A thread gets a CPU.
    fn resume(&mut self, tid: Tid, at: u64) {
        let Some(&(guest, _)) = self.places.get(&tid) else {
            return;
        };
        let has_vcpus = self.guests[guest].has_vcpus;
        let Some(thread) = self.followed(tid) else { return };
        thread.seen = true;
        thread.on_cpu = Some(at);
        if let Some(from) = thread.asleep.take() {
            let wakeup = thread.wakeup.take();
            let from = thread.halted.take().unwrap_or(from);
            thread.slept = Some(Slept {
                from,
                wakeup,
                resumed: at,
            });
            if let Some((_, Waker::Thread(wake))) = wakeup {
                self.answer(wake);
            }
            if !has_vcpus {
                self.finish_sleep(tid, None);
            }
        }
    }

    /// `waker` wakes a thread.
    fn wake(&mut self, waker: Tid, woken: Tid, at: u64) {
        let Some(&(guest, number)) = self.places.get(&woken) else {
            return;
        };
        let begin = self.begin.unwrap_or(at);
        let target = &mut self.guests[guest].threads[number];
        if !target.seen {
            // It slept from the beginning.
            target.seen = true;
            target.asleep = Some(begin);
        }
        if target.asleep.is_some() || target.is_halted() {
            let sender = self.places.get(&waker).filter(|place| place.0 == guest);
            let sender = sender.map(|place| place.1);
            self.end_wait(guest, sender, number, at);
            self.delay_wake(guest, sender, number, at);
        }
    }

    /// The wake of a halted thread at `at` is that of an interrupt that its APIC took before. It goes to sleep in spite
    /// of that, so it has looked for interrupts before: `sender` has gone as far as `at`.
    fn delay_wake(&mut self, guest: usize, sender: Option<usize>, number: usize, at: u64) {
        let threads = &mut self.guests[guest].threads;
        let earlier = threads[number].wakeup.filter(|(earlier, _)| *earlier < at);
        let (Some(sender), Some((_, Waker::Thread(wake)))) = (sender, earlier) else {
            return;
        };
        let waker = &mut threads[sender];
        let is_this = |step: &mut Step| matches!(step, Step::Wake { wait, .. } if *wait == wake);
        if let Some(step) = waker.steps.pop_if(is_this) {
            waker.settle(at);
            waker.run();
            waker.steps.push(step);
            threads[number].wakeup = Some((at, Waker::Thread(wake)));
        }
    }

    /// The wait of a thread ends, by `sender` of the same guest if that can be.
    fn end_wait(&mut self, guest: usize, sender: Option<usize>, number: usize, at: u64) {
        let threads = &mut self.guests[guest];
        if threads.threads[number].wakeup.is_some() {
            return;
        }
        let can_send = |sender: &usize| !threads.has_vcpus || threads.threads[*sender].can_send();
        let sender = sender.filter(|sender| *sender != number).filter(can_send);
        let wakeup = match sender {
            None => Waker::Other,
            Some(from) => {
                let wake = self.wakes;
                self.wakes += 1;
                self.ended.push(None);
                let sender = &mut threads.threads[from];
                sender.settle(at);
                sender.run();
                let thread = number as u32;
                sender.steps.push(Step::Wake { thread, wait: wake });
                self.spins.wakes(wake, (guest, from, number), at);
                Waker::Thread(wake)
            }
        };
        threads.threads[number].wakeup = Some((at, wakeup));
    }

    /// A thread enters its guest. A halt after which it has neither slept nor polled, since what ends it had come
    /// already, is a wait of no length. In a replay it can be longer.
    fn finish_brief_halt(&mut self, tid: Tid) {
        let Some(&(guest, number)) = self.places.get(&tid) else {
            return;
        };
        let thread = &mut self.guests[guest].threads[number];
        if !thread.is_halted() || thread.has_waited {
            return;
        }
        if self.with_exits {
            // It has handled the exit until it lost its CPU, or until now.
            if thread.recent.is_empty() {
                thread.settle(self.end);
            } else {
                let (from, to) = thread.recent.remove(0);
                thread.ran_ns += to.saturating_sub(from);
            }
            thread.run();
            thread.steps.push(Step::Exit);
        }
        if let Some((at, Waker::Thread(wake))) = thread.wakeup.take() {
            thread.settle(self.end);
            thread.run();
            self.ended[wake as usize] = Some(thread.woken.len() as u32);
            thread.woken.push(0);
            thread.steps.push(Step::Woken);
            self.waits.by_threads += 1;
            self.spins.waits((guest, number), at);
            self.answer(wake);
        }
    }

    /// Writes down the wait that has just ended. `halt`: it was a halt, with its begin and its end.
    fn finish_sleep(&mut self, tid: Tid, halt: Option<(u64, u64)>) {
        let begin = self.begin.unwrap_or_default();
        let Some(&(guest, number)) = self.places.get(&tid) else {
            return;
        };
        let thread = &mut self.guests[guest].threads[number];
        let slept = thread.slept.take();
        let (from, resumed) = match (slept, halt) {
            // The host polled before the thread slept. A halt before the last event of the thread is no halt.
            (Some(slept), Some((from, _))) => (from.min(slept.from), slept.resumed),
            (Some(slept), None) => (slept.from, slept.resumed),
            (None, Some((from, to))) => (from, to),
            (None, None) => return,
        };
        let wakeup = slept.map_or(thread.wakeup.take(), |slept| slept.wakeup);
        let later: Vec<_> = thread.recent.extract_if(.., |ran| ran.0 >= resumed).collect();
        thread.cut(from, wakeup.map(|(at, _)| at), resumed, slept.is_some());
        thread.run();
        let woken_at = wakeup.map_or(resumed, |(at, _)| at);
        let length = woken_at.saturating_sub(from.max(begin));
        let step = if let Some((_, Waker::Thread(wake))) = wakeup {
            self.ended[wake as usize] = Some(thread.woken.len() as u32);
            thread.woken.push(length);
            self.waits.by_threads += 1;
            Step::Woken
        } else {
            self.waits.unknown += 1;
            thread.open = Some((thread.steps.len(), woken_at - begin.min(woken_at)));
            Step::After(length)
        };
        thread.steps.push(step);
        thread.has_waited = true;
        thread.halted = None;
        thread.recent = later;
        thread.on_cpu = thread.on_cpu.map(|since| since.max(resumed));
        if let Some(vector) = thread.interrupt {
            thread.interrupted(vector, &mut self.waits);
        }
        self.spins.waits((guest, number), from);
        // One that has slept went on when it got its CPU.
        if let (None, Some((_, Waker::Thread(wake)))) = (slept, wakeup) {
            self.answer(wake);
        }
    }

    /// The thread that `wake` has woken goes on. Marks where its waker is now, if that can have spun for it.
    fn answer(&mut self, wake: u32) {
        let now = self.end;
        let Some((guest, sender, thread)) = self.spins.goes_on(wake, now) else {
            return;
        };
        let sender = &mut self.guests[guest].threads[sender];
        if sender.asleep.is_none() && sender.slept.is_none() && !sender.is_halted() {
            sender.settle(now);
            sender.run();
            let thread = thread as u32;
            sender.steps.push(Step::Spin { thread, wait: wake });
        }
    }

    /// Returns what the threads did, and how their waits ended.
    pub fn finish(mut self) -> Repeated {
        let end = self.end;
        let span_ns = end - self.begin.unwrap_or(end);
        let tids: Vec<(Tid, usize)> = self.places.iter().map(|(tid, place)| (*tid, place.0)).collect();
        for (tid, guest) in tids {
            let has_vcpus = self.guests[guest].has_vcpus;
            if let Some(thread) = self.followed(tid)
                && thread.wakeup.is_some()
                && let Some(from) = thread.asleep.take()
            {
                // It was woken, and has had no CPU since.
                let (wakeup, from) = (thread.wakeup.take(), thread.halted.take().unwrap_or(from));
                thread.slept = Some(Slept {
                    from,
                    wakeup,
                    resumed: end,
                });
            }
            self.finish_sleep(tid, None);
            if let Some(thread) = self.followed(tid) {
                // While it polls it waits.
                let waits =
                    thread.asleep.is_some() || thread.is_gone || (thread.is_halted() && thread.on_cpu.is_some());
                thread.settle(end);
                thread.run();
                // A thread of the host that sleeps does what is asked of it: sooner done is not more to do.
                let goes_on = has_vcpus || !thread.steps.iter().any(Step::is_wait);
                if thread.seen && !waits && goes_on {
                    let has_waited = thread.steps.iter().any(Step::is_wait);
                    let last = if has_waited { Step::Again } else { Step::Until };
                    thread.steps.push(last(span_ns));
                }
            }
        }
        let (ended, spinning) = (self.ended, self.spins.found());
        let (mut guests, mut lengths) = (BTreeMap::new(), BTreeMap::new());
        for (index, guest) in self.guests.into_iter().enumerate() {
            let (mut threads, mut of_threads) = (Vec::new(), Vec::new());
            for (number, thread) in guest.threads.into_iter().enumerate() {
                let is_spin = |target: u32| spinning.contains(&(index, number, target as usize));
                let (first_pcpu, tick_ns) = (thread.first_pcpu, thread.tick_ns());
                let halt_ns = thread.halt_ns();
                let (mut steps, spun) = spins::marked(thread.steps, &ended, is_spin);
                repeated::settle_ticks(&mut steps);
                threads.push(Thread {
                    first_pcpu,
                    steps,
                    lengths: Vec::new(),
                    tick: None,
                    halt_ns,
                });
                of_threads.push(Lengths {
                    tick_ns,
                    woken: thread.woken,
                    answered: thread.answered,
                    spun,
                });
            }
            lengths.insert(guest.name.clone(), of_threads);
            guests.insert(guest.name, threads);
        }
        let tied = RecordedHost {
            schema: RecordedHost::SCHEMA.to_owned(),
            span_ns,
            guests,
        };
        Repeated {
            tied,
            lengths,
            waits: self.waits,
        }
    }
}

#[cfg(test)]
mod tests;
