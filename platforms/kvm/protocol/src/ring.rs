//! The ring through which a guest reports: records in the order of their writing, in shared memory.
//!
//! ```text
//! header: written u64 | read u64         bytes ever written by the guest, ever read by the VMM
//! record: length u32 | payload | padding to 8 bytes
//! ```
//! A record wraps around the end byte by byte. The guest's CPUs take turns; the VMM reads what lies between `read` and
//! `written`, and believes neither `written` nor any length.

/// Bytes before the records.
pub const RING_HEADER_BYTES: u64 = 16;

/// A record's length field.
pub type RecordHeader = u32;

const HEADER: u64 = size_of::<RecordHeader>() as u64;
const ALIGN: u64 = 8;

/// Bytes that a record with a payload of `payload` bytes takes in the ring.
pub const fn record_bytes(payload: u64) -> u64 {
    (HEADER + payload).next_multiple_of(ALIGN)
}

/// The guest has written something into the ring that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Corrupt {
    /// More is written than the ring holds, or less than was read.
    Written(u64),
    /// A record longer than what is written.
    Length(u32),
    /// A record that says nothing this VMM understands.
    Payload,
}

impl core::fmt::Display for Corrupt {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Corrupt::Written(written) => write!(f, "its ring says that {written} bytes are written"),
            Corrupt::Length(length) => write!(f, "a record of its reports says that it has {length} bytes"),
            Corrupt::Payload => write!(f, "a record of its reports is no message"),
        }
    }
}

/// Where a reader is in the ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingPosition {
    /// Bytes ever read.
    pub read: u64,
}

impl RingPosition {
    /// Bytes to be read, if `written`, which the guest claims, can be true for a ring of `capacity` bytes.
    ///
    /// # Errors
    /// [`Corrupt::Written`].
    pub fn pending(self, written: u64, capacity: u32) -> Result<u64, Corrupt> {
        let pending = written.wrapping_sub(self.read);
        if pending > u64::from(capacity) || !pending.is_multiple_of(ALIGN) {
            return Err(Corrupt::Written(written));
        }
        Ok(pending)
    }

    /// Steps over a record with a payload of `length` bytes, as the guest claims, of `pending` bytes to be read.
    ///
    /// # Errors
    /// [`Corrupt::Length`].
    pub fn step(self, length: RecordHeader, pending: u64) -> Result<RingPosition, Corrupt> {
        let bytes = record_bytes(length.into());
        if bytes > pending {
            return Err(Corrupt::Length(length));
        }
        Ok(RingPosition {
            read: self.read.wrapping_add(bytes),
        })
    }
}
