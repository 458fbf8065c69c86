//! Values that options give to keys.
//!
//! **One grammar**: a value of `--set`, each value of `--sweep` and each value of `[[sweeps]]` means the same for the
//! same text. It is TOML where it can be read as TOML, else the text itself. Commas divide the values of a sweep, but
//! not within quotes or brackets.

use crate::diagnostic::{Findings, Place};
use crate::document::{Node, Value};
use crate::experiment::{Axis, Sweep};
use crate::keys::{Setting, takes_list};

/// Reads `--set key=value` as settings.
pub(super) fn settings(texts: &[String], findings: &mut Findings) -> Vec<Setting> {
    let mut settings = Vec::new();
    for text in texts {
        let option = format!("--set {text}");
        match text.split_once('=') {
            Some((path, value)) if !path.trim().is_empty() => settings.push(Setting {
                path: path.trim().to_owned(),
                node: Node::from_option(&option, value.trim()),
            }),
            _ => findings.add(&Place::whole(&option), "", format!("{text:?}"), "key=value"),
        }
    }
    settings
}

/// Reads `--sweep key=value,value`, or `--sweep-variants`, as a sweep over `axis`.
pub(super) fn sweep(text: &str, axis: Axis, findings: &mut Findings) -> Option<Sweep> {
    let option = match axis {
        Axis::Cases => format!("--sweep {text}"),
        Axis::Variants => format!("--sweep-variants {text}"),
    };
    let place = Place::whole(&option);
    let parsed = text
        .split_once('=')
        .filter(|(key, values)| !key.trim().is_empty() && !values.trim().is_empty());
    let Some((key, values)) = parsed else {
        findings.add(&place, "", format!("{text:?}"), "key=value,value");
        return None;
    };
    let key = key.trim();
    let Some(texts) = divided(values) else {
        let expected = "values divided by commas, with all quotes and brackets closed";
        findings.add(&place, key, format!("{:?}", values.trim()), expected);
        return None;
    };
    let values: Vec<Node> = texts.iter().map(|value| Node::from_option(&option, value)).collect();
    if values.len() > 1 && takes_list(key) && values.iter().zip(&texts).any(|(node, text)| is_bare(node, text)) {
        let quoted: Vec<String> = texts.iter().map(|text| format!("{text:?}")).collect();
        let expected = format!(
            "quotes: {key}={:?} is one list, {key}={} are {} values",
            texts.join(","),
            quoted.join(","),
            texts.len()
        );
        findings.add(&place, key, "commas in a key that takes lists", expected);
        return None;
    }
    Some(Sweep {
        key: key.to_owned(),
        values,
        axis,
    })
}

/// Returns whether the value that `text` stands for is neither in quotes nor in brackets.
fn is_bare(node: &Node, text: &str) -> bool {
    match &node.value {
        Value::Array(_) | Value::Table(_) => false,
        _ => !text.starts_with(['"', '\'']),
    }
}

/// Divides `text` at its commas, but not within quotes and brackets. Returns `None` if these are not closed.
fn divided(text: &str) -> Option<Vec<&str>> {
    let (mut parts, mut start, mut depth) = (Vec::new(), 0, 0_u32);
    let mut quote: Option<char> = None;
    let mut is_escaped = false;
    for (at, letter) in text.char_indices() {
        match (quote, letter) {
            // As in TOML, only basic strings have escapes.
            (Some('"'), '\\') if !is_escaped => {
                is_escaped = true;
                continue;
            }
            (Some(open), letter) if open == letter && !is_escaped => quote = None,
            (Some(_), _) => {}
            // An apostrophe within a word is none of TOML's.
            (None, '"' | '\'') if is_begin(&text[start..at]) => quote = Some(letter),
            (None, '[' | '{') => depth += 1,
            (None, ']' | '}') => depth = depth.checked_sub(1)?,
            (None, ',') if depth == 0 => {
                parts.push(text[start..at].trim());
                start = at + 1;
            }
            (None, _) => {}
        }
        is_escaped = false;
    }
    parts.push(text[start..].trim());
    (quote.is_none() && depth == 0).then_some(parts)
}

/// Returns whether a value begins after `before`.
fn is_begin(before: &str) -> bool {
    before.trim_end().is_empty() || before.trim_end().ends_with(['[', '{', ',', '='])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_divide_values_but_no_quotes_and_brackets() {
        let all = [
            ("ticket, tas", vec!["ticket", "tas"]),
            ("\"0-3,6-7\",\"0-7\"", vec!["\"0-3,6-7\"", "\"0-7\""]),
            ("'a,b',c", vec!["'a,b'", "c"]),
            ("[0, 1],[[2], [3,4]]", vec!["[0, 1]", "[[2], [3,4]]"]),
            ("\"a\\\",b\",c", vec!["\"a\\\",b\"", "c"]),
            ("[\"a,]\", 1]", vec!["[\"a,]\", 1]"]),
        ];
        for (text, expected) in all {
            assert_eq!(divided(text), Some(expected), "{text}");
        }
        for text in ["\"0-3", "[0,1", "0]", "'a"] {
            assert_eq!(divided(text), None, "{text}");
        }
    }
}
