//! A figure over several draws.

use serde::Serialize;

/// A figure over several draws.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Draws {
    /// The mean.
    pub mean: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

impl Draws {
    /// Returns the draws `values`, or `None` without any.
    pub fn of(values: &[f64]) -> Option<Draws> {
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let min = values.iter().copied().reduce(f64::min)?;
        let max = values.iter().copied().reduce(f64::max)?;
        Some(Draws { mean, min, max })
    }

    /// Returns the range, wider by `error` at both ends.
    #[must_use]
    pub fn wider(self, error: f64) -> Draws {
        Draws {
            min: self.min - error,
            max: self.max + error,
            ..self
        }
    }
}
