//! A TOML document as a tree of nodes that know their line and path.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use toml::de::{DeTable, DeValue};

use crate::diagnostic::{Findings, Place, Problem, Problems, nearest, one_of};

/// Length limit of names that become file names. File systems accept 255 bytes, and a suffix follows the name.
const FILE_NAME_BYTES_MAX: usize = 100;

/// A value with its place.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// The value itself.
    pub value: Value,
    /// Location of the value.
    pub place: Place,
}

/// A TOML value. Dates are kept as text, since no key takes one.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// `true`, `false`.
    Bool(bool),
    /// A whole number.
    Integer(i64),
    /// A number with a fraction.
    Float(f64),
    /// A string.
    Text(String),
    /// An array.
    Array(Vec<Node>),
    /// A table, in the order of the text.
    Table(Table),
    /// The text of a value that this reader does not accept: a date, or a number out of range.
    Other(String),
}

/// The entries of a table in the order of the text, each with its full path.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// Path of the table itself; empty for the document.
    pub path: String,
    /// Keys and values.
    pub entries: Vec<(String, Node)>,
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Bool(value) => write!(f, "{value}"),
            Value::Integer(value) => write!(f, "{value}"),
            Value::Float(value) => write!(f, "{value:?}"),
            Value::Text(value) => write!(f, "{value:?}"),
            Value::Array(items) => {
                let items: Vec<String> = items.iter().map(|item| item.value.to_string()).collect();
                write!(f, "[{}]", items.join(", "))
            }
            Value::Table(table) => {
                let keys: Vec<&str> = table.entries.iter().map(|(key, _)| key.as_str()).collect();
                write!(f, "a table with {}", keys.join(", "))
            }
            Value::Other(text) => write!(f, "{text}"),
        }
    }
}

impl Node {
    /// Reads a value given outside of any file: `text` as TOML if it is valid, else as a string, so that `--set
    /// vm.0.lock=tas` needs no second pair of quotes.
    pub fn from_option(option: &str, text: &str) -> Node {
        let place = Place::whole(option);
        let source = format!("value = {text}");
        let value = match DeTable::parse(&source) {
            Ok(table) if table.get_ref().len() == 1 => table
                .get_ref()
                .get("value")
                .map(|value| convert(value.get_ref(), value.span(), "", &place.file, &Lines::default()).value),
            _ => None,
        };
        Node {
            value: value.unwrap_or_else(|| Value::Text(text.to_owned())),
            place,
        }
    }
}

/// Parses `text`. `file`: its name in messages.
///
/// # Errors
/// The first syntax error, with its line.
pub fn parse(file: &str, text: &str) -> Result<Table, Problems> {
    let file: Arc<str> = file.into();
    let lines = Lines::of(text);
    let document = DeTable::parse(text).map_err(|error| {
        let span = error.span().unwrap_or(0..0);
        let found = text
            .get(span.clone())
            .unwrap_or_default()
            .lines()
            .next()
            .unwrap_or_default();
        let found = match (found, text.get(span.start..)) {
            ("", Some(rest)) => match rest.chars().next() {
                None => "the end of the file".to_owned(),
                Some('\n' | '\r') => "the end of the line".to_owned(),
                Some(_) => format!("`{}`", rest.lines().next().unwrap_or_default().trim_end()),
            },
            ("", None) => "something else".to_owned(),
            (found, _) => format!("`{found}`"),
        };
        Problem {
            place: Place::new(&file, lines.line(span.start)),
            key: String::new(),
            found,
            expected: format!("TOML: {}", error.message()),
        }
    })?;
    match convert_table(document.get_ref(), "", &file, &lines) {
        Value::Table(table) => Ok(table),
        _ => unreachable!("a document is a table"),
    }
}

/// Line numbers of a text.
#[derive(Default)]
struct Lines {
    /// Offset of each line's first byte.
    starts: Vec<usize>,
}

impl Lines {
    fn of(text: &str) -> Lines {
        let breaks = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        Lines {
            starts: std::iter::once(0).chain(breaks.map(|(offset, _)| offset + 1)).collect(),
        }
    }

    /// Returns the line of `offset`, from 1, or 0 without a text.
    fn line(&self, offset: usize) -> usize {
        self.starts.partition_point(|start| *start <= offset)
    }
}

fn convert_table(table: &DeTable<'_>, path: &str, file: &Arc<str>, lines: &Lines) -> Value {
    let mut entries: Vec<(usize, String, Node)> = table
        .iter()
        .map(|(key, value)| {
            let name = key.get_ref().to_string();
            let path = join(path, &name);
            // The span of a table starts at its first use. The key is the better place to point at.
            let span = if value.get_ref().is_table() {
                key.span()
            } else {
                value.span()
            };
            (
                key.span().start,
                name,
                convert(value.get_ref(), span, &path, file, lines),
            )
        })
        .collect();
    // The parser sorts by key. Messages follow the order of the text.
    entries.sort_by_key(|(start, _, _)| *start);
    let entries = entries.into_iter().map(|(_, key, node)| (key, node)).collect();
    Value::Table(Table {
        path: path.to_owned(),
        entries,
    })
}

fn convert(value: &DeValue<'_>, span: Range<usize>, path: &str, file: &Arc<str>, lines: &Lines) -> Node {
    let place = Place::new(file, lines.line(span.start));
    let value = match value {
        DeValue::String(text) => Value::Text(text.to_string()),
        DeValue::Boolean(value) => Value::Bool(*value),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .map_or_else(|_| Value::Other(format!("{number}, out of range")), Value::Integer),
        DeValue::Float(number) => number
            .as_str()
            .parse()
            .map_or_else(|_| Value::Other(format!("{number}, not a number")), Value::Float),
        DeValue::Datetime(date) => Value::Other(format!("the date {date}")),
        DeValue::Array(items) => Value::Array(
            items
                .iter()
                .enumerate()
                .map(|(index, item)| {
                    let path = join(path, &index.to_string());
                    convert(item.get_ref(), item.span(), &path, file, lines)
                })
                .collect(),
        ),
        DeValue::Table(table) => convert_table(table, path, file, lines),
    };
    Node { value, place }
}

/// Returns `path.key`.
pub(crate) fn join(path: &str, key: &str) -> String {
    if path.is_empty() {
        key.to_owned()
    } else {
        format!("{path}.{key}")
    }
}

/// Reads a table key by key. Keys that are never read are reported as unknown.
pub(crate) struct Reader<'t, 'f> {
    table: &'t Table,
    place: Place,
    findings: &'f mut Findings,
    taken: Vec<&'static str>,
}

impl<'t, 'f> Reader<'t, 'f> {
    /// Creates a reader of `table` at `place`.
    pub(crate) fn new(table: &'t Table, place: Place, findings: &'f mut Findings) -> Self {
        Reader {
            table,
            place,
            findings,
            taken: Vec::new(),
        }
    }

    /// Returns the collection of problems.
    pub(crate) fn findings(&mut self) -> &mut Findings {
        self.findings
    }

    /// Returns the value of `key`, if there is one.
    pub(crate) fn optional(&mut self, key: &'static str) -> Option<&'t Node> {
        self.taken.push(key);
        self.table
            .entries
            .iter()
            .find(|(name, _)| name == key)
            .map(|(_, node)| node)
    }

    /// Returns the string at `key`, if there is one.
    pub(crate) fn optional_text(&mut self, key: &'static str) -> Option<&'t str> {
        let node = self.optional(key)?;
        match &node.value {
            Value::Text(text) => Some(text),
            other => {
                self.wrong(key, other.to_string(), "a string");
                None
            }
        }
    }

    /// Returns the string at `key`. Reports a problem if it is missing.
    pub(crate) fn text(&mut self, key: &'static str) -> Option<&'t str> {
        if !self.has(key) {
            self.missing(key, "a string");
        }
        self.optional_text(key)
    }

    /// Returns the string at `key`, which tables show: it must not be empty or contain control characters.
    pub(crate) fn shown_name(&mut self, key: &'static str) -> Option<&'t str> {
        let fit = |text: &str| !text.is_empty() && !text.contains(char::is_control);
        self.text_that(key, fit, "a name without control characters, not empty")
    }

    /// Returns the string at `key`, which becomes a file name: it must not lead to another folder.
    pub(crate) fn file_name(&mut self, key: &'static str) -> Option<&'t str> {
        let fit = |text: &str| {
            let fits = (1..=FILE_NAME_BYTES_MAX).contains(&text.len()) && !text.starts_with('.');
            fits && !text.contains(|c: char| c.is_control() || c == '/' || c == '\\')
        };
        self.text_that(
            key,
            fit,
            "a name that files can have: up to 100 bytes, no / and no dot at its beginning",
        )
    }

    fn text_that(&mut self, key: &'static str, fit: impl Fn(&str) -> bool, expected: &str) -> Option<&'t str> {
        let text = self.text(key)?;
        if !fit(text) {
            self.wrong(key, format!("{text:?}"), expected);
        }
        Some(text)
    }

    /// Returns the number at `key`, if there is one.
    pub(crate) fn optional_number(&mut self, key: &'static str) -> Option<f64> {
        let node = self.optional(key)?;
        let number = match &node.value {
            Value::Integer(number) => Some(*number as f64),
            Value::Float(number) if number.is_finite() => Some(*number),
            _ => None,
        };
        if number.is_none() {
            self.wrong(key, node.value.to_string(), "a number");
        }
        number
    }

    /// Returns the number at `key`. Reports a problem if it is missing.
    pub(crate) fn number(&mut self, key: &'static str) -> Option<f64> {
        if !self.has(key) {
            self.missing(key, "a number");
        }
        self.optional_number(key)
    }

    /// Returns `true` or `false` at `key`, or `false` if it is missing.
    pub(crate) fn flag(&mut self, key: &'static str) -> bool {
        match self.optional(key).map(|node| &node.value) {
            None => false,
            Some(Value::Bool(flag)) => *flag,
            Some(other) => {
                self.wrong(key, other.to_string(), "true or false");
                false
            }
        }
    }

    /// Returns the whole number at `key`, if there is one from `min` to `max`.
    pub(crate) fn whole(&mut self, key: &'static str, min: u32, max: u32) -> Option<u32> {
        let node = self.optional(key)?;
        let number = match &node.value {
            Value::Integer(number) => u32::try_from(*number)
                .ok()
                .filter(|number| (min..=max).contains(number)),
            _ => None,
        };
        if number.is_none() {
            let expected = format!("a whole number from {min} to {max}");
            self.wrong(key, node.value.to_string(), expected);
        }
        number
    }

    /// Returns the choice that `text`, found at `key`, names.
    pub(crate) fn choose<T: Copy>(&mut self, key: &'static str, text: &str, choices: &[(&str, T)]) -> Option<T> {
        let chosen = choices
            .iter()
            .find(|(name, _)| *name == text)
            .map(|(_, choice)| *choice);
        if chosen.is_none() {
            let expected = one_of(text, choices.iter().map(|(name, _)| *name));
            self.wrong(key, format!("{text:?}"), expected);
        }
        chosen
    }

    /// Returns the table at `key`, if there is one.
    pub(crate) fn optional_table(&mut self, key: &'static str) -> Option<(&'t Table, &'t Place)> {
        let node = self.optional(key)?;
        match &node.value {
            Value::Table(table) => Some((table, &node.place)),
            other => {
                self.wrong(key, other.to_string(), "a table");
                None
            }
        }
    }

    /// Returns the tables of the array at `key`, or none if it is missing.
    pub(crate) fn tables(&mut self, key: &'static str) -> Vec<(&'t Table, &'t Place)> {
        let Some(node) = self.optional(key) else {
            return Vec::new();
        };
        let path = join(&self.table.path, key);
        let Value::Array(items) = &node.value else {
            self.wrong(key, node.value.to_string(), format!("tables, as [[{key}]]"));
            return Vec::new();
        };
        let mut tables = Vec::new();
        for item in items {
            match &item.value {
                Value::Table(table) => tables.push((table, &item.place)),
                other => self
                    .findings
                    .add(&item.place, path.as_str(), other.to_string(), "a table"),
            }
        }
        tables
    }

    /// Reports what was `found` at `key`.
    pub(crate) fn wrong(&mut self, key: &str, found: impl Into<String>, expected: impl Into<String>) {
        let path = join(&self.table.path, key);
        self.findings.add(&self.place_of(key), path, found, expected);
    }

    /// Reports that `key` is missing.
    pub(crate) fn missing(&mut self, key: &str, expected: &str) {
        let path = join(&self.table.path, key);
        self.findings.add(&self.place, path, "nothing", expected);
    }

    /// Returns the place of `key`, or of its table if `key` is missing.
    pub(crate) fn place_of(&self, key: &str) -> Place {
        let entry = self.table.entries.iter().find(|(name, _)| name == key);
        entry.map_or_else(|| self.place.clone(), |(_, node)| node.place.clone())
    }

    /// Returns whether there is a `key`.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.table.entries.iter().any(|(name, _)| name == key)
    }

    /// Reports every key that was not read.
    pub(crate) fn finish(self) {
        for (name, node) in &self.table.entries {
            if self.taken.iter().any(|known| known == name) {
                continue;
            }
            let mut expected = format!("one of {}", self.taken.join(", "));
            if let Some(meant) = nearest(name, self.taken.iter().copied()) {
                expected.push_str(&format!("; did you mean `{meant}`?"));
            }
            let path = join(&self.table.path, name);
            self.findings.add(&node.place, path, "an unknown key", expected);
        }
    }
}
