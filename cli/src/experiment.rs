//! From what the user calls an experiment to its results.

use std::fmt;
use std::fs;
use std::num::NonZeroUsize;

use holdfast_lab::collect;
use holdfast_lab::diagnostic::one_of;
use holdfast_lab::experiment::Experiment;
use holdfast_lab::plan::{Options, Plan};
use holdfast_lab::results::Results;
use holdfast_lab::run::{self, Execution, Outcomes};
use holdfast_lab::shipped::{self, EXPERIMENTS, MACHINES, Shipped};

use crate::args::VERSION;
use crate::progress::Bar;
use crate::signal;

/// The user named something that there is not.
#[derive(Debug)]
pub struct Unknown {
    found: String,
    expected: String,
    reason: Option<std::io::Error>,
}

impl Unknown {
    /// `name` is none of `known`.
    pub fn among<'k>(name: &str, known: impl Iterator<Item = &'k str> + Clone) -> Unknown {
        Unknown {
            found: name.to_owned(),
            expected: one_of(name, known),
            reason: None,
        }
    }

    /// `found` is not what was `expected`.
    pub fn instead(found: impl Into<String>, expected: impl Into<String>) -> Unknown {
        Unknown {
            found: found.into(),
            expected: expected.into(),
            reason: None,
        }
    }

    /// The file `name` cannot be read.
    pub fn unreadable(name: &str, reason: std::io::Error) -> Unknown {
        Unknown {
            found: name.to_owned(),
            expected: String::new(),
            reason: Some(reason),
        }
    }

    /// Nothing shipped is called `name`.
    pub fn nothing_shipped(name: &str) -> Unknown {
        Unknown::among(name, EXPERIMENTS.iter().chain(MACHINES).map(|shipped| shipped.name))
    }
}

/// All names of `files`.
fn names(files: &[&[Shipped]]) -> String {
    let names: Vec<&str> = files.iter().copied().flatten().map(|shipped| shipped.name).collect();
    format!("one of {}", names.join(", "))
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.reason {
            Some(error) => write!(f, "{}: cannot read it: {error}", self.found),
            None => write!(f, "found {:?}, expected {}", self.found, self.expected),
        }
    }
}

impl std::error::Error for Unknown {}

/// Reads the experiment called `target`: a shipped name, or a file.
pub fn load(target: &str) -> anyhow::Result<Experiment> {
    if let Some(shipped) = shipped::find(EXPERIMENTS, target) {
        return Ok(Experiment::parse(shipped.file, shipped.text)?);
    }
    let text = match fs::read_to_string(target) {
        Ok(text) => text,
        Err(error) => {
            // A bare word was meant as a name: that there is no such file would mislead.
            let is_file = target.ends_with(".toml") || target.contains('/');
            let reason = is_file.then_some(error);
            let expected = format!("{}, or a TOML file", names(&[EXPERIMENTS]));
            return Err(Unknown {
                found: target.to_owned(),
                expected,
                reason,
            }
            .into());
        }
    };
    Ok(Experiment::parse(target, &text)?)
}

/// The plan for `target`.
pub fn plan(target: &str, options: &Options) -> anyhow::Result<Plan> {
    Ok(Plan::new(load(target)?, options)?)
}

/// Runs `plan` in virtual time, with progress on a terminal; Ctrl-C ends it early.
pub fn execute(plan: &Plan, jobs: NonZeroUsize) -> anyhow::Result<Outcomes> {
    let call_off = signal::call_off()?;
    let bar = Bar::new(plan);
    let outcomes = run::run(
        plan,
        Execution {
            runner: &run::simulate,
            jobs,
            call_off,
            progress: &|done| bar.step(done),
        },
    );
    bar.finish();
    Ok(outcomes)
}

/// Plans and runs `target`.
pub fn results(target: &str, options: &Options, jobs: NonZeroUsize) -> anyhow::Result<Results> {
    let plan = plan(target, options)?;
    let outcomes = execute(&plan, jobs)?;
    Ok(collect::results(&plan, &outcomes, target, VERSION))
}
