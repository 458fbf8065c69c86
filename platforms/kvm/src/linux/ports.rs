//! The I/O ports of a Linux guest: a serial port for output, and the ports by which the guest's process reports.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use holdfast_protocol::layout::{REPORT, START_LINE};
use holdfast_protocol::{Corrupt, Message, decode};

use crate::printable::printable;

/// The first serial port of a PC.
const SERIAL: u16 = 0x3f8;
const LINE_CONTROL: u16 = SERIAL + 3;
const LINE_STATUS: u16 = SERIAL + 5;
/// Line control bit: the first two registers hold the baud rate divisor.
const DIVISOR_LATCH: u8 = 1 << 7;
/// Line status: the transmitter and its holding register are empty.
const TRANSMITTER_EMPTY: u8 = 1 << 6 | 1 << 5;
/// The byte that a read from a port without a device returns.
const NO_DEVICE: u8 = 0xff;

/// Number of bytes kept of the guest's output: enough for a panic with its backtrace.
const CONSOLE_BYTES: usize = 16 << 10;
/// Number of bytes that are shown of a line of output.
const LINE_BYTES_MAX: usize = 1000;
/// Size of the longest accepted message in bytes. Real messages have a few hundred.
const MESSAGE_BYTES_MAX: u32 = 16 << 10;

/// The devices at a guest's I/O ports.
#[derive(Debug, Default)]
pub(crate) struct Ports {
    console: Mutex<Console>,
    reported: Mutex<Vec<u8>>,
    start: AtomicBool,
}

#[derive(Debug, Default)]
struct Console {
    line_control: u8,
    tail: VecDeque<u8>,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // A thread that panicked while it held the lock has already ended the run.
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl Ports {
    /// Handles the guest's write of `data` to `port`. Returns whether a message may be complete.
    pub(crate) fn output(&self, port: u16, data: &[u8]) -> bool {
        match port {
            SERIAL => lock(&self.console).print(data),
            LINE_CONTROL => {
                lock(&self.console).line_control = data.first().copied().unwrap_or_default();
            }
            REPORT => {
                let mut reported = lock(&self.reported);
                // A guest that exceeds this without a complete message is faulty. Its further bytes are dropped.
                if reported.len() <= 2 * MESSAGE_BYTES_MAX as usize {
                    reported.extend(data);
                }
                return reported.len() >= 4;
            }
            _ => {}
        }
        false
    }

    /// Handles the guest's read from `port` into `data`.
    pub(crate) fn input(&self, port: u16, data: &mut [u8]) {
        let answer = match port {
            LINE_STATUS => TRANSMITTER_EMPTY,
            LINE_CONTROL => lock(&self.console).line_control,
            // ORDERING: Relaxed; the flag publishes no other data.
            START_LINE => self.start.load(Ordering::Relaxed).into(),
            _ => NO_DEVICE,
        };
        data.fill(answer);
    }

    /// Lets the guest begin its measured interval.
    pub(crate) fn start(&self) {
        self.start.store(true, Ordering::Relaxed);
    }

    /// Moves all complete messages to the end of `messages`.
    ///
    /// # Errors
    /// Returns an error if the guest's data is invalid. `messages` then has the messages before it.
    pub(crate) fn drain(&self, messages: &mut Vec<Message>) -> Result<(), Corrupt> {
        let mut reported = lock(&self.reported);
        while let Some(length) = reported.first_chunk().map(|bytes| u32::from_le_bytes(*bytes)) {
            if length > MESSAGE_BYTES_MAX {
                return Err(Corrupt::Length(length));
            }
            let end = 4 + length as usize;
            let Some(payload) = reported.get(4..end) else { break };
            messages.push(decode(payload).ok_or(Corrupt::Payload)?);
            reported.drain(..end);
        }
        Ok(())
    }

    /// Returns the last lines that the guest has printed.
    pub(crate) fn console(&self) -> Vec<String> {
        let console = lock(&self.console);
        let bytes: Vec<u8> = console.tail.iter().copied().collect();
        let lines = bytes.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii_end);
        lines
            .filter(|line| !line.is_empty())
            .map(|line| printable(line, "", LINE_BYTES_MAX))
            .collect()
    }
}

impl Console {
    fn print(&mut self, data: &[u8]) {
        if self.line_control & DIVISOR_LATCH != 0 {
            return;
        }
        self.tail.extend(data);
        let excess = self.tail.len().saturating_sub(CONSOLE_BYTES);
        self.tail.drain(..excess);
    }
}

#[cfg(test)]
mod tests {
    use holdfast_protocol::encode;
    use proptest::prelude::*;

    use super::*;
    use crate::printable::tests::is_harmless;

    fn record(message: &Message) -> Vec<u8> {
        let payload = encode(message);
        [&(payload.len() as u32).to_le_bytes()[..], &payload].concat()
    }

    #[test]
    fn the_console_keeps_output_and_ignores_the_divisor() {
        let ports = Ports::default();
        ports.output(LINE_CONTROL, &[DIVISOR_LATCH | 3]);
        ports.output(SERIAL, &[1]);
        ports.output(LINE_CONTROL, &[3]);
        (0..10_000).for_each(|line| {
            for byte in format!("line {line}\r\n").bytes() {
                ports.output(SERIAL, &[byte]);
            }
        });
        let lines = ports.console();
        assert_eq!(lines.last().map(String::as_str), Some("line 9999"));
        assert!(lines.iter().map(String::len).sum::<usize>() <= CONSOLE_BYTES);
        let mut status = [0];
        ports.input(LINE_STATUS, &mut status);
        assert_eq!(status, [TRANSMITTER_EMPTY]);
        let mut nothing = [0; 4];
        ports.input(0xcf8, &mut nothing);
        assert_eq!(nothing, [NO_DEVICE; 4]);
    }

    #[test]
    fn messages_are_complete_wherever_the_bytes_are_split() {
        let sent = [Message::Log("a line".to_owned()), Message::Begin { now_ns: 7 }];
        let bytes: Vec<u8> = sent.iter().flat_map(record).collect();
        for cut in 0..bytes.len() {
            let (ports, mut messages) = (Ports::default(), Vec::new());
            for part in [&bytes[..cut], &bytes[cut..]] {
                if ports.output(REPORT, part) {
                    ports.drain(&mut messages).expect("in order");
                }
            }
            assert_eq!(messages, sent);
        }
    }

    proptest! {
        #[test]
        fn whatever_a_kernel_prints_is_shown_as_text(
            bytes in proptest::collection::vec(prop_oneof![any::<u8>(), 0u8..32, 0x7fu8..0xa0], 0..5000)
        ) {
            let ports = Ports::default();
            ports.output(SERIAL, &bytes);
            let lines = ports.console();
            prop_assert!(lines.iter().all(|line| is_harmless(line)), "{lines:?}");
            prop_assert!(lines.iter().all(|line| !line.contains(char::REPLACEMENT_CHARACTER)), "{lines:?}");
        }

        #[test]
        fn random_bytes_are_refused_or_kept_within_the_limit(parts in proptest::collection::vec(
            proptest::collection::vec(any::<u8>(), 0..5000), 0..20)
        ) {
            let (ports, mut messages) = (Ports::default(), Vec::new());
            for part in parts {
                if ports.output(REPORT, &part) && ports.drain(&mut messages).is_err() {
                    break;
                }
            }
            prop_assert!(lock(&ports.reported).len() <= 3 * MESSAGE_BYTES_MAX as usize);
        }

        #[test]
        fn no_access_to_any_port_is_kept_without_limit(accesses in proptest::collection::vec((
            prop_oneof![any::<u16>(), SERIAL..SERIAL + 8, Just(REPORT), Just(START_LINE)],
            any::<bool>(),
            proptest::collection::vec(any::<u8>(), 0..4096),
        ), 0..60)) {
            let (ports, mut messages) = (Ports::default(), Vec::new());
            for (port, is_output, mut data) in accesses {
                if !is_output {
                    ports.input(port, &mut data);
                } else if ports.output(port, &data) && ports.drain(&mut messages).is_err() {
                    break;
                }
            }
            prop_assert!(lock(&ports.console).tail.len() <= CONSOLE_BYTES);
            prop_assert!(lock(&ports.reported).len() <= 3 * MESSAGE_BYTES_MAX as usize);
            prop_assert!(ports.console().iter().all(|line| is_harmless(line)));
        }
    }
}
