//! A page of the kernel's ring buffer.
//!
//! ```text
//! time (8)  commit (long)  event  event ...  | number of missed events (long), if bit 30 of commit is set
//! ```
//!
//! `commit` has the length of the events, bit 31 if events before this page are missing, and bit 30 if their number
//! follows the events. An event begins with 32 bits: 5 of `type_len`, 27 of the time since the event before.
//!
//! | `type_len` | meaning |
//! | --- | --- |
//! | 0 | the next 32 bits are the length of the data, 4 bytes for itself included |
//! | 1 to 28 | the data has 4 times so many bytes |
//! | 29 | padding: to the end of the page if the time is 0, else the next 32 bits are its length |
//! | 30 | more time: the next 32 bits are the time's bits from 27 on |
//! | 31 | the same, and it is the time itself, without its upper 5 bits |

use crate::error::Error;
use crate::format::Format;

/// Bits of `commit` that are a length.
const COMMIT_MASK: u64 = (1 << 27) - 1;
/// Bit of `commit`: events before this page are missing.
const COMMIT_MISSED: u64 = 1 << 31;
/// Bit of `commit`: the number of missing events follows the events.
const COMMIT_STORED: u64 = 1 << 30;

const PADDING: u32 = 29;
const TIME_EXTEND: u32 = 30;
const TIME_STAMP: u32 = 31;

/// Bits of a time that `TIME_STAMP` does not have.
const TIME_UPPER: u64 = 0xf8 << 56;

/// Where the parts of a page are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Offset of `commit`, in bytes.
    pub commit: usize,
    /// Length of `commit`, which is that of the kernel's `long`: 4 or 8.
    pub commit_size: usize,
    /// Offset of the events.
    pub data: usize,
    /// Length of the page.
    pub size: usize,
}

impl Layout {
    /// Returns the layout of 64-bit kernels with pages of this length.
    #[must_use]
    pub fn of_64_bits(size: usize) -> Self {
        Self {
            commit: 8,
            commit_size: 8,
            data: 16,
            size,
        }
    }

    /// Reads the text of the file `events/header_page`. `None` if it has not what a page needs.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        let numbered = [b"name: header_page\nID: 0\n", text].concat();
        let format = Format::parse("", &numbered)?;
        let (commit, data) = (format.field("commit")?, format.field("data")?);
        let layout = Self {
            commit: commit.offset,
            commit_size: commit.size,
            data: data.offset,
            size: data.offset.checked_add(data.size)?,
        };
        layout.is_possible().then_some(layout)
    }

    /// Whether the parts are where they do not overlap.
    pub(crate) fn is_possible(&self) -> bool {
        let commit_end = self.commit.saturating_add(self.commit_size);
        matches!(self.commit_size, 4 | 8)
            && self.commit >= 8
            && commit_end <= self.data
            && self.data < self.size
            && self.size as u64 <= COMMIT_MASK
    }
}

/// Events that are missing before a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missed {
    /// How many, if the kernel wrote it.
    pub events: Option<u64>,
}

/// An event of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event<'a> {
    /// Its time, in units of the trace's clock.
    pub at: u64,
    /// Its data. Behind it may be up to 3 bytes that are not its own.
    pub data: &'a [u8],
}

/// A reader of one page, which yields its events.
///
/// The page itself is not in it, so that a reader of many CPUs can keep both.
#[derive(Clone, Debug)]
pub struct Page {
    /// Events before this page are missing.
    pub missed: Option<Missed>,
    now: u64,
    /// The next event.
    next: usize,
    end: usize,
    /// The file ends within the page.
    cut: bool,
}

fn word(page: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*page.get(at..)?.first_chunk()?))
}

fn long(page: &[u8], at: usize, size: usize) -> Option<u64> {
    match size {
        4 => Some(u64::from(word(page, at)?)),
        _ => Some(u64::from_le_bytes(*page.get(at..)?.first_chunk()?)),
    }
}

impl Page {
    /// Reads the header of a page.
    ///
    /// # Errors
    ///
    /// The page is shorter than its header, or than it says. `offset` is the page's place, for the error. A page that
    /// the file cuts off has the events before the cut.
    pub fn new(page: &[u8], layout: &Layout, offset: u64) -> Result<Self, Error> {
        let cut = || Error::truncated(offset, "the header of a page");
        let now = long(page, 0, 8).ok_or_else(cut)?;
        let commit = long(page, layout.commit, layout.commit_size).ok_or_else(cut)?;
        let length = (commit & COMMIT_MASK) as usize;
        let mut end = layout.data + length;
        let cut = end > page.len() && end <= layout.size;
        if cut {
            end = page.len();
        } else if end > page.len() {
            let what = format!(
                "a page of {} bytes says that it has {length} bytes of events",
                page.len()
            );
            return Err(Error::damaged(offset, what));
        }
        let missed = (commit & COMMIT_MISSED != 0).then(|| {
            let stored = commit & COMMIT_STORED != 0;
            let events = if stored {
                long(page, end, layout.commit_size)
            } else {
                None
            };
            Missed {
                events: events.filter(|&events| events > 0),
            }
        });
        Ok(Self {
            missed,
            now,
            next: layout.data,
            end,
            cut,
        })
    }

    /// Reads the next event of the same page, or `None` at its end.
    ///
    /// # Errors
    ///
    /// An event ends behind the page's events. The page cannot be read further.
    #[inline]
    pub fn next<'a>(&mut self, page: &'a [u8], offset: u64) -> Result<Option<Event<'a>>, Error> {
        let page = page.get(..self.end).unwrap_or_default();
        while let Some(header) = word(page, self.next) {
            let at = self.next;
            let (kind, delta) = (header & 31, u64::from(header >> 5));
            let array = word(page, at + 4);
            // The data, and the length of the event with its header.
            let (begin, length) = match (kind, array) {
                (1..=28, _) => (4, 4 * kind as usize),
                (PADDING, _) if delta == 0 => break,
                (0, Some(length)) if length >= 4 => (8, length as usize - 4),
                (PADDING, Some(length)) => (4, length as usize),
                (TIME_EXTEND | TIME_STAMP, Some(_)) => (8, 0),
                _ => return Err(self.damaged(at, offset)),
            };
            let Some(data) = page.get(at + begin..).and_then(|rest| rest.get(..length)) else {
                return Err(self.damaged(at, offset));
            };
            self.next = at + begin + length.next_multiple_of(4);
            let long = delta | u64::from(array.unwrap_or(0)) << 27;
            self.now = match kind {
                TIME_EXTEND => self.now.wrapping_add(long),
                TIME_STAMP => absolute(self.now, long),
                _ => self.now.wrapping_add(delta),
            };
            if kind < PADDING {
                return Ok(Some(Event { at: self.now, data }));
            }
        }
        self.next = self.end;
        match std::mem::take(&mut self.cut) {
            true => Err(Error::truncated(offset + self.end as u64, "a page")),
            false => Ok(None),
        }
    }

    fn damaged(&mut self, at: usize, offset: u64) -> Error {
        self.next = self.end;
        if std::mem::take(&mut self.cut) {
            return Error::truncated(offset + self.end as u64, "a page");
        }
        Error::damaged(offset + at as u64, "an event that ends behind its page")
    }
}

/// Returns the time that a time stamp without its upper 5 bits means, after `before`.
fn absolute(before: u64, stamp: u64) -> u64 {
    let whole = stamp | before & TIME_UPPER;
    match whole < before {
        // The upper bits have changed since.
        true => whole.wrapping_add(1 << 59),
        false => whole,
    }
}

#[cfg(test)]
mod tests {
    use super::{Layout, Missed, Page, absolute};

    fn page(at: u64, commit: u64, words: &[u32]) -> Vec<u8> {
        let mut page = [at.to_le_bytes(), commit.to_le_bytes()].concat();
        page.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        page.resize(4096, 0);
        page
    }

    fn events(page: &[u8]) -> Vec<(u64, usize)> {
        let mut reader = Page::new(page, &Layout::of_64_bits(4096), 0).expect("a page");
        let mut events = Vec::new();
        while let Some(event) = reader.next(page, 0).expect("events") {
            events.push((event.at, event.data.len()));
        }
        events
    }

    #[test]
    fn each_kind_of_event_is_as_long_as_it_says() {
        let words = [
            5 << 5 | 2,
            1,
            2, // 8 bytes
            3 << 5,
            9,
            7,
            8, // 5 bytes of data, in 8
            1 << 5 | 29,
            8,
            0, // discarded: 8 bytes with its length
            30,
            1, // 1 << 27 later
            4 << 5 | 1,
            0,
            6 << 5 | 31,
            2, // at (2 << 27) + 6
            1 << 5 | 1,
            0,
            29,
            99,
            99, // the rest
        ];
        let found = events(&page(100, 4 * words.len() as u64, &words));
        let base = 100 + 5 + 3 + 1 + (1 << 27) + 4;
        let absolute = (2 << 27) + 7;
        assert_eq!(found, [(105, 8), (108, 5), (base, 4), (absolute, 4)]);
    }

    #[test]
    fn a_page_never_yields_what_is_behind_it() {
        for (commit, words) in [(8, vec![2, 0, 0]), (4, vec![0]), (8, vec![0, 1 << 31]), (4, vec![30])] {
            let page = page(0, commit, &words);
            let mut reader = Page::new(&page, &Layout::of_64_bits(4096), 0).expect("a page");
            let error = reader.next(&page, 4096).expect_err("damage");
            assert_eq!(error.offset, 4096 + 16);
            assert!(reader.next(&page, 4096).expect("the end").is_none());
        }
        assert!(Page::new(&page(0, 4081, &[]), &Layout::of_64_bits(4096), 0).is_err());
    }

    #[test]
    fn missed_events_are_counted_if_the_kernel_has_counted() {
        let missed = |commit, words: &[u32]| {
            let page = page(0, commit, words);
            Page::new(&page, &Layout::of_64_bits(4096), 0).expect("a page").missed
        };
        assert_eq!(missed(8, &[1, 0]), None);
        assert_eq!(missed(8 | 1 << 31, &[1, 0, 5]), Some(Missed { events: None }));
        assert_eq!(missed(8 | 3 << 30, &[1, 0, 5]), Some(Missed { events: Some(5) }));
    }

    #[test]
    fn a_time_stamp_never_goes_back() {
        let upper = 0x18 << 56;
        assert_eq!(absolute(upper + 5, 9), upper + 9);
        assert_eq!(absolute(upper + 9, 5), upper + (1 << 59) + 5);
    }

    #[test]
    fn header_pages_of_both_widths_are_understood() {
        let wide = b"\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
            \tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n\tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n\
            \tfield: char data;\toffset:16;\tsize:4080;\tsigned:1;\n";
        assert_eq!(Layout::parse(wide), Some(Layout::of_64_bits(4096)));
        let narrow = b"field: u64 timestamp; offset:0; size:8; signed:0;\n field: local_t commit; offset:8; size:4; \
            signed:1;\n field: char data; offset:12; size:4084; signed:1;\n";
        let layout = Layout::parse(narrow).expect("a layout");
        assert_eq!((layout.commit_size, layout.data, layout.size), (4, 12, 4096));
        assert_eq!(Layout::parse(b""), None);
    }
}
