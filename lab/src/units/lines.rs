//! Files of plans, units and records: JSON, one line for each.

use std::path::Path;

use super::{Header, PLAN_SCHEMA, RECORD_SCHEMA, Record, UNIT_SCHEMA, Unit};
use crate::diagnostic::{Place, Problem};
use crate::file;

/// One line of a file.
pub(super) enum Line {
    Plan(Box<Header>),
    Unit(Box<Unit>),
    Record(Box<Record>),
}

/// A line with its place, or what is wrong with it.
pub(super) type Read = (Place, Result<Line, Problem>);

/// Reads the lines of the file at `path`, each with its number, or what is wrong with it. `-` is standard input.
///
/// # Errors
/// If the file cannot be read, or is no such file at all.
pub(super) fn read(path: &Path) -> Result<Vec<Read>, Problem> {
    let name = path.to_string_lossy();
    let whole = Place::whole(&name);
    let expected = "a plan, units or records, as `holdfast plan --format jsonl` and `holdfast run --shard` write them";
    let text = file::read_text(path, file::BYTES_MAX)
        .map_err(|error| Problem::new(&whole, format!("an error ({error})"), expected))?;
    if text.trim_start().lines().next().is_some_and(|line| line.trim() == "{") {
        let found = "a JSON document of several lines, perhaps a result file";
        return Err(Problem::new(&whole, found, expected));
    }
    let file = whole.file;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let lines = lines.map(|(index, line)| {
        let place = Place::new(&file, index + 1);
        let parsed = parse(line).map_err(|(found, expected)| Problem::new(&place, found, expected));
        (place, parsed)
    });
    Ok(lines.collect())
}

/// Reads one line. An error is what was found, and what was expected.
fn parse(line: &str) -> Result<Line, (String, String)> {
    if is_of(line, RECORD_SCHEMA) {
        return Record::parse(line).map(|record| Line::Record(Box::new(record)));
    }
    let of = |schema: &str| format!("a line of {schema}");
    if is_of(line, PLAN_SCHEMA) {
        let header: Header = serde_json::from_str(line).map_err(|error| (error.to_string(), of(PLAN_SCHEMA)))?;
        if header.plan != header.digest() {
            return Err((
                "a plan that does not match its hash".to_owned(),
                "an unchanged plan".to_owned(),
            ));
        }
        return Ok(Line::Plan(Box::new(header)));
    }
    if is_of(line, UNIT_SCHEMA) {
        let unit = serde_json::from_str(line).map_err(|error| (error.to_string(), of(UNIT_SCHEMA)))?;
        return Ok(Line::Unit(Box::new(unit)));
    }
    let expected = format!("a line of {PLAN_SCHEMA}, {UNIT_SCHEMA} or {RECORD_SCHEMA}");
    let value: Result<serde_json::Value, _> = serde_json::from_str(line);
    let found = match value {
        Err(error) if error.is_eof() => "a truncated line".to_owned(),
        Err(_) => "text that is no JSON".to_owned(),
        Ok(value) => match value.get("schema") {
            Some(schema) => format!("\"schema\": {schema}"),
            None => "no schema".to_owned(),
        },
    };
    Err((found, expected))
}

/// Returns whether `line` begins as this program begins a line of `schema`.
fn is_of(line: &str, schema: &str) -> bool {
    let rest = line
        .strip_prefix("{\"schema\":\"")
        .and_then(|rest| rest.strip_prefix(schema));
    rest.is_some_and(|rest| rest.starts_with('"'))
}
