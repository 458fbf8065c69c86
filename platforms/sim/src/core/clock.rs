//! Virtual time and the events to come.
//!
//! The event queue has one slot for each source of events: first the pCPUs' activities, then the pCPUs' timers, then
//! the watchdog, then timed events. A timed event has its slot from when it is planned until it is due.

use holdfast_host::{HostInterrupt, PcpuId};
use holdfast_machine::{EventQueue, Key, LineId, Picos, Time};

/// Class of interrupts and timers: they precede all other events of the same time.
pub const CLASS_INTERRUPT: u8 = 0;
/// Class of the pCPUs' activities.
pub const CLASS_ACTIVITY: u8 = 1;

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
    /// All statistics are zeroed.
    Zero,
    /// The next miss of the vCPUs that spin on this line.
    Miss(LineId),
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
    /// A timed event is due; `slot` is its slot.
    Timed { slot: u32, event: TimedEvent },
}

/// Virtual time and the events to come.
#[derive(Clone, Debug)]
pub struct Clock {
    /// Virtual time.
    pub now: Time,
    /// The next event of each slot.
    pub queue: EventQueue,
    pcpus: u32,
    /// The timer that expires just now, until the host sets it again.
    expiring: Option<PcpuId>,
    /// The event of each slot after the watchdog's.
    timed: Vec<TimedEvent>,
    /// Slots whose events were due.
    free: Vec<u32>,
    /// Slots of lines that have no misses to come.
    free_of_misses: Vec<u32>,
}

impl Clock {
    /// A clock at power-on of a machine with `pcpus` pCPUs.
    pub fn new(pcpus: u32) -> Clock {
        Clock {
            now: Time(0),
            queue: EventQueue::new(),
            pcpus,
            expiring: None,
            timed: Vec::new(),
            free: Vec::new(),
            free_of_misses: Vec::new(),
        }
    }

    /// Number of pCPUs.
    pub fn pcpus(&self) -> usize {
        self.pcpus as usize
    }

    fn timer_slot(&self, pcpu: PcpuId) -> u32 {
        self.pcpus + pcpu.0
    }

    fn watchdog_slot(&self) -> u32 {
        2 * self.pcpus
    }

    fn first_timed_slot(&self) -> u32 {
        self.watchdog_slot() + 1
    }

    /// The source and the time of the first event, or `None` if no event is to come.
    #[inline]
    pub fn first(&self) -> Option<(Source, Time)> {
        let (key, slot) = self.queue.first()?;
        let source = if slot < self.pcpus {
            Source::Activity(PcpuId(slot))
        } else {
            self.source_of(slot)
        };
        Some((source, key.time()))
    }

    /// The line whose next miss is the event in `slot`, or `None` if that is another event.
    #[inline]
    pub fn miss_of(&self, slot: u32) -> Option<LineId> {
        match self.source_of(slot) {
            Source::Timed {
                event: TimedEvent::Miss(line),
                ..
            } => Some(line),
            _ => None,
        }
    }

    fn source_of(&self, slot: u32) -> Source {
        if slot < self.watchdog_slot() {
            Source::Timer(PcpuId(slot - self.pcpus))
        } else if slot == self.watchdog_slot() {
            Source::Watchdog
        } else {
            let event = self.timed[(slot - self.first_timed_slot()) as usize];
            Source::Timed { slot, event }
        }
    }

    /// `pcpu` takes its next step at `at`.
    #[inline]
    pub fn set_activity(&mut self, pcpu: PcpuId, at: Time) {
        self.queue.set(pcpu.0, Key::new(at, CLASS_ACTIVITY, pcpu.0));
    }

    /// As [`Clock::set_activity`]; returns whether that step is the first event of all.
    #[inline(always)]
    pub fn set_activity_and_check_first(&mut self, pcpu: PcpuId, at: Time) -> bool {
        self.queue
            .set_and_check_first(pcpu.0, Key::new(at, CLASS_ACTIVITY, pcpu.0))
    }

    /// `pcpu` has no next step until something else happens.
    pub fn clear_activity(&mut self, pcpu: PcpuId) {
        self.queue.clear(pcpu.0);
    }

    /// Sets the timer of `pcpu` to `at`, or stops it.
    pub fn set_timer(&mut self, pcpu: PcpuId, at: Option<Time>) {
        let slot = self.timer_slot(pcpu);
        if self.expiring == Some(pcpu) {
            self.expiring = None;
        }
        match at {
            Some(at) => self.queue.set(slot, Key::new(at.max(self.now), CLASS_INTERRUPT, slot)),
            None => self.queue.clear(slot),
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
            let slot = self.timer_slot(pcpu);
            self.queue.clear(slot);
        }
    }

    /// Sets the watchdog to `at`.
    pub fn set_watchdog(&mut self, at: Time) {
        let slot = self.watchdog_slot();
        self.queue.set(slot, Key::new(at, CLASS_INTERRUPT, slot));
    }

    /// Removes the watchdog's event.
    pub fn clear_watchdog(&mut self) {
        self.queue.clear(self.watchdog_slot());
    }

    /// Plans `event` for `after` from now on.
    pub fn plan_after(&mut self, event: TimedEvent, after: Picos) {
        let slot = match self.free.pop() {
            Some(slot) => self.reuse(slot, event),
            None => self.add_slot(event),
        };
        self.queue.set(slot, Key::new(self.now + after, CLASS_INTERRUPT, slot));
    }

    /// The timed event in `slot` is due: its slot becomes free.
    pub fn finish(&mut self, slot: u32) {
        self.queue.clear(slot);
        self.free.push(slot);
    }

    /// A slot for the misses on `line`. They have slots of their own, because the numbers of the other slots decide
    /// between events of equal times.
    pub fn take_miss_slot(&mut self, line: LineId) -> u32 {
        match self.free_of_misses.pop() {
            Some(slot) => self.reuse(slot, TimedEvent::Miss(line)),
            None => self.add_slot(TimedEvent::Miss(line)),
        }
    }

    /// Takes back a slot for misses.
    pub fn release_miss_slot(&mut self, slot: u32) {
        self.queue.clear(slot);
        self.free_of_misses.push(slot);
    }

    /// Removes the timer and the next step of `pcpu`, which do not migrate.
    pub fn forget_pcpu(&mut self, pcpu: PcpuId) {
        self.queue.clear(pcpu.0);
        self.queue.clear(self.timer_slot(pcpu));
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
                self.queue.clear(slot);
                self.free.push(slot);
            }
        }
    }

    fn add_slot(&mut self, event: TimedEvent) -> u32 {
        self.timed.push(event);
        self.watchdog_slot() + self.timed.len() as u32
    }

    fn reuse(&mut self, slot: u32, event: TimedEvent) -> u32 {
        let index = slot - self.first_timed_slot();
        self.timed[index as usize] = event;
        slot
    }
}
