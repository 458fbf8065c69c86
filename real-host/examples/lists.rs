//! Two lists of a kernel's memory management on two cores of this machine: how long a section takes whose data another
//! CPU has changed, next to what guests in virtual time wait for these lines.
//!
//! ```text
//! cargo run --release -p holdfast-real-host --example lists
//! ```
//!
//! The lists are those under Linux's LRU and zone locks, without the locks: two threads take turns. A page is a cache
//! line (`struct page` has 64 bytes). Times are means of the middle half, less what reading the clock takes. The model
//! of a section is its time with all lines at hand, and that of the lines which the other thread has changed, at this
//! machine's transfer time.

use std::hint::spin_loop;
use std::sync::Barrier;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicU32, fence};
use std::thread;
use std::time::Instant;

use holdfast_machine::overlapped;
use holdfast_peers::affinity;

/// Pages of a batch for the LRU lists (`PAGEVEC_SIZE` until 4.15), and of one of the zone's (`pcp->batch`).
const LRU_BATCH: usize = 14;
const ZONE_BATCH: usize = 31;
/// Turns in a round, and rounds. Each round begins with empty lists.
const TURNS: usize = 200;
const ROUNDS: usize = 50;
/// No page.
const NONE: u32 = u32::MAX;

/// A cache line.
#[derive(Default)]
#[repr(align(64))]
struct Line {
    next: AtomicU32,
    prev: AtomicU32,
    /// Flags of a page, a count, or whose turn it is.
    word: AtomicU32,
}

impl Line {
    fn count(&self) {
        self.word.store(self.word.load(Relaxed).wrapping_add(1), Relaxed);
    }
}

/// What a thread's cache has of a section's data when its turn comes.
#[derive(Clone, Copy, PartialEq)]
enum Cached {
    /// All, since the thread is alone.
    All,
    /// The pages of its batch. The other thread has changed the list.
    Pages,
    /// Nothing: the other thread has changed the pages, too.
    Nothing,
}

/// What both threads share. Only the one whose turn it is touches the lists.
struct Lists {
    turn: Line,
    head: Line,
    /// The counts of the list and of the node.
    counts: [Line; 2],
    pages: Vec<Line>,
    /// The order in which pages come into batches.
    order: Vec<u32>,
}

impl Lists {
    fn new(count: usize, in_a_row: bool) -> Lists {
        let mut order: Vec<u32> = (0..count as u32).collect();
        if !in_a_row {
            shuffle(&mut order);
        }
        Lists {
            turn: Line::default(),
            head: Line::default(),
            counts: Default::default(),
            pages: (0..count).map(|_| Line::default()).collect(),
            order,
        }
    }

    fn clear(&self) {
        self.head.next.store(NONE, Relaxed);
        self.turn.word.store(0, Relaxed);
    }

    /// Waits for turn `number`.
    fn await_turn(&self, number: usize) {
        // ORDERING: Acquire pairs with the Release of `end_turn`: what the other thread has done to the lists is seen.
        while self.turn.word.load(Acquire) != number as u32 {
            spin_loop();
        }
    }

    fn end_turn(&self, number: usize) {
        self.turn.word.store(number as u32 + 1, Release);
    }

    fn page(&self, page: u32) -> &Line {
        &self.pages[page as usize]
    }

    /// The pages that turn `number` adds to the LRU list.
    fn batch(&self, number: usize) -> &[u32] {
        self.order.chunks(LRU_BATCH).nth(number).unwrap_or_default()
    }

    /// Brings pages into the cache of the caller.
    fn touch(&self, pages: &[u32]) {
        pages.iter().for_each(|&page| self.page(page).count());
    }

    /// Adds pages at the head of the LRU list, and counts them (`pagevec_lru_move_fn`).
    fn add_to_lru(&self, pages: &[u32]) {
        for &page in pages {
            let (this, first) = (self.page(page), self.head.next.load(Relaxed));
            if first != NONE {
                self.page(first).prev.store(page, Relaxed);
            }
            this.next.store(first, Relaxed);
            this.prev.store(NONE, Relaxed);
            self.head.next.store(page, Relaxed);
            this.count();
            self.counts.iter().for_each(Line::count);
        }
    }

    /// Gives a batch of pages to the zone's free list (`free_pcppages_bulk`).
    fn give(&self) {
        for &page in &self.order[..ZONE_BATCH] {
            let this = self.page(page);
            this.next.store(self.head.next.load(Relaxed), Relaxed);
            this.count();
            self.head.next.store(page, Relaxed);
        }
    }

    /// Takes a batch of pages from it (`rmqueue_bulk`).
    fn take(&self) {
        for _ in 0..ZONE_BATCH {
            let this = self.page(self.head.next.load(Relaxed));
            self.head.next.store(this.next.load(Relaxed), Relaxed);
            this.count();
        }
    }
}

/// Fisher and Yates, with a linear congruential generator (Knuth's MMIX).
fn shuffle(order: &mut [u32]) {
    let mut state: u64 = 1;
    for last in (1..order.len()).rev() {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        order.swap(last, (state >> 33) as usize % (last + 1));
    }
}

/// Returns how long `section` takes, in nanoseconds, until others see all of it.
fn time(section: impl FnOnce()) -> f64 {
    fence(SeqCst);
    let since = Instant::now();
    section();
    // ORDERING: no other thread: this one waits until its stores have left its store buffer, as the next owner of a
    // lock would.
    fence(SeqCst);
    since.elapsed().as_nanos() as f64
}

/// Returns the mean of the middle half, or NaN if there are no samples. Clocks tick every 10 ns here and there, which a
/// median would show.
fn middle(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    let half = &samples[samples.len() / 4..samples.len() - samples.len() / 4];
    half.iter().sum::<f64>() / half.len() as f64
}

/// Has `threads` threads on CPUs of their own take turns in `turn`, which gets the turn's number and may return a time.
/// Each does `prepare` before it waits for its turn. Returns the middle of the times.
fn play(
    lists: &Lists,
    threads: usize,
    prepare: impl Fn(usize) + Sync,
    turn: impl Fn(usize) -> Option<f64> + Sync,
) -> f64 {
    let barrier = Barrier::new(threads);
    let run = |role: usize| {
        affinity::pin(role);
        let mut samples = Vec::new();
        for _ in 0..ROUNDS {
            barrier.wait();
            if role == 0 {
                lists.clear();
            }
            barrier.wait();
            for number in (role..TURNS).step_by(threads) {
                prepare(number);
                lists.await_turn(number);
                samples.extend(turn(number));
                lists.end_turn(number);
            }
        }
        samples
    };
    let run = &run;
    thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|role| scope.spawn(move || run(role))).collect();
        let samples = threads
            .into_iter()
            .flat_map(|thread| thread.join().expect("it does not panic"));
        middle(samples.collect())
    })
}

impl Cached {
    fn threads(self) -> usize {
        if self == Cached::All { 1 } else { 2 }
    }
}

/// How long a batch takes onto the LRU list.
fn lru(cached: Cached, in_a_row: bool) -> f64 {
    let lists = Lists::new(LRU_BATCH * TURNS, in_a_row);
    let prepare = |number| {
        if cached != Cached::Nothing {
            lists.touch(lists.batch(number));
        }
    };
    play(&lists, cached.threads(), prepare, |number| {
        let taken = time(|| lists.add_to_lru(lists.batch(number)));
        if cached == Cached::Nothing {
            lists.touch(lists.batch(number + 1));
        }
        Some(taken)
    })
}

/// How long a batch takes off the free list, which the previous turn has filled.
fn zone(cached: Cached, in_a_row: bool) -> f64 {
    let lists = Lists::new(ZONE_BATCH * 64, in_a_row);
    play(
        &lists,
        cached.threads(),
        |_| (),
        |number| {
            let taken = (number > 0).then(|| time(|| lists.take()));
            lists.give();
            taken
        },
    )
}

/// The transfer of a line, one way: from the end of a turn to the begin of the next. The line itself brings the time of
/// the end.
fn transfer() -> f64 {
    let (lists, since) = (Lists::new(0, true), Instant::now());
    let stamp = || since.elapsed().as_nanos() as u32;
    play(
        &lists,
        2,
        |_| (),
        |number| {
            let taken = stamp().wrapping_sub(lists.turn.next.load(Relaxed));
            lists.turn.next.store(stamp(), Relaxed);
            (number > 0).then_some(f64::from(taken))
        },
    )
}

fn main() {
    let clock = middle((0..10_000).map(|_| time(|| ())).collect());
    let transfer = transfer() - clock;
    println!("a transfer takes {transfer:.0} ns, one way; reading the clock, {clock:.0}, is taken out\n");
    println!("| section | pages | lines elsewhere | ns | model | ratio |");
    println!("| --- | --- | --: | --: | --: | --: |");
    for in_a_row in [true, false] {
        let pages = if in_a_row { "in a row" } else { "in random order" };
        let row = |section: &str, lines: usize, taken: f64, model: Option<f64>| {
            let (model, ratio) = match model {
                Some(model) => (format!("{model:.0}"), format!("{:.2}", model / taken)),
                None => ("-".to_owned(), "-".to_owned()),
            };
            println!("| {section} | {pages} | {lines} | {taken:.0} | {model} | {ratio} |");
        };
        // Head, counts, and the page that was first.
        let list = 4;
        let alone = lru(Cached::All, in_a_row) - clock;
        row("14 pages of an LRU list, one thread", 0, alone, None);
        for (section, cached, lines) in [
            ("the same, the other thread had the list", Cached::Pages, list),
            ("the same, and it had the pages", Cached::Nothing, list + LRU_BATCH),
        ] {
            let waits = f64::from(overlapped(1_000 * lines as u32)) / 1_000.0;
            row(
                section,
                lines,
                lru(cached, in_a_row) - clock,
                Some(alone + transfer * waits),
            );
        }
        let alone = zone(Cached::All, in_a_row) - clock;
        row("31 pages off a free list, one thread", 0, alone, None);
        // Each page is known only from the one before: no two lines come together.
        let lines = 1 + ZONE_BATCH;
        let taken = zone(Cached::Nothing, in_a_row) - clock;
        row(
            "the same, the other thread gave them",
            lines,
            taken,
            Some(alone + transfer * lines as f64),
        );
    }
}
