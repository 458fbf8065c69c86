//! Progress on standard error: a bar on a capable terminal, elsewhere a plain line now and then.

use std::borrow::Cow;
use std::fs;
use std::io::{self, IsTerminal as _};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use holdfast_lab::plan::Plan;
use holdfast_lab::run::{CallOff, Progress};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::output::{is_quiet, say};

/// Progress of some work.
pub struct Bar {
    shown: Shown,
    failed: AtomicU64,
}

enum Shown {
    Nothing,
    Drawn(ProgressBar),
    Plain(Mutex<Plain>),
}

impl Bar {
    /// Creates the progress of work that is counted in `what`.
    pub fn counted(what: &'static str) -> Bar {
        let style = format!("{{bar:30}} {{pos}}/{{len}} {what}  {{elapsed}} (about {{eta}} left)  {{msg}}{{prefix}}");
        Bar::new(what, &style)
    }

    /// Creates the progress of work whose amount is not known.
    pub fn uncounted(what: &'static str) -> Bar {
        Bar::new(what, &format!("{{spinner}} {what}: {{msg}}"))
    }

    fn new(what: &'static str, style: &str) -> Bar {
        let device = fs::read_link("/proc/self/fd/2").ok();
        let drawn = io::stderr().is_terminal() && can_draw(std::env::var("TERM").ok().as_deref(), device.as_deref());
        let shown = if is_quiet() {
            Shown::Nothing
        } else if drawn {
            let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
            let style = ProgressStyle::with_template(style);
            bar.set_style(style.expect("a valid template").progress_chars("=> "));
            // The clock continues during a long step.
            bar.enable_steady_tick(Duration::from_millis(500));
            Shown::Drawn(bar)
        } else {
            Shown::Plain(Mutex::new(Plain::new(what)))
        };
        Bar {
            shown,
            failed: AtomicU64::new(0),
        }
    }

    /// Creates the progress of all runs of `plan`.
    pub fn of(plan: &Plan) -> Bar {
        let bar = Bar::counted("runs");
        bar.at(0, plan.runs() as u64, plan.experiment.name.clone());
        bar
    }

    /// Reports the end of a run.
    pub fn step(&self, done: Progress<'_>) {
        let failure = u64::from(done.outcome.is_err());
        let failed = self.failed.fetch_add(failure, Ordering::Relaxed) + failure;
        let failures = match failed {
            0 => String::new(),
            _ => format!(", {failed} failed"),
        };
        let message = format!("{} / {}{failures}", done.cell.case, done.cell.variant);
        self.at(done.done as u64, done.total as u64, message);
    }

    /// Reports that `done` of `total` steps are done. `message`: the last or next step. A `total` of 0 is unknown.
    pub fn at<'m>(&self, done: u64, total: u64, message: impl Into<Cow<'m, str>>) {
        let message = message.into();
        match &self.shown {
            Shown::Nothing => {}
            Shown::Drawn(bar) => {
                bar.set_length(total);
                bar.set_position(done);
                bar.set_message(message.into_owned());
            }
            Shown::Plain(plain) => {
                let mut plain = plain.lock().unwrap_or_else(PoisonError::into_inner);
                let elapsed = plain.begun.elapsed();
                plain.last = (done, total, message.clone().into_owned());
                if let Some(line) = plain.line(elapsed, done, total, &message) {
                    say!("{line}");
                }
            }
        }
    }

    /// Does `work`, which reports its steps, and removes the bar. Long steps get lines of progress too, with the
    /// virtual time that the runs of `call_off` have simulated.
    pub fn while_beating<T>(&self, call_off: &CallOff, work: impl FnOnce() -> T) -> T {
        let (ended, wait) = mpsc::channel::<()>();
        let done = thread::scope(|scope| {
            scope.spawn(move || {
                while wait.recv_timeout(BEAT) == Err(mpsc::RecvTimeoutError::Timeout) {
                    self.beat(call_off.passed_ns());
                }
            });
            let done = work();
            drop(ended);
            done
        });
        self.finish();
        done
    }

    /// Shows the virtual time that has passed, on a plain line with the last step if a line is due.
    fn beat(&self, passed_ns: u64) {
        let passed = passed(passed_ns);
        match &self.shown {
            Shown::Nothing => {}
            Shown::Drawn(bar) => bar.set_prefix(passed),
            Shown::Plain(plain) => {
                let mut plain = plain.lock().unwrap_or_else(PoisonError::into_inner);
                let elapsed = plain.begun.elapsed();
                let (done, total, message) = plain.last.clone();
                if let Some(line) = plain.line(elapsed, done, total, &message) {
                    say!("{line}{passed}");
                }
            }
        }
    }

    /// Removes the bar.
    pub fn finish(&self) {
        if let Shown::Drawn(bar) = &self.shown {
            bar.finish_and_clear();
        }
    }
}

/// Returns whether a terminal of type `term` on `device` can redraw a line, and fast enough. Serial lines send every
/// frame of a bar, and their receivers often keep all of them.
fn can_draw(term: Option<&str>, device: Option<&Path>) -> bool {
    if matches!(term, None | Some("" | "dumb" | "unknown" | "serial")) {
        return false;
    }
    const SERIAL: [&str; 5] = ["/dev/console", "/dev/ttyS", "/dev/ttyAMA", "/dev/ttyUSB", "/dev/hvc"];
    let device = device.map_or(Cow::Borrowed(""), Path::to_string_lossy);
    !SERIAL.iter().any(|line| device.starts_with(line))
}

/// Plain lines of progress: none for short work, and fewer and fewer for long work.
struct Plain {
    what: &'static str,
    begun: Instant,
    next: Duration,
    /// The last step: how many are done, of how many, and which.
    last: (u64, u64, String),
}

/// Time between two looks whether a line is due.
const BEAT: Duration = Duration::from_secs(1);

/// Time before the first line.
const FIRST: Duration = Duration::from_secs(10);

impl Plain {
    fn new(what: &'static str) -> Plain {
        Plain {
            what,
            begun: Instant::now(),
            next: FIRST,
            last: (0, 0, String::new()),
        }
    }

    /// Returns the line at `elapsed` after the start, if one is due.
    fn line(&mut self, elapsed: Duration, done: u64, total: u64, message: &str) -> Option<String> {
        if elapsed < self.next {
            return None;
        }
        self.next = (elapsed * 3 / 2).max(elapsed + FIRST);
        let took = seconds(elapsed);
        if total == 0 {
            return Some(format!("{}: {message}, {took}", self.what));
        }
        let left = match done {
            0 => String::new(),
            done => {
                let left = elapsed.as_secs_f64() / done as f64 * total.saturating_sub(done) as f64;
                format!(" (about {} left)", seconds(Duration::from_secs_f64(left.min(1e9))))
            }
        };
        Some(format!("{done} of {total} {}, {took}{left}: {message}", self.what))
    }
}

/// Returns what a line of progress says of `passed_ns` nanoseconds of virtual time: nothing below a second.
fn passed(passed_ns: u64) -> String {
    match passed_ns / 1_000_000_000 {
        0 => String::new(),
        passed => format!(", {passed} s of virtual time"),
    }
}

/// Returns whole seconds, minutes or hours.
fn seconds(span: Duration) -> String {
    match span.as_secs() {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_for_terminals_that_draw() {
        let terminal = Some(Path::new("/dev/pts/3"));
        assert!(can_draw(Some("xterm-256color"), terminal) && can_draw(Some("linux"), Some(Path::new("/dev/tty1"))));
        for (term, device) in [
            (None, "/dev/pts/3"),
            (Some("dumb"), "/dev/pts/3"),
            (Some("linux"), "/dev/console"),
            (Some("vt220"), "/dev/ttyS0"),
            (Some("vt220"), "/dev/hvc0"),
        ] {
            assert!(!can_draw(term, Some(Path::new(device))), "{term:?} {device}");
        }
    }

    #[test]
    fn plain_lines_are_few_and_short_work_has_none() {
        let lines = |lasts: u64| -> Vec<String> {
            let mut plain = Plain::new("runs");
            let steps = (1..=lasts * 10).map(|done| (Duration::from_millis(done * 100), done));
            steps
                .filter_map(|(elapsed, done)| plain.line(elapsed, done, lasts * 10, "2x / ticket"))
                .collect()
        };
        assert_eq!(lines(9), [""; 0]);
        assert_eq!(lines(12), ["100 of 120 runs, 10 s (about 2 s left): 2x / ticket"]);
        let hour = lines(3600);
        assert!((8..=16).contains(&hour.len()), "{hour:#?}");
        assert!(lines(100_000).len() <= 24);
    }

    #[test]
    fn work_without_end_says_what_it_does() {
        let mut plain = Plain::new("calibrating");
        assert_eq!(plain.line(Duration::from_secs(9), 0, 0, "kicks"), None);
        let line = plain.line(Duration::from_secs(200), 0, 0, "kicks");
        assert_eq!(line.as_deref(), Some("calibrating: kicks, 3 min"));
    }
    #[test]
    fn virtual_time_is_shown_once_a_second_has_passed() {
        assert_eq!(passed(999_999_999), "");
        assert_eq!(passed(61_500_000_000), ", 61 s of virtual time");
    }
}
