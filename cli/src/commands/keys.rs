//! `holdfast keys`.

use holdfast_lab::keys::search::fit;
use holdfast_lab::keys::{self, KEYS, Key, search};
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
    let words = args.words.join(" ");
    let costs = || {
        let named = keys::costs().map(|(name, about)| (format!("machine.costs.{name}"), about));
        named.filter(|(path, about)| args.words.is_empty() || fit(&words, path, about).is_some())
    };
    let found: Vec<&Key> = match args.words.is_empty() {
        true => KEYS.iter().copied().collect(),
        false => search(&words, extensions()),
    };
    if !args.words.is_empty() {
        if args.format == KeysFormat::Markdown {
            return Err(Refused::misplaced("a pattern", "--format table").into());
        }
        if found.is_empty() && costs().next().is_none() {
            let expected = "a part of a key, a word of its documentation, or a word such as steal, overcommit, \
                            cpu.max, vcpupin, libvirt, numa, smt (`holdfast keys` lists all)";
            return Err(Refused::instead(format!("{words:?}"), expected).into());
        }
    }
    if args.format == KeysFormat::Markdown {
        output::raw(&keys::markdown(extensions()))?;
        return Ok(Done::Whole);
    }
    if args.format == KeysFormat::Json {
        return json(&found, costs());
    }
    for key in found {
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
    for (path, doc) in costs() {
        output::line(&format!("{path}\n    {doc}"))?;
    }
    Ok(Done::Whole)
}

/// Prints the keys `found` and `costs` as JSON.
fn json(found: &[&Key], costs: impl Iterator<Item = (String, String)>) -> Result<Done> {
    let all = KEYS.iter().filter(|key| key.path.starts_with("machine.costs."));
    let cost = all.map(|key| key.describe(extensions())).next();
    let keys = found.iter().map(|key| {
        let described = key.describe(extensions());
        Entry {
            key: key.path.to_owned(),
            takes: described.kind,
            default: described.default,
            unit: key.unit,
            about: key.doc(extensions()),
        }
    });
    let costs = costs.map(|(key, about)| Entry {
        key,
        takes: cost.as_ref().map_or_else(String::new, |cost| cost.kind.clone()),
        default: cost.as_ref().map_or_else(String::new, |cost| cost.default.clone()),
        unit: "",
        about,
    });
    output::json(&List {
        schema: "holdfast.keys/1",
        keys: keys.chain(costs).collect(),
    })?;
    Ok(Done::Whole)
}
