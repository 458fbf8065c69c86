//! Virtual time and the events to come.
//!
//! There is a queue for each class of events: the pCPUs' steps, the next misses of vCPUs that spin, and all interrupts.
//! Steps and misses have a slot for each pCPU. Interrupts have one for each source: first the pCPUs' timers, then the
//! watchdog, then the zeroing of statistics, then timed events. A timed event has its slot from when it is planned
//! until it is due.
//!
//! **Order of equal times**: interrupts come first, in the order of their slots. Then come steps and misses in the
//! order of the pCPUs, on each pCPU the step first.

use holdfast_host::{HostInterrupt, PcpuId};
use holdfast_machine::{EventQueue, Picos, Time};

/// An event that needs a slot for a while.
#[derive(Clone, Copy, Debug)]
pub enum TimedEvent {
    /// An interrupt reaches this pCPU.
    Interrupt(PcpuId, HostInterrupt),
    /// An AVIC doorbell reaches this pCPU.
    Doorbell(PcpuId),
    /// A vector of posted interrupts (notification or wakeup) reaches this pCPU.
    Notification(PcpuId, u8),
    /// A vCPU is moved to another pCPU.
    Move,
    /// A network device that is hardware takes its next step; the number is its index.
    Nic(u32),
    /// A migration begins: the guests' memory is copied, or all guests stop at once.
    Migrate,
    /// A round of copying is over.
    Round,
    /// All guests continue on the other host.
    Resume,
}

/// The source of the first event.
#[derive(Clone, Copy, Debug)]
pub enum Source {
    /// This pCPU takes its next step.
    Activity(PcpuId),
    /// The timer of this pCPU expires.
    Timer(PcpuId),
    /// The watchdog is due.
    Watchdog,
    /// All statistics are zeroed.
    Zero,
    /// A timed event is due; `slot` is its slot.
    Timed { slot: u32, event: TimedEvent },
}

/// Virtual time and the events to come.
#[derive(Clone, Debug)]
pub struct Clock {
    /// Virtual time.
    pub now: Time,
    /// The next step of each pCPU.
    steps: EventQueue,
    /// For each line with vCPUs that will miss, the next miss, in the slot of its pCPU.
    misses: EventQueue,
    interrupts: EventQueue,
    pcpus: u32,
    /// The timer that expires just now, until the host sets it again.
    expiring: Option<PcpuId>,
    /// The event of each slot from the first timed one on.
    timed: Vec<TimedEvent>,
    /// Slots whose events were due.
    free: Vec<u32>,
}

impl Clock {
    /// A clock at power-on of a machine with `pcpus` pCPUs.
    pub fn new(pcpus: u32) -> Clock {
        Clock {
            now: Time(0),
            steps: EventQueue::new(),
            misses: EventQueue::new(),
            interrupts: EventQueue::new(),
            pcpus,
            expiring: None,
            timed: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Number of pCPUs.
    pub fn pcpus(&self) -> usize {
        self.pcpus as usize
    }

    fn watchdog_slot(&self) -> u32 {
        self.pcpus
    }

    /// A slot of its own: a timed event's would give later ones other slots, and so another order of equal times.
    fn zero_slot(&self) -> u32 {
        self.watchdog_slot() + 1
    }

    fn first_timed_slot(&self) -> u32 {
        self.zero_slot() + 1
    }

    /// The source and the time of the first event, or `None` if no event is to come. No miss is the first.
    pub fn first(&self) -> Option<(Source, Time)> {
        if let Some((time, pcpu)) = self.first_step() {
            return Some((Source::Activity(pcpu), time));
        }
        let (time, slot) = self.interrupts.first()?;
        Some((self.source_of(slot), time))
    }

    /// The pCPU whose next step is the first event of all, and its time. `None` if another event is the first.
    #[inline(always)]
    pub fn first_step(&self) -> Option<(Time, PcpuId)> {
        let (time, pcpu) = self.steps.first()?;
        self.step_precedes(time, PcpuId(pcpu)).then_some((time, PcpuId(pcpu)))
    }

    /// Whether a step of `pcpu` at `time` precedes all interrupts and misses.
    #[inline(always)]
    fn step_precedes(&self, time: Time, pcpu: PcpuId) -> bool {
        let misses = self.misses.first_time();
        time < self.interrupts.first_time()
            && (time < misses || time == misses && self.misses.first().is_none_or(|(_, other)| pcpu.0 <= other))
    }

    /// The pCPU whose next miss is the first event of all. `None` if another event is the first.
    pub fn first_miss(&self) -> Option<PcpuId> {
        let (time, pcpu) = self.misses.first()?;
        let step = self.steps.first();
        let is_first = time < self.interrupts.first_time() && step.is_none_or(|step| (time, pcpu) < step);
        is_first.then_some(PcpuId(pcpu))
    }

    /// Whether a miss of `pcpu` at `time`, which is not planned, precedes the events of all other pCPUs, and all
    /// interrupts.
    pub fn miss_precedes(&self, time: Time, pcpu: PcpuId) -> bool {
        let follows = |other: Option<(Time, u32)>| other.is_none_or(|other| (time, pcpu.0) <= other);
        time < self.interrupts.first_time() && follows(self.steps.first()) && follows(self.misses.first())
    }

    fn source_of(&self, slot: u32) -> Source {
        if slot < self.watchdog_slot() {
            Source::Timer(PcpuId(slot))
        } else if slot == self.watchdog_slot() {
            Source::Watchdog
        } else if slot == self.zero_slot() {
            Source::Zero
        } else {
            let event = self.timed[(slot - self.first_timed_slot()) as usize];
            Source::Timed { slot, event }
        }
    }

    /// `pcpu` takes its next step at `at`.
    #[inline]
    pub fn set_activity(&mut self, pcpu: PcpuId, at: Time) {
        self.steps.set(pcpu.0, at);
    }

    /// As [`Clock::set_activity`]; returns whether that step is the first event of all.
    #[inline(always)]
    pub fn set_activity_and_check_first(&mut self, pcpu: PcpuId, at: Time) -> bool {
        self.steps.set_and_check_first(pcpu.0, at) && self.step_precedes(at, pcpu)
    }

    /// Moves the next step of `pcpu` to `at` if it is the first event of all and stays that. Returns `false` if that is
    /// not known at once.
    #[inline(always)]
    pub fn keeps_turn(&mut self, pcpu: PcpuId, at: Time) -> bool {
        at < self.interrupts.first_time() && at < self.misses.first_time() && self.steps.move_first(pcpu.0, at)
    }

    /// `pcpu` has no next step until something else happens.
    pub fn clear_activity(&mut self, pcpu: PcpuId) {
        self.steps.clear(pcpu.0);
    }

    /// Sets the timer of `pcpu` to `at`, or stops it.
    pub fn set_timer(&mut self, pcpu: PcpuId, at: Option<Time>) {
        if self.expiring == Some(pcpu) {
            self.expiring = None;
        }
        match at {
            Some(at) => self.interrupts.set(pcpu.0, at.max(self.now)),
            None => self.interrupts.clear(pcpu.0),
        }
    }

    /// The timer of `pcpu` expires. Its event stays in the queue until [`Clock::timer_has_expired`], because the host
    /// sets most timers again at once.
    pub fn timer_expires(&mut self, pcpu: PcpuId) {
        self.expiring = Some(pcpu);
    }

    /// The host has handled the timer that expired; removes its event unless the host has set it again.
    pub fn timer_has_expired(&mut self) {
        if let Some(pcpu) = self.expiring.take() {
            self.interrupts.clear(pcpu.0);
        }
    }

    /// Sets the watchdog to `at`.
    pub fn set_watchdog(&mut self, at: Time) {
        self.interrupts.set(self.watchdog_slot(), at);
    }

    /// Removes the watchdog's event.
    pub fn clear_watchdog(&mut self) {
        self.interrupts.clear(self.watchdog_slot());
    }

    /// Plans to zero all statistics after `after` from now on.
    pub fn set_zero(&mut self, after: Picos) {
        self.interrupts.set(self.zero_slot(), self.now + after);
    }

    /// The statistics are zeroed: removes the event.
    pub fn clear_zero(&mut self) {
        self.interrupts.clear(self.zero_slot());
    }

    /// Plans `event` for `after` from now on.
    pub fn plan_after(&mut self, event: TimedEvent, after: Picos) {
        let slot = match self.free.pop() {
            Some(slot) => self.reuse(slot, event),
            None => self.add_slot(event),
        };
        self.interrupts.set(slot, self.now + after);
    }

    /// The timed event in `slot` is due: its slot becomes free.
    pub fn finish(&mut self, slot: u32) {
        self.interrupts.clear(slot);
        self.free.push(slot);
    }

    /// The next miss on some line is that of `pcpu` at `at`.
    pub fn set_miss(&mut self, pcpu: PcpuId, at: Time) {
        self.misses.set(pcpu.0, at);
    }

    /// The miss of `pcpu` is not the next one on its line.
    pub fn clear_miss(&mut self, pcpu: PcpuId) {
        self.misses.clear(pcpu.0);
    }

    /// Removes the timer and the next step of `pcpu`, which do not migrate.
    pub fn forget_pcpu(&mut self, pcpu: PcpuId) {
        self.steps.clear(pcpu.0);
        self.interrupts.clear(pcpu.0);
    }

    /// Removes all signals between pCPUs, which a migration leaves behind.
    pub fn forget_signals(&mut self) {
        for (index, event) in self.timed.iter().enumerate() {
            let slot = self.first_timed_slot() + index as u32;
            let is_signal = matches!(
                event,
                TimedEvent::Interrupt(..) | TimedEvent::Doorbell(_) | TimedEvent::Notification(..)
            );
            if is_signal && !self.free.contains(&slot) {
                self.interrupts.clear(slot);
                self.free.push(slot);
            }
        }
    }

    fn add_slot(&mut self, event: TimedEvent) -> u32 {
        self.timed.push(event);
        self.zero_slot() + self.timed.len() as u32
    }

    fn reuse(&mut self, slot: u32, event: TimedEvent) -> u32 {
        let index = slot - self.first_timed_slot();
        self.timed[index as usize] = event;
        slot
    }
}
