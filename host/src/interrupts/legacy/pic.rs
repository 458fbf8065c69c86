//! The pair of 8259A interrupt controllers of a PC (docs/spec/interrupts.md, "PIC and PIT").
//!
//! Inputs are edge-triggered, and input 0 has the highest priority, in every mode: rotation of priorities, special
//! masks, polling and fully nested slaves are left out. A command that asks for one of them has its other effects only.
//!
//! - **An edge is kept**: it stays in IRR, masked or not, until it is acknowledged or the controller is initialized.
//! - **The guest cannot break it**: every port and value has a meaning or is ignored.

use holdfast_abi::pic as reg;

/// What the next write to a controller's data port is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Next {
    /// The mask (OCW1).
    #[default]
    Mask,
    Icw2,
    Icw3,
    Icw4,
}

/// One controller. The bit of an input is its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Controller {
    /// The register IRR.
    requested: u8,
    /// The register ISR.
    in_service: u8,
    /// The register IMR.
    masked: u8,
    /// The inputs that are high.
    inputs: u8,
    /// The vector of input 0.
    vector: u8,
    next: Next,
    /// The last ICW1.
    icw1: u8,
    auto_eoi: bool,
    reads_in_service: bool,
}

impl Controller {
    /// A controller as firmware leaves it: all inputs are masked.
    const MASKED: Controller = Controller {
        requested: 0,
        in_service: 0,
        masked: 0xff,
        inputs: 0,
        vector: 0,
        next: Next::Mask,
        icw1: 0,
        auto_eoi: false,
        reads_in_service: false,
    };

    /// Sets `input`. A rising edge requests an interrupt.
    fn set(&mut self, input: u32, high: bool) {
        let bit = 1 << input;
        if high {
            self.requested |= bit & !self.inputs;
            self.inputs |= bit;
        } else {
            self.inputs &= !bit;
        }
    }

    /// Returns the input whose interrupt is to be acknowledged next: its priority is above all in service.
    fn pending(&self) -> Option<u32> {
        let waiting = self.requested & !self.masked;
        let first = waiting.trailing_zeros();
        (first < self.in_service.trailing_zeros()).then_some(first)
    }

    fn acknowledge(&mut self, input: u32) {
        self.requested &= !(1 << input);
        if !self.auto_eoi {
            self.in_service |= 1 << input;
        }
    }

    /// Writes `value` to the first port. Returns the inputs whose interrupts this ends.
    fn command(&mut self, value: u8) -> u8 {
        if value & reg::ICW1 != 0 {
            *self = Controller {
                inputs: self.inputs,
                masked: 0,
                vector: self.vector,
                next: Next::Icw2,
                icw1: value,
                auto_eoi: self.auto_eoi && value & reg::ICW1_WITH_ICW4 != 0,
                ..Controller::MASKED
            };
            return 0;
        }
        if value & reg::OCW3 != 0 {
            if value & reg::OCW3_READ_IRR != 0 {
                self.reads_in_service = value & reg::OCW3_READ_ISR == reg::OCW3_READ_ISR;
            }
            return 0;
        }
        let ended = match value & reg::OCW2_EOI_OF {
            reg::OCW2_EOI => self.in_service & self.in_service.wrapping_neg(),
            reg::OCW2_EOI_OF => self.in_service & 1 << (value & 7),
            _ => 0,
        };
        self.in_service &= !ended;
        ended
    }

    /// Writes `value` to the data port.
    fn write_data(&mut self, value: u8) {
        let last = if self.icw1 & reg::ICW1_WITH_ICW4 != 0 {
            Next::Icw4
        } else {
            Next::Mask
        };
        self.next = match self.next {
            Next::Mask => {
                self.masked = value;
                Next::Mask
            }
            Next::Icw2 => {
                self.vector = value & reg::ICW2_VECTOR;
                if self.icw1 & reg::ICW1_SINGLE == 0 {
                    Next::Icw3
                } else {
                    last
                }
            }
            Next::Icw3 => last,
            Next::Icw4 => {
                self.auto_eoi = value & reg::ICW4_AUTO_EOI != 0;
                Next::Mask
            }
        };
    }

    fn read(&self, data: bool) -> u8 {
        match (data, self.reads_in_service) {
            (true, _) => self.masked,
            (false, true) => self.in_service,
            (false, false) => self.requested,
        }
    }
}

/// Both controllers. The inputs of the second one are 8 to 15.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pics {
    pair: [Controller; 2],
}

impl Default for Pics {
    fn default() -> Pics {
        Pics {
            pair: [Controller::MASKED; 2],
        }
    }
}

impl Pics {
    /// The inputs that devices can have: all but the one for the second controller.
    pub(crate) fn has_input(input: u32) -> bool {
        input < 2 * reg::INPUTS && input != reg::CASCADE
    }

    /// Sets `input`, one of those that devices can have.
    pub(crate) fn set(&mut self, input: u32, high: bool) {
        self.pair[(input / reg::INPUTS) as usize].set(input % reg::INPUTS, high);
        self.cascade();
    }

    /// Passes the output of the second controller on to the first one.
    fn cascade(&mut self) {
        let output = self.pair[1].pending().is_some();
        self.pair[0].set(reg::CASCADE, output);
    }

    /// Returns whether the pair's output is high: an interrupt waits for its acknowledgment.
    pub(crate) fn output(&self) -> bool {
        self.pair[0].pending().is_some()
    }

    /// Returns the controller at `port`, and whether the port is its data port.
    fn at(port: u16) -> Option<(usize, bool)> {
        [reg::MASTER, reg::SLAVE]
            .into_iter()
            .zip(0..)
            .find_map(|(base, index)| match port.checked_sub(base)? {
                0 => Some((index, false)),
                reg::DATA => Some((index, true)),
                _ => None,
            })
    }

    /// Returns whether a controller is at `port`.
    pub(crate) fn has_port(port: u16) -> bool {
        Pics::at(port).is_some()
    }

    /// Writes `value` to `port`. Returns whether that ends the interrupt of input 0.
    pub(crate) fn write(&mut self, port: u16, value: u8) -> bool {
        let Some((index, data)) = Pics::at(port) else {
            return false;
        };
        let ended = if data {
            self.pair[index].write_data(value);
            0
        } else {
            self.pair[index].command(value)
        };
        self.cascade();
        index == 0 && ended & 1 != 0
    }

    /// Reads `port`. Without a controller there it reads as 0xff.
    pub(crate) fn read(&self, port: u16) -> u8 {
        Pics::at(port).map_or(0xff, |(index, data)| self.pair[index].read(data))
    }

    /// Acknowledges the interrupt that waits (INTA). Returns its vector, and whether it has ended input 0's by that. An
    /// interrupt that is gone is that of input 7.
    pub(crate) fn acknowledge(&mut self) -> (u8, bool) {
        let Some(input) = self.pair[0].pending() else {
            return (self.pair[0].vector + 7, false);
        };
        self.pair[0].acknowledge(input);
        let ended = input == 0 && self.pair[0].auto_eoi;
        if input != reg::CASCADE {
            return (self.pair[0].vector + input as u8, ended);
        }
        let second = &mut self.pair[1];
        let found = second.pending();
        if let Some(input) = found {
            second.acknowledge(input);
        }
        let vector = second.vector + found.unwrap_or(7) as u8;
        // Its output falls with the acknowledgment, and rises again if another interrupt waits.
        self.pair[0].set(reg::CASCADE, false);
        self.cascade();
        (vector, false)
    }
}
