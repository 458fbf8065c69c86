//! Pages of the ring buffer, as 64-bit kernels write them (kernel documentation, trace/ring-buffer-design, and the file
//! `events/header_event`).

/// Bytes before the events of a page: time stamp, and the length of the events.
const HEADER: usize = 16;
/// Largest time difference of an event's own header, in the unit of the clock.
const DELTA_MAX: u64 = (1 << 27) - 1;
/// Type of an entry that adds to the time.
const TIME_EXTEND: u32 = 30;
/// Largest number of 4-byte words whose count fits the type of an event.
const WORDS_MAX: usize = 28;
/// Set in the length of a page before which events were lost.
const MISSED: u64 = 1 << 31;

/// Makes the pages of one CPU from its events.
#[derive(Clone, Debug)]
pub struct Pages {
    done: Vec<u8>,
    page: Vec<u8>,
    size: usize,
    last: u64,
}

impl Pages {
    /// Begins without events. A page has `size` bytes.
    ///
    /// # Panics
    /// If `size` is no multiple of 4, or below 64.
    pub fn new(size: usize) -> Pages {
        assert!(size.is_multiple_of(4) && size >= 64, "a page of {size} bytes");
        Pages {
            done: Vec::new(),
            page: Vec::new(),
            size,
            last: 0,
        }
    }

    /// Adds the event `data` at the time `at`. Its length is rounded up to a multiple of 4, with zeros. A time before
    /// the last event counts as the time of that event. Returns `false` if a page cannot hold the event.
    pub fn push(&mut self, at: u64, data: &[u8]) -> bool {
        let words = data.len().div_ceil(4);
        let long = words == 0 || words > WORDS_MAX;
        let length = 4 * (1 + usize::from(long) + words);
        let extension = 8;
        if HEADER + length + extension > self.size {
            return false;
        }
        let at = at.max(self.last);
        let delta = at - self.last;
        let extended = if delta > DELTA_MAX { extension } else { 0 };
        if self.page.is_empty() || self.page.len() + extended + length > self.size {
            self.end();
            self.page.extend(at.to_le_bytes());
            self.page.extend([0; 8]);
            self.last = at;
        }
        let delta = at - self.last;
        self.last = at;
        if delta > DELTA_MAX {
            self.word(TIME_EXTEND | ((delta & DELTA_MAX) as u32) << 5);
            // 2^59 ns are 18 years: a longer difference does not fit, and is cut.
            self.word(u32::try_from(delta >> 27).unwrap_or(u32::MAX));
        }
        let delta = if delta > DELTA_MAX { 0 } else { delta as u32 };
        let kind = if long { 0 } else { words as u32 };
        self.word(kind | delta << 5);
        if long {
            self.word(4 * (1 + words as u32));
        }
        self.page.extend(data);
        self.page.extend(std::iter::repeat_n(0, 4 * words - data.len()));
        true
    }

    fn word(&mut self, word: u32) {
        self.page.extend(word.to_le_bytes());
    }

    /// Completes the page that has events.
    fn end(&mut self) {
        if self.page.is_empty() {
            return;
        }
        let length = (self.page.len() - HEADER) as u64;
        self.page[8..HEADER].copy_from_slice(&length.to_le_bytes());
        self.page.resize(self.size, 0);
        self.done.append(&mut self.page);
    }

    /// Returns the pages, one after the other.
    pub fn finish(mut self) -> Vec<u8> {
        self.end();
        self.done
    }
}

/// Marks in the header of the little-endian `page` that events before it were lost. Does nothing if it has no header.
pub fn mark_missed(page: &mut [u8]) {
    // The flag is in the lower half of the field, which 32-bit kernels have as well.
    if let Some(length) = page
        .get_mut(8..12)
        .and_then(|bytes| <&mut [u8; 4]>::try_from(bytes).ok())
    {
        *length = (u32::from_le_bytes(*length) | MISSED as u32).to_le_bytes();
    }
}
