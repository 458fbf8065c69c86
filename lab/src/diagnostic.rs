//! What is wrong with an input file: where, which key, what was found and what was expected.

use std::fmt;
use std::sync::Arc;

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// File as the user named it, or the command-line option.
    pub file: Arc<str>,
    /// Line, from 1; 0 where the source has no lines (a command-line option).
    pub line: usize,
}

impl Place {
    /// A place in `file`.
    pub fn new(file: &Arc<str>, line: usize) -> Place {
        Place {
            file: Arc::clone(file),
            line,
        }
    }

    /// A source without lines, such as a command-line option.
    pub fn whole(file: &str) -> Place {
        Place {
            file: file.into(),
            line: 0,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}", self.file),
            line => write!(f, "{}:{line}", self.file),
        }
    }
}

/// One thing that is wrong with an input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Location of the value.
    pub place: Place,
    /// The key, as a full path; empty where the text as a whole is meant.
    pub key: String,
    /// What was found there.
    pub found: String,
    /// What was expected instead.
    pub expected: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.place)?;
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        write!(f, "found {}, expected {}", self.found, self.expected)
    }
}

/// Everything that is wrong with an input, in the order of its lines; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems(pub Vec<Problem>);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

impl From<Problem> for Problems {
    fn from(problem: Problem) -> Problems {
        Problems(vec![problem])
    }
}

/// Gathers problems, so that one reading of a file reports them all.
#[derive(Debug, Default)]
pub(crate) struct Findings(Vec<Problem>);

impl Findings {
    /// Notes a problem.
    pub(crate) fn add(
        &mut self,
        place: &Place,
        key: impl Into<String>,
        found: impl Into<String>,
        expected: impl Into<String>,
    ) {
        self.0.push(Problem {
            place: place.clone(),
            key: key.into(),
            found: found.into(),
            expected: expected.into(),
        });
    }

    /// Notes problems that were found elsewhere.
    pub(crate) fn extend(&mut self, problems: Problems) {
        self.0.extend(problems.0);
    }

    /// How many problems were found so far.
    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// `value` if nothing was found wrong.
    pub(crate) fn conclude<T>(mut self, value: T) -> Result<T, Problems> {
        if self.0.is_empty() {
            return Ok(value);
        }
        self.0.sort_by_key(|problem| problem.place.line);
        // The same mistake shows in every cell of a plan.
        let mut unique: Vec<Problem> = Vec::new();
        for problem in self.0 {
            if !unique.contains(&problem) {
                unique.push(problem);
            }
        }
        Err(Problems(unique))
    }
}

/// Of `known`, the one that was probably meant by `word`.
pub(crate) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let score = |candidate: &str| strsim::jaro_winkler(word, candidate);
    known
        .into_iter()
        .map(|candidate| (score(candidate), candidate))
        .filter(|(score, _)| *score > 0.8)
        // Equal scores: the first in the table wins, so that a message never depends on anything else.
        .reduce(|best, next| if next.0 > best.0 { next } else { best })
        .map(|(_, candidate)| candidate)
}

/// "one of a, b, c", with what was probably meant.
pub fn one_of<'a>(word: &str, known: impl IntoIterator<Item = &'a str> + Clone) -> String {
    let all: Vec<&str> = known.clone().into_iter().collect();
    let mut text = format!("one of {}", all.join(", "));
    if let Some(meant) = nearest(word, known) {
        text.push_str(&format!("; did you mean \"{meant}\"?"));
    }
    text
}
