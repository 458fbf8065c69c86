//! Where a lock was taken.

use std::backtrace::Backtrace;
use std::fmt;
use std::sync::Arc;

/// The stack of a thread at the moment when it took a lock. It is looked up in the program's symbols when it is shown.
#[derive(Clone, Debug)]
pub struct Stack(Arc<Backtrace>);

impl Stack {
    pub(super) fn here() -> Self {
        Stack(Arc::new(Backtrace::force_capture()))
    }
}

/// Functions above the caller of a lock, and below the body of a thread.
const OURS: [&str; 5] = [
    "std::backtrace",
    "holdfast::check",
    "lock_api::",
    "CheckedMutex",
    "CheckedRwLock",
];
const BELOW: &str = "__rust_begin_short_backtrace";

/// Shows the functions between the thread's body and the call of the lock.
impl fmt::Display for Stack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.0.to_string();
        // A line with a number and the function, then perhaps one with its place.
        let mut frames: Vec<Vec<&str>> = Vec::new();
        for line in text.lines() {
            let begins = line
                .split_once(": ")
                .is_some_and(|(number, _)| number.trim().parse::<u32>().is_ok());
            match frames.last_mut() {
                Some(frame) if !begins => frame.push(line.trim()),
                _ => frames.push(vec![
                    line.split_once(": ").map_or(line, |(_, function)| function).trim(),
                ]),
            }
        }
        let ours = |frame: &Vec<&str>| OURS.iter().any(|ours| frame[0].contains(ours));
        let begin = frames.iter().rposition(ours).map_or(0, |last| last + 1);
        for frame in frames[begin..].iter().take_while(|frame| !frame[0].contains(BELOW)) {
            writeln!(f, "    {}", frame.join(" "))?;
        }
        Ok(())
    }
}
