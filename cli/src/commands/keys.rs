//! `holdfast keys`.

use holdfast_lab::keys::{self, KEYS};
use serde::Serialize;

use crate::Done;
use crate::args::{KeysArgs, KeysFormat};
use crate::error::Result;
use crate::extended::extensions;
use crate::output;
use crate::refused::Refused;

/// A key in the JSON document.
#[derive(Serialize)]
struct Entry {
    key: String,
    takes: String,
    default: String,
    unit: &'static str,
    about: String,
}

/// The keys as JSON.
#[derive(Serialize)]
struct List {
    schema: &'static str,
    keys: Vec<Entry>,
}

/// Lists the keys that an experiment can set.
pub fn keys(args: &KeysArgs) -> Result<Done> {
    let all = KEYS.iter().map(|key| key.path.to_owned());
    let mut all = all.chain(keys::costs().map(|(name, _)| format!("machine.costs.{name}")));
    if let Some(pattern) = &args.pattern {
        if args.format == KeysFormat::Markdown {
            return Err(Refused::misplaced("a pattern", "--format table").into());
        }
        if !all.any(|path| path.contains(pattern.as_str())) {
            return Err(Refused::instead(format!("{pattern:?}"), "a part of a key (`holdfast keys` lists all)").into());
        }
    }
    if args.format == KeysFormat::Markdown {
        output::raw(&keys::markdown(extensions()))?;
        return Ok(Done::Whole);
    }
    let wanted = |path: &str| {
        args.pattern
            .as_ref()
            .is_none_or(|pattern| path.contains(pattern.as_str()))
    };
    if args.format == KeysFormat::Json {
        return json(&wanted);
    }
    for key in KEYS.iter().filter(|key| wanted(key.path)) {
        let described = key.describe(extensions());
        let unit = if key.unit.is_empty() {
            String::new()
        } else {
            format!(" {}", key.unit)
        };
        output::line(&format!(
            "{} = {}{unit}\n    {}",
            key.path,
            described.default,
            key.doc(extensions())
        ))?;
        output::line(&format!("    takes {}", described.kind))?;
    }
    for (name, doc) in keys::costs() {
        let path = format!("machine.costs.{name}");
        if wanted(&path) {
            output::line(&format!("{path}\n    {doc}"))?;
        }
    }
    Ok(Done::Whole)
}

/// Prints the `wanted` keys as JSON.
fn json(wanted: &dyn Fn(&str) -> bool) -> Result<Done> {
    let costs = KEYS.iter().filter(|key| key.path.starts_with("machine.costs."));
    let cost = costs.map(|key| key.describe(extensions())).next();
    let keys = KEYS.iter().filter(|key| wanted(key.path)).map(|key| {
        let described = key.describe(extensions());
        Entry {
            key: key.path.to_owned(),
            takes: described.kind,
            default: described.default,
            unit: key.unit,
            about: key.doc(extensions()),
        }
    });
    let costs = keys::costs().map(|(name, about)| Entry {
        key: format!("machine.costs.{name}"),
        takes: cost.as_ref().map_or_else(String::new, |cost| cost.kind.clone()),
        default: cost.as_ref().map_or_else(String::new, |cost| cost.default.clone()),
        unit: "",
        about,
    });
    output::json(&List {
        schema: "holdfast.keys/1",
        keys: keys.chain(costs.filter(|entry| wanted(&entry.key))).collect(),
    })?;
    Ok(Done::Whole)
}
