//! A value of a swept key, as a step of a name.

use serde::{Deserialize, Serialize};

/// One value of a swept key.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Swept {
    /// The key, as a path.
    pub key: String,
    /// The value.
    pub value: String,
    /// The step that it adds to the name of the case or the variant, as in `hz=250`.
    pub step: String,
}

impl Swept {
    /// Returns `name` without this step. The name of nothing but this step becomes empty.
    pub fn removed_from(&self, name: &str) -> String {
        let mut words: Vec<&str> = name.split(' ').collect();
        // Values can have spaces, as times do.
        let step: Vec<&str> = self.step.split(' ').collect();
        if let Some(at) = words.windows(step.len()).rposition(|some| some == step) {
            words.drain(at..at + step.len());
        }
        words.join(" ")
    }
}
