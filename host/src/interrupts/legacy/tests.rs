//! The chips against plain ones, which are written from the datasheets.

use alloc::vec::Vec;

use holdfast_abi::{pic, pit};
use proptest::prelude::*;

use super::pic::Pics;
use super::pit::Pit;

/// A controller in plain words (8259A datasheet): a truth value for each input.
#[derive(Clone, Default)]
struct PlainController {
    line: [bool; 8],
    requested: [bool; 8],
    in_service: [bool; 8],
    masked: [bool; 8],
    offset: u8,
    /// The words of an initialization that are still to come: 2, 3, 4.
    awaited: Vec<u8>,
    auto: bool,
    shows_service: bool,
}

impl PlainController {
    fn rise(&mut self, input: usize, high: bool) {
        if high && !self.line[input] {
            self.requested[input] = true;
        }
        self.line[input] = high;
    }

    /// From the highest priority to the lowest: whatever is in service holds back itself and what is below.
    fn first(&self) -> Option<usize> {
        for input in 0..8 {
            if self.in_service[input] {
                return None;
            }
            if self.requested[input] && !self.masked[input] {
                return Some(input);
            }
        }
        None
    }

    fn take(&mut self, input: usize) {
        self.requested[input] = false;
        self.in_service[input] = !self.auto;
    }

    fn command(&mut self, value: u8) {
        if value & 0x10 != 0 {
            self.requested = [false; 8];
            self.in_service = [false; 8];
            self.masked = [false; 8];
            self.shows_service = false;
            self.awaited = if value & 2 == 0 { [2, 3].to_vec() } else { [2].to_vec() };
            if value & 1 == 1 {
                self.awaited.push(4);
            } else {
                self.auto = false;
            }
        } else if value & 8 != 0 {
            match value & 3 {
                2 => self.shows_service = false,
                3 => self.shows_service = true,
                _ => {}
            }
        } else {
            let ended = match value >> 5 {
                1 | 5 => (0..8).find(|&input| self.in_service[input]),
                3 | 7 => Some(usize::from(value & 7)),
                _ => None,
            };
            if let Some(input) = ended {
                self.in_service[input] = false;
            }
        }
    }

    fn data(&mut self, value: u8) {
        if self.awaited.is_empty() {
            self.masked = core::array::from_fn(|input| value >> input & 1 == 1);
            return;
        }
        match self.awaited.remove(0) {
            2 => self.offset = value & 0xf8,
            4 => self.auto = value & 2 != 0,
            _ => {}
        }
    }

    fn bits(field: &[bool; 8]) -> u8 {
        (0..8).map(|input| u8::from(field[input]) << input).sum()
    }
}

#[derive(Clone, Copy, Debug)]
enum Act {
    Write(u16, u8),
    Line(u32, bool),
    Acknowledge,
}

fn port() -> impl Strategy<Value = u16> {
    prop::sample::select(&[0x20_u16, 0x21, 0xa0, 0xa1][..])
}

/// Mostly commands that keep some input open.
fn act() -> impl Strategy<Value = Act> {
    let word = prop_oneof![
        any::<u8>(),
        Just(0x11),
        Just(0x20),
        Just(0),
        0x60..0x68_u8,
        Just(0x0b),
        Just(3)
    ];
    prop_oneof![
        4 => (port(), word).prop_map(|(port, value)| Act::Write(port, value)),
        4 => (0..16_u32, any::<bool>()).prop_map(|(input, high)| Act::Line(input, high)),
        3 => Just(Act::Acknowledge),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1024) })]

    #[test]
    fn the_controllers_do_what_the_datasheet_says(acts in prop::collection::vec(act(), 1..60)) {
        let mut pics = Pics::default();
        let mut plain = [PlainController::default(), PlainController::default()];
        for chip in &mut plain {
            chip.masked = [true; 8];
        }
        for act in acts {
            match act {
                Act::Write(port, value) => {
                    pics.write(port, value);
                    let chip = &mut plain[usize::from(port >> 7)];
                    if port & 1 == 0 { chip.command(value) } else { chip.data(value) }
                }
                Act::Line(input, high) => {
                    prop_assert_eq!(Pics::has_input(input), input != 2);
                    if input != 2 {
                        pics.set(input, high);
                        plain[input as usize / 8].rise(input as usize % 8, high);
                    }
                }
                Act::Acknowledge => {
                    let (vector, _) = pics.acknowledge();
                    let expected = match plain[0].first() {
                        None => plain[0].offset + 7,
                        Some(2) => {
                            plain[0].take(2);
                            let found = plain[1].first();
                            found.into_iter().for_each(|input| plain[1].take(input));
                            plain[0].rise(2, false);
                            plain[1].offset + found.unwrap_or(7) as u8
                        }
                        Some(input) => {
                            plain[0].take(input);
                            plain[0].offset + input as u8
                        }
                    };
                    prop_assert_eq!(vector, expected);
                }
            }
            let output = plain[1].first().is_some();
            plain[0].rise(2, output);
            prop_assert_eq!(pics.output(), plain[0].first().is_some(), "{:?}", act);
            for (base, chip) in [(0x20, &plain[0]), (0xa0, &plain[1])] {
                let shown = if chip.shows_service { &chip.in_service } else { &chip.requested };
                prop_assert_eq!(pics.read(base), PlainController::bits(shown), "{:?}", act);
                prop_assert_eq!(pics.read(base + 1), PlainController::bits(&chip.masked), "{:?}", act);
            }
        }
    }

    #[test]
    fn no_write_to_the_timer_breaks_it_or_makes_it_faster_than_the_limit(
        acts in prop::collection::vec((0x40..0x44_u16, any::<u8>(), 0..200_000_u64, any::<bool>()), 1..60),
    ) {
        let least = 500_000;
        let mut timer = Pit::default();
        let mut now = u64::MAX / 2;
        for (port, value, ns, reinjects) in acts {
            timer.write(port, value, now, least);
            timer.read(port, now);
            now += ns;
            let due = timer.deadline;
            timer.expired(now, reinjects);
            timer.request_ended();
            if let Some(next) = timer.deadline {
                prop_assert!(due.is_none_or(|due| due > now || next >= due + least), "{next} after {due:?}");
            }
            prop_assert_eq!(timer.relative_to(now).continued_at(now).deadline, timer.deadline.map(|at| at.max(now)));
        }
    }

    /// Against a counter that takes one clock after the other.
    #[test]
    fn the_counter_counts_clocks(count in 2..=0x1_0000_u64, rate in any::<bool>(), clocks in 0..300_000_u64) {
        let mut timer = Pit::default();
        let mode = if rate { pit::MODE_RATE } else { pit::MODE_TERMINAL };
        timer.write(pit::CONTROL, pit::ACCESS_BOTH | mode, 0, 0);
        let [low, high, ..] = count.to_le_bytes();
        timer.write(pit::COUNTER_0, low, 0, 0);
        timer.write(pit::COUNTER_0, high, 0, 0);
        let (mut left, mut requests) = (count, 0_u64);
        for _ in 0..clocks {
            left = if left == 1 && rate { count } else if left == 0 { 0xffff } else { left - 1 };
            requests += u64::from(if rate { left == count } else { left == 0 && requests == 0 });
        }
        // The end of that clock, and no more than a nanosecond later.
        let now = (clocks * 1_000_000_000).div_ceil(pit::HZ);
        timer.write(pit::CONTROL, 0, now, 0);
        let read = [timer.read(pit::COUNTER_0, now + 50_000), timer.read(pit::COUNTER_0, now + 90_000)];
        prop_assert_eq!(u16::from_le_bytes(read), left as u16);
        let mut found = 0;
        while timer.deadline.is_some_and(|due| due <= now) {
            let due = timer.deadline.unwrap_or(0);
            found += u64::from(timer.expired(due, false));
        }
        // Periods are rounded down to whole nanoseconds, so it is less than a nanosecond ahead for each.
        let ahead = if rate { 1 + requests * pit::HZ / (count * 1_000_000_000) } else { 0 };
        prop_assert!((requests..=requests + ahead).contains(&found), "{found}, {requests}");
    }
}

#[test]
fn a_timer_that_reinjects_makes_up_for_each_request_that_was_missed() {
    let mut timer = Pit::default();
    timer.write(pit::CONTROL, pit::ACCESS_HIGH | pit::MODE_RATE, 0, 0);
    timer.write(pit::COUNTER_0, 0x10, 0, 0);
    let period = 0x1000 * 1_000_000_000 / pit::HZ;
    assert!(timer.expired(period, true), "the first one");
    assert!(!timer.expired(2 * period, true), "the guest has not ended it");
    assert!(!timer.expired(5 * period, true), "nor now, and three are due");
    let made_up = (0..10).take_while(|_| timer.request_ended()).count();
    assert_eq!(made_up, 4);
    assert!(timer.expired(6 * period, true));
}

#[test]
fn a_controller_without_automatic_eoi_holds_back_the_next_tick_until_its_end() {
    let mut pics = Pics::default();
    for (port, value) in [(0x20, 0x11), (0x21, 0x30), (0x21, 4), (0x21, 1)] {
        pics.write(port, value);
    }
    let mut tick = || {
        pics.set(0, true);
        pics.set(0, false);
        pics.output()
    };
    assert!(tick());
    assert!(tick(), "two edges are one request");
    assert_eq!(pics.acknowledge(), (0x30, false));
    pics.set(0, true);
    assert!(!pics.output(), "it is in service");
    assert!(!pics.write(pic::MASTER, pic::OCW2_EOI_OF | 1), "not that input");
    assert!(pics.write(pic::MASTER, pic::OCW2_EOI));
    assert!(pics.output());
}
