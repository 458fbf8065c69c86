//! Pages of one CPU on disk, in a file without a name: the newest up to a limit.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt as _;

use holdfast_trace_dat::write::mark_missed;

/// Pages that are read from the kernel at once.
pub(super) const PAGES_AT_ONCE: usize = 16;
/// Bytes of a page's header: its time, and the length of its events.
const HEADER: usize = 16;
/// The part of a page's second word that is the length. The rest are flags.
const LENGTH: u64 = (1 << 27) - 1;
/// Flag of a page that has, after its events, the number of events that were lost before it.
const STORED: u64 = 1 << 30;

/// Pages of one CPU.
#[derive(Debug)]
pub(super) struct Spool {
    file: File,
    page: usize,
    pages_max: u64,
    /// Pages so far.
    pushed: u64,
}

impl Spool {
    /// Begins without pages in `file`, which is empty. A page has `page` bytes. Keeps the newest pages up to
    /// `bytes_max`, but at least one.
    pub(super) fn new(file: File, page: usize, bytes_max: u64) -> Spool {
        Spool {
            file,
            page,
            pages_max: (bytes_max / page as u64).max(1),
            pushed: 0,
        }
    }

    /// Returns the bytes of a page.
    pub(super) fn page(&self) -> usize {
        self.page
    }

    /// Returns the number of pages that newer ones have replaced.
    pub(super) fn replaced(&self) -> u64 {
        self.pushed.saturating_sub(self.pages_max)
    }

    /// Returns the number of pages that are kept.
    pub(super) fn pages(&self) -> u64 {
        self.pushed.min(self.pages_max)
    }

    /// Adds `pages`. Pages without events are left out, and what follows the events of a page becomes zero: the kernel
    /// leaves older contents there.
    pub(super) fn push(&mut self, pages: &mut [u8]) -> io::Result<()> {
        for page in pages.chunks_exact_mut(self.page) {
            let used = used(page);
            if used == HEADER {
                continue;
            }
            page[used..].fill(0);
            let place = self.pushed % self.pages_max * self.page as u64;
            self.file.write_all_at(page, place)?;
            self.pushed += 1;
        }
        Ok(())
    }

    /// Returns a reader of the pages that are kept, from the oldest on. If there were older ones, the first is marked.
    pub(super) fn read(&self) -> Pages<'_> {
        Pages {
            spool: self,
            next: self.replaced(),
            page: Vec::new(),
            at: 0,
        }
    }
}

/// Returns the length of header and events of `page`.
fn used(page: &[u8]) -> usize {
    let field = page.get(8..HEADER).and_then(|bytes| bytes.try_into().ok());
    let field = u64::from_le_bytes(field.unwrap_or_default());
    let count = if field & STORED == 0 { 0 } else { 8 };
    usize::try_from(field & LENGTH).map_or(page.len(), |length| (HEADER + length + count).min(page.len()))
}

/// Reads the pages of a [`Spool`].
#[derive(Debug)]
pub(super) struct Pages<'s> {
    spool: &'s Spool,
    next: u64,
    page: Vec<u8>,
    at: usize,
}

impl Read for Pages<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.at == self.page.len() {
            if self.next == self.spool.pushed {
                return Ok(0);
            }
            self.page.resize(self.spool.page, 0);
            let place = self.next % self.spool.pages_max * self.spool.page as u64;
            self.spool.file.read_exact_at(&mut self.page, place)?;
            if self.next > 0 && self.next == self.spool.replaced() {
                mark_missed(&mut self.page);
            }
            self.at = 0;
            self.next += 1;
        }
        let length = into.len().min(self.page.len() - self.at);
        into[..length].copy_from_slice(&self.page[self.at..self.at + length]);
        self.at += length;
        Ok(length)
    }
}
