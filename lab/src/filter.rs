//! A part of results: some cases, variants and guests.

use crate::diagnostic::{Place, Problem, Problems, one_of};
use crate::results::Results;

/// Names of what is kept. An empty list keeps all.
///
/// A word stands for the name that equals it. Without such a name it stands for all names that begin with it, so that
/// `2x` keeps all swept values of that case, and `builder` all identical guests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Names of cases.
    pub cases: Vec<String>,
    /// Names of variants.
    pub variants: Vec<String>,
    /// Names of guests.
    pub guests: Vec<String>,
}

/// The names of one kind that are kept; all without any.
struct Kept(Option<Vec<String>>);

impl Kept {
    /// Finds the names that `words` stand for. `option`: where the words come from.
    fn of(option: &str, words: &[String], known: &[&str]) -> Result<Kept, Problem> {
        if words.is_empty() {
            return Ok(Kept(None));
        }
        let mut kept = Vec::new();
        for word in words {
            let equal = known.contains(&word.as_str());
            let meant = |name: &&&str| {
                if equal {
                    **name == word
                } else {
                    name.starts_with(word.as_str())
                }
            };
            let found: Vec<String> = known.iter().filter(meant).map(|name| (*name).to_owned()).collect();
            if found.is_empty() {
                return Err(Problem {
                    place: Place::whole(option),
                    key: String::new(),
                    found: format!("{word:?}"),
                    expected: format!("the beginning of {}", one_of(word, known.iter().copied())),
                });
            }
            kept.extend(found);
        }
        Ok(Kept(Some(kept)))
    }

    fn has(&self, name: &str) -> bool {
        self.0.as_ref().is_none_or(|kept| kept.iter().any(|kept| kept == name))
    }
}

impl Filter {
    /// Returns whether everything is kept.
    pub fn is_empty(&self) -> bool {
        *self == Filter::default()
    }

    /// Returns the part of `results` that is kept.
    ///
    /// # Errors
    /// If a word stands for nothing in `results`.
    pub fn of(&self, results: Results) -> Result<Results, Problems> {
        self.with(results, None)
    }

    /// Returns what [`Filter::of`] does, with the variant `baseline` in addition.
    ///
    /// # Errors
    /// If a word stands for nothing in `results`.
    pub fn with(&self, mut results: Results, baseline: Option<&str>) -> Result<Results, Problems> {
        if self.is_empty() {
            return Ok(results);
        }
        let one = |problem: Problem| Problems(vec![problem]);
        let measured = results.cases.iter().map(|case| case.id());
        let beside = results.background.iter();
        let beside = beside.map(|guest| (&*guest.case, &*guest.variant, &*guest.vm));
        let ids: Vec<(&str, &str, &str)> = measured.chain(beside).collect();
        let names = |name: fn(&(&str, &str, &str)) -> String| {
            let mut names: Vec<String> = Vec::new();
            for id in &ids {
                let name = name(id);
                if !names.contains(&name) {
                    names.push(name);
                }
            }
            names
        };
        let (cases, variants) = (names(|id| id.0.to_owned()), names(|id| id.1.to_owned()));
        let guests = names(|id| id.2.to_owned());
        let find = |option: &str, words: &[String], known: &[String]| {
            let known: Vec<&str> = known.iter().map(String::as_str).collect();
            Kept::of(option, words, &known).map_err(one)
        };
        let cases = find("--case", &self.cases, &cases)?;
        let variants = find("--variant", &self.variants, &variants)?;
        let guests = find("--guest", &self.guests, &guests)?;
        let cell = |case: &str, variant: &str| cases.has(case) && (variants.has(variant) || Some(variant) == baseline);
        results
            .cases
            .retain(|it| cell(&it.case, &it.variant) && guests.has(&it.vm));
        results
            .background
            .retain(|it| cell(&it.case, &it.variant) && guests.has(&it.vm));
        results.failures.retain(|it| cell(&it.case, &it.variant));
        results.totals.retain(|it| {
            let mut members = (1..=it.guests).map(|number| format!("{}-{number}", it.vm));
            cell(&it.case, &it.variant) && members.all(|member| guests.has(&member))
        });
        Ok(results)
    }
}
