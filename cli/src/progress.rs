//! Progress, on a terminal only.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use holdfast_lab::plan::Plan;
use holdfast_lab::run::Progress;
use indicatif::{ProgressBar, ProgressStyle};

/// A progress bar on standard error; nothing where that is no terminal.
pub struct Bar {
    bar: ProgressBar,
    failed: AtomicU64,
}

impl Bar {
    /// For all runs of `plan`.
    pub fn new(plan: &Plan) -> Bar {
        let bar = ProgressBar::new(plan.runs() as u64);
        let style = ProgressStyle::with_template("{bar:30} {pos}/{len} runs  {elapsed} (about {eta} left)  {msg}");
        bar.set_style(style.expect("a valid template").progress_chars("=> "));
        bar.set_message(plan.experiment.name.clone());
        // The clock goes on while a long run does not.
        bar.enable_steady_tick(Duration::from_millis(500));
        Bar {
            bar,
            failed: AtomicU64::new(0),
        }
    }

    /// A run came to its end.
    pub fn step(&self, done: Progress<'_>) {
        let failed = self
            .failed
            .fetch_add(u64::from(done.outcome.is_err()), Ordering::Relaxed);
        let failed = failed + u64::from(done.outcome.is_err());
        let failures = if failed > 0 {
            format!(", {failed} failed")
        } else {
            String::new()
        };
        self.bar
            .set_message(format!("{} / {}{failures}", done.cell.case, done.cell.variant));
        self.bar.inc(1);
    }

    /// Takes the bar away.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
