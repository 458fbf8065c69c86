//! Mistakes in an input file: place, key, what was found and what was expected.

use std::fmt;
use std::sync::Arc;

/// Origin of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// File as the user named it, or the command-line option.
    pub file: Arc<str>,
    /// Line, from 1; 0 where the source has no lines (a command-line option).
    pub line: usize,
}

impl Place {
    /// Returns a place in `file`.
    pub fn new(file: &Arc<str>, line: usize) -> Place {
        Place {
            file: Arc::clone(file),
            line,
        }
    }

    /// Returns a place without lines, such as a command-line option.
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

/// A mistake in an input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Location of the value.
    pub place: Place,
    /// The key as a full path; empty if the whole text is meant.
    pub key: String,
    /// The value that was found.
    pub found: String,
    /// The value that was expected.
    pub expected: String,
}

impl Problem {
    /// Returns a problem of the whole text or option at `place`.
    pub fn new(place: &Place, found: impl Into<String>, expected: impl Into<String>) -> Problem {
        Problem {
            place: place.clone(),
            key: String::new(),
            found: found.into(),
            expected: expected.into(),
        }
    }
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

/// All mistakes in an input, in the order of its lines; never empty.
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

/// Collects mistakes, so that one reading of a file reports them all.
#[derive(Debug, Default)]
pub(crate) struct Findings(Vec<Problem>);

impl Findings {
    /// Adds a problem.
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

    /// Adds problems that were found elsewhere.
    pub(crate) fn extend(&mut self, problems: Problems) {
        self.0.extend(problems.0);
    }

    /// Returns the number of problems found so far.
    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// Returns `value` if there are no problems.
    pub(crate) fn conclude<T>(mut self, value: T) -> Result<T, Problems> {
        if self.0.is_empty() {
            return Ok(value);
        }
        self.0.sort_by_key(|problem| problem.place.line);
        // The same mistake occurs in every cell of a plan.
        let mut unique: Vec<Problem> = Vec::new();
        for problem in self.0 {
            if !unique.contains(&problem) {
                unique.push(problem);
            }
        }
        Err(Problems(unique))
    }
}

/// Mistakes in keys. Each is reported at the place where its key was set.
pub(crate) struct KeyFindings<'f> {
    place: &'f dyn Fn(&str) -> Place,
    findings: &'f mut Findings,
}

impl<'f> KeyFindings<'f> {
    /// Collects into `findings`. `place` returns the place where a key was set.
    pub(crate) fn new(place: &'f dyn Fn(&str) -> Place, findings: &'f mut Findings) -> KeyFindings<'f> {
        KeyFindings { place, findings }
    }

    /// Returns the place where `key` was set.
    pub(crate) fn place(&self, key: &str) -> Place {
        (self.place)(key)
    }

    /// Adds a problem of `key`.
    pub(crate) fn add(&mut self, key: &str, found: impl Into<String>, expected: impl Into<String>) {
        self.add_at(key, key, found, expected);
    }

    /// Adds a problem of `key` at the place where the key `at` was set.
    pub(crate) fn add_at(&mut self, at: &str, key: &str, found: impl Into<String>, expected: impl Into<String>) {
        self.findings.add(&(self.place)(at), key, found, expected);
    }

    /// Returns the number of problems found so far.
    pub(crate) fn count(&self) -> usize {
        self.findings.count()
    }
}

/// Returns the name among `known` that `word` probably stands for, if any.
pub(crate) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let score = |candidate: &str| strsim::jaro_winkler(word, candidate);
    known
        .into_iter()
        .map(|candidate| (score(candidate), candidate))
        .filter(|(score, _)| *score > 0.8)
        // Of equal scores the first in the table wins, so that messages are deterministic.
        .reduce(|best, next| if next.0 > best.0 { next } else { best })
        .map(|(_, candidate)| candidate)
}

/// Returns "one of a, b, c", with a suggestion if a name is similar to the word.
pub fn one_of<'a>(word: &str, known: impl IntoIterator<Item = &'a str> + Clone) -> String {
    let all: Vec<&str> = known.clone().into_iter().collect();
    let mut text = format!("one of {}", all.join(", "));
    if let Some(meant) = nearest(word, known) {
        text.push_str(&format!("; did you mean \"{meant}\"?"));
    }
    text
}
