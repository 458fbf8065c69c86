//! Records that zstd has compressed (`perf record -z`): one stream for the whole file, cut into records anywhere.

use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

use super::super::recording::{Fault, ReadError};

/// The decoder keeps at most this many bytes behind the place that it has reached. perf's least levels need 512 KiB.
const WINDOW_BYTES_MAX: u64 = 8 << 20;

/// Begin of a frame: RFC 8878, section 3.1.1.
const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

#[derive(Default)]
pub(super) struct Unpacker {
    decoder: Option<Box<FrameDecoder>>,
    /// A frame has begun and not ended.
    in_frame: bool,
    with_checksum: bool,
    /// What is compressed, and how much of it is decoded.
    packed: Vec<u8>,
    done: usize,
    is_broken: bool,
    /// What is decoded and not yet read, from this place on.
    unpacked: Vec<u8>,
    next: usize,
}

/// Returns the length of the frame's header, and whether a checksum follows the frame. `None`: more is needed.
fn frame_header(packed: &[u8]) -> Option<(usize, bool)> {
    let descriptor = *packed.get(4)?;
    let single_segment = descriptor >> 5 & 1 != 0;
    let dictionary = [0, 1, 2, 4][usize::from(descriptor & 3)];
    let content = match descriptor >> 6 {
        0 => usize::from(single_segment),
        1 => 2,
        2 => 4,
        _ => 8,
    };
    let length = 5 + usize::from(!single_segment) + dictionary + content;
    (packed.len() >= length).then_some((length, descriptor >> 2 & 1 != 0))
}

/// Returns the length of the block with what follows it. `None`: more is needed.
fn block(packed: &[u8], with_checksum: bool) -> Option<usize> {
    let header = packed.get(..3)?;
    let header = u32::from_le_bytes([header[0], header[1], header[2], 0]);
    let size = match header >> 1 & 3 {
        1 => 1,
        _ => header as usize >> 3,
    };
    let checksum = if header & 1 != 0 && with_checksum { 4 } else { 0 };
    let length = 3 + size + checksum;
    (packed.len() >= length).then_some(length)
}

impl Unpacker {
    /// Takes compressed bytes.
    pub(super) fn feed(&mut self, packed: &[u8]) {
        self.packed.drain(..std::mem::take(&mut self.done));
        self.packed.extend_from_slice(packed);
    }

    /// Decodes the next block, if it is complete. One block becomes at most 128 KiB, and many can be in a record.
    pub(super) fn step(&mut self, offset: u64) -> Result<bool, ReadError> {
        let rest = &self.packed[self.done..];
        if rest.is_empty() {
            return Ok(false);
        }
        let decoder = self.decoder.get_or_insert_with(|| {
            let mut decoder = FrameDecoder::new();
            decoder.set_max_window_size(WINDOW_BYTES_MAX);
            Box::new(decoder)
        });
        let mut damaged = |what: String| {
            // The rest of the stream cannot be decoded without this.
            self.is_broken = true;
            ReadError::new(offset, Fault::Damaged(format!("compressed records: {what}")))
        };
        if !self.in_frame {
            if !rest.starts_with(&MAGIC[..rest.len().min(4)]) {
                return Err(damaged("not of zstd".into()));
            }
            let Some((length, with_checksum)) = frame_header(rest) else {
                return Ok(false);
            };
            decoder
                .reset(&rest[..length])
                .map_err(|error| damaged(error.to_string()))?;
            (self.in_frame, self.with_checksum) = (true, with_checksum);
            self.done += length;
            return Ok(true);
        }
        let Some(length) = block(rest, self.with_checksum) else {
            return Ok(false);
        };
        let decoded = decoder.decode_blocks(&rest[..length], BlockDecodingStrategy::UptoBlocks(1));
        decoded.map_err(|error| damaged(error.to_string()))?;
        self.done += length;
        self.in_frame = !decoder.is_finished();
        if let Some(unpacked) = decoder.collect() {
            self.unpacked.drain(..std::mem::take(&mut self.next));
            self.unpacked.extend(unpacked);
        }
        Ok(true)
    }

    /// Ends the frame, which perf leaves open, with an empty block, so that what the decoder keeps is released.
    pub(super) fn close(&mut self) {
        if self.in_frame && self.packed.len() == self.done {
            let checksum = if self.with_checksum { 4 } else { 0 };
            self.feed(&[1, 0, 0, 0, 0, 0, 0][..3 + checksum]);
        }
    }

    /// Whether everything was decoded and read, or an error has said why not.
    pub(super) fn is_done(&self) -> bool {
        self.is_broken || self.packed.len() == self.done && self.unpacked.len() == self.next && !self.in_frame
    }

    /// Whether an error has ended the stream.
    pub(super) fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// Returns the next whole record with its type.
    pub(super) fn next_record(&mut self, offset: u64) -> Result<Option<(u32, &[u8])>, ReadError> {
        let rest = &self.unpacked[self.next..];
        let Some(header) = rest.first_chunk::<8>() else {
            return Ok(None);
        };
        let kind = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
        let size = usize::from(u16::from_le_bytes([header[6], header[7]]));
        if size < 8 {
            self.next = self.unpacked.len();
            return Err(ReadError::new(
                offset,
                Fault::Damaged(format!("a record of {size} bytes")),
            ));
        }
        if rest.len() < size {
            return Ok(None);
        }
        let begin = self.next + 8;
        self.next += size;
        Ok(Some((kind, &self.unpacked[begin..self.next])))
    }
}
