//! The costs of a message, and the sources of the numbers.
//!
//! # Sources
//! - **[Q]** the shape of Qpid's C++ broker and client libraries (0.6 to 0.8, 2010), from memory of the source;
//! - **[G]** glibc's malloc and libstdc++'s strings of that time;
//! - **[L]** as in the guest kernel's costs: copies at 5-6 bytes per nanosecond.
//! - **[E]** estimates.

/// The steps of a message: encoding, decoding and routing, encoding again, decoding again, consuming.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Produce,
    Accept,
    Deliver,
    Receive,
    Consume,
}

impl Step {
    /// The step's share of the user time of a message, in thousandths. [E]
    fn share(self) -> u64 {
        match self {
            Step::Produce => 250,
            Step::Accept => 300,
            Step::Deliver => 230,
            Step::Receive => 140,
            Step::Consume => 80,
        }
    }

    /// How often the step copies the content: into the message and into the frame, out of the frame, into the next
    /// frame, out of that, into the program. [Q]
    fn copies(self) -> u64 {
        match self {
            Step::Produce => 2,
            Step::Accept | Step::Deliver | Step::Receive | Step::Consume => 1,
        }
    }
}

/// Spread of a step's user time (sigma of the logarithm). [E]
pub(super) const TIME_SPREAD: f64 = 0.15;

/// Copying one byte, picoseconds. [L]
const COPY_BYTE_PS: u64 = 180;
/// Fetching one cache line of content that another CPU has written. [E] a transfer within a socket, with its miss
const LINE_NS: u64 = 60;
const LINE_BYTES: u64 = 64;

/// User time of a message in all programs, without its content, for an undisturbed CPU of the costs' class. Calibrated:
/// with ticket locks and no pause-loop exiting, alone on the nehalem-ex profile, 4 vCPUs carry 223 801 messages of 8
/// bytes a second.
const MESSAGE_NS: u64 = 15_070;

/// Returns the mean user time of `step` for a message of `payload` bytes. It consists of the step's
/// share, the copies of the content, and the transfers of the content's cache lines.
pub(super) fn step_ns(step: Step, payload: u32) -> u64 {
    let copies_ps = step.copies() * u64::from(payload) * COPY_BYTE_PS;
    let lines_ns = string_bytes(payload) * LINE_NS / LINE_BYTES;
    MESSAGE_NS * step.share() / 1000 + copies_ps / 1000 + lines_ns
}

/// Memory of a string of `payload` bytes: 24 bytes of header and the final zero, rounded up to malloc's sizes. [G]
fn string_bytes(payload: u32) -> u64 {
    (u64::from(payload) + 24 + 1 + 8).next_multiple_of(16).max(32)
}

/// Memory of a message in the broker: the message, its three frames with their bodies, its entry in the queue, and its
/// content. [E] about 1 KB
pub(super) fn message_bytes(payload: u32) -> u64 {
    1_000 + string_bytes(payload)
}

/// Bytes of a message on the wire: transfer, header and content frames of 12 bytes each, the transfer's destination and
/// flags, and the header's properties. [E]
pub(super) fn wire_bytes(payload: u32) -> u32 {
    110 + payload
}

/// Bytes that are read or written at a time: the buffers of Qpid's asynchronous I/O. [Q]
pub(super) const BUFFER_BYTES: u32 = 65_536;
/// Bytes that may wait in a client before its producer must wait: two frames of the largest size. [Q]
pub(super) const BOUND_BYTES: u32 = 131_070;

/// Work under a queue's mutex, to add or take a message: the container, listeners, counts. [E] 0.2-0.5 µs
pub(super) const QUEUE_HELD_NS: u64 = 300;
/// Work under a client's mutex, to add or take a message. [E]
pub(super) const CLIENT_HELD_NS: u64 = 80;
/// A worker's work for each event without its messages: handle, callbacks, buffers. [E]
pub(super) const EVENT_NS: u64 = 1_500;

#[cfg(test)]
mod tests {
    use super::*;

    const STEPS: [Step; 5] = [Step::Produce, Step::Accept, Step::Deliver, Step::Receive, Step::Consume];

    #[test]
    fn the_shares_are_the_whole() {
        assert_eq!(STEPS.iter().map(|step| step.share()).sum::<u64>(), 1000);
    }

    #[test]
    fn content_costs_its_copies_and_its_lines() {
        let total = |payload| STEPS.iter().map(|step| step_ns(*step, payload)).sum::<u64>();
        let more = total(16) - total(8);
        assert!((50..150).contains(&more), "8 bytes more cost {more} ns");
        assert!(
            total(4096) - total(16) > 5_000,
            "a page of content is copied and moved several times"
        );
    }
}
