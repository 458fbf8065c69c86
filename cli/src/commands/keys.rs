//! `holdfast keys`.

use holdfast_lab::keys::{self, KEYS};

use crate::Done;
use crate::args::{KeysArgs, KeysFormat};
use crate::output;
use crate::refused::Refused;

/// Lists the keys that an experiment can set.
pub fn keys(args: &KeysArgs) -> anyhow::Result<Done> {
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
        output::raw(&keys::markdown())?;
        return Ok(Done::Whole);
    }
    let wanted = |path: &str| {
        args.pattern
            .as_ref()
            .is_none_or(|pattern| path.contains(pattern.as_str()))
    };
    for key in KEYS.iter().filter(|key| wanted(key.path)) {
        let described = key.describe();
        let unit = if key.unit.is_empty() {
            String::new()
        } else {
            format!(" {}", key.unit)
        };
        output::line(&format!(
            "{} = {}{unit}\n    {}",
            key.path,
            described.default,
            key.doc()
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
