//! A host task that computes and sleeps.

use holdfast_machine::Picos;
use holdfast_workloads::stream_seed;

/// A host task that alternates between computing and sleeping.
#[derive(Clone, Debug)]
pub struct Task {
    /// Its name in timelines.
    pub name: String,
    /// CPU time between two sleeps; `None` if it never sleeps.
    pub busy: Option<Picos>,
    /// Length of a sleep, or its mean.
    pub sleep: Picos,
    /// Which sleeps are drawn.
    pub drawn: Drawn,
    /// CPU time until its next sleep.
    pub remaining: Picos,
}

/// Which sleeps of a task have a random length: from 0 to twice the mean.
#[derive(Clone, Copy, Debug)]
pub enum Drawn {
    /// No sleep.
    Never,
    /// The first sleep, by a stream in this state.
    First(u64),
    /// Each sleep.
    Always(u64),
}

impl Task {
    /// Returns the length of the sleep that follows its computing time, which is over.
    pub fn rest(&mut self) -> Picos {
        self.remaining = self.busy.unwrap_or(Picos(u64::MAX));
        let (Drawn::First(random) | Drawn::Always(random)) = self.drawn else {
            return self.sleep;
        };
        let random = stream_seed(random, 0, "sleep");
        self.drawn = match self.drawn {
            Drawn::Always(_) => Drawn::Always(random),
            Drawn::First(_) | Drawn::Never => Drawn::Never,
        };
        Picos(((u128::from(self.sleep.0) * u128::from(random)) >> 63) as u64)
    }
}
