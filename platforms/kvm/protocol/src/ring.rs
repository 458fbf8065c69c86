//! The ring in shared memory through which a guest reports.
//!
//! ```text
//! header: written u64 | read u64         total bytes written by the guest, total bytes read by the VMM
//! record: length u32 | payload | padding to 8 bytes
//! ```
//! A record that reaches the end continues at the start. The guest's CPUs write one after another. The VMM reads the
//! bytes between `read` and `written`, and checks `written` and every length.

/// Size of the ring's header in bytes.
pub const RING_HEADER_BYTES: u64 = 16;

/// Size of a record's length field.
const HEADER: u64 = size_of::<u32>() as u64;
const ALIGN: u64 = 8;

/// Returns the size in bytes of a record whose payload has `payload` bytes.
pub const fn record_bytes(payload: u64) -> u64 {
    (HEADER + payload).next_multiple_of(ALIGN)
}

/// The ring has invalid content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Corrupt {
    /// `written` exceeds the ring's size or is below the bytes read. The value is `written`.
    Written(u64),
    /// A record is longer than the written bytes. The value is its length.
    Length(u32),
    /// A payload is not a message.
    Payload,
}

impl core::fmt::Display for Corrupt {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Corrupt::Written(written) => write!(f, "its ring claims {written} bytes written"),
            Corrupt::Length(length) => write!(f, "a record in its ring claims a length of {length} bytes"),
            Corrupt::Payload => write!(f, "a record in its ring is not a message"),
        }
    }
}

/// A reader's position in the ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingPosition {
    /// Total bytes read.
    pub read: u64,
}

impl RingPosition {
    /// Returns the number of unread bytes. `written` is the guest's claim, `capacity` the size of the ring in bytes.
    ///
    /// # Errors
    /// Returns [`Corrupt::Written`] if `written` is impossible for this ring.
    pub fn pending(self, written: u64, capacity: u32) -> Result<u64, Corrupt> {
        let pending = written.wrapping_sub(self.read);
        if pending > u64::from(capacity) || !pending.is_multiple_of(ALIGN) {
            return Err(Corrupt::Written(written));
        }
        Ok(pending)
    }

    /// Returns the position after a record. `length` is the guest's claim for its payload, `pending` the number of
    /// unread bytes.
    ///
    /// # Errors
    /// Returns [`Corrupt::Length`] if the record is longer than the unread bytes.
    pub fn step(self, length: u32, pending: u64) -> Result<RingPosition, Corrupt> {
        let bytes = record_bytes(length.into());
        if bytes > pending {
            return Err(Corrupt::Length(length));
        }
        Ok(RingPosition {
            read: self.read.wrapping_add(bytes),
        })
    }
}
