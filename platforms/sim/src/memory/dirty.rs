//! Which pages a guest has written since a round of a migration began.
//!
//! Pages are counted, not stored, as in the guest kernel. What counts is what the guest does:
//!
//! - **A page that the kernel takes** is written. Freed pages are taken again first, and the last freed before others,
//!   so the pages that were taken since the round began are those between the lowest and the highest number of pages in
//!   use.
//! - **User code** writes to its address space's anonymous pages. How many in a given time was counted for a compiler
//!   ([`WRITTEN`]). No address space has more written pages than pages.
//!
//! The kernel's own data are left out: some hundred pages, for any guest.

use holdfast_machine::Picos;

/// Pages in a buffer of the hardware's page log (Intel's PML).
pub const LOG_ENTRIES: u32 = 512;

/// Distinct pages of 4 KiB that a compiler writes to in so many instructions: gcc 12 (`cc1 -O2`) on 2391 lines of
/// preprocessed C, its first 60 million instructions, means over all windows of that length (valgrind's lackey). One
/// instruction takes a cycle. `docs/spec/costs.md`, Written pages.
const WRITTEN: [(u64, u64); 8] = [
    (0, 0),
    (30_000, 35),
    (100_000, 53),
    (300_000, 77),
    (1_000_000, 124),
    (3_000_000, 211),
    (10_000_000, 414),
    (30_000_000, 844),
];

/// Picoseconds in a second.
const PICOS_PER_SECOND: u128 = 1_000_000_000_000;

/// How a host learns which pages a guest writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirtyLog {
    /// Pages are write-protected: the first write to each exits.
    WriteProtection,
    /// The hardware writes the addresses of such pages to a buffer, and exits when it is full.
    Hardware,
}

/// The pages of a guest.
#[derive(Debug, Default)]
pub struct Pages {
    spaces: Vec<Space>,
    /// Anonymous pages in use.
    in_use: u32,
    /// Most pages that were in use at the same time: those that were ever touched.
    touched: u32,
    /// The lowest and the highest number of pages in use with which a page was taken in this round.
    taken: Option<(u32, u32)>,
    /// Pages that were written in this round.
    written: u64,
    /// Further pages that the guest wrote in this round, since it is said to write more than its workload does.
    further: u64,
    /// Pages that it was to write in this round, in pages times picoseconds per second.
    wanted: u128,
}

#[derive(Clone, Copy, Debug, Default)]
struct Space {
    pages: u32,
    /// Pages that were written in this round, and are in use.
    written: u32,
    /// Cycles for which user code ran in this round.
    ran: u64,
}

/// Distinct pages that user code writes to in so many cycles. Beyond the table, the last step goes on.
fn written_in(cycles: u64) -> u64 {
    let next = WRITTEN.iter().position(|(until, _)| cycles < *until);
    let next = next.unwrap_or(WRITTEN.len() - 1);
    let ((from, low), (until, high)) = (WRITTEN[next - 1], WRITTEN[next]);
    let more = u128::from(cycles - from) * u128::from(high - low) / u128::from(until - from);
    low + u64::try_from(more).unwrap_or(u64::MAX - low)
}

impl Pages {
    fn at(&mut self, space: u32) -> &mut Space {
        let index = space as usize;
        if index >= self.spaces.len() {
            self.spaces.resize(index + 1, Space::default());
        }
        &mut self.spaces[index]
    }

    /// Number of pages that were ever touched.
    pub fn touched(&self) -> u64 {
        u64::from(self.touched)
    }

    /// The kernel takes a page for `space`, which has `pages` then. `in_use` are in use in the whole guest. Returns
    /// whether the page was not written before in this round.
    pub fn take(&mut self, space: u32, pages: u32, in_use: u32) -> bool {
        self.in_use = in_use;
        self.touched = self.touched.max(in_use);
        let space = self.at(space);
        space.pages = pages;
        space.written = (space.written + 1).min(pages);
        let is_new = self.taken.is_none_or(|(low, high)| in_use < low || in_use > high);
        let (low, high) = self.taken.unwrap_or((in_use, in_use));
        self.taken = Some((low.min(in_use), high.max(in_use)));
        self.written += u64::from(is_new);
        is_new
    }

    /// The kernel frees pages of `space`, which has `pages` left.
    pub fn free(&mut self, space: u32, pages: u32) {
        let space = self.at(space);
        let freed = space.pages.saturating_sub(pages);
        space.pages = pages;
        space.written = space.written.min(pages);
        self.in_use = self.in_use.saturating_sub(freed);
    }

    /// User code of `space` runs for `cycles`. Returns how many pages it writes to that were not written before in this
    /// round.
    pub fn compute(&mut self, space: u32, cycles: u64) -> u32 {
        let space = self.at(space);
        space.ran += cycles;
        let all = written_in(space.ran).min(u64::from(space.pages)) as u32;
        let new = all.saturating_sub(space.written);
        space.written += new;
        self.written += u64::from(new);
        new
    }

    /// One of the guest's `vcpus` vCPUs runs user code for `span` of a guest that writes `rate` pages per second, of
    /// `all` pages. Returns how many of them are first written in this round, and not by the workload itself.
    pub fn write_at(&mut self, rate: u64, vcpus: u32, span: Picos, all: u64) -> u32 {
        self.wanted += u128::from(rate) * u128::from(span.0) / u128::from(vcpus.max(1));
        let wanted = u64::try_from(self.wanted / PICOS_PER_SECOND)
            .unwrap_or(u64::MAX)
            .min(all);
        let new = wanted.saturating_sub(self.written + self.further);
        self.further += new;
        u32::try_from(new).unwrap_or(u32::MAX)
    }

    /// Begins a round. Returns how many pages were written in the last one.
    pub fn begin_round(&mut self) -> u64 {
        for space in &mut self.spaces {
            (space.written, space.ran) = (0, 0);
        }
        self.taken = None;
        (self.further, self.wanted) = (0, 0);
        std::mem::take(&mut self.written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_pages_grow_with_time_and_less_than_it() {
        assert_eq!(written_in(0), 0);
        for pair in WRITTEN.windows(2) {
            assert_eq!(written_in(pair[1].0), pair[1].1);
            let middle = (pair[0].0 + pair[1].0) / 2;
            assert!((pair[0].1..=pair[1].1).contains(&written_in(middle)));
        }
        assert_eq!(written_in(50_000_000), 844 + 430);
        assert!(written_in(u64::MAX) > 844);
    }

    #[test]
    fn a_space_has_no_more_written_pages_than_pages() {
        let mut pages = Pages::default();
        for count in 1..=10 {
            assert!(pages.take(3, count, count));
        }
        assert_eq!(pages.compute(3, 100_000_000), 0);
        assert_eq!(pages.begin_round(), 10);
        assert_eq!(pages.compute(3, 100_000_000), 10);
        assert_eq!(pages.compute(3, 100_000_000), 0);
        assert_eq!(pages.begin_round(), 10);
    }

    #[test]
    fn a_guest_writes_at_its_rate_and_what_its_workload_writes_counts() {
        let mut pages = Pages::default();
        let ms = Picos::from_nanos(1_000_000);
        // 4000 pages a second, from four vCPUs: one in a millisecond from each.
        let written: u32 = (0..10).map(|_| pages.write_at(4_000, 4, ms, 1_000)).sum();
        assert_eq!(written, 10);
        for count in 1..=5 {
            pages.take(0, count, count);
        }
        assert_eq!((0..7).map(|_| pages.write_at(4_000, 4, ms, 1_000)).sum::<u32>(), 2);
        assert_eq!(pages.write_at(4_000_000, 1, ms, 20), 3, "no more than there are");
        assert_eq!(pages.begin_round(), 5, "what the workload wrote");
        assert_eq!(pages.write_at(4_000, 4, ms, 1_000), 1);
    }

    #[test]
    fn a_page_that_is_freed_and_taken_again_is_sent_once() {
        let mut pages = Pages::default();
        for _ in 0..5 {
            for count in 1..=10 {
                pages.take(0, count, count);
            }
            pages.free(0, 0);
        }
        assert_eq!(pages.begin_round(), 10);
        assert_eq!(pages.touched(), 10);
        assert!(pages.take(0, 1, 1));
        assert_eq!(pages.begin_round(), 1);
    }
}
