//! The timer of early boot: ticks of the PIT, which reach CPU 0 through the PICs and LINT0 (virtual wire mode).
//!
//! A kernel takes them until it has measured its APIC timer by them (`calibrate_APIC_clock`). Linux uses the PIT for
//! longer without APIC timers, and recent versions not at all where they know the timer's frequency.

use holdfast_abi::{lapic, pic, pit};
use holdfast_locks::Interrupts;

use crate::class::Event;
use crate::costs;
use crate::cpu::ThisCpu;
use crate::local::{Local, Local32};
use crate::machine::{Cpu, Machine};

/// Linux's `ISA_IRQ_VECTOR(0)`: the vector of the PICs' input 0.
pub(crate) const VECTOR: u8 = 0x30;
/// The PIT's input.
const TICK: u8 = 0;

/// The serial console: its transmitter, and its status.
const CONSOLE: [u16; 2] = [0x3f8, 0x3fd];

/// What ticks of the PIT measure.
pub(crate) struct BootTimer {
    /// Ticks so far.
    ticks: Local32,
    /// Counts of the APIC timer at the first tick and at the last one.
    counts: [Local; 2],
    /// The frequency found, in hertz. 0: none was measured.
    pub(crate) found_hz: Local,
}

impl BootTimer {
    pub(crate) const fn new() -> Self {
        BootTimer {
            ticks: Local32::new(0),
            counts: [const { Local::new(0) }; 2],
            found_hz: Local::new(0),
        }
    }

    /// Measures the frequency of the APIC timer of CPU 0, which starts meanwhile and prints lines. Interrupts are
    /// masked. Does nothing if the machine has no PICs.
    pub(crate) fn calibrate<M: Machine>(&self, on: &ThisCpu<'_, M>) {
        if !start_pics(&on.cpu) {
            return;
        }
        let apic = &on.local.apic;
        apic.write(&on.cpu, lapic::LVT_LINT0, lapic::DeliveryMode::ExtInt.bits());
        apic.write(&on.cpu, lapic::TIMER_INITIAL, u32::MAX);
        let hz = on.system.config.hz;
        start_pit(&on.cpu, hz);
        on.cpu.irq_enable();
        while self.ticks.get() <= last_tick(hz) {
            on.work(costs::BOOT_WORK);
            print_line(on);
        }
        on.cpu.irq_disable();
        on.cpu.port_write(pic::MASTER + pic::DATA, 0xff);
        apic.write(&on.cpu, lapic::LVT_LINT0, lapic::LVT_MASKED);
        apic.write(&on.cpu, lapic::TIMER_INITIAL, 0);
        let counted = self.counts[0].get() - self.counts[1].get();
        let per_tick = counted * crate::apic::TIMER_DIVIDER / u64::from(last_tick(hz));
        self.found_hz.set(per_tick * u64::from(hz));
    }

    /// Handles a tick, up to the end of its interrupt: masks it, ends it, and unmasks it (`handle_level_irq`).
    pub(crate) fn interrupt<M: Machine>(&self, on: &ThisCpu<'_, M>) {
        let open = !(1_u8 << TICK | 1 << pic::CASCADE);
        on.cpu.port_write(pic::MASTER + pic::DATA, u32::from(open | 1 << TICK));
        on.cpu.port_write(pic::MASTER, u32::from(pic::OCW2_EOI_OF | TICK));
        on.local.count(Event::PitTicks);
        let (tick, last) = (self.ticks.get(), last_tick(on.system.config.hz));
        let moments = [0, last];
        if let Some(moment) = moments.iter().position(|&moment| moment == tick) {
            let count = on.local.apic.read(&on.cpu, lapic::TIMER_CURRENT);
            self.counts[moment].set(u64::from(count));
        }
        self.ticks.set(tick + 1);
        on.work(costs::TICK);
        on.cpu.port_write(pic::MASTER + pic::DATA, u32::from(open));
    }
}

/// The tick at which the measurement ends, a tenth of a second after the first (`LAPIC_CAL_LOOPS`).
fn last_tick(hz: u32) -> u32 {
    (hz / 10).max(1)
}

/// Initializes the PICs with only the tick unmasked (`init_8259A`). Returns `false` if there are none.
fn start_pics(cpu: &impl Cpu) -> bool {
    let data = |base: u16| base + pic::DATA;
    cpu.port_write(data(pic::SLAVE), 0xff);
    let probe = !(1_u8 << pic::CASCADE);
    cpu.port_write(data(pic::MASTER), u32::from(probe));
    if cpu.port_read(data(pic::MASTER)) != probe {
        return false;
    }
    let chips = [
        (pic::MASTER, VECTOR, 1 << pic::CASCADE),
        (pic::SLAVE, VECTOR + pic::INPUTS as u8, pic::CASCADE),
    ];
    for (base, vector, cascade) in chips {
        cpu.port_write(base, u32::from(pic::ICW1 | pic::ICW1_WITH_ICW4));
        cpu.port_write(data(base), u32::from(vector));
        cpu.port_write(data(base), cascade);
        cpu.port_write(data(base), u32::from(pic::ICW4_8086));
        cpu.port_write(data(base), 0xff);
    }
    cpu.port_write(data(pic::MASTER), u32::from(!(1_u8 << TICK | 1 << pic::CASCADE)));
    true
}

/// Starts counter 0 at `hz` (`pit_set_periodic`).
fn start_pit(cpu: &impl Cpu, hz: u32) {
    let count = (pit::HZ + u64::from(hz) / 2) / u64::from(hz);
    // The lowest frequency is that of the full count.
    let [low, high, ..] = if count < pit::FULL_COUNT { count } else { 0 }.to_le_bytes();
    cpu.port_write(pit::CONTROL, u32::from(pit::ACCESS_BOTH | pit::MODE_RATE));
    cpu.port_write(pit::COUNTER_0, u32::from(low));
    cpu.port_write(pit::COUNTER_0, u32::from(high));
}

/// Prints a line on the serial console, with interrupts masked (`serial8250_console_write`): the driver reads the
/// status before each character.
fn print_line<M: Machine>(on: &ThisCpu<'_, M>) {
    let enabled = on.cpu.irq_save();
    let [transmitter, status] = CONSOLE;
    for _ in 0..costs::CONSOLE_LINE {
        on.cpu.port_read(status);
        on.cpu.port_write(transmitter, u32::from(b'.'));
    }
    on.cpu.irq_restore(enabled);
}
