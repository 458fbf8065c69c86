//! A track of the timeline under construction.

use holdfast_machine::Time;

use super::Span;

/// A track under construction: its last span is still open.
#[derive(Clone, Debug)]
pub struct Open<T> {
    pub(super) spans: Vec<Span<T>>,
    /// What goes on now, and since when; `None` if nothing goes on.
    pub(super) what: Option<T>,
    pub(super) since: Time,
}

impl<T: Copy + PartialEq> Open<T> {
    /// A track with `what` from power-on.
    pub fn new(what: Option<T>) -> Self {
        Open {
            spans: Vec::new(),
            what,
            since: Time(0),
        }
    }

    /// `what` goes on from `at` on. Returns whether a span was kept; spans outside `from..to` are not.
    pub fn set(&mut self, at: Time, what: Option<T>, from: Time, to: Time) -> bool {
        if what == self.what {
            return false;
        }
        let kept = self.close(at, from, to);
        (self.what, self.since) = (what, at);
        kept
    }

    /// Returns what goes on now.
    pub fn now(&self) -> Option<T> {
        self.what
    }

    /// Joins the open span with the last closed one if the same went on without a gap.
    pub(super) fn join(&mut self) {
        if let Some(span) = self
            .spans
            .pop_if(|span| Some(span.what) == self.what && span.end == self.since)
        {
            self.since = span.start;
        }
    }

    pub(super) fn close(&mut self, at: Time, from: Time, to: Time) -> bool {
        let (start, end) = (self.since.max(from), at.min(to));
        match self.what {
            Some(what) if start < end => {
                self.spans.push(Span { start, end, what });
                true
            }
            _ => false,
        }
    }

    /// Returns all spans, the last one up to `at`. Spans outside `from..to` are not kept.
    pub fn finish(&mut self, at: Time, from: Time, to: Time) -> Vec<Span<T>> {
        self.close(at, from, to);
        // A recording that became too large ended before the last spans that it has.
        self.spans.retain(|span| span.start < to);
        self.spans.iter_mut().for_each(|span| span.end = span.end.min(to));
        std::mem::take(&mut self.spans)
    }
}
